//! JSON-RPC 2.0 envelopes. The envelope is parsed first, and the body only when it is needed.

use std::{borrow::Cow, fmt};

use bytes::Bytes;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

/// Error codes of JSON-RPC and of client protocols.
pub mod code {
    /// The body is not JSON.
    pub const PARSE_ERROR: i64 = -32700;
    /// The body is JSON, but not a request.
    pub const INVALID_REQUEST: i64 = -32600;
    /// The method is unknown.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// The method is known, but its parameters are invalid.
    pub const INVALID_PARAMS: i64 = -32602;
    /// This process has an internal error.
    pub const INTERNAL_ERROR: i64 = -32603;
    /// A request arrived before `initialize`.
    pub const SERVER_NOT_INITIALIZED: i64 = -32002;
    /// The request was cancelled.
    pub const REQUEST_CANCELLED: i64 = -32800;
    /// None of the client's protocol versions is supported.
    pub const PROTOCOL_VERSION: i64 = -31699;
}

/// Request id, echoed with its type: 1 is not "1".
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RequestId {
    /// A number, kept as received so it is not rounded.
    Number(Box<str>),
    String(Box<str>),
    /// `null`, as in the response to an unreadable request.
    Null,
}

impl RequestId {
    /// Returns a numeric id.
    #[must_use]
    pub fn number(number: u64) -> Self {
        Self::Number(number.to_string().into())
    }

    fn parse(raw: &RawValue) -> Option<Self> {
        let text = raw.get();
        match text.as_bytes().first()? {
            b'"' => serde_json::from_str::<String>(text).ok().map(|id| Self::String(id.into())),
            b'-' | b'0'..=b'9' => Some(Self::Number(text.into())),
            b'n' => Some(Self::Null),
            _ => None,
        }
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(text) => f.write_str(text),
            Self::String(text) => write!(f, "{text:?}"),
            Self::Null => f.write_str("null"),
        }
    }
}

impl Serialize for RequestId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(text) => RawValue::from_string(text.to_string())
                .map_err(serde::ser::Error::custom)?
                .serialize(serializer),
            Self::String(text) => serializer.serialize_str(text),
            Self::Null => serializer.serialize_unit(),
        }
    }
}

impl<'de> Deserialize<'de> for RequestId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <Box<RawValue>>::deserialize(deserializer)?;
        Self::parse(&raw).ok_or_else(|| serde::de::Error::custom("the id must be a number or a string"))
    }
}

/// JSON-RPC error: the `error` member of a response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[error("{message} (code {code})")]
pub struct RpcError {
    /// Error code: a standard one, or the peer's own.
    #[serde(default)]
    pub code: i64,
    /// Text for users.
    #[serde(default)]
    pub message: String,
    /// Additional data; Heeler sends `{}`.
    #[serde(default)]
    pub data: serde_json::Value,
}

impl RpcError {
    /// Returns an error with empty data.
    #[must_use]
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: serde_json::Value::Object(serde_json::Map::new()) }
    }
}

/// A received message with a parsed envelope and an unparsed body.
#[derive(Debug, Clone)]
pub enum RpcMessage {
    /// Requires a response with the same id.
    Request {
        /// Id to echo in the response.
        id: RequestId,
        /// Method name, such as `testing/runTests`.
        method: String,
        /// Unparsed parameters.
        params: Option<Box<RawValue>>,
    },
    /// Requires no response.
    Notification {
        /// Method name, such as `exit`.
        method: String,
        /// Unparsed parameters.
        params: Option<Box<RawValue>>,
    },
    /// Response to one of our requests.
    Response {
        /// Id of our request.
        id: RequestId,
        /// Unparsed result (absent counts as null), or the peer's error.
        outcome: Result<Option<Box<RawValue>>, RpcError>,
    },
}

/// A body that is not a message, with the error to send in response.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{error}")]
pub struct InvalidMessage {
    /// Id for the response; null if unreadable.
    pub id: RequestId,
    /// Error for the response.
    pub error: RpcError,
}

/// A received message that borrows from its body. Nothing is copied, so hot paths read the content only once.
#[derive(Debug, Clone)]
pub enum BorrowedRpcMessage<'a> {
    /// Requires a response with the same id.
    Request {
        /// Id to echo in the response.
        id: RequestId,
        /// Method name, such as `initialize`.
        method: Cow<'a, str>,
        /// Unparsed parameters.
        params: Option<&'a RawValue>,
    },
    /// Requires no response.
    Notification {
        /// Method name, such as `testing/testUpdates/tests`.
        method: Cow<'a, str>,
        /// Unparsed parameters.
        params: Option<&'a RawValue>,
    },
    /// Response to one of our requests.
    Response {
        /// Id of our request.
        id: RequestId,
        /// Unparsed result (absent counts as null), or the peer's error.
        outcome: Result<Option<&'a RawValue>, RpcError>,
    },
}

/// Text that is borrowed unless it contains escapes.
#[derive(Deserialize)]
#[serde(transparent)]
pub(crate) struct BorrowedText<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

#[derive(Deserialize)]
struct RpcEnvelope<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<BorrowedText<'a>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

/// Parses one body into an owned message.
///
/// # Errors
/// The error to respond with: a parse error if the body is not JSON, an invalid request if it is JSON but not
/// a message.
pub fn parse(body: &[u8]) -> Result<RpcMessage, InvalidMessage> {
    Ok(match parse_borrowed(body)? {
        BorrowedRpcMessage::Request { id, method, params } => {
            RpcMessage::Request { id, method: method.into_owned(), params: params.map(ToOwned::to_owned) }
        }
        BorrowedRpcMessage::Notification { method, params } => {
            RpcMessage::Notification { method: method.into_owned(), params: params.map(ToOwned::to_owned) }
        }
        BorrowedRpcMessage::Response { id, outcome } => {
            RpcMessage::Response { id, outcome: outcome.map(|result| result.map(ToOwned::to_owned)) }
        }
    })
}

/// Parses the envelope of one body without copying.
///
/// # Errors
/// The error to respond with, as for [`parse`].
pub fn parse_borrowed(body: &[u8]) -> Result<BorrowedRpcMessage<'_>, InvalidMessage> {
    if body.trim_ascii_start().starts_with(b"[") {
        return Err(refuse_batch(body));
    }
    // Validate UTF-8 once for the whole body, so its parts need no check later.
    let text = std::str::from_utf8(body).map_err(|error| {
        let message = format!("invalid JSON: not UTF-8 at byte {}", error.valid_up_to());
        InvalidMessage { id: RequestId::Null, error: RpcError::new(code::PARSE_ERROR, message) }
    })?;
    let envelope: RpcEnvelope<'_> = serde_json::from_str(text).map_err(|error| parse_failure(&error))?;
    let id = match envelope.id {
        None => None,
        Some(raw) => Some(RequestId::parse(raw).ok_or_else(|| InvalidMessage {
            id: RequestId::Null,
            error: RpcError::new(code::INVALID_REQUEST, "the id must be a number or a string"),
        })?),
    };
    match (envelope.method, id) {
        (Some(BorrowedText(method)), Some(id)) => {
            Ok(BorrowedRpcMessage::Request { id, method, params: envelope.params })
        }
        (Some(BorrowedText(method)), None) => {
            Ok(BorrowedRpcMessage::Notification { method, params: envelope.params })
        }
        (None, Some(id)) => Ok(BorrowedRpcMessage::Response {
            outcome: response_outcome(envelope.result, envelope.error),
            id,
        }),
        // An error without an id means that the peer could not read a message.
        (None, None) if envelope.error.is_some() => Ok(BorrowedRpcMessage::Response {
            outcome: response_outcome(envelope.result, envelope.error),
            id: RequestId::Null,
        }),
        (None, None) => Err(InvalidMessage {
            id: RequestId::Null,
            error: RpcError::new(
                code::INVALID_REQUEST,
                "not a JSON-RPC message: \"method\" or \"id\" is required",
            ),
        }),
    }
}

/// Rejects a batch (several messages in one frame). Serde would otherwise read the list as the envelope's
/// fields.
fn refuse_batch(body: &[u8]) -> InvalidMessage {
    match serde_json::from_slice::<serde::de::IgnoredAny>(body) {
        Ok(_) => {
            let message = "batches are not supported: send one JSON-RPC message per frame";
            InvalidMessage { id: RequestId::Null, error: RpcError::new(code::INVALID_REQUEST, message) }
        }
        Err(error) => parse_failure(&error),
    }
}

fn parse_failure(error: &serde_json::Error) -> InvalidMessage {
    let error = match error.classify() {
        serde_json::error::Category::Data => {
            RpcError::new(code::INVALID_REQUEST, format!("invalid JSON-RPC message: {error}"))
        }
        _ => RpcError::new(code::PARSE_ERROR, format!("invalid JSON: {error}")),
    };
    InvalidMessage { id: RequestId::Null, error }
}

fn response_outcome<'a>(
    result: Option<&'a RawValue>,
    error: Option<&RawValue>,
) -> Result<Option<&'a RawValue>, RpcError> {
    match error {
        None => Ok(result),
        Some(raw) => Err(serde_json::from_str(raw.get()).unwrap_or_else(|_| {
            RpcError::new(code::INTERNAL_ERROR, "the peer responded with an invalid JSON-RPC error")
        })),
    }
}

#[derive(Serialize)]
struct RequestEnvelope<'a, P: Serialize> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a RequestId>,
    method: &'a str,
    params: P,
}

#[derive(Serialize)]
struct ResultEnvelope<'a, R: Serialize> {
    jsonrpc: &'static str,
    id: &'a RequestId,
    result: R,
}

#[derive(Serialize)]
struct ErrorEnvelope<'a> {
    jsonrpc: &'static str,
    id: &'a RequestId,
    error: &'a RpcError,
}

/// Encodes a request as a frame.
#[must_use]
pub fn encode_request(id: &RequestId, method: &str, params: &impl Serialize) -> Bytes {
    crate::frame::encode(&request_body(id, method, params))
}

/// Encodes a notification as a frame.
#[must_use]
pub fn encode_notification(method: &str, params: &impl Serialize) -> Bytes {
    crate::frame::encode(&notification_body(method, params))
}

/// Encodes a successful response as a frame.
#[must_use]
pub fn encode_result(id: &RequestId, result: &impl Serialize) -> Bytes {
    crate::frame::encode(&result_body(id, result))
}

/// Encodes an error response as a frame.
#[must_use]
pub fn encode_error(id: &RequestId, error: &RpcError) -> Bytes {
    crate::frame::encode(&error_body(id, error))
}

/// Encodes a request without a frame.
#[must_use]
pub fn request_body(id: &RequestId, method: &str, params: &impl Serialize) -> Vec<u8> {
    body(&RequestEnvelope { jsonrpc: "2.0", id: Some(id), method, params })
}

/// Encodes a notification without a frame.
pub(crate) fn notification_body(method: &str, params: &impl Serialize) -> Vec<u8> {
    body(&RequestEnvelope { jsonrpc: "2.0", id: None, method, params })
}

/// Encodes a successful response without a frame.
pub(crate) fn result_body(id: &RequestId, result: &impl Serialize) -> Vec<u8> {
    body(&ResultEnvelope { jsonrpc: "2.0", id, result })
}

/// Encodes an error response without a frame.
pub(crate) fn error_body(id: &RequestId, error: &RpcError) -> Vec<u8> {
    body(&ErrorEnvelope { jsonrpc: "2.0", id, error })
}

fn body(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).expect("our messages are plain structs with text keys")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_ids_keep_their_type() {
        for id in ["1", "\"1\"", "-7", "18446744073709551616", "\"\\u00fc\"", "1.5"] {
            let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#);
            let RpcMessage::Request { id: read, .. } = parse(body.as_bytes()).unwrap() else {
                panic!("{id}")
            };
            let frame = encode_result(&read, &());
            let expected = id.replace("\\u00fc", "ü");
            let text = String::from_utf8(frame.to_vec()).unwrap();
            assert!(
                text.ends_with(&format!(r#"{{"jsonrpc":"2.0","id":{expected},"result":null}}"#)),
                "{text}"
            );
        }
    }

    #[test]
    fn borrowed_message_copies_nothing() {
        let body = br#"{"jsonrpc":"2.0","method":"a/b","params":{"c":[1,2]}}"#;
        let BorrowedRpcMessage::Notification { method, params } = parse_borrowed(body).unwrap() else {
            panic!()
        };
        assert!(matches!(method, Cow::Borrowed("a/b")));
        assert_eq!(params.unwrap().get(), r#"{"c":[1,2]}"#);
        let escaped = br#"{"method":"a\/b"}"#;
        let BorrowedRpcMessage::Notification { method, .. } = parse_borrowed(escaped).unwrap() else {
            panic!()
        };
        assert!(matches!(method, Cow::Owned(text) if text == "a/b"));
    }

    #[test]
    fn invalid_messages_get_their_error_code() {
        let code_of = |body: &str| parse(body.as_bytes()).unwrap_err().error.code;
        assert_eq!(code_of("{"), code::PARSE_ERROR);
        assert_eq!(code_of("\u{1}"), code::PARSE_ERROR);
        assert_eq!(code_of("[]"), code::INVALID_REQUEST);
        assert_eq!(code_of("[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\"}]"), code::INVALID_REQUEST);
        assert_eq!(code_of(" [1,\"exit\",{}]"), code::INVALID_REQUEST);
        assert_eq!(code_of("[1,"), code::PARSE_ERROR);
        assert_eq!(code_of("{}"), code::INVALID_REQUEST);
        assert_eq!(code_of(r#"{"id":{},"method":"a"}"#), code::INVALID_REQUEST);
        assert_eq!(code_of(r#"{"id":1,"id":2,"method":"a"}"#), code::INVALID_REQUEST);
        // UTF-8 is also checked in members that are never read.
        let body = b"{\"method\":\"a\",\"params\":{},\"other\":\"\xff\"}";
        let error = parse(body).unwrap_err().error;
        assert_eq!(error.code, code::PARSE_ERROR);
        assert_eq!(error.message, "invalid JSON: not UTF-8 at byte 35");
    }

    #[test]
    fn responses_with_and_without_result_are_read() {
        let RpcMessage::Response { outcome, .. } = parse(br#"{"id":1}"#).unwrap() else { panic!() };
        assert!(outcome.unwrap().is_none());
        let RpcMessage::Response { outcome, .. } = parse(br#"{"id":1,"error":{"message":"no"}}"#).unwrap()
        else {
            panic!()
        };
        assert_eq!(
            outcome.unwrap_err(),
            RpcError { code: 0, message: "no".into(), data: serde_json::Value::Null }
        );
    }
}
