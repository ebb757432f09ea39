//! Parse error of a filter, with its position.

use std::{fmt, ops::Range};

/// Maximum number of characters shown on either side of the error in a long filter.
const MAX_CONTEXT_CHARS: usize = 40;

/// Parse error of a filter. Printed on one line that begins with the column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterError {
    text: String,
    span: Range<usize>,
    message: String,
}

impl FilterError {
    pub(super) fn new(text: &str, span: Range<usize>, message: impl Into<String>) -> Self {
        // A span inside a character or past the end can't be shown, so it is adjusted.
        let start = text.floor_char_boundary(span.start);
        let end = text.floor_char_boundary(span.end).max(start);
        Self { text: text.to_owned(), span: start..end, message: message.into() }
    }

    /// Returns the column of the error in characters, from 1.
    #[must_use]
    pub fn column(&self) -> usize {
        self.text[..self.span.start].chars().count() + 1
    }

    /// Returns the byte offset of the error.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.span.start
    }

    /// Returns the message without its position.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the message, the filter, and carets under the error, on several lines.
    #[must_use]
    pub fn with_carets(&self) -> String {
        let chars: Vec<char> =
            self.text.chars().map(|one| if one.is_control() { ' ' } else { one }).collect();
        let at = self.column() - 1;
        let length = self.text[self.span.clone()].chars().count().max(1);
        let (first, last) = (
            at.saturating_sub(MAX_CONTEXT_CHARS),
            chars.len().min(at + length.min(MAX_CONTEXT_CHARS) + MAX_CONTEXT_CHARS),
        );
        let shown: String = chars[first..last].iter().collect();
        let (before, behind) = (if first > 0 { "…" } else { "" }, if last < chars.len() { "…" } else { "" });
        let indent =
            " ".repeat(before.chars().count() + console::measure_text_width(&chars_of(&chars[first..at])));
        let carets = "^".repeat(length.min(MAX_CONTEXT_CHARS));
        format!("{}\n  {before}{shown}{behind}\n  {indent}{carets}", self.message)
    }
}

fn chars_of(chars: &[char]) -> String {
    chars.iter().collect()
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {}: {}", self.column(), self.message)
    }
}

impl std::error::Error for FilterError {}
