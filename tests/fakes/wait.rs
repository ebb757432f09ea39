//! Waiting, for a time or without an end.

use std::time::{Duration, Instant};

/// Waits until somebody ends the process.
pub(crate) fn wait_for_ever() -> ! {
    loop {
        std::thread::park();
    }
}

/// Takes this time.
pub(crate) fn pass_time(duration: Duration) {
    let begun = Instant::now();
    while let Some(rest) = duration.checked_sub(begun.elapsed()).filter(|rest| !rest.is_zero()) {
        std::thread::park_timeout(rest);
    }
}
