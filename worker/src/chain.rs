//! Formats an error with its causes.

use std::{error::Error, fmt::Write as _};

/// Returns the error and all its causes in one line.
pub(crate) fn error_chain(error: &dyn Error) -> String {
    let mut out = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        write!(out, ": {error}").expect("a String takes all");
        cause = error.source();
    }
    out
}
