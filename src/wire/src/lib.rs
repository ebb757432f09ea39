//! Every byte and message that Heeler's processes and clients exchange. No I/O lives here, no clock and no
//! decision: bytes go in, values come out, and the other way round.
//!
//! - [`frame`]: `Content-Length` framing of the test protocol.
//! - [`packet`]: framing of Heeler's own control connections.
//! - [`rpc`]: JSON-RPC envelopes, ids and errors.
//! - [`mtp`]: the messages of the MSTest Runner Protocol.
//! - [`control`]: what coordinator, watchdog, worker and guard say to each other.
//! - [`nursery`]: what a worker and the process that makes its guards say to each other.
//! - [`journal`]: the records of write-ahead journals.
//! - [`manifest`]: what a run was to do, beside its journals.
//! - [`recovery`]: what both say of tests whose run never came to its end.

pub mod control;
pub mod frame;
pub mod journal;
pub mod manifest;
pub mod mtp;
pub mod nursery;
pub mod packet;
pub mod recovery;
pub mod rpc;

/// What a streaming decoder does: it takes one item off the front of a buffer, or asks for more bytes.
///
/// Implementations never allocate on the peer's word: a length is checked against the limit before memory is taken.
pub trait Decode {
    /// What comes out.
    type Item;
    /// Why the stream can't be read on. After an error the stream is over.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Takes the next item off the front of `buffer`; `None` means that more bytes are needed.
    ///
    /// # Errors
    /// The stream is damaged from here on, and nothing behind it can be trusted.
    fn decode(&mut self, buffer: &mut bytes::BytesMut) -> Result<Option<Self::Item>, Self::Error>;
}
