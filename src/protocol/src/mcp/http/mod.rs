//! Messages over HTTP ("streamable HTTP"). Each client message is the body of a POST. The response to a
//! request is one JSON message or a stream of events.
//!
//! - `headers`: checks the addressee and the sender of a request, and that its headers agree with the body.
//! - `content`: charset and content coding of bodies.
//! - `events`: the event stream.
//! - `relay`: requests of several clients in one session.
//! - `url`: the address of a server on this machine.

mod content;
mod events;
mod headers;
mod relay;
mod url;

pub use content::{UnreadableContent, check_content_headers};
pub use events::{EventBlock, EventDecoder, EventTooLong, KEEP_ALIVE_COMMENT, encode_event};
pub use headers::{
    ForeignRequest, HeaderField, check_local_request, check_message_headers, decode_header_value,
    encode_header_value, is_media_type, is_modern_request, mirrored_headers,
};
pub use relay::{RelayedMessage, RelayedRequest};
pub use url::{LocalUrl, LocalUrlError};

/// Header names in lower case.
pub mod header {
    pub const SESSION_ID: &str = "mcp-session-id";
    pub const PROTOCOL_VERSION: &str = "mcp-protocol-version";
    pub(crate) const METHOD: &str = "mcp-method";
    pub const NAME: &str = "mcp-name";
}

/// Heeler's hidden command that connects to a server over HTTP; its argument is the address.
pub const BRIDGE_COMMAND: &str = "__mcp-http";
/// Media type of one message.
pub const JSON_TYPE: &str = "application/json";
/// Media type of an event stream.
pub const EVENTS_TYPE: &str = "text/event-stream";
