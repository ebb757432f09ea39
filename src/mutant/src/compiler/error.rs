//! Errors of compilers with their places.

use std::ops::Range;

/// Where an error is, in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorPlace {
    /// The line is from 1.
    Bytes { bytes: Range<usize>, line: usize },
    /// From 1; the column counts bytes.
    Line { line: usize, column: usize },
}

impl ErrorPlace {
    fn line(&self) -> usize {
        match self {
            Self::Bytes { line, .. } | Self::Line { line, .. } => *line,
        }
    }
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
    /// The place of what the error is about, where a note names it, such as the function that is called.
    pub defined: Option<ErrorSpan>,
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

    /// Returns the same with the file and line of the error, if it has one.
    pub fn summary_with_place(&self) -> String {
        let place = self.spans.iter().find(|span| span.is_primary).or_else(|| self.spans.first());
        match place {
            Some(span) => format!("{} ({}:{})", self.summary(), span.file, span.place.line()),
            None => self.summary(),
        }
    }
}
