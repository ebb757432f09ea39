//! Messages over HTTP ("streamable HTTP"): each message of the client is the body of a POST; a request is
//! answered with one JSON message or with a stream of events.
//!
//! - `headers`: what the headers of a request must say: whom it is for, who sends it, and what its body says.
//! - `content`: how a body is written: charset and content coding.
//! - `events`: the event stream, as messages.
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

/// Names of headers, in lower case.
pub mod header {
    pub const SESSION_ID: &str = "mcp-session-id";
    pub const PROTOCOL_VERSION: &str = "mcp-protocol-version";
    pub(crate) const METHOD: &str = "mcp-method";
    pub const NAME: &str = "mcp-name";
}

/// The hidden command of Heeler that reaches a server over HTTP: its argument is the address.
pub const BRIDGE_COMMAND: &str = "__mcp-http";
/// Media type of one message.
pub const JSON_TYPE: &str = "application/json";
/// Media type of a stream of events.
pub const EVENTS_TYPE: &str = "text/event-stream";
