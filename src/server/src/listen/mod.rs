//! Connections of clients: over a connection that the server opens, that the client opens, or over standard
//! streams; and the front ends that serve them.
//!
//! - `accept`: opens and accepts connections.
//! - `deadline`: waits for deadlines of sessions.
//! - `front_end`: what a front end is; `front_ends`: their list.
//! - `loopback_http`: what front ends over HTTP have in common.
//! - `session_link`: the connection of a session, and what ends it from outside; `session_output`: what a
//!   session sends.
//! - `stall_watch`: a client that reads nothing.

mod accept;
mod deadline;
mod front_end;
mod front_ends;
pub(crate) mod loopback_http;
mod session_link;
mod session_output;
mod stall_watch;

pub use accept::{ListenError, TcpAddress, dial, serve_local, serve_tcp, standard_streams};
pub(crate) use deadline::{await_end, wait_for_deadline};
pub use front_end::{
    Announcement, ByteStream, ClientServer, ClientStream, ConnectionPolicy, DefaultTransport, FrontEnd,
    PortFuture, PortService, ServingSession, SessionCommand, SessionEnd, SessionOptions,
};
pub use front_ends::{FRONT_ENDS, front_end, program_front_ends};
pub use session_link::{LinkEvent, LinkLimits, SessionLink};
pub use session_output::SessionOutput;
use stall_watch::StallWatch;
