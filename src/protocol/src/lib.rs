//! Conversion between bytes and the messages that Heeler's processes and clients exchange. This crate has no
//! I/O and no clock, and makes no decisions.
//!
//! - [`frame`]: `Content-Length` framing of client protocols.
//! - [`packet`]: framing of Heeler's own control connections.
//! - [`rpc`]: JSON-RPC envelopes, ids and errors.
//! - `strict_envelope`: stricter checks of envelopes, which some protocols demand.
//! - [`mtp`]: the MSTest Runner Protocol.
//! - `connect`: messages between Connect's conformance suite and a client under test.
//! - [`mcp`]: the Model Context Protocol, and the filter that hides test tools.
//! - [`mutation`]: the Mutation Server Protocol, and report formats of mutation testing.
//! - [`rsp`]: the Runtime Server Protocol.
//! - [`ctest`]: CTest's list of tests.
//! - [`control`]: messages between coordinator, watchdog, worker and guard.
//! - [`fork_server`]: messages between a worker and its fork server, which forks guards.
//! - [`journal`]: write-ahead journals.
//! - [`manifest`]: the plan of a run, stored next to its journals.

#[cfg(feature = "connect")]
pub mod connect;
pub mod control;
pub mod ctest;
pub mod fork_server;
pub mod frame;
pub mod journal;
pub mod manifest;
mod manifest_schedule;
pub mod mcp;
#[warn(missing_docs)]
pub mod mtp;
pub mod mutation;
pub mod packet;
pub mod rpc;
pub mod rsp;
#[cfg(feature = "schema")]
mod schema;
mod strict_envelope;

/// Streaming decoder: takes one item from the front of a buffer, or requests more bytes.
///
/// Implementations check a length against the limit before they allocate memory, because a peer may claim any
/// length.
pub trait StreamDecoder {
    /// Decoded item.
    type Item;
    /// Fatal error of the stream.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Takes the next item from the front of `buffer`; `None` requests more bytes.
    ///
    /// # Errors
    /// The stream is damaged, and nothing after this point can be trusted.
    fn decode(&mut self, buffer: &mut bytes::BytesMut) -> Result<Option<Self::Item>, Self::Error>;

    /// Returns whether part of an item has been taken from the buffer, but not the rest.
    fn is_inside_item(&self) -> bool;
}
