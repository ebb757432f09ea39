//! The report parser. The plan decides: a process that exits with code 0 after one of three planned points
//! has failed.

use std::collections::BTreeSet;

use heeler_core::Failure;

use super::{
    details,
    line::{TapDirective, TapLine, TapPoint, read_line},
};
use crate::{FrameworkResult, FrameworkVerdict, TestPart, TranscriptEvent, TranscriptParser, scan};

/// Bytes of a line that are read; the rest is ignored.
const LINE_BYTES: usize = 64 << 10;
/// Indentation of each subtest level, in spaces.
const INDENTATION: usize = 4;
/// Maximum subtest depth that is tracked.
const MAX_DEPTH: usize = 16;
/// Maximum size of a part's name.
const NAME_BYTES: usize = 200;
/// Maximum number of points received while a smaller number is missing. A report with more is out of order.
const MAX_AHEAD: usize = 100_000;
/// Maximum number of failed points listed in the verdict.
const NAMED_POINTS: usize = 20;

/// Parser of one command's report. Memory is bounded by a constant.
pub(crate) struct TapParser {
    has_test: bool,
    has_begun: bool,
    has_exited: bool,
    /// Start of a line whose end has not been read.
    line: Vec<u8>,
    /// The last point read, whose details may follow.
    open_point: Option<OpenPoint>,
    /// Names of the open subtests, outermost first.
    subtests: Vec<String>,
    /// Number of points so far on each level.
    told: Vec<u64>,
    plan: Option<u64>,
    /// The plan came after points, so no more points may follow.
    is_plan_last: bool,
    skip_reason: Option<String>,
    numbers: PointNumbers,
    failed: u64,
    failures: Vec<Failure>,
    bail_out: Option<String>,
    /// Error in the report.
    fault: Option<String>,
}

/// A point whose details may still follow.
struct OpenPoint {
    depth: usize,
    name: String,
    point: TapPoint,
    /// The details, and whether more of them follow.
    details: Option<(String, bool)>,
}

impl TapParser {
    /// Returns the parser. `tests` is the number of tests in the batch; a process runs at most one.
    pub(crate) fn new(tests: usize) -> Self {
        Self {
            has_test: tests > 0,
            has_begun: false,
            has_exited: false,
            line: Vec::new(),
            open_point: None,
            subtests: Vec::new(),
            told: vec![0],
            plan: None,
            is_plan_last: false,
            skip_reason: None,
            numbers: PointNumbers::default(),
            failed: 0,
            failures: Vec::new(),
            bail_out: None,
            fault: None,
        }
    }

    /// Begins the test when the process starts.
    fn begin(&mut self, events: &mut Vec<TranscriptEvent>) {
        if self.has_test && !self.has_begun {
            self.has_begun = true;
            events.push(TranscriptEvent::Begun { place: 0 });
        }
    }

    fn end_line(&mut self, events: &mut Vec<TranscriptEvent>) {
        let line = scan::decode_lossy(&std::mem::take(&mut self.line));
        let line = line.trim_end_matches(['\n', '\r']);
        if self.bail_out.is_none() && !self.is_detail(line) {
            let text = line.trim_start_matches(' ');
            let indentation = line.len() - text.len();
            self.on_line(indentation, read_line(text), events);
        }
    }

    /// Handles a line of the open point's details; returns whether the line belongs to them.
    fn is_detail(&mut self, line: &str) -> bool {
        let Some(OpenPoint { depth, details: Some((text, is_open @ true)), .. }) = &mut self.open_point
        else {
            return false;
        };
        let indentation = *depth * INDENTATION;
        let Some(inner) = line.get(indentation..).filter(|_| line[..indentation].trim().is_empty()) else {
            *is_open = false;
            return line.trim().is_empty();
        };
        if inner.trim() == "..." {
            *is_open = false;
        } else if !inner.is_empty() && !inner.starts_with(' ') {
            // The block has no end marker.
            *is_open = false;
            return false;
        } else {
            details::push_line(text, inner.trim_end().get(2..).unwrap_or_default());
        }
        true
    }

    fn on_line(&mut self, indentation: usize, line: TapLine, events: &mut Vec<TranscriptEvent>) {
        let depth = indentation / INDENTATION;
        if line == TapLine::DetailsBegin {
            let point = self.open_point.as_mut().filter(|point| point.details.is_none());
            if let Some(point) = point.filter(|point| indentation == point.depth * INDENTATION + 2) {
                point.details = Some((String::new(), true));
            }
            return;
        }
        if depth >= MAX_DEPTH || !indentation.is_multiple_of(INDENTATION) {
            return;
        }
        match line {
            TapLine::Point(point) => self.on_point(depth, point, events),
            TapLine::Plan { count, reason } if depth == 0 => {
                self.close_point(events);
                if self.plan.replace(count).is_some() {
                    self.fault.get_or_insert("more than one plan".to_owned());
                }
                self.is_plan_last = self.told[0] > 0;
                self.skip_reason = reason.filter(|_| count == 0);
            }
            TapLine::BailOut(reason) => {
                self.close_point(events);
                self.bail_out = Some(scan::truncated(&reason, NAME_BYTES).to_owned());
            }
            TapLine::Subtest(name) => {
                self.close_point(events);
                self.name_subtest(depth, &name);
            }
            TapLine::Plan { .. } | TapLine::DetailsBegin | TapLine::Other => {}
        }
    }

    /// Names the subtest that a comment announces. The comment comes before the subtest or is its first line;
    /// in the second case no other subtest of that level is open.
    fn name_subtest(&mut self, depth: usize, name: &str) {
        let is_first_line = depth > 0 && self.subtests.len() < depth;
        let place = if is_first_line { depth - 1 } else { depth };
        self.subtests.resize(place, String::new());
        self.subtests.push(scan::truncated(name, NAME_BYTES).to_owned());
    }

    fn on_point(&mut self, depth: usize, point: TapPoint, events: &mut Vec<TranscriptEvent>) {
        self.close_point(events);
        self.told.resize(depth + 1, 0);
        self.told[depth] += 1;
        if depth == 0 && self.is_plan_last {
            self.fault.get_or_insert("the plan is neither before nor after the tests".to_owned());
        }
        let number = point.number.unwrap_or(self.told[depth]);
        if depth == 0
            && let Err(fault) = self.numbers.insert(number)
        {
            self.fault.get_or_insert(fault);
        }
        let own = match point.description.as_str() {
            "" => number.to_string(),
            description => format!("{number} - {description}"),
        };
        let mut name = String::new();
        for place in 0..depth {
            let subtest = self.subtests.get(place).filter(|name| !name.is_empty());
            name.push_str(subtest.map_or("subtest", String::as_str));
            name.push_str(" > ");
        }
        name.push_str(&own);
        let name = scan::truncated(&name, NAME_BYTES).to_owned();
        // The subtests of this level end with their point.
        self.subtests.truncate(depth);
        self.open_point = Some(OpenPoint { depth, name, point, details: None });
    }

    /// Reports the last point.
    fn close_point(&mut self, events: &mut Vec<TranscriptEvent>) {
        let Some(OpenPoint { depth, name, point, details }) = self.open_point.take() else { return };
        let text = details.map(|(text, _)| text).unwrap_or_default();
        let (result, message) = match (&point.directive, point.is_ok) {
            (Some(TapDirective::Skip(reason)), _) => (FrameworkResult::Skipped, reason.clone()),
            (Some(TapDirective::Todo(reason)), false) => (FrameworkResult::Skipped, format!("TODO {reason}")),
            (Some(TapDirective::Todo(_)) | None, true) => (FrameworkResult::Passed, String::new()),
            (None, false) => (FrameworkResult::Failed, text.trim_end().to_owned()),
        };
        if depth == 0 && result == FrameworkResult::Failed {
            self.failed += 1;
            if self.failures.len() < NAMED_POINTS {
                self.failures.push(details::failure(&format!("not ok {name}"), &text));
            }
        }
        let message = Some(message.trim_end().to_owned()).filter(|message| !message.is_empty());
        events
            .push(TranscriptEvent::Part { place: 0, part: TestPart { name, result: Some(result), message } });
    }

    /// Returns the verdict from the report and the exit code.
    fn verdict(&mut self, code: i32) -> FrameworkVerdict {
        let mut failures = std::mem::take(&mut self.failures);
        let mut fail = |message: String| {
            failures.push(Failure { message: Some(message), ..Failure::default() });
        };
        // Failures of the report as a whole: a bail-out, a syntax error, a broken plan.
        if let Some(reason) = &self.bail_out {
            fail(format!("Bail out! {reason}").trim_end().to_owned());
        }
        if let Some(fault) = &self.fault {
            fail(format!("invalid TAP: {fault}"));
        }
        let told = self.told[0];
        match self.plan {
            None if self.bail_out.is_none() => fail(format!("no TAP plan; {} reported", points(told))),
            Some(planned) if planned != told && self.bail_out.is_none() => {
                fail(format!("{} planned, {told} reported", points(planned)));
            }
            Some(planned) if self.numbers.greatest > planned => {
                fail(format!("test {} is outside the plan of {planned}", self.numbers.greatest));
            }
            _ => {}
        }
        // Many producers exit with the number of failed points.
        if code != 0 && self.failed == 0 {
            fail(format!("exited with code {code}"));
        }
        if failures.is_empty() {
            // An empty plan skips the whole report, even without a reason.
            let result =
                if self.plan == Some(0) { FrameworkResult::Skipped } else { FrameworkResult::Passed };
            let reason = self.skip_reason.take().filter(|reason| !reason.is_empty());
            let reason = reason.or_else(|| Some("no reason given".to_owned()));
            let reason = reason.filter(|_| result == FrameworkResult::Skipped);
            return FrameworkVerdict { reason, ..FrameworkVerdict::new(result, None) };
        }
        let mut verdict = FrameworkVerdict::new(FrameworkResult::Failed, None);
        failures.into_iter().for_each(|failure| verdict.push_failure(failure));
        verdict
    }
}

fn points(count: u64) -> String {
    if count == 1 { "1 test".to_owned() } else { format!("{count} tests") }
}

impl TranscriptParser for TapParser {
    fn opening_request(&mut self, events: &mut Vec<TranscriptEvent>) -> Vec<u8> {
        self.begin(events);
        Vec::new()
    }

    fn on_stdout(&mut self, chunk: &[u8], events: &mut Vec<TranscriptEvent>) {
        if !self.has_test {
            return;
        }
        self.begin(events);
        for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
            events.push(TranscriptEvent::Output(piece.to_vec()));
            let room = LINE_BYTES.saturating_sub(self.line.len());
            self.line.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.ends_with(b"\n") {
                self.end_line(events);
            }
        }
    }

    fn on_output_end(&mut self, events: &mut Vec<TranscriptEvent>) {
        if !self.line.is_empty() {
            self.end_line(events);
        }
        self.close_point(events);
    }

    fn on_exit(&mut self, code: i32, events: &mut Vec<TranscriptEvent>) {
        self.begin(events);
        if self.has_test && !std::mem::replace(&mut self.has_exited, true) {
            let verdict = self.verdict(code);
            events.push(TranscriptEvent::Ended { place: 0, verdict });
        }
    }

    fn is_complete(&self) -> bool {
        self.has_exited
    }

    fn explains_exit(&self, _code: i32) -> bool {
        self.has_exited
    }
}

/// Numbers of the test points seen so far. Points may arrive in any order, but each only once.
#[derive(Debug, Default)]
struct PointNumbers {
    /// All numbers from 1 to this one have been seen.
    complete: u64,
    ahead: BTreeSet<u64>,
    greatest: u64,
}

impl PointNumbers {
    fn insert(&mut self, number: u64) -> Result<(), String> {
        self.greatest = self.greatest.max(number);
        if number <= self.complete || self.ahead.contains(&number) {
            return Err(format!("test {number} is reported twice"));
        }
        if self.ahead.len() >= MAX_AHEAD {
            return Err(format!("test {} is missing, but later tests are reported", self.complete + 1));
        }
        self.ahead.insert(number);
        while self.ahead.remove(&(self.complete + 1)) {
            self.complete += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use FrameworkResult::{Failed, Passed, Skipped};

    use super::*;

    fn run(text: &str, code: i32) -> (Vec<TestPart>, FrameworkVerdict) {
        let (mut parser, mut events) = (TapParser::new(1), Vec::new());
        parser.opening_request(&mut events);
        text.as_bytes().chunks(5).for_each(|chunk| parser.on_stdout(chunk, &mut events));
        parser.on_output_end(&mut events);
        assert!(!parser.is_complete());
        parser.on_exit(code, &mut events);
        assert!(parser.is_complete() && parser.explains_exit(code));
        let Some(TranscriptEvent::Ended { verdict, .. }) = events.pop() else { panic!("{events:?}") };
        let part = |event| match event {
            TranscriptEvent::Part { part, .. } => Some(part),
            _ => None,
        };
        (events.into_iter().filter_map(part).collect(), verdict)
    }

    fn messages(verdict: &FrameworkVerdict) -> String {
        let texts = verdict.failures.iter().filter_map(|failure| failure.message.as_deref());
        texts.collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn plan_and_points_and_exit_code_decide() {
        for (text, code, result, message) in [
            ("1..2\nok 1\nok 2\n", 0, Passed, ""),
            ("ok 1\nok 2\n1..2", 0, Passed, ""),
            ("TAP version 14\n1..1\nok 1 - a # comment\n", 0, Passed, ""),
            ("1..2\nok 2\nok 1\n", 0, Passed, ""),
            ("1..2\nok\nok\n", 0, Passed, ""),
            ("1..1\nnot ok 1 - a # TODO later\n", 0, Passed, ""),
            ("1..1\nok 1 - a # SKIP no net\n", 0, Passed, ""),
            ("1..0 # SKIP no net\n", 0, Skipped, ""),
            ("1..0\n", 0, Skipped, ""),
            ("1..0\n", 3, Failed, "exited with code 3"),
            ("1..0\nok 1\n", 0, Failed, "0 tests planned, 1 reported"),
            ("ok 1\n1..0\n", 0, Failed, "0 tests planned, 1 reported"),
            ("ok 1\n1..2\nok 2\n", 0, Failed, "the plan is neither before nor after the tests"),
            ("ok 1\n1..1\n# comment\nnoise\n", 0, Passed, ""),
            ("ok 1\n    1..1\n    ok 1\nok 2\n1..2\n", 0, Passed, ""),
            ("1..0 # SKIP no net\n", 1, Failed, "exited with code 1"),
            ("1..3\nok 1\n", 0, Failed, "3 tests planned, 1 reported"),
            ("1..1\nok 1\nok 2\n", 0, Failed, "1 test planned, 2 reported"),
            ("ok 1\n", 0, Failed, "no TAP plan; 1 test reported"),
            ("", 0, Failed, "no TAP plan; 0 tests reported"),
            ("1..2\nok 1\nok 1\n", 0, Failed, "test 1 is reported twice"),
            ("1..2\nok 1\nok 3\n", 0, Failed, "test 3 is outside the plan of 2"),
            ("1..2\nok 1\nok 0\n", 0, Failed, "test 0 is reported twice"),
            ("1..1\n1..1\nok\n", 0, Failed, "more than one plan"),
            ("1..1\nnot ok 1 - a\n", 1, Failed, "not ok 1 - a"),
            ("1..1\nnot ok 1 - a\n", 0, Failed, "not ok 1 - a"),
            ("1..1\nok 1\n", 5, Failed, "exited with code 5"),
            ("1..3\nok 1\nBail out! disk full\nok 2\nok 3\n", 0, Failed, "Bail out! disk full"),
        ] {
            let (_, verdict) = run(text, code);
            assert_eq!((verdict.result, messages(&verdict)).0, result, "{text:?} {code}: {verdict:?}");
            assert!(messages(&verdict).contains(message), "{text:?}: {verdict:?}");
        }
        assert_eq!(run("1..0 # skip no net\n", 0).1.reason.as_deref(), Some("no net"));
        assert_eq!(run("1..0\n", 0).1.reason.as_deref(), Some("no reason given"));
    }

    #[test]
    fn parts_are_points_with_their_subtests_and_details() {
        let text = "TAP version 14\n1..4\nok 1 - first\nnot ok 2 - second\n  ---\n  message: 'differs'\n  \
                    found: 3\n  at:\n    file: a.t\n    line: 7\n  ...\n# Subtest: inner\n    1..2\n    \
                    ok 1 - deep\n    not ok 2 - wrong\n      ---\n      why: so\n      ...\nnot ok 3 - inner\n    \
                    # Subtest: other\n    ok 1\n    1..1\nok 4 - other # SKIP not here\n";
        let (parts, verdict) = run(text, 2);
        let shown: Vec<_> = parts
            .iter()
            .map(|part| {
                let message = part.message.as_deref().unwrap_or_default();
                format!("{} {} {message:?}", part.name, part.result.unwrap().as_str())
            })
            .collect();
        assert_eq!(
            shown,
            [
                "1 - first passed \"\"",
                "2 - second failed \"message: 'differs'\\nfound: 3\\nat:\\n  file: a.t\\n  line: 7\"",
                "inner > 1 - deep passed \"\"",
                "inner > 2 - wrong failed \"why: so\"",
                "3 - inner failed \"\"",
                "other > 1 passed \"\"",
                "4 - other skipped \"not here\"",
            ]
        );
        let [second, inner] = &verdict.failures[..] else { panic!("{verdict:?}") };
        assert_eq!(
            (second.place().unwrap().to_string().as_str(), second.actual.as_deref()),
            ("a.t:7", Some("3"))
        );
        assert_eq!(inner.message.as_deref(), Some("not ok 3 - inner"));
    }

    #[test]
    fn nested_subtests_have_the_names_of_all_levels() {
        let text = "# Subtest: a\n    # Subtest: b\n        ok 1 - x\n        1..1\n    ok 1 - b\n    1..1\n\
                    ok 1 - a\n# Subtest: c\n    ok 1 - y\n    1..1\nok 2 - c\n1..2\n";
        let (parts, verdict) = run(text, 0);
        let names: Vec<_> = parts.iter().map(|part| part.name.as_str()).collect();
        assert_eq!(names, ["a > b > 1 - x", "a > 1 - b", "1 - a", "c > 1 - y", "2 - c"]);
        assert_eq!(verdict.result, Passed);
    }

    #[test]
    fn memory_is_bounded() {
        let mut numbers = PointNumbers::default();
        for number in 2..200_000 {
            let _told = numbers.insert(number);
        }
        assert!(numbers.ahead.len() <= MAX_AHEAD && numbers.insert(300_000).is_err());
        let (mut parser, mut events) = (TapParser::new(1), Vec::new());
        parser.on_stdout(&vec![b'x'; 1 << 20], &mut events);
        assert_eq!(parser.line.len(), LINE_BYTES);
    }
}
