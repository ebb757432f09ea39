//! Reads a body as strictly as the base protocol demands: version "2.0" if present, an id that is a number or
//! a string, and parameters that are an array, an object or null.

use crate::{
    rpc::{self, InvalidMessage, RpcMessage},
    strict_envelope::{StrictMembers, invalid},
};

/// Reads one body.
///
/// # Errors
/// The error to respond with. Notifications get no response, so a notification with invalid parameters is
/// returned unchanged; its parameters cannot be read later.
pub fn read_message(body: &[u8]) -> Result<RpcMessage, InvalidMessage> {
    let message = rpc::parse(body)?;
    let strict = StrictMembers::read(body)?;
    match &message {
        RpcMessage::Request { id, .. } if strict.has_known_version() == Some(false) => {
            Err(invalid(id, "jsonrpc must be \"2.0\""))
        }
        RpcMessage::Request { .. } | RpcMessage::Notification { .. } | RpcMessage::Response { .. } => {
            strict.check(message)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::code;

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
