//! What protocols demand of an envelope beyond what [`rpc::parse`](crate::rpc::parse) demands: an id is a
//! number or a string, parameters are an array or an object. Each protocol decides about the version.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, de::IgnoredAny};
use serde_json::value::RawValue;

use crate::rpc::{BorrowedText, InvalidMessage, RequestId, RpcError, RpcMessage, code};

/// Members that `rpc::parse` drops: the version, and whether a null id is present.
#[derive(Deserialize)]
pub(crate) struct StrictMembers<'a> {
    #[serde(borrow, default)]
    jsonrpc: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "is_present")]
    id: bool,
}

/// Returns that the member is there, whatever its value is.
pub(crate) fn is_present<'de, D: Deserializer<'de>>(value: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(value).map(|_| true)
}

impl<'a> StrictMembers<'a> {
    /// Reads a body that was read as an object already.
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, InvalidMessage> {
        serde_json::from_slice(body).map_err(|_| invalid(&RequestId::Null, "expected one JSON-RPC message"))
    }

    /// Returns whether the version is the known one; `None` if none is named.
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
                Err(invalid(id, "expected an array or an object as params"))
            }
            RpcMessage::Request { .. } | RpcMessage::Notification { .. } | RpcMessage::Response { .. } => {
                Ok(message)
            }
        }
    }
}

/// Returns the refusal of a message whose id is null.
pub(crate) fn null_id() -> InvalidMessage {
    invalid(&RequestId::Null, "expected a number or a string as id")
}

/// Returns the refusal of a message.
pub(crate) fn invalid(id: &RequestId, text: &str) -> InvalidMessage {
    InvalidMessage { id: id.clone(), error: RpcError::new(code::INVALID_REQUEST, text) }
}
