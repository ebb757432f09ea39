//! The dialogue of a run: calls the tools one by one and reads their answers.

use heeler_protocol::control::ListedTest;
use serde_json::{Map, Value, json};

use super::{
    message::{
        LINE_LIMIT_BYTES, Line, LineReader, METHOD_NOT_FOUND, RequestError, ServerEra, ServerMessage,
        response_to, shortened, shown_line,
    },
    result::{failed, tool_result},
    tool::CallSelector,
};
use crate::{FrameworkResult, FrameworkVerdict, TranscriptEvent, TranscriptParser};

const OPENING_ID: u64 = 1;

#[derive(Debug)]
struct ToolCall {
    name: String,
    arguments: Map<String, Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallState {
    /// The opening has not been answered.
    Opening,
    /// The call for this test is open.
    Calling(usize),
    /// No further request will be sent.
    Over,
}

/// Parser of one server's messages during a run.
pub(super) struct McpParser {
    era: ServerEra,
    calls: Vec<ToolCall>,
    state: CallState,
    /// Id of the open request.
    id: u64,
    lines: LineReader,
    /// First line during the running test that was not a message.
    other_line: Option<String>,
    is_complete: bool,
    /// Results of the answered tests, in order.
    answered: Vec<FrameworkResult>,
    /// First error that belongs to no test.
    fault: Option<String>,
}

impl McpParser {
    pub(super) fn new(tests: &[&ListedTest]) -> Self {
        let selectors: Vec<_> = tests.iter().map(|test| CallSelector::of(test)).collect();
        let era = selectors.first().map_or(ServerEra::Legacy, |selector| selector.era);
        let call = |(test, selector): (&&ListedTest, CallSelector)| ToolCall {
            name: test.name.clone(),
            arguments: selector.arguments,
        };
        Self {
            era,
            calls: tests.iter().zip(selectors).map(call).collect(),
            state: CallState::Opening,
            id: OPENING_ID,
            lines: LineReader::default(),
            other_line: None,
            is_complete: false,
            answered: Vec::new(),
            fault: None,
        }
    }

    fn on_line(&mut self, line: Line, events: &mut Vec<TranscriptEvent>) -> Vec<u8> {
        match line {
            Line::ServerMessage(ServerMessage::Response { id, answer }) => {
                self.on_response(&id, answer, events)
            }
            Line::ServerMessage(ServerMessage::Request { id, method }) => response_to(&id, &method),
            Line::ServerMessage(ServerMessage::Notification { method, params }) => {
                self.on_notification(&method, &params, events);
                Vec::new()
            }
            Line::Other(line) => {
                self.other_line.get_or_insert_with(|| shown_line(&line));
                emit_line(line, events);
                Vec::new()
            }
            Line::TooLong => self.on_too_long_line(events),
        }
    }

    fn on_response(
        &mut self,
        id: &Value,
        answer: Result<Value, RequestError>,
        events: &mut Vec<TranscriptEvent>,
    ) -> Vec<u8> {
        match (self.state, id.as_u64()) {
            (CallState::Opening, Some(id)) if id == self.id => match answer {
                Ok(_) => [self.era.opened(), self.call(0, events)].concat(),
                Err(error) => {
                    let method = self.era.opening_method();
                    self.give_up(format!("{method} failed: {}", error.describe()))
                }
            },
            (CallState::Calling(place), Some(id)) if id == self.id => {
                if let Err(error) = &answer
                    && error.code == Some(METHOD_NOT_FOUND)
                {
                    let fault = format!("the server does not support tools/call: {}", error.describe());
                    self.fault.get_or_insert(fault);
                }
                let result = tool_result(&answer);
                events.extend(result.parts.into_iter().map(|part| TranscriptEvent::Part { place, part }));
                self.end(place, result.verdict, events)
            }
            // A repeated answer, or an answer after the call was already decided.
            (_, Some(known)) if known <= self.id => {
                self.check_second_answer(known, &answer);
                Vec::new()
            }
            _ => {
                let note = format!("[heeler: unexpected response to request {id}]");
                emit_line(note.into_bytes(), events);
                Vec::new()
            }
        }
    }

    /// Records a fault of the server if a second answer contradicts the first.
    fn check_second_answer(&mut self, id: u64, answer: &Result<Value, RequestError>) {
        let place = id.checked_sub(OPENING_ID + 1).and_then(|place| usize::try_from(place).ok());
        let Some((place, first)) = place.and_then(|place| Some((place, self.answered.get(place)?))) else {
            return;
        };
        if tool_result(answer).verdict.result != *first {
            let name = shortened(&self.calls[place].name);
            self.fault.get_or_insert(format!(
                "the server answered the call to {name} twice with different results"
            ));
        }
    }

    /// Calls the tool with this index, or ends the dialogue after the last one.
    fn call(&mut self, place: usize, events: &mut Vec<TranscriptEvent>) -> Vec<u8> {
        let Some(tool) = self.calls.get(place) else {
            self.state = CallState::Over;
            self.is_complete = true;
            return Vec::new();
        };
        self.id += 1;
        self.state = CallState::Calling(place);
        self.other_line = None;
        events.push(TranscriptEvent::Begun { place });
        let params = json!({
            "name": tool.name,
            "arguments": tool.arguments,
            "_meta": {"progressToken": self.id},
        });
        self.era.request(self.id, "tools/call", params)
    }

    fn end(
        &mut self,
        place: usize,
        mut verdict: FrameworkVerdict,
        events: &mut Vec<TranscriptEvent>,
    ) -> Vec<u8> {
        self.answered.push(verdict.result);
        if let Some(line) = self.other_line.take() {
            let of_line = failed(format!("wrote non-MCP output to standard output: {line}")).verdict;
            verdict.result = FrameworkResult::Failed;
            verdict.reason = None;
            of_line.failures.into_iter().for_each(|failure| verdict.push_failure(failure));
        }
        events.push(TranscriptEvent::Ended { place, verdict });
        self.call(place + 1, events)
    }

    /// Handles a line above the limit, which is probably an unreadable answer.
    fn on_too_long_line(&mut self, events: &mut Vec<TranscriptEvent>) -> Vec<u8> {
        let words = format!("a line longer than {LINE_LIMIT_BYTES} bytes");
        match self.state {
            CallState::Calling(place) => {
                self.end(place, failed(format!("answered with {words}")).verdict, events)
            }
            CallState::Opening => self.give_up(format!("it wrote {words} before it was ready")),
            CallState::Over => Vec::new(),
        }
    }

    fn on_notification(&mut self, method: &str, params: &Value, events: &mut Vec<TranscriptEvent>) {
        let text = match method {
            "notifications/progress" => progress_text(params),
            "notifications/message" => {
                let data = &params["data"];
                let data = data.as_str().map_or_else(|| data.to_string(), str::to_owned);
                format!("{}: {}", params["level"].as_str().unwrap_or("log"), shortened(&data))
            }
            _ => return,
        };
        emit_line(text.into_bytes(), events);
    }

    fn give_up(&mut self, fault: String) -> Vec<u8> {
        self.fault.get_or_insert(fault);
        self.state = CallState::Over;
        Vec::new()
    }
}

fn progress_text(params: &Value) -> String {
    let mut text = format!("progress: {}", shortened(&params["progress"].to_string()));
    if params["total"].is_number() {
        text.push_str(&format!(" of {}", params["total"]));
    }
    if let Some(message) = params["message"].as_str() {
        text.push_str(&format!(": {}", shortened(message)));
    }
    text
}

fn emit_line(mut line: Vec<u8>, events: &mut Vec<TranscriptEvent>) {
    line.push(b'\n');
    events.push(TranscriptEvent::Output(line));
}

impl TranscriptParser for McpParser {
    fn opening_request(&mut self, _events: &mut Vec<TranscriptEvent>) -> Vec<u8> {
        self.era.opening(OPENING_ID)
    }

    fn on_channel(&mut self, chunk: &[u8], events: &mut Vec<TranscriptEvent>) -> Vec<u8> {
        let mut requests = Vec::new();
        for line in self.lines.read(chunk) {
            requests.extend(self.on_line(line, events));
        }
        requests
    }

    fn cancel_request(&mut self, reason: &str) -> Vec<u8> {
        let CallState::Calling(_) = self.state else { return Vec::new() };
        self.state = CallState::Over;
        // The answer may still arrive and is dropped.
        let cancelled = json!({"requestId": self.id, "reason": reason});
        self.id += 1;
        self.era.notification("notifications/cancelled", cancelled)
    }

    fn on_output_end(&mut self, events: &mut Vec<TranscriptEvent>) {
        let rest = self.lines.take_rest();
        if !rest.is_empty() {
            events.push(TranscriptEvent::Output(rest));
        }
    }

    fn is_complete(&self) -> bool {
        self.is_complete
    }

    fn is_over(&self) -> bool {
        self.state == CallState::Over
    }

    fn explains_exit(&self, code: i32) -> bool {
        code == 0 && self.fault.is_none()
    }

    fn outside_failure(&self) -> Option<&str> {
        self.fault.as_deref()
    }
}
