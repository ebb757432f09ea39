//! Bodies of requests and responses.

use std::{
    any::Any,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited, combinators::UnsyncBoxBody};
use hyper::body::{Body, Frame, Incoming};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, Interval, MissedTickBehavior, timeout_at},
};

/// Why a body ended early.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// A body to be sent.
pub type HttpBody = UnsyncBoxBody<Bytes, BodyError>;

/// Returns a body with these bytes.
#[must_use]
pub fn bytes_body(bytes: impl Into<Bytes>) -> HttpBody {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// Bytes sent after each interval without other data.
#[derive(Debug, Clone, Copy)]
pub struct KeepAlive {
    pub interval: Duration,
    pub bytes: &'static [u8],
}

/// Returns a body that streams a queue and ends with it. `guard` is dropped with the body: after it was sent,
/// or when the client closes the connection.
#[must_use]
pub fn queue_body(queue: mpsc::Receiver<Bytes>, keep_alive: KeepAlive, guard: impl Any + Send) -> HttpBody {
    let mut interval = tokio::time::interval_at(Instant::now() + keep_alive.interval, keep_alive.interval);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let body = QueueBody { queue, interval, keep_alive: keep_alive.bytes, _guard: Box::new(guard) };
    body.boxed_unsync()
}

struct QueueBody {
    queue: mpsc::Receiver<Bytes>,
    interval: Interval,
    keep_alive: &'static [u8],
    _guard: Box<dyn Any + Send>,
}

impl Body for QueueBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Poll::Ready(bytes) = self.queue.poll_recv(cx) {
            self.interval.reset();
            return Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))));
        }
        ready!(self.interval.poll_tick(cx));
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(self.keep_alive)))))
    }
}

/// Changes the bytes of a body as they pass through.
pub trait BodyTransform: Send + Unpin + 'static {
    /// Returns the bytes to pass on for these bytes.
    ///
    /// # Errors
    /// The body can't continue, so the receiver sees a truncated body.
    fn on_bytes(&mut self, bytes: Bytes) -> Result<Bytes, BodyError>;

    /// Returns the bytes to pass on at the end.
    ///
    /// # Errors
    /// Same as for `on_bytes`.
    fn on_end(&mut self) -> Result<Bytes, BodyError>;
}

/// The body of a response that is forwarded to another client. Dropping it closes the connection to the
/// server.
pub(super) struct TransformedBody<T> {
    pub(super) body: Incoming,
    /// `None` after the end.
    pub(super) transform: Option<T>,
    pub(super) _connection: JoinSet<()>,
}

impl<T: BodyTransform> Body for TransformedBody<T> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        loop {
            if self.transform.is_none() {
                return Poll::Ready(None);
            }
            let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
            let Some(transform) = &mut self.transform else { return Poll::Ready(None) };
            let passed = match frame {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => transform.on_bytes(bytes),
                    // Trailers are not part of any message.
                    Err(_trailers) => continue,
                },
                Some(Err(error)) => Err(error.into()),
                None => {
                    let last = transform.on_end();
                    self.transform = None;
                    last
                }
            };
            match passed {
                Ok(bytes) if bytes.is_empty() => {}
                Ok(bytes) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Err(error) => {
                    self.transform = None;
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ReadBodyError {
    #[error("read a body: it exceeds {limit} bytes")]
    TooLong { limit: usize },
    #[error("read a body: timed out")]
    TimedOut,
    #[error("read a body to its end")]
    Broken(#[source] BodyError),
}

/// Reads a body to its end.
///
/// # Errors
/// See [`ReadBodyError`].
///
/// Cancel safe: no, because bytes already read are lost.
pub async fn read_body(body: Incoming, limit: usize, deadline: Instant) -> Result<Bytes, ReadBodyError> {
    // A body announced as too long is refused without reading it.
    if body.size_hint().lower() > limit as u64 {
        return Err(ReadBodyError::TooLong { limit });
    }
    match timeout_at(deadline, Limited::new(body, limit).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(ReadBodyError::TooLong { limit }),
        Ok(Err(error)) => Err(ReadBodyError::Broken(error)),
        Err(_elapsed) => Err(ReadBodyError::TimedOut),
    }
}
