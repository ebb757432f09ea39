//! The dialogue with a client under test. Only one request is open at a time, so every event of the process
//! belongs to the current case.

use bytes::BytesMut;
use data_encoding::BASE64;
use heeler_core::Failure;
use heeler_protocol::{
    StreamDecoder as _,
    connect::{
        ClientResponse, MessageDecoder, MessageError, MessageTooLarge, RESPONSE_LIMIT_BYTES, append_message,
        decode_response,
    },
    control::ListedTest,
};

use crate::{FrameworkResult, FrameworkVerdict, TranscriptEvent, TranscriptParser, scan};

/// Bytes of wrong output shown in a message.
const SHOWN_BYTES: usize = 200;

/// Parser of one process's answers. Memory is bounded by the requests and one answer.
pub(super) struct ClientParser {
    /// Name and request of each case.
    cases: Vec<(String, Vec<u8>)>,
    /// The current case; the number of cases when all have been answered.
    asked: usize,
    decoder: MessageDecoder,
    buffer: BytesMut,
    /// The last answer, with its length prefix.
    last_answer: Vec<u8>,
    /// No further case is requested.
    is_ending: bool,
    /// The process is being killed; its output is no longer read.
    is_cancelled: bool,
    /// The output is no longer a sequence of answers. The rest is not read, and the process is killed.
    is_broken: bool,
    /// Fault of the process that belongs to no case.
    outside_failure: Option<String>,
}

impl ClientParser {
    pub(super) fn new(tests: &[&ListedTest]) -> Self {
        let cases = tests.iter().map(|test| case_of(test)).collect();
        let decoder = MessageDecoder::new(RESPONSE_LIMIT_BYTES);
        Self {
            cases,
            asked: 0,
            decoder,
            buffer: BytesMut::new(),
            last_answer: Vec::new(),
            is_ending: false,
            is_cancelled: false,
            is_broken: false,
            outside_failure: None,
        }
    }

    /// Returns the request of the current case, which begins the case.
    fn ask(&self, events: &mut Vec<TranscriptEvent>) -> Vec<u8> {
        let mut request = Vec::new();
        if let Some((_, case)) = self.cases.get(self.asked).filter(|_| !self.is_ending) {
            append_message(&mut request, case);
            events.push(TranscriptEvent::Begun { place: self.asked });
        }
        request
    }

    /// Returns whether a message is a second answer to a case. The first answer has been forwarded, and the
    /// suite accepts only one.
    fn is_repeated(&mut self, response: &Result<ClientResponse, MessageError>) -> bool {
        let Ok(response) = response else { return false };
        let is_repeated = self.cases[..self.asked].iter().any(|(name, _)| *name == response.test_name);
        if is_repeated {
            let text = || format!("answered {:?} more than once", response.test_name);
            self.outside_failure.get_or_insert_with(text);
        }
        is_repeated
    }

    /// Handles the answer to the current case.
    fn on_answer(
        &mut self,
        message: &[u8],
        response: Result<ClientResponse, MessageError>,
        events: &mut Vec<TranscriptEvent>,
    ) -> Result<(), String> {
        let Some((name, _)) = self.cases.get(self.asked) else {
            return Err("unexpected output after its last answer".to_owned());
        };
        check_answer(response, name)?;
        let answer = Some(BASE64.encode(message));
        let verdict = FrameworkVerdict { answer, ..FrameworkVerdict::new(FrameworkResult::Passed, None) };
        events.push(TranscriptEvent::Ended { place: self.asked, verdict });
        self.asked += 1;
        self.last_answer.clear();
        append_message(&mut self.last_answer, message);
        Ok(())
    }

    /// Reads answers; returns whether a case was answered.
    fn read_answers(&mut self, events: &mut Vec<TranscriptEvent>) -> Result<bool, String> {
        let mut is_answered = false;
        loop {
            let message = match self.decoder.decode(&mut self.buffer) {
                Ok(Some(message)) => message,
                // A client may repeat its answer. The rest of the buffer may begin a repetition, so wait for
                // more.
                Ok(None) if is_answered && !self.last_answer.starts_with(&self.buffer) => {
                    return Err(self.unasked_text(events, &self.buffer.clone()));
                }
                Ok(None) => return Ok(is_answered),
                Err(_) if is_answered => return Err(self.unasked_text(events, &self.buffer.clone())),
                Err(error) => return Err(self.unreadable_text(error)),
            };
            let response = decode_response(&message);
            if self.is_repeated(&response) {
                continue;
            }
            if is_answered {
                return Err(self.unasked_text(events, &message));
            }
            self.on_answer(&message, response, events)?;
            is_answered = true;
        }
    }

    /// Takes back the last answer, because the process wrote more bytes before the next request. The extra
    /// bytes belong to the answered case.
    fn unasked_text(&mut self, events: &mut Vec<TranscriptEvent>, bytes: &[u8]) -> String {
        events.pop();
        self.asked -= 1;
        format!("unexpected output after its answer: {:?}", shown_text(bytes))
    }

    /// Fails the current case, or the process if all cases have been answered. The start of the next answer
    /// cannot be found after a fault.
    fn fail(&mut self, reason: String, events: &mut Vec<TranscriptEvent>) {
        if self.asked < self.cases.len() {
            let mut verdict = FrameworkVerdict::new(FrameworkResult::Failed, None);
            verdict.push_failure(Failure { message: Some(reason), ..Failure::default() });
            events.push(TranscriptEvent::Ended { place: self.asked, verdict });
        } else {
            self.outside_failure = Some(reason);
        }
        self.is_broken = true;
        self.buffer.clear();
    }

    fn unreadable_text(&self, error: MessageTooLarge) -> String {
        format!("invalid answer on standard output: {:?} ({error})", shown_text(&self.buffer))
    }
}

/// Returns the first bytes of wrong output, for a message.
fn shown_text(bytes: &[u8]) -> String {
    scan::decode_lossy(&bytes[..bytes.len().min(SHOWN_BYTES)]).trim_end().to_owned()
}

fn case_of(test: &ListedTest) -> (String, Vec<u8>) {
    (test.name.clone(), request_of(test).unwrap_or_default())
}

/// Returns the request of a test as the conformance suite wrote it.
pub(super) fn request_of(test: &ListedTest) -> Option<Vec<u8>> {
    BASE64.decode(test.selector.as_deref()?.as_bytes()).ok()
}

/// Checks that an answer belongs to this case.
fn check_answer(response: Result<ClientResponse, MessageError>, name: &str) -> Result<(), String> {
    let response = response.map_err(|error| format!("invalid answer: {error}"))?;
    if response.test_name != name {
        return Err(format!("answered {:?}, which was not requested", response.test_name));
    }
    if response.answer.is_none() {
        return Err("answered with neither a response nor an error".to_owned());
    }
    Ok(())
}

impl TranscriptParser for ClientParser {
    fn opening_request(&mut self, events: &mut Vec<TranscriptEvent>) -> Vec<u8> {
        self.ask(events)
    }

    fn on_channel(&mut self, chunk: &[u8], events: &mut Vec<TranscriptEvent>) -> Vec<u8> {
        if self.is_broken || self.is_cancelled {
            return Vec::new();
        }
        self.buffer.extend_from_slice(chunk);
        match self.read_answers(events) {
            Ok(true) => return self.ask(events),
            Ok(false) => {}
            Err(reason) => self.fail(reason, events),
        }
        Vec::new()
    }

    fn takes_more_tests(&self) -> bool {
        self.asked == self.cases.len() && !self.is_ending && !self.is_broken && self.outside_failure.is_none()
    }

    fn add_tests(&mut self, tests: &[&ListedTest], events: &mut Vec<TranscriptEvent>) -> Vec<u8> {
        self.cases.extend(tests.iter().map(|test| case_of(test)));
        self.ask(events)
    }

    fn begin_no_more(&mut self) {
        self.is_ending = true;
    }

    fn cancel_request(&mut self, _reason: &str) -> Vec<u8> {
        // The protocol has no cancel request. The process is being killed, so no other case may begin, even
        // if an answer arrives after the time limit.
        self.is_cancelled = true;
        Vec::new()
    }

    fn on_output_end(&mut self, _events: &mut Vec<TranscriptEvent>) {}

    fn is_complete(&self) -> bool {
        self.asked >= self.cases.len() || self.is_broken
    }

    fn explains_exit(&self, code: i32) -> bool {
        code == 0 && !self.is_broken && self.outside_failure.is_none()
    }

    fn is_decided(&self) -> bool {
        // The process might run forever while its other cases wait.
        self.is_broken
    }

    fn outside_failure(&self) -> Option<&str> {
        self.outside_failure.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(name: &str) -> Vec<u8> {
        let length = u8::try_from(name.len()).unwrap();
        let mut message = vec![0x0a, length];
        message.extend_from_slice(name.as_bytes());
        message.extend_from_slice(&[0x12, 0]);
        message
    }

    fn framed(message: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        append_message(&mut out, message);
        out
    }

    fn parser() -> ClientParser {
        ClientParser::new(&[&case("a/b", b"first"), &case("c", b"second")])
    }

    fn case(name: &str, request: &[u8]) -> ListedTest {
        ListedTest { name: name.to_owned(), selector: Some(BASE64.encode(request)), ..ListedTest::default() }
    }

    fn message_of(event: &TranscriptEvent) -> &str {
        match event {
            TranscriptEvent::Ended { verdict, .. } => verdict.failures[0].message.as_deref().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn no_case_is_asked_when_none_is_to_begin() {
        let (mut parser, mut events) = (parser(), Vec::new());
        assert!(!parser.opening_request(&mut events).is_empty());
        parser.begin_no_more();
        assert_eq!(parser.on_channel(&framed(&response("a/b")), &mut events), b"");
        assert!(matches!(
            events[..],
            [TranscriptEvent::Begun { place: 0 }, TranscriptEvent::Ended { place: 0, .. }]
        ));
        assert!(!parser.is_over(), "a case is left");
    }

    #[test]
    fn cases_that_are_added_are_asked_by_the_same_process() {
        let (mut parser, mut events) = (parser(), Vec::new());
        parser.opening_request(&mut events);
        assert!(!parser.takes_more_tests(), "a case runs");
        for name in ["a/b", "c"] {
            parser.on_channel(&framed(&response(name)), &mut events);
        }
        assert!(parser.takes_more_tests());
        events.clear();
        let asked = parser.add_tests(&[&case("d", b"third")], &mut events);
        assert_eq!((asked, &events[..]), (framed(b"third"), &[TranscriptEvent::Begun { place: 2 }][..]));
        assert!(!parser.takes_more_tests() && !parser.is_complete());
        parser.on_channel(&framed(&response("d")), &mut events);
        assert!(matches!(events[1], TranscriptEvent::Ended { place: 2, .. }) && parser.takes_more_tests());
        parser.on_channel(&framed(&response("c")), &mut events);
        assert!(!parser.takes_more_tests(), "it has answered a case again");
        parser.begin_no_more();
        assert!(!parser.takes_more_tests());
    }

    #[test]
    fn process_that_is_being_ended_answers_and_begins_nothing() {
        let (mut parser, mut events) = (parser(), Vec::new());
        assert!(!parser.opening_request(&mut events).is_empty());
        assert_eq!(parser.cancel_request("timed out"), b"");
        assert_eq!(parser.on_channel(&framed(&response("a/b")), &mut events), b"");
        assert!(matches!(events[..], [TranscriptEvent::Begun { place: 0 }]), "{events:?}");
        assert!(!parser.is_complete());
    }

    #[test]
    fn one_case_is_asked_at_a_time_wherever_the_answers_are_cut() {
        let answers = [framed(&response("a/b")), framed(&response("c"))];
        let requests = [framed(b"second"), Vec::new()];
        let (mut parser, mut events) = (parser(), Vec::new());
        assert_eq!(parser.opening_request(&mut events), framed(b"first"));
        for cut in 0..=answers[0].len().max(answers[1].len()) {
            let (mut parser, mut events) = (self::parser(), Vec::new());
            parser.opening_request(&mut events);
            for (answer, request) in answers.iter().zip(&requests) {
                let (one, other) = answer.split_at(cut.min(answer.len()));
                let mut asked = parser.on_channel(one, &mut events);
                asked.extend(parser.on_channel(other, &mut events));
                assert_eq!(asked, *request);
            }
            let ended: Vec<_> = events
                .iter()
                .filter_map(|event| match event {
                    TranscriptEvent::Ended { place, verdict } => Some((*place, verdict.answer.clone()?)),
                    _ => None,
                })
                .collect();
            assert_eq!(ended, [(0, BASE64.encode(&response("a/b"))), (1, BASE64.encode(&response("c")))]);
            assert!(parser.is_complete() && parser.explains_exit(0) && !parser.explains_exit(1));
            assert!(!parser.is_decided());
        }
    }

    #[test]
    fn wrong_output_fails_the_case_that_is_asked_and_ends_the_process() {
        let cases: [(Vec<u8>, &str); 5] = [
            (b"hello, world\n".to_vec(), "invalid answer on standard output: \"hello, world\""),
            (b"\xff\xff\xff\xff".to_vec(), "invalid answer on standard output: "),
            (framed(&response("c")), "answered \"c\", which was not requested"),
            (framed(&response("a/b")[..5]), "answered with neither a response nor an error"),
            (framed(&[0x0a, 9]), "invalid answer: "),
        ];
        for (output, expected) in cases {
            let (mut parser, mut events) = (parser(), Vec::new());
            parser.opening_request(&mut events);
            assert_eq!(parser.on_channel(&output, &mut events), b"", "nothing more is asked");
            assert_eq!(events.len(), 2);
            assert!(message_of(&events[1]).starts_with(expected), "{events:?}");
            assert!(parser.is_decided() && parser.is_complete() && !parser.explains_exit(0));
            assert_eq!(parser.outside_failure(), None, "it is the case's");
            assert!(parser.on_channel(&framed(&response("a/b")), &mut events).is_empty());
            assert_eq!(events.len(), 2, "nothing after it is read");
        }
    }

    #[test]
    fn bytes_after_an_answer_fail_the_case_that_was_answered() {
        for garbage in [b"done\n".to_vec(), b"x".to_vec(), framed(&response("c")), framed(b"\xff")] {
            let (mut parser, mut events) = (parser(), Vec::new());
            parser.opening_request(&mut events);
            let output = [framed(&response("a/b")), garbage].concat();
            assert_eq!(parser.on_channel(&output, &mut events), b"");
            let [TranscriptEvent::Begun { place: 0 }, end @ TranscriptEvent::Ended { place: 0, .. }] =
                &events[..]
            else {
                panic!("{events:?}")
            };
            assert!(message_of(end).starts_with("unexpected output after its answer: "), "{end:?}");
            assert!(parser.is_decided());
        }
    }

    #[test]
    fn second_answer_may_arrive_in_any_pieces() {
        let twice = framed(&response("a/b")).repeat(2);
        for cut in 0..=twice.len() {
            let (mut parser, mut events) = (parser(), Vec::new());
            parser.opening_request(&mut events);
            let (first, second) = twice.split_at(cut);
            parser.on_channel(first, &mut events);
            parser.on_channel(second, &mut events);
            parser.on_channel(&framed(&response("c")), &mut events);
            assert_eq!(parser.outside_failure(), Some("answered \"a/b\" more than once"), "cut at {cut}");
            let passed = events.iter().filter(|event| matches!(event, TranscriptEvent::Ended { .. }));
            assert_eq!(passed.count(), 2, "cut at {cut}");
        }
    }

    #[test]
    fn second_answer_is_an_error_of_the_program_and_of_no_case() {
        for names in [["a/b", "a/b", "c"], ["a/b", "c", "a/b"]] {
            let (mut parser, mut events) = (parser(), Vec::new());
            parser.opening_request(&mut events);
            for name in names {
                parser.on_channel(&framed(&response(name)), &mut events);
            }
            assert_eq!(parser.outside_failure(), Some("answered \"a/b\" more than once"));
            assert!(parser.is_complete() && !parser.explains_exit(0) && !parser.is_decided());
            let passed = events.iter().filter(|event| matches!(event, TranscriptEvent::Ended { .. }));
            assert_eq!(passed.count(), 2);
        }
        let (mut parser, mut events) = (parser(), Vec::new());
        parser.opening_request(&mut events);
        for name in ["a/b", "c", "d"] {
            parser.on_channel(&framed(&response(name)), &mut events);
        }
        assert_eq!(parser.outside_failure(), Some("unexpected output after its last answer"));
        assert!(parser.is_decided());
    }
}
