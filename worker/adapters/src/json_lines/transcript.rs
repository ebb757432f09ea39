//! Parser of the reports of a run in JSON lines, and the dialogue that requests one batch after the other.

use std::{ops::Range, time::Duration};

use heeler_core::Failure;

use super::{
    adapter::JsonLines,
    message::{self, RECORD_START, ReportLine},
};
use crate::{FrameworkResult, FrameworkVerdict, TestPart, TranscriptEvent, TranscriptParser, scan};

/// Tests of one request. Small, so that a process that dies has few tests in hand that it had not begun.
const TESTS_PER_REQUEST: usize = 16;
/// Length of a line; a longer one is an error of the program.
const LINE_BYTES: usize = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReportedState {
    Waiting,
    Running,
    Ended,
}

/// The parser of one process's reports.
pub(super) struct JsonLinesParser {
    carrier: JsonLines,
    tests: Vec<String>,
    states: Vec<ReportedState>,
    /// Tests of the current request.
    requested: Range<usize>,
    /// The beginning of a line; on standard output, with the byte before it.
    buffered: Vec<u8>,
    is_complete: bool,
    /// The first error of the program's reports.
    fault: Option<String>,
}

impl JsonLinesParser {
    pub(super) fn new(carrier: JsonLines, tests: Vec<String>) -> Self {
        let requested = 0..tests.len().min(TESTS_PER_REQUEST);
        let states = vec![ReportedState::Waiting; tests.len()];
        Self { carrier, tests, states, requested, buffered: Vec::new(), is_complete: false, fault: None }
    }

    fn request(&self) -> Vec<u8> {
        message::run(&self.tests[self.requested.clone()], self.tests.len() == 1)
    }

    /// Reads lines, each of which is a report; returns the next requests.
    fn read_lines(&mut self, chunk: &[u8], events: &mut Vec<TranscriptEvent>) -> Vec<u8> {
        let mut request = Vec::new();
        for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
            let room = LINE_BYTES.saturating_sub(self.buffered.len());
            self.buffered.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.len() > room {
                self.record_fault(format!("a line of more than {LINE_BYTES} bytes"));
            }
            if piece.ends_with(b"\n") {
                let line = std::mem::take(&mut self.buffered);
                match ReportLine::parse(line.trim_ascii()) {
                    Some(report) => request.extend(self.on_report_line(&report, events)),
                    None => {
                        let text = scan::decode_lossy(&line);
                        self.record_fault(format!("unreadable line {:?}", scan::truncated(&text, 200)));
                    }
                }
            }
        }
        request
    }

    /// Reads output with records in it; returns the next requests. A record that is no JSON object is output:
    /// a test may write any byte.
    fn read_records(&mut self, chunk: &[u8], events: &mut Vec<TranscriptEvent>) -> Vec<u8> {
        let mut request = Vec::new();
        let mut rest = chunk;
        while !rest.is_empty() {
            if self.buffered.is_empty() {
                let start = memchr::memchr(RECORD_START, rest).unwrap_or(rest.len());
                emit_output(&rest[..start], events);
                rest = &rest[start..];
            }
            // A record ends with its line; another one that begins in it shows that it was none.
            let from = usize::from(self.buffered.is_empty()).min(rest.len());
            let end = memchr::memchr2(b'\n', RECORD_START, &rest[from..]).map(|end| from + end);
            let is_line = end.is_some_and(|end| rest[end] == b'\n');
            let (piece, behind) = rest.split_at(end.map_or(rest.len(), |end| end + usize::from(is_line)));
            self.buffered.extend_from_slice(piece);
            rest = behind;
            if self.buffered.len() > LINE_BYTES || end.is_some() {
                let record = std::mem::take(&mut self.buffered);
                let report =
                    record.get(1..).filter(|_| is_line).and_then(|line| ReportLine::parse(line.trim_ascii()));
                match report.filter(|_| record.len() <= LINE_BYTES) {
                    Some(report) => request.extend(self.on_report_line(&report, events)),
                    None => emit_output(&record, events),
                }
            }
        }
        request
    }

    /// Handles a report; returns the next request.
    fn on_report_line(&mut self, report: &ReportLine, events: &mut Vec<TranscriptEvent>) -> Vec<u8> {
        match report.kind() {
            "done" => return self.on_done(),
            "begin" | "end" | "part" => self.on_report(report, events),
            _ => {}
        }
        Vec::new()
    }

    fn on_done(&mut self) -> Vec<u8> {
        if self.is_complete {
            return Vec::new();
        }
        if let Some(open) = self.requested.clone().find(|place| self.states[*place] == ReportedState::Running)
        {
            self.record_fault(format!("\"done\" while {:?} was running", self.tests[open]));
        }
        self.requested = self.requested.end..self.tests.len().min(self.requested.end + TESTS_PER_REQUEST);
        if self.requested.is_empty() {
            self.is_complete = true;
            return message::stop();
        }
        self.request()
    }

    fn on_report(&mut self, report: &ReportLine, events: &mut Vec<TranscriptEvent>) {
        let place = report.index().and_then(|index| self.requested.start.checked_add(index));
        let Some(place) = place.filter(|place| self.requested.contains(place)) else {
            return self.record_fault(format!("{:?} of a test that was not requested", report.kind()));
        };
        let kind = report.kind();
        match (kind, self.states[place]) {
            ("begin", ReportedState::Waiting) => {
                self.states[place] = ReportedState::Running;
                events.push(TranscriptEvent::Begun { place });
            }
            ("end", ReportedState::Running) => match verdict(report) {
                Some(verdict) => {
                    self.states[place] = ReportedState::Ended;
                    events.push(TranscriptEvent::Ended { place, verdict });
                }
                None => self.record_fault(format!("{:?} ends in an unknown state", self.tests[place])),
            },
            ("part", ReportedState::Running) => {
                let name = report.text("name").unwrap_or_default();
                let part = TestPart { name, result: result(report), message: report.text("message") };
                events.push(TranscriptEvent::Part { place, part });
            }
            (kind, _) => self.record_fault(format!("{kind:?} of {:?} at the wrong time", self.tests[place])),
        }
    }

    fn record_fault(&mut self, fault: String) {
        self.fault.get_or_insert_with(|| format!("its reports are in error: {fault}"));
    }
}

fn emit_output(bytes: &[u8], events: &mut Vec<TranscriptEvent>) {
    if !bytes.is_empty() {
        events.push(TranscriptEvent::Output(bytes.to_vec()));
    }
}

fn result(report: &ReportLine) -> Option<FrameworkResult> {
    match report.text("state")?.as_str() {
        "passed" => Some(FrameworkResult::Passed),
        "failed" => Some(FrameworkResult::Failed),
        "skipped" => Some(FrameworkResult::Skipped),
        _ => None,
    }
}

fn verdict(report: &ReportLine) -> Option<FrameworkVerdict> {
    let milliseconds = report.number("ms");
    let duration = milliseconds.and_then(|time| Duration::try_from_secs_f64(time / 1000.0).ok());
    let mut verdict = FrameworkVerdict::new(result(report)?, duration);
    if verdict.result == FrameworkResult::Failed {
        verdict.push_failure(failure(report));
        report.objects("failures").iter().map(failure).for_each(|one| verdict.push_failure(one));
    } else {
        verdict.reason = report.text("message");
    }
    Some(verdict)
}

fn failure(report: &ReportLine) -> Failure {
    Failure {
        message: report.text("message"),
        file: report.text("file"),
        line: report.line_number(),
        expected: report.text("expected"),
        actual: report.text("actual"),
        stack: report.text("stack"),
    }
}

impl TranscriptParser for JsonLinesParser {
    fn opening_request(&mut self, _events: &mut Vec<TranscriptEvent>) -> Vec<u8> {
        self.request()
    }

    fn on_channel(&mut self, chunk: &[u8], events: &mut Vec<TranscriptEvent>) -> Vec<u8> {
        match self.carrier {
            JsonLines::Channel => self.read_lines(chunk, events),
            JsonLines::StandardStreams => self.read_records(chunk, events),
        }
    }

    fn on_output_end(&mut self, events: &mut Vec<TranscriptEvent>) {
        let rest = std::mem::take(&mut self.buffered);
        if self.carrier == JsonLines::StandardStreams {
            emit_output(&rest, events);
        }
    }

    fn is_complete(&self) -> bool {
        self.is_complete
    }

    fn explains_exit(&self, code: i32) -> bool {
        code == 0 && self.fault.is_none()
    }

    fn outside_failure(&self) -> Option<&str> {
        self.fault.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parser(count: usize) -> JsonLinesParser {
        parser_on(JsonLines::Channel, count)
    }

    fn parser_on(carrier: JsonLines, count: usize) -> JsonLinesParser {
        JsonLinesParser::new(carrier, (0..count).map(|number| format!("t{number}")).collect())
    }

    const FIRST: &str = "{\"k\":\"begin\",\"i\":0}\n{\"k\":\"part\",\"i\":0,\"name\":\"p\",\"state\":\"failed\"}\n\
                         {\"k\":\"begin\",\"i\":1}\n{\"k\":\"end\",\"i\":1,\"state\":\"passed\",\"ms\":2}\n\
                         {\"k\":\"end\",\"i\":0,\"state\":\"failed\",\"message\":\"m\"}\n{\"k\":\"done\"}\n";

    #[test]
    fn reports_are_the_same_wherever_they_are_cut() {
        let mut whole = parser(2);
        let mut events = Vec::new();
        assert_eq!(whole.on_channel(FIRST.as_bytes(), &mut events), b"{\"k\":\"stop\"}\n");
        assert!(whole.is_complete() && whole.explains_exit(0) && !whole.explains_exit(1));
        assert_eq!(events.len(), 5);
        for cut in 0..=FIRST.len() {
            let mut parser = parser(2);
            let mut pieces = Vec::new();
            parser.on_channel(&FIRST.as_bytes()[..cut], &mut pieces);
            assert_eq!(parser.is_complete(), cut == FIRST.len());
            parser.on_channel(&FIRST.as_bytes()[cut..], &mut pieces);
            assert_eq!(pieces, events, "cut at {cut}");
        }
    }

    #[test]
    fn each_reported_failure_is_kept() {
        let end = |members: &str| {
            let mut events = Vec::new();
            let lines = format!("{{\"k\":\"begin\",\"i\":0}}\n{{\"k\":\"end\",\"i\":0{members}}}\n");
            parser(1).on_channel(lines.as_bytes(), &mut events);
            match events.pop() {
                Some(TranscriptEvent::Ended { verdict, .. }) => verdict,
                other => panic!("{other:?}"),
            }
        };
        let both = end(
            ",\"state\":\"failed\",\"message\":\"a\",\"failures\":[{\"message\":\"b\",\"file\":\"f\",\"line\":3},7,{}]",
        );
        let [first, second] = both.failures.as_slice() else { panic!("{both:?}") };
        assert_eq!((first.message.as_deref(), first.line), (Some("a"), None));
        assert_eq!((second.message.as_deref(), second.line), (Some("b"), Some(3)));
        let listed = end(",\"state\":\"failed\",\"failures\":[{\"message\":\"b\"}]");
        assert_eq!(listed.failures.len(), 1);
        assert_eq!(end(",\"state\":\"failed\"").failures, []);
        let skipped = end(",\"state\":\"skipped\",\"message\":\"off\"");
        assert_eq!((skipped.reason.as_deref(), skipped.failures.len()), (Some("off"), 0));
    }

    #[test]
    fn next_batch_is_requested_after_the_last_is_done() {
        let mut parser = parser(TESTS_PER_REQUEST + 1);
        let opening = parser.opening_request(&mut Vec::new());
        assert_eq!(parser.opening_request(&mut Vec::new()), opening);
        let mut events = Vec::new();
        let next = parser.on_channel(b"{\"k\":\"done\"}\n", &mut events);
        let next: serde_json::Value = serde_json::from_slice(&next).unwrap();
        assert_eq!(next["tests"], serde_json::json!(["t16"]));
        parser.on_channel(b"{\"k\":\"begin\",\"i\":0}\n", &mut events);
        assert_eq!(events, [TranscriptEvent::Begun { place: TESTS_PER_REQUEST }]);
        assert!(parser.on_channel(b"{\"k\":\"done\"}\n", &mut events).ends_with(b"\"stop\"}\n"));
        assert!(parser.outside_failure().unwrap().contains("\"t16\" was running"));
    }

    #[test]
    fn wrong_reports_are_a_fault_and_no_event() {
        for wrong in [
            "{\"k\":\"end\",\"i\":0,\"state\":\"passed\"}",
            "{\"k\":\"begin\",\"i\":2}",
            "{\"k\":\"begin\"}",
            "[]",
            "garbage",
        ] {
            let mut parser = parser(2);
            let mut events = Vec::new();
            parser.on_channel(format!("{wrong}\n").as_bytes(), &mut events);
            assert!(events.is_empty() && parser.outside_failure().is_some(), "{wrong}");
            assert!(!parser.explains_exit(0));
        }
        let mut parser = parser(1);
        for _ in 0..40 {
            parser.on_channel(&vec![b'x'; LINE_BYTES / 10], &mut Vec::new());
        }
        assert!(parser.buffered.len() <= LINE_BYTES && parser.outside_failure().is_some());
    }

    /// Returns the events with adjacent outputs joined: how output is cut has no meaning.
    fn replay(pieces: &[&[u8]]) -> (Vec<TranscriptEvent>, Vec<u8>) {
        let mut parser = parser_on(JsonLines::StandardStreams, 2);
        let (mut events, mut merged, mut requests) = (Vec::new(), Vec::new(), Vec::new());
        for piece in pieces {
            requests.extend(parser.on_channel(piece, &mut events));
        }
        parser.on_output_end(&mut events);
        for event in events {
            match (merged.last_mut(), event) {
                (Some(TranscriptEvent::Output(before)), TranscriptEvent::Output(bytes)) => {
                    before.extend(bytes)
                }
                (_, event) => merged.push(event),
            }
        }
        (merged, requests)
    }

    #[test]
    fn records_are_found_between_any_output() {
        let text =
            "start\n~{\"k\":\"begin\",\"i\":0}\nno newline~{\"k\":\"end\",\"i\":0,\"state\":\"passed\"}\n\
                    {\"k\":\"begin\",\"i\":1}\n~~ab\n~{\"k\":\"begin\",\"i\":1}\n~{\"k\":\"done\"}\nbye~"
                .replace('~', "\u{1e}");
        let (events, requests) = replay(&[text.as_bytes()]);
        let outputs: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                TranscriptEvent::Output(bytes) => Some(String::from_utf8_lossy(bytes).replace('\u{1e}', "~")),
                _ => None,
            })
            .collect();
        assert_eq!(outputs, ["start\n", "no newline", "{\"k\":\"begin\",\"i\":1}\n~~ab\n", "bye~"]);
        assert_eq!((events.len(), requests.as_slice()), (7, &b"{\"k\":\"stop\"}\n"[..]));
        for cut in 0..=text.len() {
            let (head, tail) = text.as_bytes().split_at(cut);
            assert_eq!(replay(&[head, tail]), (events.clone(), requests.clone()), "cut at {cut}");
        }
    }

    #[test]
    fn record_without_end_is_output_and_not_kept() {
        let mut parser = parser_on(JsonLines::StandardStreams, 1);
        let mut events = Vec::new();
        parser.on_channel(&[RECORD_START], &mut events);
        for _ in 0..40 {
            parser.on_channel(&vec![b'x'; LINE_BYTES / 10], &mut events);
            assert!(parser.buffered.len() <= LINE_BYTES + LINE_BYTES / 10);
        }
        let bytes: usize = events
            .iter()
            .map(|event| if let TranscriptEvent::Output(bytes) = event { bytes.len() } else { 0 })
            .sum();
        assert!(bytes >= 3 * LINE_BYTES && parser.outside_failure().is_none());
    }
}
