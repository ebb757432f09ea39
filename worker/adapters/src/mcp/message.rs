//! JSON-RPC 2.0 messages, one per line, and the differences between the two protocol eras.

use serde_json::{Value, json};

use crate::scan;

/// Maximum length of a line; a longer line is an error of the server.
pub(super) const LINE_LIMIT_BYTES: usize = 16 << 20;
/// Maximum number of positions in a line that are tried as the start of a message after other output.
const RECOVERY_ATTEMPTS: usize = 64;
/// Maximum number of characters shown of a line that is not a message.
const SHOWN_LINE_CHARACTERS: usize = 200;

/// Last version that opens with a handshake.
pub(super) const LEGACY_VERSION: &str = "2025-11-25";
/// Version without a handshake.
pub(super) const MODERN_VERSION: &str = "2026-07-28";

pub(super) const METHOD_NOT_FOUND: i64 = -32601;
/// Error codes that only a server without a handshake returns.
pub(super) const MODERN_ERRORS: std::ops::RangeInclusive<i64> = -32022..=-32020;

/// Protocol era of a server: how a dialogue opens and which members requests have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServerEra {
    /// Versions up to 2025-11-25, which open with `initialize`.
    Legacy,
    /// Versions since 2026-07-28, without a handshake; each message names its version.
    Modern,
}

impl ServerEra {
    pub(super) fn request(self, id: u64, method: &str, params: Value) -> Vec<u8> {
        let params = self.with_meta(params);
        line(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
    }

    pub(super) fn notification(self, method: &str, params: Value) -> Vec<u8> {
        let params = self.with_meta(params);
        line(&json!({"jsonrpc": "2.0", "method": method, "params": params}))
    }

    fn with_meta(self, mut params: Value) -> Value {
        if self == Self::Modern {
            let meta = &mut params["_meta"];
            meta["io.modelcontextprotocol/protocolVersion"] = json!(MODERN_VERSION);
            meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
            meta["io.modelcontextprotocol/clientInfo"] = client_info();
        }
        params
    }

    /// Returns the opening request. In the modern era it only shows that the server is ready.
    pub(super) fn opening(self, id: u64) -> Vec<u8> {
        match self {
            Self::Modern => self.request(id, "server/discover", json!({})),
            Self::Legacy => {
                let params = json!({
                    "protocolVersion": LEGACY_VERSION,
                    "capabilities": {},
                    "clientInfo": client_info(),
                });
                self.request(id, "initialize", params)
            }
        }
    }

    /// Returns what the client sends after the answer to the opening.
    pub(super) fn opened(self) -> Vec<u8> {
        match self {
            Self::Modern => Vec::new(),
            Self::Legacy => self.notification("notifications/initialized", json!({})),
        }
    }

    pub(super) fn opening_method(self) -> &'static str {
        match self {
            Self::Modern => "server/discover",
            Self::Legacy => "initialize",
        }
    }
}

fn client_info() -> Value {
    json!({"name": "heeler", "version": env!("CARGO_PKG_VERSION")})
}

fn line(message: &Value) -> Vec<u8> {
    let mut bytes = message.to_string().into_bytes();
    bytes.push(b'\n');
    bytes
}

/// Returns the response to a request of the server. Only `ping` is supported.
pub(super) fn response_to(id: &Value, method: &str) -> Vec<u8> {
    if method == "ping" {
        return line(&json!({"jsonrpc": "2.0", "id": id, "result": {}}));
    }
    let error = json!({"code": METHOD_NOT_FOUND, "message": format!("Method not found: {method}")});
    line(&json!({"jsonrpc": "2.0", "id": id, "error": error}))
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum ServerMessage {
    Response { id: Value, answer: Result<Value, RequestError> },
    Request { id: Value, method: String },
    Notification { method: String, params: Value },
}

impl ServerMessage {
    /// Parses a line; `None` if it is not a message.
    fn parse(line: &[u8]) -> Option<Self> {
        let mut message: Value = serde_json::from_slice(line).ok()?;
        if message["jsonrpc"] != "2.0" {
            return None;
        }
        let id = message.get_mut("id").map(Value::take);
        if let Some(method) = message["method"].as_str().map(str::to_owned) {
            return Some(match id {
                Some(id) => Self::Request { id, method },
                None => Self::Notification { method, params: message["params"].take() },
            });
        }
        let result = message.get_mut("result").map(Value::take);
        let answer = match (result, message.get("error").filter(|error| !error.is_null())) {
            (Some(result), None) => Ok(result),
            (None, Some(error)) => Err(RequestError::read(error)),
            // Only one of the two is allowed; the error takes precedence.
            (Some(result), Some(error)) if !result.is_null() => {
                Err(RequestError::read(error).beside_result())
            }
            (Some(_), Some(error)) => Err(RequestError::read(error)),
            (None, None) => return None,
        };
        Some(Self::Response { id: id?, answer })
    }
}

/// The error answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestError {
    pub(super) code: Option<i64>,
    message: String,
    /// Versions that the server supports instead of the requested one.
    pub(super) supported: Vec<String>,
}

impl RequestError {
    fn read(error: &Value) -> Self {
        Self {
            code: error["code"].as_i64(),
            message: shortened(error["message"].as_str().unwrap_or("no message")),
            supported: texts(&error["data"]["supported"]),
        }
    }

    fn beside_result(self) -> Self {
        Self { message: format!("{} (the response also has a result)", self.message), ..self }
    }

    /// Returns the error as text: `error -32601: Method not found`.
    pub(super) fn describe(&self) -> String {
        match self.code {
            Some(code) => format!("error {code}: {}", self.message),
            None => format!("an error without a code: {}", self.message),
        }
    }
}

/// Returns the strings of an array; other items are ignored.
pub(super) fn texts(array: &Value) -> Vec<String> {
    array.as_array().into_iter().flatten().filter_map(|one| one.as_str().map(str::to_owned)).collect()
}

/// Shortens a text for messages to users.
pub(super) fn shortened(text: &str) -> String {
    scan::truncated(text, 2000).to_owned()
}

/// One line of the server's standard output.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Line {
    ServerMessage(ServerMessage),
    /// Not a message; without its line ending.
    Other(Vec<u8>),
    /// A line above the limit; the rest is dropped.
    TooLong,
}

/// Returns a line that is not a message, in the form shown to users.
pub(super) fn shown_line(line: &[u8]) -> String {
    format!("{:?}", scan::truncated(&scan::decode_lossy(line), SHOWN_LINE_CHARACTERS))
}

/// Splits standard output into lines. Buffers at most one line up to the limit.
#[derive(Debug, Default)]
pub(super) struct LineReader {
    buffered: Vec<u8>,
    is_too_long: bool,
}

impl LineReader {
    pub(super) fn read(&mut self, chunk: &[u8]) -> Vec<Line> {
        let mut lines = Vec::new();
        for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
            let is_end = piece.ends_with(b"\n");
            let room = LINE_LIMIT_BYTES.saturating_sub(self.buffered.len());
            if self.is_too_long {
                // Skip the rest of a line that was already reported.
            } else if piece.len() > room {
                self.is_too_long = true;
                self.buffered = Vec::new();
                lines.push(Line::TooLong);
            } else {
                self.buffered.extend_from_slice(piece);
            }
            if is_end && !std::mem::take(&mut self.is_too_long) {
                read_line(std::mem::take(&mut self.buffered).trim_ascii(), &mut lines);
            }
        }
        lines
    }

    /// Returns the last line if it has no line ending.
    pub(super) fn take_rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.buffered)
    }
}

/// Adds the content of a line. A message may follow output without a newline.
fn read_line(line: &[u8], lines: &mut Vec<Line>) {
    if line.is_empty() {
        return;
    }
    if let Some(message) = ServerMessage::parse(line) {
        lines.push(Line::ServerMessage(message));
        return;
    }
    let starts = memchr::memchr_iter(b'{', line).skip_while(|at| *at == 0).take(RECOVERY_ATTEMPTS);
    for at in starts {
        if let Some(message) = ServerMessage::parse(&line[at..]) {
            lines.extend([Line::Other(line[..at].to_vec()), Line::ServerMessage(message)]);
            return;
        }
    }
    lines.push(Line::Other(line.to_vec()));
}
