//! Connections of clients: over a connection that the server opens, that the client opens, or over standard
//! streams; and the front ends that serve them.
//!
//! - `accept`: opens and accepts connections.
//! - `front_end`: the front ends, and what they have in common.

mod accept;
mod front_end;

pub use accept::{ClientServer, ListenError, dial, serve_local, serve_tcp, standard_streams};
pub use front_end::{
    ByteStream, ClientStream, FRONT_ENDS, FrontEnd, ServingSession, SessionCommand, SessionEnd,
    SessionOptions, front_end,
};
