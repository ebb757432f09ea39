//! Clients come in here: over a connection that we dial, that they dial, over standard streams, or in memory.
//!
//! - `listen`: how connections come about.
//! - `session`: one client, from its first byte to its last.
//! - `engine`: does a session's requests, one after the other.
//! - `mtp`: the MSTest Runner Protocol, one file for each request.

mod engine;
mod listen;
mod mtp;
mod session;

pub use listen::{ListenError, dial, serve_local, serve_tcp, standard_streams};
pub use session::{Session, SessionCommand, SessionEnd, SessionOptions};
