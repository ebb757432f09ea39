//! Client callback port, used by workers and the watchdog to send frames and to prove that the client has
//! received them.
//!
//! - `connection`: [`dial`] and [`CallbackConnection`].
//! - `proofs`: proofs of what a client has.
//! - `socket`: the socket, and the bytes that the peer's kernel has acknowledged.
//! - `peer`: background reader for answers, requests and the peer's end.
//! - `client_progress`: the client's answers on all connections.
//! - `positions`: sent and handled positions of each run.
//! - `connection_record`, `stream_record`: the unfinished writes of a killed process.
//! - `held_stream`: duplicates of connections, for settling them after their process died.

mod client_progress;
mod connection;
mod connection_record;
mod held_stream;
mod peer;
mod positions;
mod proofs;
mod socket;
mod stream_record;

#[cfg(test)]
mod answer_tests;
#[cfg(test)]
mod held_stream_tests;
#[cfg(test)]
mod tests;

pub use client_progress::{SharedProgress, on_client_overdue};
pub use connection::{CallbackBroken, CallbackConnection, CallbackDialError, dial};
pub use connection_record::StreamHolders;
pub use held_stream::{HeldStream, HeldStreams, SettledStream, StreamHolder};
