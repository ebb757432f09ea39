//! Live connections over Heeler's wire formats: bounded outbox, cancel-safe receive, drain with proof.
//!
//! Messages are defined in `heeler-protocol`, and system calls in `heeler-sys`; this crate contains
//! everything that waits for a peer. The meaning of a connection (a lease, a run, a session) belongs to the
//! crates above.
//!
//! - [`open`]: turns any stream into an [`Outbox`], an [`Inbox`] and the [`LinkTask`] that writes.
//! - [`accept`]: the loop that accepts connections, and its listeners.
//! - [`local`]: local sockets that accept only the current user.
//! - [`tcp`]: dialling, with a deadline and without Nagle's delay.
//! - [`control`]: typed packets between Heeler's own processes.
//! - [`callback`]: a client's callback port, with proofs of what the client has handled.
//! - [`runtime`]: the async runtime of a process.
//! - [`running_time`]: timeouts that do not count while this process is stopped.

mod inbox;
mod outbox;
#[cfg(test)]
mod tests;
mod writer;

pub mod accept;
pub mod callback;
pub mod control;
pub mod local;
pub mod running_time;
pub mod runtime;
pub mod tcp;

pub use inbox::{Inbox, LinkError};
pub use outbox::{LinkClosed, Outbox, TrySendError};
pub use writer::LinkTask;

use tokio::io::{AsyncRead, AsyncWrite};
use writer::WriterOptions;

/// Opens a link on a stream: a task writes queued frames, and `decoder` splits received bytes.
///
/// The caller owns the task: dropping [`LinkTask`] immediately cuts the writing side, and joining it waits
/// until everything is written. The task ends by itself after [`Outbox::close`] or when the last clone of the
/// outbox is dropped (both flush and half-close first), or after a failed write.
///
/// # Panics
/// Outside a tokio runtime.
pub fn open<S, D>(stream: S, decoder: D) -> (Outbox, Inbox<D>, LinkTask)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    D: heeler_protocol::StreamDecoder,
{
    open_with(stream, decoder, WriterOptions::default())
}

/// Opens a link like [`open`], with other options.
fn open_with<S, D>(stream: S, decoder: D, options: WriterOptions) -> (Outbox, Inbox<D>, LinkTask)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    D: heeler_protocol::StreamDecoder,
{
    let (read, write) = tokio::io::split(stream);
    let (outbox, task) = writer::start(write, options);
    (outbox, Inbox::new(Box::new(read), decoder), task)
}
