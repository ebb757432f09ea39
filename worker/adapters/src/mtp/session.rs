//! The connections of an application. The first may come from a controller, which starts the process that
//! runs tests and sends its own files. The connection that supports discovery runs tests.

use bytes::BytesMut;
use heeler_protocol::{
    StreamDecoder as _, frame,
    frame::FrameDecoder,
    mtp::{
        ClientCapabilities, InitializeParams, InitializeResult, LogLevel, PROTOCOL_VERSION, PeerInfo,
        TestNode, UpdateParams, method, read_log,
    },
    rpc::{self, BorrowedRpcMessage, RequestId, RpcError, code},
};
use serde_json::{Value, json};

use crate::{ConnectionInput, scan};

/// Maximum number of connections per process. A controller and its test process need two.
const MAX_CONNECTIONS: usize = 8;
/// Maximum size of a message. All tests of a listing, or a test with its output, may be one message.
const MESSAGE_LIMIT_BYTES: usize = 64 << 20;
/// Maximum number of characters shown of an application's error.
const SHOWN_CHARACTERS: usize = 2000;

/// Id of the `initialize` request on each connection.
const INITIALIZE_ID: u64 = 1;
/// Id of the first request after `initialize`.
pub(super) const FIRST_ID: u64 = 2;

/// Something that the application sent.
#[derive(Debug)]
pub(super) enum ApplicationEvent {
    /// The connection that runs tests is ready.
    Ready,
    /// Changes of tests; `None` means that the changes are complete.
    Changes(Option<Vec<TestNode>>),
    /// A log line with level error.
    ErrorLog(String),
    /// The response to a request.
    Response(u64, Result<(), RpcError>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionState {
    /// `initialize` has not been answered.
    Opening,
    /// The connection runs tests.
    Runner,
    /// The connection belongs to another process, such as a controller; it runs no tests.
    Other,
    /// A message could not be read.
    Broken,
}

struct ApplicationConnection {
    decoder: FrameDecoder,
    buffer: BytesMut,
    state: ConnectionState,
}

#[derive(Default)]
pub(super) struct MtpSession {
    connections: Vec<ApplicationConnection>,
    has_runner: bool,
    /// The first error in the received messages.
    fault: Option<String>,
}

impl MtpSession {
    /// Handles an event on a connection. `handle` returns the bytes to send back on the connection that runs
    /// tests.
    pub(super) fn on_input(
        &mut self,
        connection: usize,
        input: ConnectionInput<'_>,
        handle: &mut dyn FnMut(ApplicationEvent) -> Vec<u8>,
    ) -> Vec<u8> {
        match input {
            ConnectionInput::Opened => self.open(connection),
            ConnectionInput::Bytes(chunk) | ConnectionInput::BytesOf(_, chunk) => {
                self.read(connection, chunk, handle)
            }
        }
    }

    /// Returns the first error in the received messages.
    pub(super) fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// Returns the opening step that is still missing before a connection can run tests.
    pub(super) fn awaited_opening(&self) -> Option<&'static str> {
        match (self.connections.is_empty(), self.has_runner) {
            (true, _) => Some("with a connection"),
            (false, false) => Some("initialize"),
            (false, true) => None,
        }
    }

    fn open(&mut self, connection: usize) -> Vec<u8> {
        if connection >= MAX_CONNECTIONS || connection != self.connections.len() {
            return Vec::new();
        }
        self.connections.push(ApplicationConnection {
            decoder: FrameDecoder::with_limit(MESSAGE_LIMIT_BYTES),
            buffer: BytesMut::new(),
            state: ConnectionState::Opening,
        });
        let params = InitializeParams {
            process_id: Some(std::process::id()),
            client_info: Some(PeerInfo {
                name: "heeler".to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
            }),
            capabilities: ClientCapabilities::default(),
            protocol_versions: Some(vec![PROTOCOL_VERSION.to_owned()]),
        };
        let params = serde_json::to_value(params).unwrap_or_default();
        request(INITIALIZE_ID, method::INITIALIZE, &params)
    }

    fn read(
        &mut self,
        index: usize,
        chunk: &[u8],
        handle: &mut dyn FnMut(ApplicationEvent) -> Vec<u8>,
    ) -> Vec<u8> {
        let mut replies = Vec::new();
        let Some(connection) = self.connections.get_mut(index) else { return replies };
        connection.buffer.extend_from_slice(chunk);
        loop {
            let connection = &mut self.connections[index];
            if connection.state == ConnectionState::Broken {
                connection.buffer = BytesMut::new();
                return replies;
            }
            match connection.decoder.decode(&mut connection.buffer) {
                Ok(Some(body)) => replies.extend(self.on_message(index, &body, handle)),
                Ok(None) => return replies,
                Err(error) => self.break_connection(index, error.to_string()),
            }
        }
    }

    fn break_connection(&mut self, index: usize, reason: String) {
        self.connections[index].state = ConnectionState::Broken;
        let reason = scan::truncated(&reason, SHOWN_CHARACTERS).to_owned();
        self.fault.get_or_insert_with(|| format!("invalid message: {reason}"));
    }

    fn on_message(
        &mut self,
        index: usize,
        body: &[u8],
        handle: &mut dyn FnMut(ApplicationEvent) -> Vec<u8>,
    ) -> Vec<u8> {
        let message = match rpc::parse_borrowed(body) {
            Ok(message) => message,
            Err(error) => {
                self.break_connection(index, error.to_string());
                return Vec::new();
            }
        };
        let state = self.connections[index].state;
        match message {
            BorrowedRpcMessage::Response { id, outcome } => {
                let Some(id) = id.to_string().parse::<u64>().ok() else { return Vec::new() };
                if state == ConnectionState::Opening && id == INITIALIZE_ID {
                    let result = outcome.map(|result| result.map_or("null", |result| result.get()));
                    return self.on_initialized(index, result, handle);
                }
                if state != ConnectionState::Runner {
                    return Vec::new();
                }
                handle(ApplicationEvent::Response(id, outcome.map(|_| ())))
            }
            BorrowedRpcMessage::Notification { method, params } => {
                self.on_notification(index, &method, params.map(|params| params.get()), handle)
            }
            BorrowedRpcMessage::Request { id, method, params } => {
                let mut reply = answer(&id, &method);
                reply.extend(self.on_notification(index, &method, params.map(|params| params.get()), handle));
                reply
            }
        }
    }

    fn on_initialized(
        &mut self,
        index: usize,
        outcome: Result<&str, RpcError>,
        handle: &mut dyn FnMut(ApplicationEvent) -> Vec<u8>,
    ) -> Vec<u8> {
        let read = outcome.map_err(|error| error.to_string()).and_then(|result| {
            serde_json::from_str::<InitializeResult>(result).map_err(|error| error.to_string())
        });
        match read {
            Ok(result) => {
                let is_runner = result.capabilities.testing.supports_discovery && !self.has_runner;
                self.connections[index].state =
                    if is_runner { ConnectionState::Runner } else { ConnectionState::Other };
                if is_runner {
                    self.has_runner = true;
                    return handle(ApplicationEvent::Ready);
                }
            }
            Err(error) => self.break_connection(index, format!("initialize: {error}")),
        }
        Vec::new()
    }

    fn on_notification(
        &mut self,
        index: usize,
        method: &str,
        params: Option<&str>,
        handle: &mut dyn FnMut(ApplicationEvent) -> Vec<u8>,
    ) -> Vec<u8> {
        let Some(params) = params.filter(|_| self.connections[index].state == ConnectionState::Runner) else {
            return Vec::new();
        };
        match method {
            method::UPDATES => match serde_json::from_str::<UpdateParams>(params) {
                Ok(update) => {
                    let nodes = update.changes.map(|all| all.into_iter().map(|one| one.node).collect());
                    handle(ApplicationEvent::Changes(nodes))
                }
                Err(error) => {
                    self.break_connection(index, format!("{method}: {error}"));
                    Vec::new()
                }
            },
            method::LOG => {
                let lines = read_log(params).map(|log| log.messages).unwrap_or_default();
                let errors = lines.into_iter().filter(|line| line.level >= LogLevel::Error);
                errors.flat_map(|line| handle(ApplicationEvent::ErrorLog(line.message))).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// Returns the response to an application's request. Barriers and telemetry are acknowledged; every other
/// method is rejected.
fn answer(id: &RequestId, method: &str) -> Vec<u8> {
    match method {
        method::UPDATES | method::ATTACHMENTS | method::TELEMETRY => {
            rpc::encode_result(id, &Value::Null).to_vec()
        }
        _ => {
            let error = RpcError::new(code::METHOD_NOT_FOUND, "method not found");
            rpc::encode_error(id, &error).to_vec()
        }
    }
}

/// Returns a request to list or run these tests.
pub(super) fn tests_request(id: u64, method: &str, tests: Option<Vec<Value>>) -> Vec<u8> {
    // A process handles one request at a time, so the request number is unique within it.
    let run_id = format!("00000000-0000-4000-8000-{id:012x}");
    let mut params = json!({"runId": run_id});
    if let Some(tests) = tests {
        params["tests"] = Value::Array(tests);
    }
    request(id, method, &params)
}

/// Returns the messages that cancel a request and ask the application to exit.
pub(super) fn cancel(id: u64) -> Vec<u8> {
    let cancelled = heeler_protocol::mtp::CancelParams { id: RequestId::number(id) };
    let mut requests = rpc::encode_notification(method::CANCEL, &cancelled).to_vec();
    requests.extend(exit());
    requests
}

/// Returns the notification that makes an application exit.
pub(super) fn exit() -> Vec<u8> {
    rpc::encode_notification(method::EXIT, &json!({})).to_vec()
}

/// Encodes a request in ASCII, because some versions count the length in characters.
fn request(id: u64, method: &str, params: &Value) -> Vec<u8> {
    let body = rpc::request_body(&RequestId::number(id), method, params);
    let text = String::from_utf8_lossy(&body);
    if text.is_ascii() {
        return frame::encode(&body).to_vec();
    }
    let mut ascii = String::with_capacity(text.len() * 2);
    for one in text.chars() {
        if one.is_ascii() {
            ascii.push(one);
        } else {
            let mut units = [0; 2];
            for unit in one.encode_utf16(&mut units) {
                ascii.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    frame::encode(ascii.as_bytes()).to_vec()
}
