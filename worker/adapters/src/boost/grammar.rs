//! Parser of Boost.Test's log on standard output, mixed with the output of the tests. The log has no
//! verdicts: a test fails if it reports more errors than it expects, or a fatal error.

use std::{collections::HashMap, time::Duration};

use heeler_core::Failure;
use heeler_protocol::control::ListedTest;

use super::{
    listing::EXPECTED_FAILURES,
    suites::{SuiteTracker, is_in},
};
use crate::{
    FixtureFailure, FrameworkResult, FrameworkVerdict, SuitePhase,
    assertion_failures::AssertionFailures,
    expected_tests::ExpectedTests,
    scan::{ByteCursor, ScanResult, ScanStop, decode_lossy, either},
    stream_parser::{FrameworkCounts, Marker, MarkerGrammar, OutputOrigin, ParserState, StreamParser},
};

/// Maximum size of a log line.
const LINE_BYTES: usize = 16 * 1024;

const ENTER_CASE: &str = "Entering test case \"";
const LEAVE_CASE: &str = "Leaving test case \"";
/// Reason that the log gives for skipping unselected tests.
const DISABLED: &str = "disabled";

pub(crate) fn boost_parser(tests: &[&ListedTest]) -> StreamParser<BoostGrammar> {
    let sequence = ExpectedTests::new(tests.iter().map(|test| test.name.clone().into_bytes()));
    let paths = tests.iter().enumerate().map(|(place, test)| (test.name.clone(), place)).collect();
    let cases = tests.iter().map(|test| CaseMarkers::of(test)).collect();
    let suites = SuiteTracker::new(tests);
    StreamParser::new(BoostGrammar { paths, cases, suites, ..BoostGrammar::default() }, sequence)
}

/// Log lines of one test.
struct CaseMarkers {
    /// Line at its start (`begin`), and line at its end up to the name (`end`).
    begin: Vec<u8>,
    end: Vec<u8>,
    /// Text of its errors, starting at the word before its path.
    error: Vec<u8>,
    expected_failures: u64,
}

impl CaseMarkers {
    fn of(test: &ListedTest) -> Self {
        let place = format!("{}({}): ", test.framework_file().unwrap_or_default(), test.line.unwrap_or(0));
        let path = &test.name;
        let local = path.rsplit_once('/').map_or(path.as_str(), |(_, local)| local);
        let expected = test.traits.iter().find(|one| one.name == EXPECTED_FAILURES);
        Self {
            begin: format!("{place}{ENTER_CASE}{local}\"\n").into_bytes(),
            end: format!("{place}{LEAVE_CASE}{local}\"").into_bytes(),
            error: format!("error: in \"{path}\": ").into_bytes(),
            expected_failures: expected.and_then(|one| one.value.parse().ok()).unwrap_or(0),
        }
    }
}

/// Parser state in addition to the expected sequence.
#[derive(Default)]
pub(crate) struct BoostGrammar {
    /// Index of each test by its path.
    paths: HashMap<String, usize>,
    cases: Vec<CaseMarkers>,
    suites: SuiteTracker,
    failures: AssertionFailures,
    /// Text of an error that was read but not yet recorded.
    error: Option<String>,
    errors: u64,
    has_fatal: bool,
    /// The last unfinished line of output, which contains the location of an error.
    line: Vec<u8>,
    /// Failures of tests outside this batch, which run because other tests depend on them.
    failed_others: u64,
}

/// Marker with its length.
type ReadMarker = ScanResult<(usize, Marker)>;

impl BoostGrammar {
    /// Reads an error of the running test. The text before it on the line is output and is not known yet.
    fn read_error(&mut self, place: usize, at: &[u8]) -> ReadMarker {
        let mut cursor = ByteCursor::new(at);
        cursor.literal(&self.cases[place].error)?;
        self.error = Some(decode_lossy(cursor.until(b"\n", LINE_BYTES)?));
        Ok((cursor.used(), Marker::Text(at[..cursor.used()].to_vec())))
    }

    /// Records an error, after the text before it was emitted as output.
    fn record_error(&mut self, text: String) {
        let before = decode_lossy(&self.line);
        let (before, is_fatal) = match before.strip_suffix("fatal ") {
            Some(before) => (before, true),
            None => (before.as_str(), false),
        };
        self.errors += 1;
        self.has_fatal |= is_fatal;
        let place = before.strip_suffix("): ").and_then(|before| before.rsplit_once('('));
        let line = place.and_then(|(_, line)| line.parse().ok()).filter(|line| *line > 0);
        let (actual, expected) = compared_values(&text).unzip();
        self.failures.push(Failure {
            file: place.filter(|_| line.is_some()).map(|(file, _)| file.to_owned()),
            line,
            expected: expected.map(str::to_owned),
            actual: actual.map(str::to_owned),
            message: Some(text),
            ..Failure::default()
        });
    }

    fn read_end(&self, place: usize, at: &[u8]) -> ReadMarker {
        let mut cursor = ByteCursor::new(at);
        cursor.literal(&self.cases[place].end)?;
        let rest = decode_lossy(cursor.until(b"\n", 200)?);
        let duration = match rest.strip_prefix("; testing time: ") {
            Some(time) => Some(read_time(time).ok_or(ScanStop::Mismatch)?),
            None if rest.is_empty() => None,
            None => return Err(ScanStop::Mismatch),
        };
        let duration = duration.filter(|duration| !duration.is_zero());
        let verdict = FrameworkVerdict::new(FrameworkResult::Passed, duration);
        Ok((cursor.used(), Marker::End(verdict)))
    }

    /// Reads a log line between two tests.
    fn read_line(&mut self, at: &[u8], situation: &ParserState<'_>) -> ReadMarker {
        let mut cursor = ByteCursor::new(at);
        let line = decode_lossy(cursor.until(b"\n", LINE_BYTES)?);
        let used = cursor.used();
        if line.starts_with("Leaving test module \"") {
            self.suites.leave_module();
            return Ok((used, Marker::FinalLine(None)));
        }
        if let Some(name) = quoted(&line, "Entering test module \"") {
            self.suites.enter_module(name);
            return Ok((used, Marker::Ignore));
        }
        if line.starts_with("Running ") || self.suites.include(&line).is_some() {
            return Ok((used, Marker::Ignore));
        }
        let (place, event) = line.split_once("): ").ok_or(ScanStop::Mismatch)?;
        self.read_event(&line, place, event, situation).map(|marker| (used, marker))
    }

    /// Reads an event with a source location.
    fn read_event(
        &mut self,
        line: &str,
        place: &str,
        event: &str,
        situation: &ParserState<'_>,
    ) -> ScanResult<Marker> {
        let waiting = |path: &str| {
            let place = self.paths.get(path).filter(|place| !situation.sequence.has_begun(**place));
            place.copied()
        };
        // Suites begin and end.
        if let Some(name) = quoted(event, "Entering test suite \"") {
            self.suites.enter_suite(name);
            return Ok(goes_on());
        }
        if event.starts_with("Leaving test suite \"") {
            let places = not_begun_in(&self.suites.suite(), situation);
            let verdict = self.suites.leave_suite(!places.is_empty());
            return Ok(verdict.map_or_else(goes_on, |verdict| Marker::Unbegun(places, verdict)));
        }
        // A test begins. Unselected tests may run as dependencies.
        if let Some(name) = quoted(event, ENTER_CASE) {
            let path = self.suites.path_of(name);
            if let Some(place) = waiting(&path) {
                return Ok(Marker::Begin(place));
            }
            let is_known = self.paths.contains_key(&path) || self.suites.is_included(&path);
            self.suites.enter_other_test(path.clone());
            return Ok(if is_known { Marker::Confirm } else { Marker::Unselected(path) });
        }
        // Tests and suites are skipped.
        if let Some(rest) = event.strip_prefix("Test case \"") {
            let (path, reason) = rest.rsplit_once("\" is skipped because ").ok_or(ScanStop::Mismatch)?;
            let places = waiting(path).into_iter().collect();
            self.suites.skip();
            return Ok(skipped(places, reason));
        }
        if let Some(rest) = event.strip_prefix("Test suite \"") {
            let (path, reason) = rest.rsplit_once("\" is skipped because ").ok_or(ScanStop::Mismatch)?;
            self.suites.skip();
            // A suite without selected tests is logged as skipped with the reason `disabled`.
            let places = if reason == DISABLED { Vec::new() } else { not_begun_in(path, situation) };
            return Ok(skipped(places, reason));
        }
        // An unselected test ends, or something outside the selected tests fails.
        if event.starts_with(LEAVE_CASE) {
            self.suites.go_on();
            return Ok(Marker::Ignore);
        }
        if event.starts_with("error: in \"") || event.starts_with("fatal error: in \"") {
            if self.suites.record_error(line, place, event) {
                return Ok(Marker::Confirm);
            }
            self.failed_others += u64::from(situation.running.is_none());
        }
        Err(ScanStop::Mismatch)
    }
}

/// Returns the text between this prefix and the quotation mark at the end of the line.
fn quoted<'a>(line: &'a str, before: &str) -> Option<&'a str> {
    line.strip_prefix(before)?.strip_suffix('"')
}

/// Returns a marker that confirms the end of the previous test and is not output.
fn goes_on() -> Marker {
    Marker::Unbegun(Vec::new(), FrameworkVerdict::new(FrameworkResult::Skipped, None))
}

/// Returns the tests of a suite that have not begun.
fn not_begun_in(suite: &str, situation: &ParserState<'_>) -> Vec<usize> {
    let is_below = |place: &usize| {
        let name = situation.sequence.name(*place).strip_prefix(suite.as_bytes());
        name.is_some_and(|rest| rest.starts_with(b"/"))
    };
    situation.sequence.not_begun().filter(is_below).collect()
}

/// Returns the marker for skipped tests. Unselected tests are skipped with the reason `disabled` and ignored.
fn skipped(places: Vec<usize>, reason: &str) -> Marker {
    if places.is_empty() || reason == DISABLED {
        return Marker::Ignore;
    }
    let verdict = FrameworkVerdict::new(FrameworkResult::Skipped, None);
    Marker::Unbegun(places, FrameworkVerdict { reason: Some(reason.to_owned()), ..verdict })
}

/// Returns the actual and the expected value of a failed equality: `... [2 != 3]`.
fn compared_values(text: &str) -> Option<(&str, &str)> {
    let (_, values) = text.strip_suffix(']')?.rsplit_once('[')?;
    let (actual, expected) = values.split_once(" != ")?;
    (!expected.contains(" != ")).then_some((actual, expected))
}

impl MarkerGrammar for BoostGrammar {
    fn find_marker(&self, bytes: &[u8], situation: &ParserState<'_>) -> Option<usize> {
        if situation.is_line_start && !bytes.is_empty() {
            return Some(0);
        }
        let line = memchr::memchr(b'\n', bytes).map(|at| at + 1).filter(|at| *at < bytes.len());
        let window = &bytes[..line.unwrap_or(bytes.len())];
        // A test may write without a final newline; the log then continues on the same line.
        let expected = situation
            .running
            .map(|place| &self.cases[place].end)
            .or_else(|| situation.sequence.next_expected().map(|place| &self.cases[place].begin));
        let first = expected.and_then(|marker| marker.first()).copied().unwrap_or(b'e');
        memchr::memchr2(first, b'e', window).or(line)
    }

    fn read_marker(&mut self, at: &[u8], situation: &ParserState<'_>) -> ReadMarker {
        if situation.is_complete {
            return Err(ScanStop::Mismatch);
        }
        let of_line = |grammar: &mut Self| {
            if situation.is_line_start { grammar.read_line(at, situation) } else { Err(ScanStop::Mismatch) }
        };
        let Some(place) = situation.running else {
            let next = situation.sequence.next_expected().map_or(Err(ScanStop::Mismatch), |place| {
                let mut cursor = ByteCursor::new(at);
                cursor.literal(&self.cases[place].begin)?;
                // Another suite may have a test with the same name and location.
                if situation.is_line_start {
                    Err(ScanStop::Mismatch)
                } else {
                    Ok((cursor.used(), Marker::Begin(place)))
                }
            });
            return either(next, || of_line(self));
        };
        let own = either(self.read_error(place, at), || self.read_end(place, at));
        if situation.has_end { either(own, || of_line(self)) } else { own }
    }

    fn on_begin(&mut self, _place: usize) {
        self.suites.go_on();
        self.failures = AssertionFailures::default();
        (self.error, self.errors, self.has_fatal) = (None, 0, false);
    }

    fn on_output(&mut self, bytes: &[u8], _side: OutputOrigin, _sequence: &ExpectedTests) {
        if bytes.starts_with(b"error: in \"")
            && let Some(text) = self.error.take()
        {
            self.record_error(text);
        }
        match memchr::memrchr(b'\n', bytes) {
            Some(end) => {
                self.line.clear();
                self.line.extend_from_slice(&bytes[end + 1..]);
            }
            None => self.line.extend_from_slice(bytes),
        }
        let excess = self.line.len().saturating_sub(LINE_BYTES);
        self.line.drain(..excess);
    }

    fn complete_verdict(&mut self, verdict: &mut FrameworkVerdict, name: &[u8]) {
        let failures = std::mem::take(&mut self.failures);
        let place = self.paths.get(std::str::from_utf8(name).unwrap_or_default());
        let expected = place.map_or(0, |place| self.cases[*place].expected_failures);
        if self.has_fatal || self.errors > expected {
            verdict.result = FrameworkResult::Failed;
            failures.add_to(verdict);
        }
    }

    /// With expected failures, an ordinary failure exits with the code of a fatal error.
    fn explains_exit(
        &self,
        code: i32,
        reported: &FrameworkCounts,
        _counted: Option<&FrameworkCounts>,
    ) -> bool {
        let has_failed =
            reported.failed > 0 || self.failed_others > 0 || !self.suites.fixture_failures().is_empty();
        match code {
            0 => reported.failed == 0,
            _ => has_failed && self.suites.module_failure().is_none(),
        }
    }

    fn on_exit(&mut self, code: i32) {
        if code == 0 {
            self.suites.forgive();
        }
    }

    fn verdict_for_all(&mut self) -> Option<FrameworkVerdict> {
        self.suites.verdict_for_all()
    }

    fn fixture_failures(&self) -> &[FixtureFailure] {
        self.suites.fixture_failures()
    }

    fn outside_failure(&self) -> Option<&str> {
        self.suites.module_failure()
    }

    fn suite_phase(
        &self,
        situation: &ParserState<'_>,
        unconfirmed: Option<&FrameworkVerdict>,
    ) -> Option<SuitePhase> {
        let waiting = |is_charged: &dyn Fn(usize, &str) -> bool| -> Vec<usize> {
            let name = |place: usize| std::str::from_utf8(situation.sequence.name(place)).unwrap_or_default();
            situation.sequence.not_begun().filter(|place| is_charged(*place, name(*place))).collect()
        };
        let is_over = || {
            if self.suites.is_in_module() {
                situation.sequence.not_begun().next().is_none()
            } else {
                not_begun_in(&self.suites.suite(), situation).is_empty()
            }
        };
        if situation.running.is_some() {
            let suite = self.suites.suite();
            return unconfirmed
                .filter(|_| is_over())
                .map(|verdict| SuitePhase::TearDown { suite, verdict: verdict.clone() });
        }
        if let Some(test) = self.suites.other_test() {
            let places = waiting(&|place, name| self.suites.depends_on(place, name, test));
            return (!places.is_empty()).then(|| SuitePhase::Dependency { test: test.to_owned(), places });
        }
        if let Some(suite) = self.suites.suite_after_another() {
            return is_over().then_some(SuitePhase::AfterTests { suite });
        }
        let suite = self.suites.suite_in_set_up()?;
        let places =
            waiting(&|place, name| is_in(name, &suite) || self.suites.depends_on(place, name, &suite));
        (!places.is_empty()).then_some(SuitePhase::SetUp { suite, places })
    }
}

/// Reads the time of a test: `6423us`, or `6ms` if it is a whole number of milliseconds. Old releases write
/// `mks`.
fn read_time(text: &str) -> Option<Duration> {
    let unit = text.find(|one: char| !one.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit);
    let number = number.parse().ok()?;
    match unit {
        "" | "us" | "mks" => Some(Duration::from_micros(number)),
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        _ => None,
    }
}

#[cfg(test)]
mod cases {
    use super::*;

    #[test]
    fn time_of_a_test_has_every_unit_of_boost() {
        let time = |text| read_time(text).map(|time| time.as_micros());
        for (text, micros) in [("6423us", 6423), ("6ms", 6000), ("2s", 2_000_000), ("9mks", 9), ("7", 7)] {
            assert_eq!(time(text), Some(micros), "{text}");
        }
        for text in ["", "us", "6 ms", "6h", "99999999999999999999us"] {
            assert_eq!(time(text), None, "{text}");
        }
    }
}
