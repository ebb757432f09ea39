//! Byte offsets to positions as people and protocols count them.

use crate::mutant::{Position, Span};
use std::ops::Range;

/// The beginnings of a source's lines.
#[derive(Debug)]
pub(crate) struct LineIndex<'text> {
    text: &'text str,
    /// Offset of each line's first byte.
    starts: Vec<usize>,
}

impl<'text> LineIndex<'text> {
    pub(crate) fn new(text: &'text str) -> Self {
        let ends = text.bytes().enumerate().filter(|&(_, byte)| byte == b'\n').map(|(at, _)| at + 1);
        Self { text, starts: std::iter::once(0).chain(ends).collect() }
    }

    pub(crate) fn position(&self, byte: usize) -> Position {
        let line = self.starts.partition_point(|&start| start <= byte) - 1;
        let before = &self.text[self.starts[line]..byte];
        // Nearly all lines are ASCII, where a byte is a unit.
        let units = if before.is_ascii() { before.len() } else { before.encode_utf16().count() };
        let number = |count: usize| u32::try_from(count + 1).unwrap_or(u32::MAX);
        Position { line: number(line), column: number(units) }
    }

    pub(crate) fn span(&self, bytes: Range<usize>) -> Span {
        Span { start: self.position(bytes.start), end: self.position(bytes.end), bytes }
    }

    /// Returns the byte offset of a position; `None` if it is not in the text, or within a character.
    pub(crate) fn byte(&self, position: Position) -> Option<usize> {
        let line = usize::try_from(position.line).ok()?.checked_sub(1)?;
        let start = *self.starts.get(line)?;
        // A line ends before its line feed.
        let end = self.starts.get(line + 1).map_or(self.text.len(), |next| next - 1);
        let mut units = usize::try_from(position.column).ok()?.checked_sub(1)?;
        for (at, letter) in self.text[start..end].char_indices() {
            if units == 0 {
                return Some(start + at);
            }
            units = units.checked_sub(letter.len_utf16())?;
        }
        (units == 0).then_some(end)
    }

    /// Returns the byte offset of a line and a byte column, both from 1, within the text.
    pub(crate) fn offset(&self, line: usize, byte_column: usize) -> Option<usize> {
        let start = *self.starts.get(line.checked_sub(1)?)?;
        let offset = start.checked_add(byte_column.checked_sub(1)?)?;
        (offset <= self.text.len()).then_some(offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_utf16_units_and_carriage_returns_end_no_line() {
        let text = "a\r\n\té𝄞x\n";
        let index = LineIndex::new(text);
        let at = |needle: char| index.position(text.find(needle).unwrap());
        assert_eq!(at('a'), Position { line: 1, column: 1 });
        assert_eq!(at('é'), Position { line: 2, column: 2 });
        assert_eq!(at('𝄞'), Position { line: 2, column: 3 });
        assert_eq!(at('x'), Position { line: 2, column: 5 });
        assert_eq!(index.position(text.len()), Position { line: 3, column: 1 });
        assert_eq!(index.offset(2, 2), text.find('é'));
        assert_eq!((index.offset(0, 1), index.offset(9, 1), index.offset(3, 2)), (None, None, None));
    }
}
