//! Client sessions: over a connection that the server opens, that the client opens, over standard streams, or
//! in memory.
//!
//! - `listen`: opens and accepts connections.
//! - `session`: one client, from the first byte to the last.
//! - `scheduler`: schedules a session's requests, concurrently.
//! - `mtp`: the MSTest Runner Protocol, one file per request.

mod listen;
mod mtp;
mod scheduler;
mod session;

pub use listen::{ListenError, dial, serve_local, serve_tcp, standard_streams};
pub use session::{ServerSession, ServerSessionOptions, SessionCommand, SessionEnd};
