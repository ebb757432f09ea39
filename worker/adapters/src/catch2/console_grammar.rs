//! Parser of Catch2's console report, used when one test runs alone. The report has no begin marker, and a
//! test can fake all of it. The advantage is that Catch2 does not capture the test's output, so the output
//! survives a crash.

use std::time::Duration;

use heeler_core::Failure;
use heeler_protocol::control::ListedTest;

use super::{
    selector::{TestSelector, shown_name, trimmed},
    xml_grammar,
};
use crate::{
    FrameworkResult, FrameworkVerdict, TestPart,
    assertion_failures::{AssertionFailures, equality_sides},
    expected_tests::ExpectedTests,
    scan::{ByteCursor, ScanResult, ScanStop, decode_lossy},
    stream_parser::{FrameworkCounts, Marker, MarkerGrammar, ParserState, StreamParser},
};

/// Maximum size of a line that may be a marker.
const LINE_BYTES: usize = 4 * 1024;
/// Maximum size of an assertion report.
const REPORT_BYTES: usize = 64 * 1024;
/// Minimum length of the divider before the totals. The program's compiled-in console width decides the
/// actual length.
const DIVIDER_SIGNS: usize = 20;
/// Maximum section nesting that is tracked.
const SECTION_DEPTH: usize = 64;

pub(crate) fn console_parser(test: &ListedTest) -> StreamParser<ConsoleGrammar> {
    let name = TestSelector::of(test).name;
    let first_line = trimmed(&name).split(|byte| *byte == b'\n').next().unwrap_or_default();
    let grammar = ConsoleGrammar { name: shown_name(first_line), ..ConsoleGrammar::default() };
    StreamParser::new(grammar, ExpectedTests::new([name]))
}

/// Parser state in addition to the expected sequence.
#[derive(Default)]
pub(crate) struct ConsoleGrammar {
    /// First line of the test's name.
    name: String,
    failures: AssertionFailures,
    skip_reason: Option<String>,
    /// Sections that have ended in this pass through the test, innermost first.
    ended_sections: Vec<String>,
    /// An assertion failed in this pass through the test.
    has_failed: bool,
    duration: Duration,
    /// The totals were read as an end marker; read them again as the final lines.
    has_totals: bool,
    /// Catch2's signal handler ran, which reports totals as if the run had ended.
    is_crashing: bool,
}

/// Marker with its length.
type ReadMarker = ScanResult<(usize, Marker)>;

impl ConsoleGrammar {
    /// Reads a line such as `0.012 s: name`: the end of a section or of a pass through the test.
    fn read_section_end(&mut self, line: &str) -> ScanResult<Marker> {
        let (seconds, name) = line.split_once(" s: ").ok_or(ScanStop::Mismatch)?;
        if !seconds.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            return Err(ScanStop::Mismatch);
        }
        let seconds: f64 = seconds.parse().map_err(|_| ScanStop::Mismatch)?;
        if name.trim() != self.name {
            if self.ended_sections.len() < SECTION_DEPTH {
                self.ended_sections.push(name.to_owned());
            }
            return Ok(Marker::Ignore);
        }
        let duration = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        self.duration = self.duration.saturating_add(duration);
        let has_failed = std::mem::take(&mut self.has_failed);
        let mut path = std::mem::take(&mut self.ended_sections);
        path.reverse();
        if path.is_empty() || self.is_crashing {
            return Ok(Marker::Ignore);
        }
        let result = if has_failed { FrameworkResult::Failed } else { FrameworkResult::Passed };
        Ok(Marker::Part(TestPart { name: path.join(" > "), result: Some(result), message: None }))
    }

    /// Reads an assertion report after its first line, up to an empty line.
    fn read_assertion(&mut self, cursor: ByteCursor<'_>, place: &str, word: &str) -> ReadMarker {
        let mut cursor = cursor;
        read_begin_of_details(cursor)?;
        let report = decode_lossy(cursor.until(b"\n\n", REPORT_BYTES)?);
        let (file, line) = place.rsplit_once(':').ok_or(ScanStop::Mismatch)?;
        let line = line.parse().map_err(|_| ScanStop::Mismatch)?;
        if word == "SKIPPED" {
            let reason = report.split_once('\n').map_or("", |(_, reason)| reason.trim());
            self.skip_reason = Some(reason.to_owned()).filter(|reason| !reason.is_empty());
        } else if report.contains("due to a fatal error condition:\n") {
            self.is_crashing = true;
        } else {
            self.has_failed = true;
            self.failures.push(failure_of_report(&report, file, line));
        }
        Ok((cursor.used(), Marker::Ignore))
    }

    /// Reads the totals after the divider: first as the end of the test, then as the final lines.
    fn read_totals(&mut self, after_divider: usize, cursor: ByteCursor<'_>) -> ReadMarker {
        let mut cursor = cursor;
        let first = decode_lossy(cursor.until(b"\n", LINE_BYTES)?);
        let result = result_of_totals(&first).ok_or(ScanStop::Mismatch)?;
        if first.starts_with("test cases:") {
            cursor.literal(b"assertions:")?;
            cursor.until(b"\n", LINE_BYTES)?;
        }
        cursor.literal(b"\n")?;
        if self.is_crashing {
            return Ok((cursor.used(), Marker::Ignore));
        }
        if std::mem::replace(&mut self.has_totals, true) {
            return Ok((cursor.used(), Marker::FinalLine(None)));
        }
        // The last line before the totals must name the test itself.
        if let Some(other) = self.ended_sections.pop() {
            return Ok((after_divider, Marker::Unselected(other)));
        }
        let duration = Some(self.duration).filter(|duration| !duration.is_zero());
        Ok((after_divider, Marker::End(FrameworkVerdict::new(result, duration))))
    }
}

/// Reads the start of a report's second line, which distinguishes a report from a line printed by a test.
fn read_begin_of_details(cursor: ByteCursor<'_>) -> ScanResult<usize> {
    let mut cursor = cursor;
    cursor.one_of(&[b"  ", b"due to ", b"explicitly", b"because "])
}

/// Returns the failure that a report describes: expression, expanded values and messages.
fn failure_of_report(report: &str, file: &str, line: u32) -> Failure {
    let mut message = String::new();
    let mut expanded = None;
    let mut rest = report;
    if let Some((head, tail)) = report.split_once("with expansion:\n") {
        let (values, messages) = split_at_heading(tail);
        expanded = Some(unindented(values));
        message.push_str(unindented(head).trim());
        message.push_str(&format!("\n  values: {}", unindented(values)));
        rest = messages;
    }
    let rest = unindented(rest);
    if !rest.is_empty() {
        if !message.is_empty() {
            message.push('\n');
        }
        message.push_str(rest.trim());
    }
    let sides = expanded.as_deref().and_then(equality_sides);
    let (actual, expected) = sides.unzip();
    Failure {
        expected: expected.map(str::to_owned),
        actual: actual.map(str::to_owned),
        message: Some(message),
        file: Some(file.to_owned()),
        line: Some(line),
        ..Failure::default()
    }
}

/// Splits a text before its first unindented line.
fn split_at_heading(text: &str) -> (&str, &str) {
    let mut end = 0;
    for line in text.split_inclusive('\n') {
        if !line.starts_with(' ') {
            break;
        }
        end += line.len();
    }
    text.split_at(end)
}

fn unindented(text: &str) -> String {
    text.lines().map(|line| line.strip_prefix("  ").unwrap_or(line)).collect::<Vec<_>>().join("\n")
}

/// Returns the result that the totals of a single test show.
fn result_of_totals(line: &str) -> Option<FrameworkResult> {
    if line.starts_with("All tests passed (") && line.ends_with(" in 1 test case)") {
        return Some(FrameworkResult::Passed);
    }
    let counts = line.strip_prefix("test cases:")?;
    let mut counts = counts.split('|').map(str::trim);
    if counts.next() != Some("1") {
        return None;
    }
    match counts.next()? {
        "1 passed" | "1 failed as expected" => Some(FrameworkResult::Passed),
        "1 failed" => Some(FrameworkResult::Failed),
        "1 skipped" => Some(FrameworkResult::Skipped),
        _ => None,
    }
}

impl MarkerGrammar for ConsoleGrammar {
    fn begins_with_process(&self) -> bool {
        true
    }

    fn find_marker(&self, bytes: &[u8], situation: &ParserState<'_>) -> Option<usize> {
        if situation.is_line_start && !bytes.is_empty() {
            return Some(0);
        }
        memchr::memchr(b'\n', bytes).map(|at| at + 1).filter(|at| *at < bytes.len())
    }

    fn read_marker(&mut self, at: &[u8], situation: &ParserState<'_>) -> ReadMarker {
        if situation.is_complete || situation.running.is_none() {
            return Err(ScanStop::Mismatch);
        }
        let mut cursor = ByteCursor::new(at);
        if self.has_totals {
            return self.read_totals(0, cursor);
        }
        // Text that cannot become a marker is emitted at once, even if its line has not ended.
        if !at[0].is_ascii_digit() && !b"=/.FR".contains(&at[0]) && !at[0].is_ascii_alphabetic() {
            return Err(ScanStop::Mismatch);
        }
        let line = cursor.until(b"\n", LINE_BYTES)?;
        let signs = line.iter().take_while(|byte| **byte == b'=').count();
        if signs >= DIVIDER_SIGNS && signs == line.len() {
            let after_divider = cursor.used();
            return self.read_totals(after_divider, cursor);
        }
        let line = decode_lossy(line);
        for word in ["FAILED", "SKIPPED"] {
            if let Some(place) = line.strip_suffix(&format!(": {word}:")) {
                return self.read_assertion(cursor, place, word);
            }
        }
        if line.starts_with("Filters: ") || line.starts_with("Randomness seeded to: ") {
            return Ok((cursor.used(), Marker::Ignore));
        }
        self.read_section_end(&line).map(|marker| (cursor.used(), marker))
    }

    fn complete_verdict(&mut self, verdict: &mut FrameworkVerdict, _name: &[u8]) {
        let failures = std::mem::take(&mut self.failures);
        match verdict.result {
            FrameworkResult::Passed | FrameworkResult::NotRun => {}
            FrameworkResult::Skipped => verdict.reason = self.skip_reason.take(),
            FrameworkResult::Failed => {
                failures.add_to(verdict);
                if verdict.failures.is_empty() {
                    verdict.push_failure(xml_grammar::failure_by_tags());
                }
            }
        }
    }

    fn explains_exit(
        &self,
        code: i32,
        reported: &FrameworkCounts,
        _counted: Option<&FrameworkCounts>,
    ) -> bool {
        xml_grammar::explains_exit(code, reported, &FrameworkCounts::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TranscriptEvent, TranscriptParser as _};

    fn replay(text: &str) -> (Vec<TranscriptEvent>, StreamParser<ConsoleGrammar>) {
        let test = ListedTest { name: "t".to_owned(), ..ListedTest::default() };
        let whole = replay_pieces(&test, &[text.as_bytes()]);
        for cut in 0..=text.len() {
            let (head, tail) = text.as_bytes().split_at(cut);
            assert_eq!(merged(replay_pieces(&test, &[head, tail]).0), merged(whole.0.clone()), "{cut}");
        }
        (merged(whole.0), whole.1)
    }

    fn replay_pieces(
        test: &ListedTest,
        pieces: &[&[u8]],
    ) -> (Vec<TranscriptEvent>, StreamParser<ConsoleGrammar>) {
        let mut parser = console_parser(test);
        let mut events = Vec::new();
        assert!(parser.opening_request(&mut events).is_empty());
        pieces.iter().for_each(|piece| parser.on_stdout(piece, &mut events));
        parser.on_output_end(&mut events);
        (events, parser)
    }

    fn merged(events: Vec<TranscriptEvent>) -> Vec<TranscriptEvent> {
        let mut merged: Vec<TranscriptEvent> = Vec::new();
        for event in events {
            match (merged.last_mut(), event) {
                (Some(TranscriptEvent::Output(before)), TranscriptEvent::Output(bytes)) => {
                    before.extend(bytes);
                }
                (_, event) => merged.push(event),
            }
        }
        merged
    }

    fn verdict(events: &[TranscriptEvent]) -> Option<&FrameworkVerdict> {
        events.iter().find_map(|event| match event {
            TranscriptEvent::Ended { verdict, .. } => Some(verdict),
            _ => None,
        })
    }

    const DIVIDER: &str = "===============================================================================\n";

    #[test]
    fn failed_test_has_its_assertions_and_its_sections() {
        let text = format!(
            "Filters: \"t\"\nRandomness seeded to: 7\nout\n0.250 s: deep\n0.250 s: left\n0.300 s: t\nt.cc:25: FAILED:\n  CHECK( 1 + 1 == 3 )\nwith expansion:\n  2 == 3\nwith message:\n  why\n\n0.000 s: right\n0.200 s: t\n{DIVIDER}test cases: 1 | 1 failed\nassertions: 2 | 1 passed | 1 failed\n\n"
        );
        let (events, parser) = replay(&text);
        let parts: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                TranscriptEvent::Part { part, .. } => Some((part.name.as_str(), part.result)),
                _ => None,
            })
            .collect();
        assert_eq!(
            parts,
            [("left > deep", Some(FrameworkResult::Passed)), ("right", Some(FrameworkResult::Failed))]
        );
        let verdict = verdict(&events).unwrap();
        assert_eq!(
            (verdict.result, verdict.duration),
            (FrameworkResult::Failed, Some(Duration::from_millis(500)))
        );
        let [failure] = verdict.failures.as_slice() else { panic!("{verdict:?}") };
        assert_eq!((failure.file.as_deref(), failure.line), (Some("t.cc"), Some(25)));
        assert_eq!((failure.expected.as_deref(), failure.actual.as_deref()), (Some("3"), Some("2")));
        assert_eq!(
            failure.message.as_deref(),
            Some("CHECK( 1 + 1 == 3 )\n  values: 2 == 3\nwith message:\nwhy")
        );
        assert!(parser.is_complete() && parser.explains_exit(42) && !parser.explains_exit(0));
    }

    #[test]
    fn totals_show_the_result() {
        for (totals, result) in [
            ("All tests passed (1 assertion in 1 test case)\n", Some(FrameworkResult::Passed)),
            ("test cases: 1 | 1 passed\nassertions: - none -\n", Some(FrameworkResult::Passed)),
            ("test cases: 1 | 1 failed as expected\nassertions: 1\n", Some(FrameworkResult::Passed)),
            ("test cases: 1 | 1 skipped\nassertions: - none -\n", Some(FrameworkResult::Skipped)),
            ("test cases: 2 | 1 passed | 1 failed\nassertions: 1\n", None),
            ("All tests passed (2 assertions in 2 test cases)\n", None),
            ("No tests ran\n", None),
        ] {
            let (events, parser) = replay(&format!("{DIVIDER}{totals}\n"));
            assert_eq!(verdict(&events).map(|verdict| verdict.result), result, "{totals}");
            assert_eq!(parser.is_complete(), result.is_some());
        }
    }

    #[test]
    fn totals_of_another_test_are_no_result() {
        let totals = format!("{DIVIDER}All tests passed (1 assertion in 1 test case)\n\n");
        let (events, parser) = replay(&format!("0.000 s: in it\n0.000 s: other\n{totals}"));
        assert_eq!((verdict(&events), parser.unselected_test()), (None, Some("other")));
        assert!(parser.is_complete());
        let (events, parser) = replay(&format!("0.000 s: in it\n0.000 s: t\n{totals}"));
        assert_eq!((verdict(&events).is_some(), parser.unselected_test()), (true, None));
    }

    #[test]
    fn totals_after_a_signal_or_before_other_output_prove_nothing() {
        let crash = "t.cc:3: FAILED:\ndue to a fatal error condition:\n  SIGSEGV\n\n";
        let totals = format!("{DIVIDER}test cases: 1 | 1 failed\nassertions: 1 | 1 failed\n\n");
        let (events, parser) = replay(&format!("{crash}{totals}"));
        assert_eq!((verdict(&events), parser.is_complete()), (None, false));
        let (events, parser) = replay(&format!("{DIVIDER}All tests passed (1 assertion in 1 test case)\n"));
        assert_eq!((verdict(&events), parser.is_complete()), (None, false));
    }
}
