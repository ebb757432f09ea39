//! Reads a body as strictly as the base protocol demands: version "2.0", an id that is a number or a string,
//! and parameters that are an array, an object or absent. A body is a message or a batch of messages.

use serde_json::value::RawValue;

use crate::{
    rpc::{self, InvalidMessage, RequestId, RpcError, RpcMessage, code},
    strict_envelope::{StrictMembers, invalid},
};

/// Maximum number of messages in a batch.
pub const MAX_BATCH_MESSAGES: usize = 1000;

/// Body of a client.
#[derive(Debug)]
pub enum ClientBody {
    Message(Result<RpcMessage, InvalidMessage>),
    /// At least one message. The responses to its requests are sent together, as an array.
    Batch(Vec<Result<RpcMessage, InvalidMessage>>),
}

/// Reads one body.
#[must_use]
pub fn read_body(body: &[u8]) -> ClientBody {
    if !body.trim_ascii_start().starts_with(b"[") {
        return ClientBody::Message(read_message(body));
    }
    let refused = |text: &str| ClientBody::Message(Err(invalid(&RequestId::Null, text)));
    match serde_json::from_slice::<Vec<&RawValue>>(body) {
        Ok(messages) if messages.is_empty() => refused("the batch is empty"),
        Ok(messages) if messages.len() > MAX_BATCH_MESSAGES => {
            refused(&format!("too many messages in a batch (limit: {MAX_BATCH_MESSAGES})"))
        }
        Ok(messages) => {
            ClientBody::Batch(messages.into_iter().map(|one| read_message(one.get().as_bytes())).collect())
        }
        Err(error) => {
            let error = RpcError::new(code::PARSE_ERROR, format!("invalid JSON: {error}"));
            ClientBody::Message(Err(InvalidMessage { id: RequestId::Null, error }))
        }
    }
}

fn read_message(body: &[u8]) -> Result<RpcMessage, InvalidMessage> {
    if body.trim_ascii_start().starts_with(b"[") {
        let text = "a batch must contain JSON-RPC messages, not arrays";
        return Err(invalid(&RequestId::Null, text));
    }
    let message = rpc::parse(body)?;
    let strict = StrictMembers::read(body)?;
    let id = match &message {
        RpcMessage::Request { id, .. } | RpcMessage::Response { id, .. } => id,
        RpcMessage::Notification { .. } => &RequestId::Null,
    };
    match strict.has_known_version() {
        Some(true) => strict.check(message),
        Some(false) | None => Err(invalid(id, "jsonrpc must be \"2.0\"")),
    }
}

/// Encodes an error response.
#[must_use]
pub fn error_body(id: &RequestId, error: &RpcError) -> Vec<u8> {
    rpc::error_body(id, error)
}

/// Joins the responses to a batch.
#[must_use]
pub fn batch_body(responses: &[Vec<u8>]) -> Vec<u8> {
    let mut body = vec![b'['];
    body.extend(responses.join(&b','));
    body.push(b']');
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refusal(body: &str) -> (i64, String) {
        let ClientBody::Message(Err(invalid)) = read_body(body.as_bytes()) else { panic!("{body}") };
        (invalid.error.code, invalid.id.to_string())
    }

    #[test]
    fn every_id_and_absent_parameters_are_accepted() {
        for id in ["0", "\"\"", "-1", "1.5", "18446744073709551616"] {
            let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"mutate"}}"#);
            let ClientBody::Message(Ok(RpcMessage::Request { id: read, params: None, .. })) =
                read_body(body.as_bytes())
            else {
                panic!("{body}")
            };
            assert_eq!(read.to_string(), id);
        }
    }

    #[test]
    fn each_invalid_envelope_has_its_code_and_id() {
        let invalid = code::INVALID_REQUEST;
        for (body, expected) in [
            ("{", (code::PARSE_ERROR, "null")),
            ("[{]", (code::PARSE_ERROR, "null")),
            ("[\u{1}", (code::PARSE_ERROR, "null")),
            ("[]", (invalid, "null")),
            ("7", (invalid, "null")),
            ("{}", (invalid, "null")),
            (r#"{"id":7,"method":"m"}"#, (invalid, "7")),
            (r#"{"method":"m"}"#, (invalid, "null")),
            (r#"{"jsonrpc":"1.0","id":"a","method":"m"}"#, (invalid, "\"a\"")),
            (r#"{"jsonrpc":2.0,"id":7,"method":"m"}"#, (invalid, "7")),
            (r#"{"jsonrpc":"2.0","id":null,"method":"m"}"#, (invalid, "null")),
            (r#"{"jsonrpc":"2.0","id":true,"method":"m"}"#, (invalid, "null")),
            (r#"{"jsonrpc":"2.0","id":{},"method":"m"}"#, (invalid, "null")),
            (r#"{"jsonrpc":"2.0","id":7,"method":1}"#, (invalid, "null")),
            (r#"{"jsonrpc":"2.0","id":7,"method":"m","params":7}"#, (invalid, "7")),
            (r#"{"jsonrpc":"2.0","id":7,"method":"m","params":"text"}"#, (invalid, "7")),
        ] {
            let (code, id) = refusal(body);
            assert_eq!((code, id.as_str()), expected, "{body}");
        }
        let many = format!("[{}1]", "1,".repeat(MAX_BATCH_MESSAGES));
        assert_eq!(refusal(&many).0, invalid);
    }

    #[test]
    fn messages_of_a_batch_are_read_one_by_one() {
        let body = br#" [{"jsonrpc":"2.0","id":1,"method":"mutate","params":[]}, 1, [], {"jsonrpc":"2.0","method":"m"}]"#;
        let ClientBody::Batch(messages) = read_body(body) else { panic!() };
        let codes: Vec<_> =
            messages.iter().map(|one| one.as_ref().err().map(|invalid| invalid.error.code)).collect();
        assert_eq!(codes, [None, Some(code::INVALID_REQUEST), Some(code::INVALID_REQUEST), None]);
        assert_eq!(batch_body(&[b"{}".to_vec(), b"1".to_vec()]), b"[{},1]");
    }
}
