//! Client connections, opened by the server or the client or over standard streams, and the front ends that
//! serve them.
//!
//! - `accept`: opens and accepts connections.
//! - `deadline`: waits with time limits.
//! - `front_end`: the front end trait; `front_ends`: the list of front ends.
//! - `loopback_http`: shared by front ends over HTTP.
//! - `session_link`: a session's connection, and outside events that end the session; `session_output`:
//!   frames sent by a session.
//! - `stall_watch`: detects clients that stopped reading.

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
