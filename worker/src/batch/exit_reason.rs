//! Classifies a process exit. The only place that turns a signal number into a name.

use heeler_protocol::control::{ExitReason, ProcessExit};
use heeler_sys::process::Signal;

/// Returns the exit reason of a process that ended during a test.
pub(crate) fn exit_reason_of(end: &ProcessExit) -> ExitReason {
    ExitReason {
        signal: end.signal.map(signal_name),
        code: if end.signal.is_some() { None } else { end.code },
        has_core: end.has_core,
        detail: None,
        runtime: None,
        cause: None,
        other_suspects: 0,
        iteration: None,
    }
}

/// Returns a signal's name, such as `SIGSEGV`.
pub(crate) fn signal_name(number: i32) -> String {
    Signal(number).name()
}
