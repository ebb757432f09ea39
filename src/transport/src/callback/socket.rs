//! Socket of a callback connection, and the progress of the peer's kernel.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use tokio::net::TcpStream;

use crate::Outbox;

/// Second descriptor of a connection's socket, for state that the two halves do not expose.
#[derive(Debug)]
pub(super) struct SocketHandle {
    descriptor: TcpStream,
    /// Whether the socket has failed. The kernel reports an error only once.
    has_failed: AtomicBool,
}

impl SocketHandle {
    pub(super) fn of(stream: &TcpStream) -> io::Result<Self> {
        let descriptor = TcpStream::from_std(stream.as_fd().try_clone_to_owned()?.into())?;
        Ok(Self { descriptor, has_failed: AtomicBool::new(false) })
    }

    /// Returns whether the socket has had an error, such as a reset by the peer. Errors already reported to a
    /// read or write of the connection are not seen.
    pub(super) fn has_failed(&self) -> bool {
        if !matches!(self.descriptor.take_error(), Ok(None)) {
            self.has_failed.store(true, Ordering::Relaxed);
        }
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Discards all bytes that the peer's kernel has not received, even if other processes hold the socket.
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
    /// Timeout without progress.
    pub(super) limit: Duration,
    /// Timeout regardless of progress.
    pub(super) end: Option<Duration>,
}

/// Waits until the peer has made no progress for the timeout, or until the final timeout.
pub(super) async fn wait_for_stall(outbox: &Outbox, socket: &SocketHandle, watch: WaitLimits) {
    // Interval between two checks of progress. A peer may get this much extra time.
    let look = (watch.limit / 8).clamp(Duration::from_millis(1), Duration::from_millis(250));
    let mut best = taken_bytes(outbox, socket);
    // Count checks instead of time, so a stop of this process counts as one check.
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
