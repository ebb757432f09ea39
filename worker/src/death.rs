//! Classifies a process exit; the only place where a signal number becomes a name.

use host::process::Signal;
use wire::control::{Death, RawEnd};

/// Returns the exit reason of a process that ended during a test.
pub(crate) fn death_of(end: &RawEnd) -> Death {
    Death {
        signal: end.signal.map(signal_name),
        code: if end.signal.is_some() { None } else { end.code },
        has_core: end.has_core,
        detail: None,
        cause: None,
    }
}

/// Returns a signal's name, such as `SIGSEGV`.
pub(crate) fn signal_name(number: i32) -> String {
    Signal(number).name()
}
