//! Parser of GoogleTest's markers on standard output.

use heeler_core::{FixturePhase, SuiteFixture};
use std::time::Duration;

use heeler_protocol::control::ListedTest;

use super::{
    command::selects_other_names,
    failure::{BlockCollector, FailureBlock, complete},
};
use crate::{
    FixtureFailure, FrameworkResult, FrameworkVerdict, SuitePhase,
    expected_tests::ExpectedTests,
    scan::{ByteCursor, ScanResult, ScanStop, common_prefix, decode_lossy, either},
    stream_parser::{
        FrameworkCounts, LongMarker, Marker, MarkerGrammar, OutputOrigin, ParserState, StreamParser,
    },
};

const BEGIN: &[u8] = b"[ RUN      ] ";
const ENDS: [(&[u8], FrameworkResult); 3] = [
    (b"[       OK ] ", FrameworkResult::Passed),
    (b"[  FAILED  ] ", FrameworkResult::Failed),
    (b"[  SKIPPED ] ", FrameworkResult::Skipped),
];
const SUITE: &[u8] = b"[----------] ";
const RUN: &[u8] = b"[==========] ";
const FILTER_NOTE: &[u8] = b"Note: Google Test filter = ";

/// Prefixes of the lines that GoogleTest writes between tests.
const OWN_LINES: [&[u8]; 12] = [
    RUN,
    SUITE,
    FILTER_NOTE,
    b"[  PASSED  ] ",
    b"[  FAILED  ] ",
    b"[  SKIPPED ] ",
    b"Note: This is test shard ",
    b"Note: Randomizing tests' orders",
    b"Running main() from ",
    b"Repeating all tests (iteration ",
    b"  YOU HAVE ",
    b"[ DISABLED ] ",
];

/// Returns whether a line outside any test is one of GoogleTest's own.
pub(super) fn is_own_line(line: &[u8]) -> bool {
    let is_count = || {
        let digits = line.iter().skip(1).take_while(|byte| byte.is_ascii_digit()).count();
        line.first() == Some(&b' ') && digits > 0 && line[1 + digits..].starts_with(b" FAILED TEST")
    };
    OWN_LINES.iter().any(|own| line.starts_with(own)) || is_count()
}

pub(crate) fn gtest_parser(tests: &[&ListedTest]) -> StreamParser<GtestGrammar> {
    let sequence = ExpectedTests::new(tests.iter().map(|test| test.name.clone().into_bytes()));
    StreamParser::new(GtestGrammar::new(tests), sequence)
}

/// Parser state in addition to the expected sequence.
pub(crate) struct GtestGrammar {
    files: Vec<Option<String>>,
    /// Blocks of the running test before its end marker (`test`), after it (`after`), and outside any test
    /// (`outside`).
    test: BlockCollector,
    after: BlockCollector,
    outside: BlockCollector,
    first_outside: Option<String>,
    fixture_failures: FixtureFailures,
    /// Reasons for skips without their own reason: set-up of the environment or of the suite failed.
    failed_environment: Option<String>,
    failed_suite: Option<String>,
    /// Tests outside this batch may run: patterns can match more than one name, and names can repeat.
    may_run_other_tests: bool,
    /// The patterns of the batch may match other tests.
    selects_other_names: bool,
    has_started: bool,
    is_timed: bool,
    is_suite_over: bool,
    /// The suite that has begun, until its first test begins.
    begun_suite: Option<String>,
    last_begun: usize,
    /// The first test with marker-like lines in its output, or named by such a line.
    doubtful_since: Option<usize>,
    /// The first test that began outside this batch.
    unselected: Option<String>,
    summary: GtestSummary,
}

/// The counts that GoogleTest prints after its final line. The failed count is missing when it is zero.
#[derive(Debug, Default)]
struct GtestSummary {
    passed: Option<u64>,
    failed: Option<u64>,
}

impl GtestGrammar {
    fn new(tests: &[&ListedTest]) -> Self {
        let selects_other_names = selects_other_names(tests);
        Self {
            files: tests.iter().map(|test| test.file.clone()).collect(),
            test: BlockCollector::default(),
            after: BlockCollector::outside(),
            outside: BlockCollector::outside(),
            first_outside: None,
            fixture_failures: FixtureFailures::default(),
            failed_environment: None,
            failed_suite: None,
            may_run_other_tests: selects_other_names,
            selects_other_names,
            has_started: false,
            is_timed: true,
            is_suite_over: false,
            begun_suite: None,
            last_begun: 0,
            doubtful_since: None,
            unselected: None,
            summary: GtestSummary::default(),
        }
    }

    fn read_begin(&mut self, at: &[u8], situation: &ParserState<'_>) -> ScanResult<(usize, Marker)> {
        let mut cursor = ByteCursor::new(at);
        cursor.literal(BEGIN)?;
        let sequence = situation.sequence;
        let expected = sequence.next_expected().map_or(Err(ScanStop::Mismatch), |place| {
            let mut cursor = cursor;
            cursor.name(sequence.name(place))?;
            cursor.literal(b"\n")?;
            Ok((cursor.used(), Marker::Begin(place)))
        });
        either(expected, || {
            // After other output on the same line, only the next expected test may begin.
            if !situation.is_line_start {
                return Err(ScanStop::Mismatch);
            }
            let mut line = cursor;
            let line = line.until(b"\n", sequence.longest_line())?;
            let length = line.len();
            let line = decode_lossy(line);
            let found = sequence.find(line.as_bytes(), cursor, b"\n");
            let is_other = found == Err(ScanStop::Mismatch);
            self.may_run_other_tests |= is_other && situation.running.is_none();
            if is_other && self.selects_other_names && situation.has_end {
                // The following output belongs to another test.
                return Ok((cursor.used() + length + 1, Marker::Confirm));
            }
            found.map(|(place, used)| (used, Marker::Begin(place)))
        })
    }

    fn read_end(&mut self, at: &[u8], name: &[u8]) -> ScanResult<(usize, Marker)> {
        let mut cursor = ByteCursor::new(at);
        let state = ENDS[cursor.one_of(&ENDS.map(|(text, _)| text))?].1;
        cursor.name(name)?;
        let duration = match cursor.one_of(&[b"\n", b" (", b", where "])? {
            0 => None,
            1 => {
                let duration = cursor.number()?;
                cursor.literal(b" ms)\n")?;
                Some(Duration::from_millis(duration))
            }
            _ if state == FrameworkResult::Failed => {
                self.is_timed = true;
                let rest = ParameterSuffix { text: at[..cursor.used()].to_vec(), last: Vec::new() };
                return Ok((cursor.used(), Marker::Long(Box::new(rest))));
            }
            _ => return Err(ScanStop::Mismatch),
        };
        self.is_timed = duration.is_some();
        Ok((cursor.used(), Marker::End(FrameworkVerdict::new(state, duration))))
    }

    /// Reads the end of a suite. If a test is running, the suite must be its own. Otherwise any dashed line
    /// would confirm a forged end marker.
    fn read_suite_end(at: &[u8], in_flight: &[u8]) -> ScanResult<(usize, Marker)> {
        let mut cursor = ByteCursor::new(at);
        cursor.literal(SUITE)?;
        let count = cursor.number()?;
        cursor.noun(b" test", count)?;
        cursor.literal(b" from ")?;
        let (used, of_name) = common_prefix(cursor.rest(), in_flight);
        if used == cursor.rest().len() {
            return Err(ScanStop::NeedsMore);
        }
        if in_flight.get(of_name) != Some(&b'.') {
            return Err(ScanStop::Mismatch);
        }
        cursor.advance(used);
        cursor.literal(b" (")?;
        cursor.number()?;
        cursor.literal(b" ms total)\n")?;
        Ok((cursor.used(), Marker::Confirm))
    }

    fn read_last(at: &[u8]) -> ScanResult<(usize, Marker)> {
        let mut cursor = ByteCursor::new(at);
        cursor.literal(RUN)?;
        let tests = cursor.number()?;
        cursor.noun(b" test", tests)?;
        cursor.literal(b" from ")?;
        let suites = cursor.number()?;
        // Versions before 1.10 call suites cases.
        cursor.one_of(&[b" test suite", b" test case"])?;
        cursor.noun(b"", suites)?;
        cursor.literal(b" ran.")?;
        Ok((cursor.used(), Marker::FinalLine(None)))
    }

    fn read_summary_line(summary: &mut GtestSummary, line: &[u8]) {
        let count = |line: &[u8]| ByteCursor::new(line).number().ok();
        if let Some(line) = line.strip_prefix(b"[  PASSED  ] ") {
            summary.passed = summary.passed.or(count(line));
        } else if let Some(line) = line.strip_prefix(b"[  FAILED  ] ") {
            summary.failed = summary.failed.or(count(line).filter(|_| line.ends_with(b", listed below:")));
        }
    }

    /// Reads a line of output that is not a marker in its position.
    fn read_output_line(&mut self, line: &[u8], side: OutputOrigin, sequence: &ExpectedTests) {
        if side == OutputOrigin::Outside {
            Self::read_summary_line(&mut self.summary, line);
            if let Some(suite) = begun_suite(line) {
                self.begun_suite = Some(suite);
            }
        }
        let is_doubtful = match side {
            OutputOrigin::Test | OutputOrigin::AfterEnd => is_like_marker(line),
            // The summary repeats the markers of failed and skipped tests.
            OutputOrigin::Outside if self.selects_other_names => false,
            OutputOrigin::Outside => line.starts_with(BEGIN) || line.starts_with(ENDS[0].0),
        };
        if is_doubtful {
            // The named test may have ended differently than its markers said.
            let named = line.get(BEGIN.len()..).and_then(|name| sequence.find_anywhere(name, b" ,"));
            let is_begin = side == OutputOrigin::Outside && line.starts_with(BEGIN);
            if is_begin && named.is_none() && self.unselected.is_none() {
                self.unselected = Some(decode_lossy(&line[BEGIN.len()..]));
            }
            let earliest = self.last_begun.min(named.unwrap_or(usize::MAX));
            self.doubtful_since = Some(self.doubtful_since.map_or(earliest, |since| since.min(earliest)));
        }
    }

    fn record_outside_failure(&mut self) {
        self.outside.finish();
        let (before, within): (Vec<_>, Vec<_>) =
            self.outside.take_failures().into_iter().partition(|block| block.is_before_suites);
        if !before.is_empty() {
            let text = format_blocks(&before);
            self.first_outside.get_or_insert_with(|| text.clone());
            self.failed_environment = Some(text);
        }
        if !within.is_empty() {
            let text = format_blocks(&within);
            match &self.begun_suite {
                Some(suite) => self.fixture_failures.add(suite, FixturePhase::SetUp, text.clone()),
                None => drop(self.first_outside.get_or_insert_with(|| text.clone())),
            }
            self.failed_suite = Some(text);
        }
    }
}

impl MarkerGrammar for GtestGrammar {
    fn find_marker(&self, bytes: &[u8], _situation: &ParserState<'_>) -> Option<usize> {
        if self.has_started { memchr::memchr(b'[', bytes) } else { memchr::memchr2(b'[', b'N', bytes) }
    }

    fn read_marker(&mut self, at: &[u8], situation: &ParserState<'_>) -> ScanResult<(usize, Marker)> {
        if situation.is_complete {
            return Err(ScanStop::Mismatch);
        }
        if at.first() == Some(&b'N') {
            // A large batch has a filter as long as all its names.
            let is_possible = situation.is_line_start && !self.has_started;
            let mut cursor = ByteCursor::new(at);
            if is_possible {
                cursor.literal(FILTER_NOTE)?
            } else {
                return Err(ScanStop::Mismatch);
            }
            return Ok((cursor.used(), Marker::Long(Box::new(IgnoredLine))));
        }
        let Some(place) = situation.running else {
            let marker = either(self.read_begin(at, situation), || Self::read_last(at));
            self.has_started |= marker.is_ok() || at.starts_with(RUN);
            return marker;
        };
        let name = situation.sequence.name(place);
        let end = self.read_end(at, name);
        if !situation.has_end {
            return end;
        }
        let last = |at| if self.is_timed { Err(ScanStop::Mismatch) } else { Self::read_last(at) };
        let suite_end = Self::read_suite_end(at, name);
        self.is_suite_over = suite_end.is_ok();
        let goes_on = either(suite_end, || last(at));
        either(end, || either(goes_on, || self.read_begin(at, situation)))
    }

    fn on_begin(&mut self, place: usize) {
        self.record_outside_failure();
        self.begun_suite = None;
        self.last_begun = place;
        self.test = BlockCollector::new(self.files[place].clone());
    }

    fn on_output(&mut self, bytes: &[u8], side: OutputOrigin, sequence: &ExpectedTests) {
        let collector = match side {
            OutputOrigin::Test => &mut self.test,
            OutputOrigin::AfterEnd => &mut self.after,
            OutputOrigin::Outside => &mut self.outside,
        };
        let mut collector = std::mem::take(collector);
        collector.feed(bytes, |line| self.read_output_line(line, side, sequence));
        match side {
            OutputOrigin::Test => self.test = collector,
            OutputOrigin::AfterEnd => self.after = collector,
            OutputOrigin::Outside => self.outside = collector,
        }
    }

    fn on_end_marker(&mut self) {
        let after = std::mem::replace(&mut self.after, BlockCollector::outside());
        self.test.append_later(after);
    }

    fn complete_verdict(&mut self, verdict: &mut FrameworkVerdict, name: &[u8]) {
        self.test.finish();
        complete(verdict, &self.test);
        // Output after the end marker came from the suite's tear-down.
        let mut after = std::mem::replace(&mut self.after, BlockCollector::outside());
        after.finish();
        if verdict.result == FrameworkResult::Skipped && verdict.reason.is_none() {
            // A suite or environment whose set-up failed skips its tests without a reason.
            let reason = self.failed_suite.as_ref().or(self.failed_environment.as_ref());
            verdict.reason = reason.map(|reason| format!("not run because set-up failed: {reason}"));
        }
        if !after.failures.is_empty() {
            let suite = decode_lossy(suite_of(name));
            self.fixture_failures.add(&suite, FixturePhase::TearDown, format_blocks(&after.failures));
        }
        if std::mem::take(&mut self.is_suite_over) {
            self.failed_suite = None;
        }
    }

    fn on_final_line(&mut self) {
        self.record_outside_failure();
        self.begun_suite = None;
    }

    fn doubtful_since(&self) -> Option<usize> {
        self.doubtful_since
    }

    fn unselected_test(&self) -> Option<&str> {
        self.unselected.as_deref()
    }

    fn suite_phase(
        &self,
        situation: &ParserState<'_>,
        unconfirmed: Option<&FrameworkVerdict>,
    ) -> Option<SuitePhase> {
        let sequence = situation.sequence;
        let is_in = |place: usize, suite: &str| {
            sequence.name(place).strip_prefix(suite.as_bytes()).is_some_and(|rest| rest.starts_with(b"."))
        };
        let Some(place) = situation.running else {
            let suite = self.begun_suite.clone()?;
            let places: Vec<usize> = sequence.not_begun().filter(|place| is_in(*place, &suite)).collect();
            return (!places.is_empty()).then_some(SuitePhase::SetUp { suite, places });
        };
        let suite = decode_lossy(suite_of(sequence.name(place)));
        if sequence.next_expected().is_some_and(|next| is_in(next, &suite)) {
            return None;
        }
        Some(SuitePhase::TearDown { suite, verdict: unconfirmed?.clone() })
    }

    fn verdict_for_all(&mut self) -> Option<FrameworkVerdict> {
        self.outside.skip.as_ref()?;
        let mut verdict = FrameworkVerdict::new(FrameworkResult::Skipped, None);
        complete(&mut verdict, &self.outside);
        // GoogleTest counts these tests as passed.
        self.may_run_other_tests = true;
        Some(verdict)
    }

    fn explains_exit(
        &self,
        code: i32,
        reported: &FrameworkCounts,
        _counted: Option<&FrameworkCounts>,
    ) -> bool {
        let agrees = |counted: Option<u64>, reported: u64| match counted {
            Some(counted) if self.may_run_other_tests => counted >= reported || reported == 0,
            Some(counted) => counted == reported,
            None => true,
        };
        let is_failed = self.summary.failed.unwrap_or(0).max(reported.failed) > 0
            || !self.fixture_failures.all.is_empty();
        // A `main` that ignores the framework's return value exits with 0 even if tests failed.
        self.outside_failure().is_none()
            && agrees(self.summary.passed, reported.passed)
            && agrees(self.summary.failed, reported.failed)
            && match code {
                0 => !is_failed,
                // A `main` may use its own exit codes for failures.
                _ => is_failed,
            }
    }

    fn fixture_failures(&self) -> &[FixtureFailure] {
        &self.fixture_failures.all
    }

    fn outside_failure(&self) -> Option<&str> {
        self.first_outside.as_deref()
    }
}

/// Failures in the set-up and tear-down of suites, of bounded size.
#[derive(Debug, Default)]
struct FixtureFailures {
    all: Vec<FixtureFailure>,
    text_bytes: usize,
}

impl FixtureFailures {
    fn add(&mut self, suite: &str, phase: FixturePhase, text: String) {
        if self.all.len() >= crate::MAX_FAILURES {
            return;
        }
        let message = if self.text_bytes + text.len() > TEXT_BYTES {
            "failed (message omitted)".to_owned()
        } else {
            text
        };
        self.text_bytes += message.len();
        self.all.push(FixtureFailure { fixture: SuiteFixture { suite: suite.to_owned(), phase }, message });
    }
}

/// Returns the suite of a test. Test names contain no full stop, but suite names may.
fn suite_of(name: &[u8]) -> &[u8] {
    memchr::memrchr(b'.', name).map_or(name, |end| &name[..end])
}

/// Returns the suite that a line such as `[----------] 2 tests from A` begins.
fn begun_suite(line: &[u8]) -> Option<String> {
    let mut cursor = ByteCursor::new(line);
    cursor.literal(SUITE).ok()?;
    let count = cursor.number().ok()?;
    cursor.noun(b" test", count).ok()?;
    cursor.literal(b" from ").ok()?;
    let name = cursor.rest();
    let end = memchr::memmem::find(name, b", where TypeParam = ").unwrap_or(name.len());
    let is_end_of_suite = name.ends_with(b" ms total)");
    (!is_end_of_suite).then(|| decode_lossy(&name[..end]))
}

/// Returns whether a line looks like a line that GoogleTest writes between tests.
fn is_like_marker(line: &[u8]) -> bool {
    let is_marker = |marker: &[u8]| line.starts_with(marker);
    line.first() == Some(&b'[')
        && (is_marker(BEGIN) || is_marker(RUN) || ENDS.iter().any(|(marker, _)| is_marker(marker)))
}

fn format_blocks(blocks: &[FailureBlock]) -> String {
    let format_block = |block: &FailureBlock| {
        let text = block.text().unwrap_or_else(|| "Failure".to_owned());
        match (&block.file, block.line) {
            (Some(file), Some(line)) => format!("{file}:{line}: {text}"),
            _ => text,
        }
    };
    blocks.iter().map(format_block).collect::<Vec<_>>().join("\n")
}

/// The rest of `[  FAILED  ] A.b/0, where GetParam() = ... (3 ms)`. The value may be long and contain
/// anything.
struct ParameterSuffix {
    text: Vec<u8>,
    /// Enough of the last line to recognize its end.
    last: Vec<u8>,
}

const TEXT_BYTES: usize = 64 * 1024;
const END_BYTES: usize = 40;

impl ParameterSuffix {
    fn keep(&mut self, piece: &[u8]) {
        let room = TEXT_BYTES.saturating_sub(self.text.len());
        self.text.extend_from_slice(&piece[..piece.len().min(room)]);
        self.last.extend_from_slice(&piece[piece.len().saturating_sub(END_BYTES)..]);
        let excess = self.last.len().saturating_sub(END_BYTES);
        self.last.drain(..excess);
    }

    fn duration(&self) -> Option<Duration> {
        let line = self.last.strip_suffix(b" ms)\n")?;
        let open = memchr::memrchr(b'(', line)?;
        let digits = std::str::from_utf8(&line[open + 1..]).ok()?;
        let is_number = line[..open].ends_with(b" ") && digits.bytes().all(|byte| byte.is_ascii_digit());
        if is_number { digits.parse().ok().map(Duration::from_millis) } else { None }
    }
}

impl LongMarker for ParameterSuffix {
    fn feed(&mut self, bytes: &[u8]) -> Option<(usize, Marker)> {
        let mut used = 0;
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            used += piece.len();
            self.keep(piece);
            if let Some(duration) = self.duration() {
                let verdict = FrameworkVerdict::new(FrameworkResult::Failed, Some(duration));
                return Some((used, Marker::End(verdict)));
            }
        }
        None
    }

    fn take_text(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.text)
    }

    #[cfg(test)]
    fn kept_bytes(&self) -> usize {
        self.text.len() + self.last.len()
    }
}

/// The rest of a dropped line.
struct IgnoredLine;

impl LongMarker for IgnoredLine {
    fn feed(&mut self, bytes: &[u8]) -> Option<(usize, Marker)> {
        memchr::memchr(b'\n', bytes).map(|end| (end + 1, Marker::Ignore))
    }

    fn take_text(&mut self) -> Vec<u8> {
        Vec::new()
    }

    #[cfg(test)]
    fn kept_bytes(&self) -> usize {
        0
    }
}
