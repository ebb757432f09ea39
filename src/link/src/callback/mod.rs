//! The client's callback port, as a worker or the watchdog sees it: frames go out, and at the end it is proven what
//! the client has read.
//!
//! - `connection`: [`dial`], [`Callback`] and its proofs.
//! - `peer`: the background reader, which sees answers and the peer's end, and answers requests.

mod connection;
mod peer;

#[cfg(test)]
mod tests;

pub use crate::tcp::DialError;
pub use connection::{Broken, Callback, dial};
