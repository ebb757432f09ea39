//! Ends connections whose peer does not read: a write that makes no progress for too long fails.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep},
};

/// A stream whose writes fail if they make no progress for too long.
#[derive(Debug)]
pub(crate) struct StallLimited<S> {
    stream: S,
    limit: Duration,
    /// Expires when the waiting write has made no progress for too long.
    stalled: Pin<Box<Sleep>>,
    is_waiting: bool,
}

impl<S> StallLimited<S> {
    /// Wraps a stream. `limit` is the time that a write may wait without progress.
    pub(crate) fn new(stream: S, limit: Duration) -> Self {
        Self { stream, limit, stalled: Box::pin(tokio::time::sleep(limit)), is_waiting: false }
    }

    /// Returns the result of a write, or an error if it has waited for too long.
    fn checked(&mut self, written: Poll<io::Result<usize>>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.is_waiting = false;
            return written;
        }
        if !self.is_waiting {
            self.is_waiting = true;
            self.stalled.as_mut().reset(Instant::now() + self.limit);
        }
        self.stalled.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallLimited<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallLimited<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.checked(written, cx)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test]
    async fn write_to_a_peer_that_does_not_read_fails() {
        let (ours, theirs) = tokio::io::duplex(8);
        let mut ours = StallLimited::new(ours, Duration::from_millis(20));
        assert_eq!(ours.write(&[0; 64]).await.unwrap(), 8);
        let error = ours.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(theirs);
    }
}
