//! Converts byte offsets to line and column positions.

use crate::mutant::Position;

/// Offsets of the lines of a source.
#[derive(Debug, PartialEq, Eq)]
pub struct LineIndex {
    /// Offset of each line's first byte.
    starts: Box<[u32]>,
}

impl LineIndex {
    /// Finds the lines of a text.
    pub fn new(text: &str) -> Self {
        let ends = text.bytes().zip(1_u32..).filter(|&(byte, _)| byte == b'\n').map(|(_, next)| next);
        Self { starts: std::iter::once(0).chain(ends).collect() }
    }

    pub fn position(&self, text: &str, byte: usize) -> Position {
        let line = self.starts.partition_point(|&start| start as usize <= byte) - 1;
        let before = &text[self.starts[line] as usize..byte];
        // Nearly all lines are ASCII, where each byte is one UTF-16 unit.
        let units = if before.is_ascii() { before.len() } else { before.encode_utf16().count() };
        let number = |count: usize| u32::try_from(count + 1).unwrap_or(u32::MAX);
        Position { line: number(line), column: number(units) }
    }

    /// Returns the byte offset of a position; `None` if the position is outside of the text or inside a
    /// character.
    pub fn byte(&self, text: &str, position: Position) -> Option<usize> {
        let line = usize::try_from(position.line).ok()?.checked_sub(1)?;
        let start = *self.starts.get(line)? as usize;
        // A line ends before its line feed.
        let end = self.starts.get(line + 1).map_or(text.len(), |&next| next as usize - 1);
        let mut units = usize::try_from(position.column).ok()?.checked_sub(1)?;
        for (at, letter) in text[start..end].char_indices() {
            if units == 0 {
                return Some(start + at);
            }
            units = units.checked_sub(letter.len_utf16())?;
        }
        (units == 0).then_some(end)
    }

    /// Returns the byte offset of a line and byte column, both from 1; `None` if it is outside of the text.
    pub fn offset(&self, text: &str, line: usize, byte_column: usize) -> Option<usize> {
        let start = *self.starts.get(line.checked_sub(1)?)? as usize;
        let offset = start.checked_add(byte_column.checked_sub(1)?)?;
        (offset <= text.len()).then_some(offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_utf16_units_and_carriage_returns_end_no_line() {
        let text = "a\r\n\té𝄞x\n";
        let index = LineIndex::new(text);
        let at = |needle: char| index.position(text, text.find(needle).unwrap());
        assert_eq!(at('a'), Position { line: 1, column: 1 });
        assert_eq!(at('é'), Position { line: 2, column: 2 });
        assert_eq!(at('𝄞'), Position { line: 2, column: 3 });
        assert_eq!(at('x'), Position { line: 2, column: 5 });
        assert_eq!(index.position(text, text.len()), Position { line: 3, column: 1 });
        assert_eq!(index.offset(text, 2, 2), text.find('é'));
        assert_eq!(
            [(0, 1), (9, 1), (3, 2)].map(|(line, column)| index.offset(text, line, column)),
            [None; 3]
        );
    }
}
