//! Error codes of the Mutation Server Protocol beyond [`crate::rpc::code`].

/// The request was cancelled.
pub const REQUEST_CANCELLED: i64 = -32000;
/// A request arrived before the response to `initialize`.
pub const SERVER_NOT_INITIALIZED: i64 = -32001;
/// The client's protocol version is not supported.
pub const UNKNOWN_PROTOCOL_VERSION: i64 = -5000;
