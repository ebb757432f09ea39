//! Error codes of the Mutation Server Protocol beside those of JSON-RPC, which are in [`crate::rpc::code`].

/// The request was cancelled.
pub const REQUEST_CANCELLED: i64 = -32000;
/// A request arrived before `initialize` was answered.
pub const SERVER_NOT_INITIALIZED: i64 = -32001;
/// The client's version of the protocol is not supported.
pub const UNKNOWN_PROTOCOL_VERSION: i64 = -5000;
