//! Compiler errors and their places.

use std::ops::Range;

/// Position of an error in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorPlace {
    /// A byte range. `line` counts from 1.
    Bytes { bytes: Range<usize>, line: usize },
    /// Both count from 1; the column counts bytes.
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
    /// The file as named by the compiler.
    pub file: String,
    pub place: ErrorPlace,
    /// Whether the error is at this place. Otherwise the place only explains the error.
    pub is_primary: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompilerError {
    pub code: Option<String>,
    pub message: String,
    /// Places in the compiler's order.
    pub spans: Vec<ErrorSpan>,
    /// Definition of the item that the error refers to, such as a called function, if a note names it.
    pub defined: Option<ErrorSpan>,
}

impl CompilerError {
    /// Returns code and message on one line, as compilers print them.
    pub fn summary(&self) -> String {
        let message = self.message.lines().next().unwrap_or_default();
        match &self.code {
            Some(code) => format!("error[{code}]: {message}"),
            None => format!("error: {message}"),
        }
    }

    /// Returns the summary followed by file and line, if known.
    pub fn summary_with_place(&self) -> String {
        let place = self.spans.iter().find(|span| span.is_primary).or_else(|| self.spans.first());
        match place {
            Some(span) => format!("{} ({}:{})", self.summary(), span.file, span.place.line()),
            None => self.summary(),
        }
    }
}
