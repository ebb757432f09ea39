//! The socket of a callback connection, and how far the peer's kernel has got with what was written to it.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use tokio::net::TcpStream;

use crate::Outbox;

/// Second descriptor of a connection's socket, for socket state that the two halves don't expose.
#[derive(Debug)]
pub(super) struct SocketHandle {
    descriptor: TcpStream,
    /// The kernel tells an error of the socket once: this remembers it.
    has_failed: AtomicBool,
}

impl SocketHandle {
    pub(super) fn of(stream: &TcpStream) -> io::Result<Self> {
        let descriptor = TcpStream::from_std(stream.as_fd().try_clone_to_owned()?.into())?;
        Ok(Self { descriptor, has_failed: AtomicBool::new(false) })
    }

    /// Returns whether the socket has had an error, such as a reset by the peer, unless a read or a write of
    /// the connection was told of it.
    pub(super) fn has_failed(&self) -> bool {
        if !matches!(self.descriptor.take_error(), Ok(None)) {
            self.has_failed.store(true, Ordering::Relaxed);
        }
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Discards all bytes that the peer's kernel has not received yet, whoever else holds the socket.
    pub(super) fn discard_unsent(&self) -> io::Result<()> {
        heeler_sys::io::reset_tcp(self.as_fd())
    }
}

impl AsFd for SocketHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Timeouts of a peer.
#[derive(Clone, Copy)]
pub(super) struct WaitLimits {
    /// Limit without progress.
    pub(super) limit: Duration,
    /// Limit in any case.
    pub(super) end: Option<Duration>,
}

/// Waits until the peer has taken no bytes for the limit, or until the end.
pub(super) async fn wait_for_stall(outbox: &Outbox, socket: &SocketHandle, watch: WaitLimits) {
    // Interval between two checks of progress; a peer may get this much more than its limit.
    let look = (watch.limit / 8).clamp(Duration::from_millis(1), Duration::from_millis(250));
    let mut best = taken_bytes(outbox, socket);
    // Counted in looks, so that a stop of this process counts as one.
    let (mut silent, mut waited) = (Duration::ZERO, Duration::ZERO);
    loop {
        let taken = taken_bytes(outbox, socket);
        if taken > best {
            best = taken;
            silent = Duration::ZERO;
        }
        if silent >= watch.limit || watch.end.is_some_and(|end| waited >= end) {
            return;
        }
        tokio::time::sleep(look).await;
        silent = silent.saturating_add(look);
        waited = waited.saturating_add(look);
    }
}

/// Returns the number of bytes that the peer's kernel has acknowledged since the start.
fn taken_bytes(outbox: &Outbox, socket: &SocketHandle) -> u64 {
    let pending = heeler_sys::io::unacknowledged_bytes(socket.as_fd()).unwrap_or(0);
    outbox.written_bytes().saturating_sub(pending as u64)
}
