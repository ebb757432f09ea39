//! Requests of several clients in one session. A number replaces the id and the progress token of each
//! request, and the originals are restored in the session's messages.

use bytes::Bytes;
use serde_json::{Value, value::RawValue};

use crate::{
    mcp::{encode_error, encode_notification, encode_request, encode_result, method},
    rpc::{self, RequestId, RpcError, RpcMessage},
};

/// A request as sent to the session.
#[derive(Debug)]
pub struct RelayedRequest {
    /// The message, with the number as its id.
    pub line: Bytes,
    /// The client's original progress token.
    pub progress_token: Option<Value>,
}

impl RelayedRequest {
    /// Returns a request with the number in place of its id.
    #[must_use]
    pub fn new(number: u64, method: &str, params: Option<&RawValue>) -> Self {
        let mut params = params.and_then(|params| serde_json::from_str::<Value>(params.get()).ok());
        let token = params.as_mut().and_then(|params| params.get_mut("_meta")?.get_mut("progressToken"));
        let progress_token = token.filter(|token| !token.is_null()).map(|token| {
            let number = if token.is_string() || token.is_number() { number.into() } else { token.clone() };
            std::mem::replace(token, number)
        });
        let params = params.unwrap_or_else(|| Value::Object(serde_json::Map::new()));
        Self { line: encode_request(&RequestId::number(number), method, &params), progress_token }
    }
}

/// A message of the session that belongs to a request.
#[derive(Debug)]
pub enum RelayedMessage {
    Progress { number: u64, params: Value },
    Response { number: u64, outcome: Result<Option<Box<RawValue>>, RpcError> },
}

impl RelayedMessage {
    /// Reads a line of the session; `None` if it does not belong to a numbered request.
    #[must_use]
    pub fn read(line: &[u8]) -> Option<Self> {
        match rpc::parse(line).ok()? {
            RpcMessage::Response { id: RequestId::Number(number), outcome } => {
                Some(Self::Response { number: number.parse().ok()?, outcome })
            }
            RpcMessage::Notification { method, params } if method == method::PROGRESS => {
                let params: Value = serde_json::from_str(params?.get()).ok()?;
                Some(Self::Progress { number: params.get("progressToken")?.as_u64()?, params })
            }
            _ => None,
        }
    }

    #[must_use]
    pub fn number(&self) -> u64 {
        match self {
            Self::Progress { number, .. } | Self::Response { number, .. } => *number,
        }
    }

    /// Returns the message with the client's id and progress token.
    #[must_use]
    pub fn for_client(self, id: &RequestId, progress_token: Option<&Value>) -> Bytes {
        match self {
            Self::Progress { mut params, .. } => {
                params["progressToken"] = progress_token.cloned().unwrap_or_default();
                encode_notification(method::PROGRESS, &params)
            }
            Self::Response { outcome: Ok(result), .. } => encode_result(id, &result),
            Self::Response { outcome: Err(error), .. } => encode_error(id, &error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_tokens_come_back_with_their_types() {
        let params = r#"{"name":"x","_meta":{"progressToken":"t","other":1}}"#;
        let params = RawValue::from_string(params.to_owned()).unwrap();
        let request = RelayedRequest::new(7, "tools/call", Some(&params));
        let sent: Value = serde_json::from_slice(&request.line).unwrap();
        assert_eq!(sent["id"], 7);
        assert_eq!(sent["params"]["_meta"], serde_json::json!({ "progressToken": 7, "other": 1 }));

        let progress = br#"{"method":"notifications/progress","params":{"progressToken":7,"progress":1}}"#;
        let progress = RelayedMessage::read(progress).unwrap();
        assert_eq!(progress.number(), 7);
        let id = RequestId::String("a".into());
        let line = progress.for_client(&id, request.progress_token.as_ref());
        let back: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(back["params"], serde_json::json!({ "progressToken": "t", "progress": 1 }));

        for (line, member) in
            [(r#"{"id":7,"result":{"x":1}}"#, "result"), (r#"{"id":7,"error":{"code":1}}"#, "error")]
        {
            let message = RelayedMessage::read(line.as_bytes()).unwrap();
            let back: Value = serde_json::from_slice(&message.for_client(&id, None)).unwrap();
            assert_eq!((back["id"].as_str(), back[member].is_object()), (Some("a"), true), "{line}");
        }
    }

    #[test]
    fn what_is_wrong_stays_wrong() {
        for params in ["{\"_meta\":{\"progressToken\":{}}}", "{\"_meta\":[]}", "[]"] {
            let raw = RawValue::from_string(params.to_owned()).unwrap();
            let sent: Value =
                serde_json::from_slice(&RelayedRequest::new(1, "ping", Some(&raw)).line).unwrap();
            assert_eq!(sent["params"].to_string(), params, "the session refuses it");
        }
        for line in ["", "{}", r#"{"id":"7","result":1}"#, r#"{"id":-1,"result":1}"#, r#"{"method":"x"}"#] {
            assert!(RelayedMessage::read(line.as_bytes()).is_none(), "{line}");
        }
    }
}
