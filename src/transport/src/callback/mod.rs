//! Client callback port, as a worker or the watchdog uses it: frames are sent, and at the end the client's
//! reception is proven.
//!
//! - `connection`: [`dial`], [`CallbackConnection`] and its proofs.
//! - `peer`: the background reader, which sees answers and the peer's end, and answers requests.

mod connection;
mod peer;

#[cfg(test)]
mod tests;

pub use connection::{CallbackBroken, CallbackConnection, CallbackDialError, dial};
