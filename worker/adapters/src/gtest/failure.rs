//! Parser of the blocks that GoogleTest writes for a failure or a skip: a line `file:line: Failure` or
//! `file:line: Skipped`, then text up to the next block. Nothing marks the end of the text, so test output
//! after it counts as part of it.

use heeler_core::Failure;

use crate::{
    FrameworkResult, FrameworkVerdict, MAX_FAILURES, StackPosition,
    scan::{decode_lossy, truncated},
};

const LINE_BYTES: usize = 4096;
/// Maximum total size of the failure texts and file names of one test. Skip texts have the same limit.
const TEXT_BYTES: usize = 64 * 1024;

/// One failure, or one skip.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FailureBlock {
    pub(super) file: Option<String>,
    pub(super) line: Option<u32>,
    /// The block was written before any suite began, so it belongs to an environment.
    pub(super) is_before_suites: bool,
    text: Vec<u8>,
    is_cut: bool,
}

impl FailureBlock {
    /// Appends text, up to `room` bytes.
    fn append(&mut self, bytes: &[u8], room: usize) {
        self.text.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.is_cut |= bytes.len() > room;
    }

    fn size(&self) -> usize {
        self.text.len() + self.file.as_ref().map_or(0, String::len)
    }

    pub(super) fn text(&self) -> Option<String> {
        let mut text = decode_lossy(self.text.trim_ascii_end());
        if self.is_cut {
            text.push_str("\n[truncated]");
        }
        (!text.is_empty()).then_some(text)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FailureBlockKind {
    Failure,
    Skip,
}

/// Collects blocks from output. Keeps a constant amount of text.
#[derive(Debug, Default)]
pub(super) struct BlockCollector {
    /// At most [`MAX_FAILURES`]. Later failures are appended to the text of the last one.
    pub(super) failures: Vec<FailureBlock>,
    pub(super) skip: Option<FailureBlock>,
    /// Total size of all failures.
    failure_bytes: usize,
    open: Option<FailureBlockKind>,
    line: Vec<u8>,
    /// The line is too long to be a heading, and the bytes read so far have been handled.
    is_overlong: bool,
    /// Source file of the test. Distinguishes a heading that follows other output on its line from a long
    /// file name.
    listed_file: Option<String>,
    /// The output belongs to no test, so lines about suites end a block.
    is_outside: bool,
    has_suites: bool,
    /// A test outside this batch is running; its failures are not reported.
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

    /// Reads output. Calls `on_line` with each complete line that is not too long.
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

    pub(super) fn take_failures(&mut self) -> Vec<FailureBlock> {
        self.failure_bytes = 0;
        std::mem::take(&mut self.failures)
    }

    /// Appends the blocks of a collector that has read later output.
    pub(super) fn append_later(&mut self, later: Self) {
        self.finish();
        for failure in later.failures {
            self.push_failure(failure);
        }
        match (self.skip.as_mut(), later.skip) {
            (Some(mine), Some(theirs)) => mine.append(&theirs.text, TEXT_BYTES - mine.text.len()),
            (None, theirs @ Some(_)) => self.skip = theirs,
            (_, None) => {}
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
            Some((FailureBlockKind::Failure, block)) if self.has_room(&block) => {
                self.push_failure(block);
                self.open = Some(FailureBlockKind::Failure);
            }
            Some((FailureBlockKind::Skip, block)) if self.failures.is_empty() && self.skip.is_none() => {
                self.skip = Some(block);
                self.open = Some(FailureBlockKind::Skip);
            }
            _ => self.continue_block(line),
        }
    }

    /// Returns whether a failure can be stored separately from the previous one.
    fn has_room(&self, failure: &FailureBlock) -> bool {
        self.failures.len() < MAX_FAILURES && failure.size() <= TEXT_BYTES.saturating_sub(self.failure_bytes)
    }

    fn push_failure(&mut self, failure: FailureBlock) {
        if self.has_room(&failure) {
            self.failure_bytes += failure.size();
            self.failures.push(failure);
        } else {
            self.continue_failure(&failure.text);
        }
    }

    fn continue_failure(&mut self, bytes: &[u8]) {
        let room = TEXT_BYTES.saturating_sub(self.failure_bytes);
        if let Some(failure) = self.failures.last_mut() {
            failure.append(bytes, room);
            self.failure_bytes += bytes.len().min(room);
        }
    }

    fn continue_block(&mut self, bytes: &[u8]) {
        match self.open {
            Some(FailureBlockKind::Failure) => self.continue_failure(bytes),
            Some(FailureBlockKind::Skip) => {
                if let Some(skip) = &mut self.skip {
                    skip.append(bytes, TEXT_BYTES - skip.text.len());
                }
            }
            None => {}
        }
    }

    fn heading(&self, line: &[u8]) -> Option<(FailureBlockKind, FailureBlock)> {
        let line = line.trim_ascii_end();
        let (place, kind) = if let Some(place) = line.strip_suffix(b": Failure") {
            (place, FailureBlockKind::Failure)
        } else {
            (line.strip_suffix(b": Skipped")?, FailureBlockKind::Skip)
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

/// Adds the blocks to a verdict.
pub(super) fn complete(verdict: &mut FrameworkVerdict, blocks: &BlockCollector) {
    match verdict.result {
        FrameworkResult::Failed => {
            blocks.failures.iter().map(failure).for_each(|one| verdict.push_failure(one))
        }
        FrameworkResult::Skipped => verdict.reason = blocks.skip.as_ref().and_then(FailureBlock::text),
        FrameworkResult::Passed | FrameworkResult::NotRun => {}
    }
}

/// Returns where in a run a stack trace was taken. The body of a test is a method of a class named after the
/// test.
pub(super) fn stack_position(stack: &str, test: Option<&str>) -> StackPosition {
    const BODY: &str = "::TestBody";
    if let Some(frame) = stack.lines().find(|line| line.contains(BODY)) {
        return match test {
            Some(test) if is_body_of(frame, test) => StackPosition::RunningTest,
            _ if is_class_of_macro(frame) => StackPosition::OtherTest,
            // `testing::RegisterTest` accepts any class, and one class for many tests.
            _ => StackPosition::Unknown,
        };
    }
    let has = |names: &[&str]| names.iter().any(|name| stack.contains(name));
    if has(&["testing::TestInfo::Run", "testing::Test::Run"]) {
        StackPosition::RunningTest
    } else if has(&["testing::TestSuite::Run", "testing::TestCase::Run", "::TearDownTest", "::SetUpTest"]) {
        StackPosition::SuiteFixture
    } else {
        StackPosition::Unknown
    }
}

/// Returns whether a frame is in the body of a test defined by one of GoogleTest's macros, recognized by its
/// class name.
fn is_class_of_macro(frame: &str) -> bool {
    let class = frame.split("::TestBody").next().unwrap_or(frame);
    let class = class.split('<').next().unwrap_or(class);
    class.ends_with("_Test") || ["gtest_suite_", "gtest_case_"].iter().any(|name| class.contains(name))
}

/// Returns whether a frame is in the body of this test. `Inst/Suite.Name/0` is an instance of
/// `Suite_Name_Test`, or of `gtest_suite_Suite_::Name` if the suite is a type template.
fn is_body_of(frame: &str, test: &str) -> bool {
    let Some((suite, name)) = test.rsplit_once('.') else { return false };
    let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let suite = suite.rsplit('/').find(|part| !is_number(part)).unwrap_or(suite);
    let name = name.split('/').next().unwrap_or(name);
    let names = [
        format!("{suite}_{name}_Test"),
        format!("gtest_suite_{suite}_::{name}"),
        format!("gtest_case_{suite}_::{name}"),
    ];
    let is_part_of_name = |one: char| one.is_alphanumeric() || one == '_';
    names.iter().any(|class| {
        frame.match_indices(class.as_str()).any(|(start, found)| {
            let (before, behind) = (&frame[..start], &frame[start + found.len()..]);
            !before.ends_with(is_part_of_name) && !behind.starts_with(is_part_of_name)
        })
    })
}

/// Returns the failure in a report text: the location on the first line, then the message.
pub(super) fn failure_of_text(text: &str) -> Failure {
    let (place, message) = text.split_once('\n').unwrap_or((text, ""));
    let (file, line) = match place.rsplit_once(':') {
        Some((file, line)) => (Some(file.to_owned()), line.parse().ok()),
        None => (None, None),
    };
    let message = truncated(message.trim_end(), TEXT_BYTES);
    let (expected, actual) = compared_values(message).unzip();
    let message = (!message.is_empty()).then(|| message.to_owned());
    Failure { message, file, line, expected, actual, stack: None }
}

fn failure(block: &FailureBlock) -> Failure {
    let message = block.text();
    let (expected, actual) = message.as_deref().and_then(compared_values).unzip();
    Failure { message, file: block.file.clone(), line: block.line, expected, actual, stack: None }
}

/// Returns the expected and the actual value of a failure, if they can be distinguished.
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

/// Returns the values of `EXPECT_EQ`, whose sides may be in either order. A side without a shown value is a
/// literal, and a literal compared with a computed value is the expected value.
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
            let failure = verdict(FrameworkResult::Failed, &output).failures.remove(0);
            assert_eq!((failure.expected.as_deref(), failure.actual.as_deref()), (Some("3"), Some("2")));
            assert_eq!((failure.file.as_deref(), failure.line), (Some("t.cc"), Some(7)));
            assert!(failure.message.unwrap().ends_with("why"));
        }
        let both = "t.cc:7: Failure\nExpected equality of these values:\n  a\n    Which is: 1\n  b\n    Which is: 2\n";
        assert_eq!(verdict(FrameworkResult::Failed, both).failures[0].actual, None);
    }

    #[test]
    fn stack_belongs_to_a_test_or_a_suite() {
        let position = |stack: &str| stack_position(stack, Some("Inst/P.Works/0"));
        assert_eq!(position("0 raise\n1 P_Works_Test::TestBody() t.cc:3"), StackPosition::RunningTest);
        assert_eq!(position("0 raise\n1 P_Fails_Test::TestBody() t.cc:3"), StackPosition::OtherTest);
        assert_eq!(stack_position("P_Fails_Test::TestBody()", None), StackPosition::OtherTest);
        let registered = "0 abort\n1 (anonymous namespace)::Case::TestBody() t.cc:3\n2 testing::Test::Run()";
        assert_eq!(position(registered), StackPosition::Unknown, "one class, many tests");
        let of = |frame: &str, test: &str| stack_position(&format!("{frame}::TestBody()"), Some(test));
        for (frame, test) in [
            ("#1 (anonymous namespace)::A_Works_Test", "A.Works"),
            ("#1 Typed_Works_Test<int>", "Inst/Typed/0.Works"),
            ("#1 gtest_suite_P_::Works<int>", "Inst/P/1.Works"),
        ] {
            assert_eq!(of(frame, test), StackPosition::RunningTest, "{frame} {test}");
        }
        for (frame, test) in [("A_Works_Test", "B.Works"), ("A_a_b_Test", "A_a.c"), ("AA_b_Test", "A.b")] {
            assert_eq!(of(frame, test), StackPosition::OtherTest, "{frame} {test}");
        }
        assert_eq!(
            position("0 x\n1 testing::TestInfo::Run()\n2 testing::TestSuite::Run()"),
            StackPosition::RunningTest
        );
        assert_eq!(position("0 abort\n1 P::TearDownTestSuite()"), StackPosition::SuiteFixture);
        assert_eq!(position("0 abort\n1 testing::TestSuite::Run()"), StackPosition::SuiteFixture);
        assert_eq!(position("0 abort\n1 main"), StackPosition::Unknown);
    }

    #[test]
    fn glued_heading_uses_the_listed_file() {
        let failure = verdict(FrameworkResult::Failed, "partialt.cc:9: Failure\nFailed\n").failures.remove(0);
        assert_eq!((failure.file.as_deref(), failure.line), (Some("t.cc"), Some(9)));
        assert_eq!(failure.message.as_deref(), Some("Failed"));
    }

    fn messages(verdict: &FrameworkVerdict) -> Vec<(&str, u32)> {
        verdict.failures.iter().map(|one| (one.message.as_deref().unwrap(), one.line.unwrap())).collect()
    }

    #[test]
    fn each_failure_has_its_own_place_and_message() {
        let output = "t.cc:1: Skipped\nno device\nt.cc:2: Failure\nbad\nt.cc:3: Failure\nExpected equality of \
                      these values:\n  3\n  x\n    Which is: 2\nt.cc:4: Skipped\nlate\n";
        let failed = verdict(FrameworkResult::Failed, output);
        assert_eq!(messages(&failed)[0], ("bad", 2));
        let second = &failed.failures[1];
        assert_eq!(
            (second.line, second.expected.as_deref(), second.actual.as_deref()),
            (Some(3), Some("3"), Some("2"))
        );
        // A skip in a failed test is not a failure and stays text.
        assert!(second.message.as_ref().unwrap().ends_with("t.cc:4: Skipped\nlate"));
        assert_eq!(failed.failures.len(), 2);
        assert_eq!(verdict(FrameworkResult::Skipped, output).reason.as_deref(), Some("no device"));
    }

    #[test]
    fn failures_above_the_limit_are_text_of_the_last() {
        let output: String =
            (1..=MAX_FAILURES + 50).map(|line| format!("t.cc:{line}: Failure\nbad\n")).collect();
        let failed = verdict(FrameworkResult::Failed, &output);
        assert_eq!(messages(&failed)[98], ("bad", 99));
        assert_eq!(failed.failures.len(), MAX_FAILURES);
        let last = failed.failures[99].message.as_ref().unwrap();
        assert!(
            last.starts_with("bad\nt.cc:101: Failure\nbad\n") && last.ends_with("t.cc:150: Failure\nbad")
        );
    }

    #[test]
    fn failures_are_bounded_together() {
        let name = "n".repeat(3000);
        let output: String = (1..=50).map(|line| format!("{name}:{line}: Failure\nbad\n")).collect();
        let failed = verdict(FrameworkResult::Failed, &output);
        let bytes: usize = failed
            .failures
            .iter()
            .map(|one| one.file.as_ref().unwrap().len() + one.message.as_ref().unwrap().len())
            .sum();
        assert!(bytes < TEXT_BYTES + 100 && failed.failures.len() == 21, "{bytes} {}", failed.failures.len());
    }

    #[test]
    fn long_failure_text_is_truncated() {
        let output = format!("t.cc:1: Failure\nbad\n{}\nend", "x".repeat(1 << 20));
        let message = verdict(FrameworkResult::Failed, &output).failures.remove(0).message.unwrap();
        assert!(message.len() < TEXT_BYTES + 100 && message.ends_with("[truncated]"));
    }
}
