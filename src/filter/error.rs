//! What is wrong with a filter, and where.

use std::{fmt, ops::Range};

/// So much of a long text is shown on either side of the fault, in characters.
const SHOWN: usize = 40;

/// Why a text is no filter. As text it is one line that begins with the column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterError {
    text: String,
    span: Range<usize>,
    message: String,
}

impl FilterError {
    pub(super) fn new(text: &str, span: Range<usize>, message: impl Into<String>) -> Self {
        // A fault in the middle of a character, or behind the text, can't be pointed at.
        let start = text.floor_char_boundary(span.start);
        let end = text.floor_char_boundary(span.end).max(start);
        Self { text: text.to_owned(), span: start..end, message: message.into() }
    }

    /// Returns the column of the fault, in characters from 1.
    #[must_use]
    pub fn column(&self) -> usize {
        self.text[..self.span.start].chars().count() + 1
    }

    /// Returns the byte of the text at which the fault begins.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.span.start
    }

    /// Returns what is wrong, without the place.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns several lines: what is wrong, the text, and carets under the fault.
    #[must_use]
    pub fn pointed(&self) -> String {
        let chars: Vec<char> =
            self.text.chars().map(|one| if one.is_control() { ' ' } else { one }).collect();
        let at = self.column() - 1;
        let length = self.text[self.span.clone()].chars().count().max(1);
        let (first, last) = (at.saturating_sub(SHOWN), chars.len().min(at + length.min(SHOWN) + SHOWN));
        let shown: String = chars[first..last].iter().collect();
        let (before, behind) = (if first > 0 { "…" } else { "" }, if last < chars.len() { "…" } else { "" });
        let indent =
            " ".repeat(before.chars().count() + console::measure_text_width(&chars_of(&chars[first..at])));
        let carets = "^".repeat(length.min(SHOWN));
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
