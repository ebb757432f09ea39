//! Stricter checks of envelopes than [`rpc::parse`](crate::rpc::parse): an id must be a number or a string,
//! and parameters an array or an object. Each protocol checks the version itself.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, de::IgnoredAny};
use serde_json::value::RawValue;

use crate::rpc::{BorrowedText, InvalidMessage, RequestId, RpcError, RpcMessage, code};

/// Members dropped by `rpc::parse`: the version, and whether an id is present.
#[derive(Deserialize)]
pub(crate) struct StrictMembers<'a> {
    #[serde(borrow, default)]
    jsonrpc: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "is_present")]
    id: bool,
}

/// Returns `true` for a member that is present, even if it is null.
pub(crate) fn is_present<'de, D: Deserializer<'de>>(value: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(value).map(|_| true)
}

impl<'a> StrictMembers<'a> {
    /// Reads a body that is known to be an object.
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, InvalidMessage> {
        serde_json::from_slice(body).map_err(|_| invalid(&RequestId::Null, "invalid JSON-RPC message"))
    }

    /// Returns whether the version is "2.0"; `None` if the message has no version.
    pub(crate) fn has_known_version(&self) -> Option<bool> {
        let version = serde_json::from_str::<BorrowedText<'_>>(self.jsonrpc?.get());
        Some(version.is_ok_and(|BorrowedText(version)| version == Cow::Borrowed("2.0")))
    }

    /// Checks the id and the parameters.
    pub(crate) fn check(&self, message: RpcMessage) -> Result<RpcMessage, InvalidMessage> {
        match &message {
            RpcMessage::Request { id: RequestId::Null, .. } => Err(null_id()),
            RpcMessage::Notification { .. } if self.id => Err(null_id()),
            RpcMessage::Request { id, params: Some(params), .. } if !params.get().starts_with(['{', '[']) => {
                Err(invalid(id, "the params must be an array or an object"))
            }
            RpcMessage::Request { .. } | RpcMessage::Notification { .. } | RpcMessage::Response { .. } => {
                Ok(message)
            }
        }
    }
}

/// Returns the rejection of a message with a null id.
pub(crate) fn null_id() -> InvalidMessage {
    invalid(&RequestId::Null, "the id must be a number or a string")
}

/// Returns the rejection of a message.
pub(crate) fn invalid(id: &RequestId, text: &str) -> InvalidMessage {
    InvalidMessage { id: id.clone(), error: RpcError::new(code::INVALID_REQUEST, text) }
}
