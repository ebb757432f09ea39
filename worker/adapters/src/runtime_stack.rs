//! Stacks that a language's runtime writes to standard error when its process dies or is ended.

use std::fmt::Write as _;

/// Standard error of a test whose process died or was ended, divided into the runtime's stacks and the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeStack {
    /// Frames in the form of captured stacks, innermost first, shortened for readers. The complete report is
    /// in the evidence files.
    pub stack: String,
    /// Standard error without the report.
    pub stderr: String,
}

/// Appends a frame in the form of captured stacks: `  #0   function at file:line`.
pub(crate) fn push_frame(stack: &mut String, number: usize, function: &str, file: &str, line: u32) {
    // Writing to a string does not fail.
    let _written = writeln!(stack, "  #{number:<3} {function} at {file}:{line}");
}

/// Appends a line about frames that are left out.
pub(crate) fn push_fold(stack: &mut String, folded: usize, what: &str) {
    if folded > 0 {
        let plural = if folded == 1 { "" } else { "s" };
        let _written = writeln!(stack, "       … {folded} frame{plural} of {what} …");
    }
}
