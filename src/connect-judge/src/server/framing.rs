//! Messages within HTTP bodies: five bytes before each, flags and size; the ends of calls in trailers, in a
//! last message or in headers.

use data_encoding::{BASE64, BASE64_NOPAD};
use hyper::{
    HeaderMap,
    body::{Body as _, Incoming},
    header::{HeaderName, HeaderValue},
};
use prost::{
    Message as _,
    bytes::{Buf as _, Bytes, BytesMut},
};
use serde_json::{Map, Value, json};

use crate::{
    axes::Compression,
    message::{Any, Header, RpcError},
    suite::SERVER_RECEIVE_LIMIT_BYTES,
};

use super::compression::{compressed, decompressed};

const HEAD_BYTES: usize = 5;
const FLAG_COMPRESSED: u8 = 1;
/// The last message of a Connect stream, which has the end of the call.
pub(super) const FLAG_CONNECT_END: u8 = 2;
/// The trailers of a gRPC-Web call.
pub(super) const FLAG_WEB_TRAILERS: u8 = 0x80;

const CODES: [&str; 17] = [
    "",
    "canceled",
    "unknown",
    "invalid_argument",
    "deadline_exceeded",
    "not_found",
    "already_exists",
    "permission_denied",
    "resource_exhausted",
    "failed_precondition",
    "aborted",
    "out_of_range",
    "unimplemented",
    "internal",
    "unavailable",
    "data_loss",
    "unauthenticated",
];
const HTTP_STATUS: [u16; 17] =
    [500, 499, 500, 400, 504, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401];

/// Codes of errors that the server itself finds.
pub(super) const INVALID_ARGUMENT: i32 = 3;
pub(super) const RESOURCE_EXHAUSTED: i32 = 8;
pub(super) const UNIMPLEMENTED: i32 = 12;
pub(super) const INTERNAL: i32 = 13;

pub(super) fn rpc_error(code: i32, message: impl Into<String>) -> RpcError {
    RpcError { code, message: Some(message.into()), details: Vec::new() }
}

/// Appends a message with its flags and size, compressed.
pub(super) fn append_enveloped(out: &mut Vec<u8>, flags: u8, message: &[u8], compression: Compression) {
    let (flags, message) = match compression {
        Compression::Identity => (flags, message.to_vec()),
        _ => (flags | FLAG_COMPRESSED, compressed(message, compression)),
    };
    out.push(flags);
    out.extend_from_slice(&u32::try_from(message.len()).expect("messages are small").to_be_bytes());
    out.extend_from_slice(&message);
}

/// Reads the body of a request.
pub(super) struct BodyReader {
    body: Incoming,
    buffer: BytesMut,
    is_at_end: bool,
    pub(super) has_trailers: bool,
}

/// Why no message was read.
pub(super) enum ReadError {
    /// The client is gone.
    Gone,
    /// The message is not as it should be.
    Rpc(RpcError),
}

impl BodyReader {
    pub(super) fn new(body: Incoming) -> Self {
        Self { body, buffer: BytesMut::new(), is_at_end: false, has_trailers: false }
    }

    /// Reads on. Cancel safe: yes, what was read is in the buffer.
    async fn fill(&mut self) -> Result<(), ReadError> {
        let frame = std::future::poll_fn(|context| std::pin::Pin::new(&mut self.body).poll_frame(context));
        match frame.await {
            None => self.is_at_end = true,
            Some(Err(_)) => return Err(ReadError::Gone),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => self.buffer.extend_from_slice(&data),
                Err(_) => self.has_trailers = true,
            },
        }
        Ok(())
    }

    /// Reads what is left of the body, up to the limit of messages: an HTTP/1.1 connection whose request was
    /// not read is closed, and its client may be sending the next request. Cancel safe: yes.
    pub(super) async fn drain(&mut self) {
        let mut read = 0;
        while !self.is_at_end && read <= SERVER_RECEIVE_LIMIT_BYTES as usize && self.fill().await.is_ok() {
            read += self.buffer.len();
            self.buffer.clear();
        }
    }

    /// Reads the whole body. Cancel safe: yes, as the reading of a part.
    pub(super) async fn all(&mut self) -> Result<Bytes, ReadError> {
        while !self.is_at_end {
            // More than any message with its compression.
            if self.buffer.len() > 2 * SERVER_RECEIVE_LIMIT_BYTES as usize {
                return Err(ReadError::Rpc(too_large()));
            }
            self.fill().await?;
        }
        Ok(self.buffer.split().freeze())
    }

    /// Reads the next message; none at the end. Cancel safe: yes, as the reading of a part.
    pub(super) async fn message(&mut self, compression: Compression) -> Result<Option<Vec<u8>>, ReadError> {
        loop {
            if let Some(head) = self.buffer.first_chunk::<HEAD_BYTES>() {
                let [flags, size @ ..] = *head;
                let size = u32::from_be_bytes(size) as usize;
                if size > SERVER_RECEIVE_LIMIT_BYTES as usize {
                    return Err(ReadError::Rpc(too_large()));
                }
                if self.buffer.len() >= HEAD_BYTES + size {
                    self.buffer.advance(HEAD_BYTES);
                    let message = self.buffer.split_to(size);
                    return message_of(flags, &message, compression).map(Some).map_err(ReadError::Rpc);
                }
            }
            if self.is_at_end {
                let rest = self.buffer.len();
                let cut = || rpc_error(INVALID_ARGUMENT, format!("{rest} bytes of an unfinished message"));
                return if rest == 0 { Ok(None) } else { Err(ReadError::Rpc(cut())) };
            }
            self.fill().await?;
        }
    }
}

fn too_large() -> RpcError {
    rpc_error(RESOURCE_EXHAUSTED, format!("a message of more than {SERVER_RECEIVE_LIMIT_BYTES} bytes"))
}

fn message_of(flags: u8, message: &[u8], compression: Compression) -> Result<Vec<u8>, RpcError> {
    match (flags, compression) {
        (0, _) => Ok(message.to_vec()),
        (FLAG_COMPRESSED, Compression::Identity) => {
            Err(rpc_error(INTERNAL, "a compressed message without a compression"))
        }
        (FLAG_COMPRESSED, _) => decompressed_message(message, compression),
        _ => Err(rpc_error(INTERNAL, format!("a message with flags {flags:#x}"))),
    }
}

/// Decompresses a message within the limit.
pub(super) fn decompressed_message(message: &[u8], compression: Compression) -> Result<Vec<u8>, RpcError> {
    let limit = SERVER_RECEIVE_LIMIT_BYTES as usize;
    let message = decompressed(message, compression, limit)
        .map_err(|error| rpc_error(INVALID_ARGUMENT, format!("decompress: {error}")))?;
    if message.len() > limit { Err(too_large()) } else { Ok(message) }
}

/// Adds headers, each value by itself; those that HTTP can't hold are left out.
pub(super) fn add_headers(to: &mut HeaderMap, headers: &[Header], prefix: &str) {
    for header in headers {
        let Ok(name) = HeaderName::try_from(format!("{prefix}{}", header.name)) else { continue };
        for value in header.value.iter().filter_map(|value| HeaderValue::from_str(value).ok()) {
            to.append(&name, value);
        }
    }
}

/// Returns the HTTP status of a failed unary call of Connect.
pub(super) fn http_status(error: &RpcError) -> u16 {
    usize::try_from(error.code).ok().and_then(|code| HTTP_STATUS.get(code).copied()).unwrap_or(500)
}

/// Returns an error as Connect writes it.
pub(super) fn connect_error(error: &RpcError) -> Value {
    let code = usize::try_from(error.code).ok().and_then(|code| CODES.get(code)).unwrap_or(&"");
    let mut members = Map::from_iter([("code".to_owned(), json!(code))]);
    if !error.message().is_empty() {
        members.insert("message".to_owned(), error.message().into());
    }
    if !error.details.is_empty() {
        let detail = |any: &Any| {
            let name = any.type_url.rsplit('/').next().unwrap_or_default();
            json!({"type": name, "value": BASE64_NOPAD.encode(&any.value)})
        };
        members.insert("details".to_owned(), error.details.iter().map(detail).collect());
    }
    Value::Object(members)
}

/// Returns the last message of a Connect stream.
pub(super) fn connect_end(error: Option<&RpcError>, trailers: &[Header]) -> Vec<u8> {
    let mut members = Map::new();
    if let Some(error) = error {
        members.insert("error".to_owned(), connect_error(error));
    }
    if !trailers.is_empty() {
        let metadata = trailers.iter().map(|header| (header.name.clone(), json!(header.value)));
        members.insert("metadata".to_owned(), Value::Object(metadata.collect()));
    }
    Value::Object(members).to_string().into_bytes()
}

/// The status of a gRPC call with details (`google.rpc.Status`).
#[derive(Clone, PartialEq, prost::Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

/// Returns the trailers of a gRPC call.
pub(super) fn grpc_trailers(error: Option<&RpcError>, trailers: &[Header]) -> HeaderMap {
    let mut map = HeaderMap::new();
    add_headers(&mut map, trailers, "");
    let code = error.map_or(0, |error| error.code);
    map.insert("grpc-status", HeaderValue::from(code));
    if let Some(error) = error {
        let message = HeaderValue::from_str(&percent_encoded(error.message()));
        map.insert("grpc-message", message.expect("only printable characters are left"));
        if !error.details.is_empty() {
            let (message, details) = (error.message().to_owned(), error.details.clone());
            let status = RpcStatus { code, message, details }.encode_to_vec();
            let value = HeaderValue::from_str(&BASE64_NOPAD.encode(&status)).expect("base64 is printable");
            map.insert("grpc-status-details-bin", value);
        }
    }
    map
}

/// Returns trailers as the text of a gRPC-Web message.
pub(super) fn web_trailers(trailers: &HeaderMap) -> Vec<u8> {
    let mut text = Vec::new();
    for (name, value) in trailers {
        text.extend_from_slice(name.as_str().as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value.as_bytes());
        text.extend_from_slice(b"\r\n");
    }
    text
}

fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if (b' '..=b'~').contains(&byte) && byte != b'%' {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// Decodes base64 of either alphabet, padded or not.
pub(super) fn any_base64(text: &[u8]) -> Option<Vec<u8>> {
    let plain: Vec<u8> = text
        .iter()
        .map(|byte| match byte {
            b'-' => b'+',
            b'_' => b'/',
            other => *other,
        })
        .collect();
    BASE64.decode(&plain).or_else(|_| BASE64_NOPAD.decode(&plain)).ok()
}
