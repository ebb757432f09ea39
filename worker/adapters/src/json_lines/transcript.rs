//! Parser of JSON lines reports during a run, and the dialogue that requests one batch after the other.

use super::adapter::JsonLines;
use crate::{
    ConnectionInput, ReportWriter, TranscriptEvent, TranscriptParser,
    json_reports::{
        dialogue::ReportDialogue,
        lines::{LINE_BYTES, ReportLineReader},
        message::{RECORD_START, ReportLine},
        outputs::DividedOutputs,
    },
};

/// Number of tests in one request. Small, so that a process that dies leaves few tests that had not begun.
const TESTS_PER_REQUEST: usize = 16;

/// Parser of one process's reports.
pub(super) struct JsonLinesParser {
    carrier: JsonLines,
    dialogue: ReportDialogue,
    lines: ReportLineReader,
    /// The process that wrote the current reports, if known.
    writer: Option<ReportWriter>,
    /// Start of an incomplete record on standard output, including `RECORD_START`.
    record: Vec<u8>,
    /// At least one report has been read.
    has_reported: bool,
    /// Attributes outputs to tests, for programs that announced fences.
    outputs: DividedOutputs,
}

impl JsonLinesParser {
    pub(super) fn new(carrier: JsonLines, tests: Vec<String>) -> Self {
        let dialogue = ReportDialogue::new(tests, TESTS_PER_REQUEST);
        Self {
            carrier,
            dialogue,
            lines: ReportLineReader::default(),
            writer: None,
            record: Vec::new(),
            has_reported: false,
            outputs: DividedOutputs::default(),
        }
    }

    /// Handles a report and returns the next request.
    fn on_report(&mut self, report: &ReportLine, events: &mut Vec<TranscriptEvent>) -> Vec<u8> {
        let is_first = !std::mem::replace(&mut self.has_reported, true);
        if report.kind() == "hello" {
            let fault = report.unknown_version();
            let fault = fault.or_else(|| (!is_first).then(|| "\"hello\" after other reports".to_owned()));
            match fault {
                Some(fault) => self.dialogue.record_fault(fault),
                // On standard output, test output already appears between the reports of its test.
                None if self.carrier == JsonLines::StandardStreams => {}
                None => self.outputs.set_nonce(&report.text("fence").unwrap_or_default()),
            }
            return Vec::new();
        }
        if !self.outputs.has_nonce() {
            return self.dialogue.on_report_line(report, self.writer, events);
        }
        let mut own = Vec::new();
        let request = self.dialogue.on_report_line(report, self.writer, &mut own);
        for event in own {
            self.outputs.push_event(report.fence(), event);
        }
        if report.kind() == "done" {
            self.outputs.push_done(report.fence());
        }
        request
    }

    /// Reads lines, one report each; returns the next requests.
    fn read_lines(&mut self, chunk: &[u8], events: &mut Vec<TranscriptEvent>) -> Vec<u8> {
        let mut request = Vec::new();
        for report in self.lines.read(chunk) {
            match report {
                Ok(report) => request.extend(self.on_report(&report, events)),
                Err(fault) => self.dialogue.record_fault(fault),
            }
        }
        request
    }

    /// Reads output that contains records; returns the next requests. A record that is not a JSON object is
    /// output, because a test may write any byte.
    fn read_records(&mut self, chunk: &[u8], events: &mut Vec<TranscriptEvent>) -> Vec<u8> {
        let mut request = Vec::new();
        let mut rest = chunk;
        while !rest.is_empty() {
            if self.record.is_empty() {
                let start = memchr::memchr(RECORD_START, rest).unwrap_or(rest.len());
                emit_output(&rest[..start], events);
                rest = &rest[start..];
            }
            // A record ends with its line. If another record starts first, this record was output.
            let from = usize::from(self.record.is_empty()).min(rest.len());
            let end = memchr::memchr2(b'\n', RECORD_START, &rest[from..]).map(|end| from + end);
            let is_line = end.is_some_and(|end| rest[end] == b'\n');
            let (piece, behind) = rest.split_at(end.map_or(rest.len(), |end| end + usize::from(is_line)));
            self.record.extend_from_slice(piece);
            rest = behind;
            if self.record.len() > LINE_BYTES || end.is_some() {
                let record = std::mem::take(&mut self.record);
                let report =
                    record.get(1..).filter(|_| is_line).and_then(|line| ReportLine::parse(line.trim_ascii()));
                match report.filter(|_| record.len() <= LINE_BYTES) {
                    Some(report) => request.extend(self.on_report(&report, events)),
                    None => emit_output(&record, events),
                }
            }
        }
        request
    }
}

fn emit_output(bytes: &[u8], events: &mut Vec<TranscriptEvent>) {
    if !bytes.is_empty() {
        events.push(TranscriptEvent::Output(bytes.to_vec()));
    }
}

impl TranscriptParser for JsonLinesParser {
    fn opening_request(&mut self, _events: &mut Vec<TranscriptEvent>) -> Vec<u8> {
        self.dialogue.request()
    }

    fn on_connection(
        &mut self,
        _connection: usize,
        input: ConnectionInput<'_>,
        events: &mut Vec<TranscriptEvent>,
    ) -> Vec<u8> {
        self.writer = input.writer();
        self.on_channel(input.bytes(), events)
    }

    fn on_channel(&mut self, chunk: &[u8], events: &mut Vec<TranscriptEvent>) -> Vec<u8> {
        match self.carrier {
            JsonLines::Channel => self.read_lines(chunk, events),
            JsonLines::StandardStreams => self.read_records(chunk, events),
        }
    }

    fn has_forked_copies(&self) -> bool {
        self.dialogue.has_copies()
    }

    fn on_outputs(&mut self, stdout: &[u8], stderr: &[u8], events: &mut Vec<TranscriptEvent>) -> bool {
        if !self.outputs.has_nonce() {
            return false;
        }
        self.outputs.push_outputs(stdout, stderr);
        self.outputs.pass_on(events);
        true
    }

    fn on_output_end(&mut self, events: &mut Vec<TranscriptEvent>) {
        self.outputs.finish(events);
        let rest = std::mem::take(&mut self.record);
        if self.carrier == JsonLines::StandardStreams {
            emit_output(&rest, events);
        }
    }

    fn is_complete(&self) -> bool {
        self.dialogue.is_complete()
    }

    fn explains_exit(&self, code: i32) -> bool {
        code == 0 && self.dialogue.fault().is_none()
    }

    fn outside_failure(&self) -> Option<&str> {
        self.dialogue.fault()
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
    fn hello_of_another_version_or_at_another_place_is_a_fault() {
        let fault = |lines: &str| {
            let mut parser = parser(1);
            parser.on_channel(lines.as_bytes(), &mut Vec::new());
            parser.outside_failure().map(str::to_owned)
        };
        assert_eq!(fault("{\"k\":\"hello\",\"v\":1,\"name\":\"x\"}\n{\"k\":\"begin\",\"i\":0}\n"), None);
        assert_eq!(fault("{\"k\":\"hello\"}\n"), None);
        assert!(
            fault("{\"k\":\"hello\",\"v\":2}\n")
                .unwrap()
                .contains("this version of Heeler supports version 1")
        );
        assert!(
            fault("{\"k\":\"begin\",\"i\":0}\n{\"k\":\"hello\"}\n").unwrap().contains("after other reports")
        );
    }

    #[test]
    fn output_and_files_belong_to_the_test_that_the_report_names() {
        let mut parser = parser(2);
        let mut events = Vec::new();
        let lines = "{\"k\":\"begin\",\"i\":0}\n{\"k\":\"begin\",\"i\":1}\n\
                     {\"k\":\"out\",\"i\":0,\"s\":\"err\",\"t\":\"a\"}\n\
                     {\"k\":\"file\",\"i\":1,\"path\":\"/a/b\",\"what\":\"log\"}\n";
        parser.on_channel(lines.as_bytes(), &mut events);
        let output = TranscriptEvent::TestOutput {
            place: 0,
            stream: crate::OutputStream::Error,
            bytes: b"a".to_vec(),
        };
        let file = TranscriptEvent::File { place: 1, path: "/a/b".into(), description: "log".into() };
        assert_eq!(events[2..], [output, file]);
        assert_eq!(parser.outside_failure(), None);
        for wrong in ["\"k\":\"out\",\"s\":\"x\",\"t\":\"\"", "\"k\":\"file\",\"path\":\"b\""] {
            let mut parser = self::parser(1);
            let lines = format!("{{\"k\":\"begin\",\"i\":0}}\n{{\"i\":0,{wrong}}}\n");
            parser.on_channel(lines.as_bytes(), &mut Vec::new());
            assert!(parser.outside_failure().is_some(), "{wrong}");
        }
    }

    #[test]
    fn fences_divide_the_outputs_where_the_program_announces_them() {
        let mut parser = parser(2);
        let mut events = Vec::new();
        assert!(!parser.on_outputs(b"early", b"", &mut events), "no fence is announced yet");
        let lines = "{\"k\":\"hello\",\"v\":1,\"fence\":\"n\"}\n{\"k\":\"begin\",\"i\":0,\"f\":1}\n\
                     {\"k\":\"end\",\"i\":0,\"state\":\"passed\",\"f\":2}\n{\"k\":\"begin\",\"i\":1}\n\
                     {\"k\":\"end\",\"i\":1,\"state\":\"passed\",\"f\":3}\n{\"k\":\"done\"}\n";
        assert_eq!(parser.on_channel(lines.as_bytes(), &mut events), b"{\"k\":\"stop\"}\n");
        let fenced = |text: &str| text.replace('~', "\u{1e}n ").into_bytes();
        assert!(parser.on_outputs(&fenced("~1\na~2\nb~3\n"), &fenced("~1\n~2\n~3\n"), &mut events));
        let outputs: Vec<_> = events
            .iter()
            .map(|event| match event {
                TranscriptEvent::Begun { place } => format!("<{place}"),
                TranscriptEvent::Ended { place, .. } => format!("{place}>"),
                TranscriptEvent::Output(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(outputs.concat(), "<0a0><1b1>");
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
        assert!(parser.record.len() <= LINE_BYTES && parser.outside_failure().is_some());
    }

    /// Returns the events with adjacent outputs joined, because chunk boundaries are arbitrary.
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

    const MAIN: ReportWriter = ReportWriter(1);
    const CHILD: ReportWriter = ReportWriter(2);

    /// Returns the events of reports from several processes as words, the last request, and the parser.
    fn read_of(reports: &[(ReportWriter, &str)]) -> (String, Vec<u8>, JsonLinesParser) {
        let mut parser = parser(3);
        let (mut events, mut request) = (Vec::new(), Vec::new());
        for (writer, report) in reports {
            let line = match report.split(' ').collect::<Vec<_>>()[..] {
                ["done"] => "{\"k\":\"done\"}\n".to_owned(),
                ["begin", place] => format!("{{\"k\":\"begin\",\"i\":{place}}}\n"),
                [state, place] => format!("{{\"k\":\"end\",\"i\":{place},\"state\":\"{state}\"}}\n"),
                _ => panic!("{report}"),
            };
            request =
                parser.on_connection(0, ConnectionInput::BytesOf(*writer, line.as_bytes()), &mut events);
        }
        let words = events.iter().map(|event| match event {
            TranscriptEvent::Begun { place } => format!("{place}:"),
            TranscriptEvent::Ended { verdict, .. } => verdict.result.as_str().to_owned(),
            other => panic!("{other:?}"),
        });
        (words.collect::<Vec<_>>().join(" "), request, parser)
    }

    #[test]
    fn forked_copy_that_goes_on_with_the_run_decides_nothing() {
        let copy = [(MAIN, "begin 0"), (CHILD, "passed 0"), (CHILD, "begin 1"), (CHILD, "passed 1")];
        let (words, _, parser) = read_of(&copy);
        assert_eq!((words.as_str(), parser.outside_failure()), ("0:", None), "the parent may die yet");
        let (_, request, parser) = read_of(&[&copy[..], &[(CHILD, "done")]].concat());
        assert_eq!(request, b"{\"k\":\"stop\"}\n", "the copy does not wait for ever");
        assert!(!parser.is_complete());
        let own = [(MAIN, "failed 0"), (MAIN, "begin 1"), (MAIN, "passed 1"), (MAIN, "done")];
        for rest in [&own[..], &[&own[..1], &[(CHILD, "done")], &own[1..]].concat()] {
            let (words, _, parser) = read_of(&[&copy[..], rest].concat());
            assert_eq!((words.as_str(), parser.outside_failure()), ("0: failed 1: passed", None));
            assert!(parser.is_complete());
        }
        let late = [&[(MAIN, "begin 0")], &own[..], &[(CHILD, "passed 0"), (CHILD, "done")]].concat();
        let (words, request, parser) = read_of(&late);
        assert_eq!((words.as_str(), parser.outside_failure()), ("0: failed 1: passed", None));
        assert_eq!(request, b"{\"k\":\"stop\"}\n", "the copy may have taken the request of its parent");
        let late = [(MAIN, "begin 0"), (MAIN, "failed 0"), (CHILD, "passed 0"), (CHILD, "begin 1")];
        let (words, _, parser) = read_of(&[&late[..], &own[1..]].concat());
        assert_eq!((words.as_str(), parser.outside_failure()), ("0: failed 1: passed", None));
    }

    #[test]
    fn children_report_the_ends_of_tests() {
        let other = ReportWriter(3);
        let forked = [(MAIN, "begin 0"), (CHILD, "passed 0"), (MAIN, "begin 1"), (other, "failed 1")];
        let (words, ..) = read_of(&forked);
        assert_eq!(words, "0: passed 1:", "the parent may die before it goes on");
        let (words, _, parser) = read_of(&[&forked[..], &[(MAIN, "done")]].concat());
        assert_eq!((words.as_str(), parser.outside_failure()), ("0: passed 1: failed", None));
        let pool = [(MAIN, "begin 0"), (MAIN, "begin 1"), (MAIN, "begin 2"), (CHILD, "passed 2")];
        let pool = [&pool[..], &[(CHILD, "passed 0"), (other, "failed 1"), (MAIN, "done")]].concat();
        let (words, _, parser) = read_of(&pool);
        assert_eq!((words.as_str(), parser.outside_failure()), ("0: 1: 2: passed passed failed", None));
        let own = [(CHILD, "begin 0"), (CHILD, "passed 0"), (other, "begin 1"), (other, "passed 1")];
        assert_eq!(read_of(&[&own[..], &[(MAIN, "done")]].concat()).0, "0: passed 1: passed");
    }

    #[test]
    fn record_without_end_is_output_and_not_kept() {
        let mut parser = parser_on(JsonLines::StandardStreams, 1);
        let mut events = Vec::new();
        parser.on_channel(&[RECORD_START], &mut events);
        for _ in 0..40 {
            parser.on_channel(&vec![b'x'; LINE_BYTES / 10], &mut events);
            assert!(parser.record.len() <= LINE_BYTES + LINE_BYTES / 10);
        }
        let bytes: usize = events
            .iter()
            .map(|event| if let TranscriptEvent::Output(bytes) = event { bytes.len() } else { 0 })
            .sum();
        assert!(bytes >= 3 * LINE_BYTES && parser.outside_failure().is_none());
    }
}
