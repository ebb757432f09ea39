//! Captures the panic messages of failed checks for the report of a finding, instead of printing them.

use std::{cell::RefCell, panic};

thread_local! {
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Installs a panic hook that keeps the first message of each thread.
pub(crate) fn capture() {
    panic::set_hook(Box::new(|info| {
        let place = info.location().map(|place| format!(" ({}:{})", place.file(), place.line()));
        let text = info.payload_as_str().unwrap_or("a panic without a word");
        let text = format!("{text}{}", place.unwrap_or_default());
        if std::thread::current().name().is_none_or(|name| !name.starts_with("round")) {
            eprintln!("heeler-faults: {text}");
        }
        LAST.with_borrow_mut(|last| {
            last.get_or_insert(text);
        });
    }));
}

/// Returns the first panic message of this thread since the last call.
pub(crate) fn take_first() -> String {
    LAST.with_borrow_mut(Option::take).unwrap_or_else(|| "another thread of the round failed".to_owned())
}
