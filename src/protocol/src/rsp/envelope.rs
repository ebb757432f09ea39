//! Reads a body as strictly as the base protocol demands: the version is "2.0" if it is named, an id is a
//! number or a string, parameters are an array, an object or null.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, de::IgnoredAny};
use serde_json::value::RawValue;

use crate::rpc::{self, BorrowedText, InvalidMessage, RequestId, RpcError, RpcMessage, code};

/// What [`rpc::parse`] does not tell: the version, and whether an id that is null is there at all.
#[derive(Deserialize)]
struct StrictMembers<'a> {
    #[serde(borrow, default)]
    jsonrpc: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "is_present")]
    id: bool,
}

/// Returns that the member is there, whatever its value is.
fn is_present<'de, D: Deserializer<'de>>(value: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(value).map(|_| true)
}

impl StrictMembers<'_> {
    fn has_known_version(&self) -> bool {
        let Some(version) = self.jsonrpc else { return true };
        serde_json::from_str::<BorrowedText<'_>>(version.get())
            .is_ok_and(|BorrowedText(version)| version == Cow::Borrowed("2.0"))
    }
}

/// Reads one body.
///
/// # Errors
/// The error to respond with. Notifications are never answered, so the caller sends none for what is one
/// apart from its parameters: such a message is returned as it is, and its parameters can't be read.
pub fn read_message(body: &[u8]) -> Result<RpcMessage, InvalidMessage> {
    let message = rpc::parse(body)?;
    let invalid = |id: &RequestId, text: &str| {
        Err(InvalidMessage { id: id.clone(), error: RpcError::new(code::INVALID_REQUEST, text) })
    };
    // The body was read as an object already, so this reads it again.
    let Ok(strict) = serde_json::from_slice::<StrictMembers<'_>>(body) else {
        return invalid(&RequestId::Null, "expected one JSON-RPC message");
    };
    match &message {
        RpcMessage::Request { id, .. } if !strict.has_known_version() => {
            invalid(id, "expected \"2.0\" as jsonrpc")
        }
        RpcMessage::Request { id: RequestId::Null, .. } => {
            invalid(&RequestId::Null, "expected a number or a string as id")
        }
        RpcMessage::Notification { .. } if strict.id => {
            invalid(&RequestId::Null, "expected a number or a string as id")
        }
        RpcMessage::Request { id, params: Some(params), .. } if !is_structured(params) => {
            invalid(id, "expected an array or an object as params")
        }
        RpcMessage::Request { .. } | RpcMessage::Notification { .. } | RpcMessage::Response { .. } => {
            Ok(message)
        }
    }
}

fn is_structured(params: &RawValue) -> bool {
    params.get().starts_with(['{', '['])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(body: &str) -> (i64, String) {
        let invalid = read_message(body.as_bytes()).expect_err(body);
        (invalid.error.code, invalid.id.to_string())
    }

    #[test]
    fn null_parameters_and_a_missing_version_are_accepted() {
        for body in [
            r#"{"jsonrpc":"2.0","id":0,"method":"server/getJobs","params":null}"#,
            r#"{"id":"a","method":"server/getJobs"}"#,
            r#"{"jsonrpc":"2.\u0030","id":1.5,"method":"m","params": [1]}"#,
        ] {
            let Ok(RpcMessage::Request { .. }) = read_message(body.as_bytes()) else { panic!("{body}") };
        }
    }

    #[test]
    fn each_invalid_envelope_has_its_code_and_id() {
        let invalid = code::INVALID_REQUEST;
        for (body, expected) in [
            ("{", (code::PARSE_ERROR, "null")),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"m"}]"#, (invalid, "null")),
            ("7", (invalid, "null")),
            ("{}", (invalid, "null")),
            (r#"{"id":null,"method":"m"}"#, (invalid, "null")),
            (r#"{"id":[1],"method":"m"}"#, (invalid, "null")),
            (r#"{"id":true,"method":"m"}"#, (invalid, "null")),
            (r#"{"id":7,"method":"m","params":7}"#, (invalid, "7")),
            (r#"{"id":"x","method":"m","params":"text"}"#, (invalid, "\"x\"")),
            (r#"{"id":7,"method":"m","params":false}"#, (invalid, "7")),
            (r#"{"jsonrpc":"1.0","id":7,"method":"m"}"#, (invalid, "7")),
            (r#"{"jsonrpc":2,"id":7,"method":"m"}"#, (invalid, "7")),
        ] {
            let (code, id) = refusal(body);
            assert_eq!((code, id.as_str()), expected, "{body}");
        }
    }

    #[test]
    fn notification_is_returned_whatever_its_parameters_are() {
        for body in [r#"{"method":"m","params":7}"#, r#"{"jsonrpc":"1.0","method":"m"}"#] {
            let Ok(RpcMessage::Notification { .. }) = read_message(body.as_bytes()) else { panic!("{body}") };
        }
    }
}
