//! Errors of compilers with their places.

use std::ops::Range;

/// Where an error is, in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorPlace {
    Bytes(Range<usize>),
    /// From 1; the column counts bytes.
    Line {
        line: usize,
        column: usize,
    },
}

/// A place that an error names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorSpan {
    /// The file as the compiler names it.
    pub file: String,
    pub place: ErrorPlace,
    /// Whether it is where the error is, not only a part of its explanation.
    pub is_primary: bool,
}

/// An error of a compiler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompilerError {
    pub code: Option<String>,
    pub message: String,
    /// Places in the order in which the compiler names them.
    pub spans: Vec<ErrorSpan>,
}

impl CompilerError {
    /// Returns the error as compilers print it, on one line.
    pub fn summary(&self) -> String {
        let message = self.message.lines().next().unwrap_or_default();
        match &self.code {
            Some(code) => format!("error[{code}]: {message}"),
            None => format!("error: {message}"),
        }
    }
}
