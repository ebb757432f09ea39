//! Matches command output of any size against expressions.

use super::expression::Expression;

/// Bytes of output that are kept. In output of more than twice this size, an expression that needs a longer
/// match is not found.
const KEPT_BYTES: usize = 1 << 20;

/// Expressions, and which of them have matched the output.
#[derive(Debug)]
pub(super) struct OutputMatches {
    expressions: Vec<(Expression, bool)>,
    output: Vec<u8>,
    /// Older output has been dropped.
    has_dropped: bool,
}

impl OutputMatches {
    /// Creates the state before any output. Invalid expressions match nothing.
    pub(super) fn new(texts: &[String]) -> Self {
        let expressions = texts.iter().filter_map(|text| Some((Expression::parse(text).ok()?, false)));
        Self { expressions: expressions.collect(), output: Vec::new(), has_dropped: false }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.expressions.iter().all(|(_, is_matched)| *is_matched) {
            return;
        }
        self.output.extend_from_slice(bytes);
        if self.output.len() >= 2 * KEPT_BYTES {
            self.look(false);
            self.output.drain(..self.output.len() - KEPT_BYTES);
            self.has_dropped = true;
        }
    }

    /// Called at the end of the output.
    pub(super) fn end(&mut self) {
        self.look(true);
    }

    fn look(&mut self, is_complete: bool) {
        // Search after the first kept byte, so that `^` does not match where output was dropped.
        let from = usize::from(self.has_dropped);
        for (expression, is_matched) in self.expressions.iter_mut().filter(|(_, is_matched)| !is_matched) {
            *is_matched = expression.matches(&self.output, from, is_complete);
        }
    }

    /// Returns the first expression that matched.
    pub(super) fn matched(&self) -> Option<&str> {
        self.expressions.iter().find(|(_, is_matched)| *is_matched).map(|(one, _)| one.text.as_str())
    }
}

/// Matches lines of output one by one.
#[derive(Debug)]
pub(super) struct LineMatches {
    expressions: Vec<Expression>,
    line: Vec<u8>,
}

/// Bytes of a line that are matched; the rest is ignored.
const LINE_BYTES: usize = 64 << 10;

impl LineMatches {
    pub(super) fn new(texts: &[String]) -> Self {
        let expressions = texts.iter().filter_map(|text| Expression::parse(text).ok()).collect();
        Self { expressions, line: Vec::new() }
    }

    /// Returns whether a line that ends in these bytes matches.
    pub(super) fn push(&mut self, bytes: &[u8]) -> bool {
        let mut is_matched = false;
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = LINE_BYTES.saturating_sub(self.line.len());
            self.line.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.ends_with(b"\n") {
                let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
                is_matched |= self.expressions.iter().any(|one| one.matches(line, 0, true));
                self.line.clear();
            }
        }
        is_matched
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matched(text: &str, chunks: &[&[u8]]) -> bool {
        let mut matches = OutputMatches::new(&[text.to_owned()]);
        chunks.iter().for_each(|chunk| matches.push(chunk));
        matches.end();
        matches.matched().is_some()
    }

    #[test]
    fn match_is_found_wherever_the_output_is_cut() {
        let large = vec![b'x'; 3 * KEPT_BYTES + 1];
        assert!(matched("first.second", &[b"fir", b"st\nsec", b"ond"]));
        assert!(matched("abc", &[&large, b"ab", b"c"]) && matched("abc", &[b"abc", &large, &large]));
        assert!(matched("xd$", &[&large, b"d"]) && !matched("x$", &[&large, b"d"]));
        assert!(matched("^xx", &[&large, b"d"]) && !matched("^d", &[&large, &large, b"d"]));
        assert!(!matched("^xd", &[&large, b"d"]), "the start is known no more");
    }

    #[test]
    fn memory_is_bounded() {
        let mut matches = OutputMatches::new(&["never".to_owned()]);
        for _ in 0..100 {
            matches.push(&[b'x'; 1 << 16]);
            assert!(matches.output.len() <= 2 * KEPT_BYTES);
        }
        let mut lines = LineMatches::new(&["never".to_owned()]);
        assert!(!lines.push(&[b'x'; 1 << 17]));
        assert_eq!(lines.line.len(), LINE_BYTES);
    }

    #[test]
    fn lines_match_one_by_one() {
        let mut lines = LineMatches::new(&["^ready$".to_owned()]);
        assert!(!lines.push(b"not ready\nrea") && lines.push(b"dy\nmore") && !lines.push(b"\n"));
    }
}
