//! Every byte and message that Heeler's processes and clients exchange. No I/O, clock or decision belongs
//! here: this crate only converts bytes to values and values to bytes.
//!
//! - [`frame`]: `Content-Length` framing of the protocols of clients.
//! - [`packet`]: framing of Heeler's own control connections.
//! - [`rpc`]: JSON-RPC envelopes, ids and errors.
//! - `strict_envelope`: what some protocols demand of envelopes beyond that.
//! - [`mtp`]: the messages of the MSTest Runner Protocol.
//! - `connect`: the messages between Connect's conformance suite and a client under test.
//! - [`mcp`]: the messages of the Model Context Protocol, and the filter that hides test tools.
//! - [`mutation`]: the messages of the Mutation Server Protocol, and report formats of mutation testing.
//! - [`rsp`]: the messages of the Runtime Server Protocol.
//! - [`ctest`]: the list of tests that CTest writes.
//! - [`control`]: messages between coordinator, watchdog, worker and guard.
//! - [`fork_server`]: messages between a worker and its fork server, which creates the guards.
//! - [`journal`]: the records of write-ahead journals.
//! - [`manifest`]: the plan of a run, beside its journals.

#[cfg(feature = "connect")]
pub mod connect;
pub mod control;
pub mod ctest;
pub mod fork_server;
pub mod frame;
pub mod journal;
pub mod manifest;
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

/// Streaming decoder: takes one item off the front of a buffer, or requests more bytes.
///
/// Implementations never allocate by the peer's word: a length is checked against the limit before memory is
/// allocated.
pub trait StreamDecoder {
    /// Decoded item.
    type Item;
    /// Error that makes the stream unreadable. After an error the stream is over.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Takes the next item off the front of `buffer`; `None` means that more bytes are needed.
    ///
    /// # Errors
    /// The stream is damaged from here on, and nothing after this point can be trusted.
    fn decode(&mut self, buffer: &mut bytes::BytesMut) -> Result<Option<Self::Item>, Self::Error>;

    /// Returns whether the front of an item has been taken off the buffer and the rest has not.
    fn is_inside_item(&self) -> bool;
}
