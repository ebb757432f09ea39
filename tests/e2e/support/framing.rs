//! Framing and JSON-RPC, written from the specification without using Heeler's code.

use std::io::{self, BufRead, BufReader, Read, Write};

use serde_json::{Value, json};

/// Writes one message as a frame.
pub(crate) fn write_message(to: &mut (impl Write + ?Sized), message: &Value) -> io::Result<()> {
    write_body(to, message.to_string().as_bytes())
}

/// Writes arbitrary bytes as a frame.
pub(crate) fn write_body(to: &mut (impl Write + ?Sized), body: &[u8]) -> io::Result<()> {
    let mut frame = format!("Content-Length: {}\r\n\r\n", body.len()).into_bytes();
    frame.extend_from_slice(body);
    to.write_all(&frame)?;
    to.flush()
}

pub(crate) struct MessageReader<R>(BufReader<R>);

impl<R: Read> MessageReader<R> {
    pub(crate) fn new(from: R) -> Self {
        Self(BufReader::new(from))
    }

    /// Returns a reader with a buffer of this size.
    pub(crate) fn with_buffer_size(bytes: usize, from: R) -> Self {
        Self(BufReader::with_capacity(bytes, from))
    }

    /// Returns the next message; `None` at the end of the stream, even inside a message.
    pub(crate) fn next(&mut self) -> Option<Value> {
        let mut length = None;
        loop {
            let mut line = Vec::new();
            self.0.read_until(b'\n', &mut line).ok()?;
            let line = line.strip_suffix(b"\r\n")?;
            if line.is_empty() {
                break;
            }
            let line = std::str::from_utf8(line).expect("headers are ASCII");
            if let Some(value) = line.strip_prefix("Content-Length: ") {
                length = Some(value.parse::<usize>().expect("the length is a number"));
            }
        }
        let mut body = vec![0; length.expect("every frame says its length")];
        self.0.read_exact(&mut body).ok()?;
        Some(serde_json::from_slice(&body).expect("every body is JSON"))
    }
}

pub(crate) fn request(id: impl Into<Value>, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": params})
}

pub(crate) fn notification(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

/// Returns the response to a request with an unknown method.
pub(crate) fn method_not_found(id: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "method not found"}})
}

/// Returns a response with an empty result.
pub(crate) fn empty_result(id: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": {}})
}

/// Returns whether a message expects a response.
pub(crate) fn is_request(message: &Value) -> bool {
    message.get("method").is_some() && message.get("id").is_some()
}
