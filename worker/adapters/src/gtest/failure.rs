//! Parser of the blocks that GoogleTest writes for a failure or a skip: a line `file:line: Failure` or
//! `file:line: Skipped`, then text up to the next block. The end of the text is not marked, so output of the
//! test after it counts as part of it.

use crate::{FrameworkResult, FrameworkVerdict, scan::decode_lossy};

const LINE_BYTES: usize = 4096;
const TEXT_BYTES: usize = 64 * 1024;

/// One failure with all that follow it, or one skip.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FailureBlock {
    pub(super) file: Option<String>,
    pub(super) line: Option<u32>,
    /// No suite had begun: it came from an environment.
    pub(super) is_before_suites: bool,
    text: Vec<u8>,
    is_cut: bool,
}

impl FailureBlock {
    fn append(&mut self, bytes: &[u8]) {
        let room = TEXT_BYTES - self.text.len();
        self.text.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.is_cut |= bytes.len() > room;
    }

    /// Returns the text, if there is any.
    pub(super) fn text(&self) -> Option<String> {
        let mut text = decode_lossy(self.text.trim_ascii_end());
        if self.is_cut {
            text.push_str("\n[the rest is left out]");
        }
        (!text.is_empty()).then_some(text)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockKind {
    Failure,
    Skip,
}

/// Collects blocks from output. Keeps a constant amount of text.
#[derive(Debug, Default)]
pub(super) struct BlockCollector {
    pub(super) failure: Option<FailureBlock>,
    pub(super) skip: Option<FailureBlock>,
    open: Option<BlockKind>,
    line: Vec<u8>,
    /// The line is too long to be a heading, and its bytes so far are already handled.
    is_overlong: bool,
    /// The source file of the test, which distinguishes a heading glued to other output from a long file
    /// name.
    listed_file: Option<String>,
    /// Output of no test: lines about suites end a block.
    is_outside: bool,
    has_suites: bool,
    /// A test that is not of this batch is running: its failures are not reported.
    is_other_test_running: bool,
}

impl BlockCollector {
    pub(super) fn new(listed_file: Option<String>) -> Self {
        Self { listed_file, ..Self::default() }
    }

    /// Creates a collector for output outside of any test.
    pub(super) fn outside() -> Self {
        Self { is_outside: true, ..Self::default() }
    }

    /// Reads output. Calls `on_line` with each complete line of reasonable length.
    pub(super) fn feed(&mut self, bytes: &[u8], mut on_line: impl FnMut(&[u8])) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let end = memchr::memchr(b'\n', rest).map_or(rest.len(), |end| end + 1);
            let (piece, behind) = rest.split_at(end);
            rest = behind;
            if self.line.len() + piece.len() > LINE_BYTES {
                self.continue_overlong_line(piece);
            } else {
                self.line.extend_from_slice(piece);
            }
            if piece.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                if !std::mem::take(&mut self.is_overlong) {
                    on_line(line.strip_suffix(b"\n").unwrap_or(&line));
                    self.handle(&line);
                }
            }
        }
    }

    /// Handles the unfinished line.
    pub(super) fn finish(&mut self) {
        let line = std::mem::take(&mut self.line);
        self.continue_block(&line);
    }

    /// Appends the blocks of another collector, found after this one's.
    pub(super) fn append_later(&mut self, later: Self) {
        self.finish();
        for (mine, theirs) in [(&mut self.failure, later.failure), (&mut self.skip, later.skip)] {
            match (mine.as_mut(), theirs) {
                (Some(mine), Some(theirs)) => mine.append(&theirs.text),
                (None, theirs @ Some(_)) => *mine = theirs,
                (_, None) => {}
            }
        }
        self.open = later.open.or(self.open);
        self.line = later.line;
        self.is_overlong = later.is_overlong;
    }

    fn continue_overlong_line(&mut self, piece: &[u8]) {
        let line = std::mem::take(&mut self.line);
        self.continue_block(&line);
        self.continue_block(piece);
        self.is_overlong = true;
    }

    fn handle(&mut self, line: &[u8]) {
        if self.is_outside && line.starts_with(b"[----------] ") {
            self.open = None;
            self.is_other_test_running = false;
            self.has_suites |= line.get(13).is_some_and(u8::is_ascii_digit);
        }
        self.is_other_test_running |= self.is_outside && line.starts_with(b"[ RUN      ] ");
        if self.is_other_test_running {
            return;
        }
        match self.heading(line) {
            Some((BlockKind::Failure, block)) if self.failure.is_none() => {
                self.failure = Some(block);
                self.open = Some(BlockKind::Failure);
            }
            Some((BlockKind::Skip, block)) if self.failure.is_none() && self.skip.is_none() => {
                self.skip = Some(block);
                self.open = Some(BlockKind::Skip);
            }
            _ => self.continue_block(line),
        }
    }

    fn continue_block(&mut self, bytes: &[u8]) {
        match self.open {
            Some(BlockKind::Failure) => self.failure.as_mut(),
            Some(BlockKind::Skip) => self.skip.as_mut(),
            None => None,
        }
        .into_iter()
        .for_each(|block| block.append(bytes));
    }

    fn heading(&self, line: &[u8]) -> Option<(BlockKind, FailureBlock)> {
        let line = line.trim_ascii_end();
        let (place, kind) = if let Some(place) = line.strip_suffix(b": Failure") {
            (place, BlockKind::Failure)
        } else {
            (line.strip_suffix(b": Skipped")?, BlockKind::Skip)
        };
        if place.ends_with(b"unknown file") {
            return Some((
                kind,
                FailureBlock { is_before_suites: !self.has_suites, ..FailureBlock::default() },
            ));
        }
        let text = decode_lossy(place);
        let (file, number) = text.rsplit_once(':')?;
        let line = number.parse().ok().filter(|_| !file.is_empty())?;
        let file = match &self.listed_file {
            Some(listed) if file.ends_with(listed.as_str()) => listed,
            _ => file,
        };
        let is_before_suites = !self.has_suites;
        Some((
            kind,
            FailureBlock {
                file: Some(file.to_owned()),
                line: Some(line),
                is_before_suites,
                ..FailureBlock::default()
            },
        ))
    }
}

/// Completes a verdict from the blocks.
pub(super) fn complete(verdict: &mut FrameworkVerdict, blocks: &BlockCollector) {
    let block = match verdict.result {
        FrameworkResult::Failed => blocks.failure.as_ref(),
        FrameworkResult::Skipped => blocks.skip.as_ref(),
        _ => None,
    };
    let Some(block) = block else { return };
    verdict.message = block.text();
    verdict.file.clone_from(&block.file);
    verdict.line = block.line;
    if verdict.result == FrameworkResult::Failed {
        let text = verdict.message.clone().unwrap_or_default();
        (verdict.expected, verdict.actual) = compared_values(&text).unzip();
    }
}

/// Returns the expected and the actual value of the first failure, if it is known which is which.
fn compared_values(text: &str) -> Option<(String, String)> {
    let mut lines = text.lines();
    let first = lines.next()?;
    if first == "Expected equality of these values:" {
        return equality_values(lines);
    }
    // `Value of: x`, then `  Actual: y` and `Expected: z` in either order.
    first.strip_prefix("Value of: ")?;
    let (mut expected, mut actual) = (None, None);
    for line in lines.take(2) {
        if let Some(value) = line.trim_start().strip_prefix("Actual: ") {
            actual = Some(value.to_owned());
        } else if let Some(value) = line.strip_prefix("Expected: ") {
            expected = Some(value.to_owned());
        }
    }
    expected.zip(actual)
}

/// Returns the values of `EXPECT_EQ`, whose sides may be in either order. A side whose value is not shown is
/// a literal, and a literal compared with a computed value is the expected one.
fn equality_values<'a>(lines: impl Iterator<Item = &'a str>) -> Option<(String, String)> {
    let mut lines = lines.peekable();
    let mut side = || {
        let expression = lines.next()?.strip_prefix("  ")?;
        let value = lines.next_if(|line| line.starts_with("    Which is: "));
        Some((expression, value.map(|value| &value["    Which is: ".len()..])))
    };
    let (first, second) = (side()?, side()?);
    match (first, second) {
        ((literal, None), (_, Some(value))) | ((_, Some(value)), (literal, None)) => {
            Some((literal.to_owned(), value.to_owned()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(state: FrameworkResult, output: &str) -> FrameworkVerdict {
        let mut blocks = BlockCollector::new(Some("t.cc".to_owned()));
        blocks.feed(output.as_bytes(), |_| {});
        blocks.finish();
        let mut verdict = FrameworkVerdict::new(state, None);
        complete(&mut verdict, &blocks);
        verdict
    }

    #[test]
    fn computed_side_is_the_actual_value() {
        for sides in ["  3\n  1 + 1\n    Which is: 2\n", "  1 + 1\n    Which is: 2\n  3\n"] {
            let output = format!("noise\nt.cc:7: Failure\nExpected equality of these values:\n{sides}why\n");
            let verdict = verdict(FrameworkResult::Failed, &output);
            assert_eq!((verdict.expected.as_deref(), verdict.actual.as_deref()), (Some("3"), Some("2")));
            assert_eq!((verdict.file.as_deref(), verdict.line), (Some("t.cc"), Some(7)));
            assert!(verdict.message.unwrap().ends_with("why"));
        }
        let both = "t.cc:7: Failure\nExpected equality of these values:\n  a\n    Which is: 1\n  b\n    Which is: 2\n";
        assert_eq!(verdict(FrameworkResult::Failed, both).actual, None);
    }

    #[test]
    fn glued_heading_uses_the_listed_file() {
        let verdict = verdict(FrameworkResult::Failed, "partialt.cc:9: Failure\nFailed\n");
        assert_eq!((verdict.file.as_deref(), verdict.line), (Some("t.cc"), Some(9)));
        assert_eq!(verdict.message.as_deref(), Some("Failed"));
    }

    #[test]
    fn failure_after_skip_becomes_the_message() {
        let output = "t.cc:1: Skipped\nno device\nt.cc:2: Failure\nbad\nt.cc:3: Failure\nworse\n";
        let failed = verdict(FrameworkResult::Failed, output);
        assert_eq!(failed.message.as_deref(), Some("bad\nt.cc:3: Failure\nworse"));
        assert_eq!(verdict(FrameworkResult::Skipped, output).message.as_deref(), Some("no device"));
    }

    #[test]
    fn long_failure_text_is_truncated() {
        let output = format!("t.cc:1: Failure\nbad\n{}\nend", "x".repeat(1 << 20));
        let message = verdict(FrameworkResult::Failed, &output).message.unwrap();
        assert!(message.len() < TEXT_BYTES + 100 && message.ends_with("[the rest is left out]"));
    }
}
