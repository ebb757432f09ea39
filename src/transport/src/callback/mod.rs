//! Client callback port, as a worker or the watchdog uses it: frames are sent, and at the end the client's
//! reception is proven.
//!
//! - `connection`: [`dial`] and [`CallbackConnection`].
//! - `proofs`: what a client has of a connection.
//! - `socket`: its socket, and what the peer's kernel has taken.
//! - `peer`: the background reader, which sees answers and the peer's end, and answers requests.
//! - `client_progress`: what the client answers on any connection.
//! - `positions`: what of each run is sent, and handled.
//! - `connection_record`, `stream_record`: what a process was writing when it was killed.
//! - `held_stream`: duplicates of connections, by which another process brings them to an end.

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
