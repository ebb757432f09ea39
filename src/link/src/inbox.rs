//! The receiving end of a link: bytes come in, a decoder cuts them into items.

use std::{fmt, io, time::Duration};

use bytes::BytesMut;
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    time::{Instant, timeout_at},
};
use wire::Decode;

/// The first reads take so much.
const CHUNK_MIN_BYTES: usize = 8 << 10;
/// Reads that are always filled grow up to this: beyond it, one system call for more gains nothing measurable.
const CHUNK_MAX_BYTES: usize = 256 << 10;

/// A buffer that has grown beyond this for one large item is not kept for the small ones that follow.
const KEPT_BYTES: usize = 4 * CHUNK_MAX_BYTES;

/// Why a link can't be read on. The link is over then.
#[derive(Debug, thiserror::Error)]
pub enum LinkError<E: std::error::Error + 'static> {
    /// The operating system refused.
    #[error("read from the connection")]
    Read(#[source] io::Error),
    /// What came in is damaged.
    #[error("decode what the peer sent")]
    Decode(#[source] E),
    /// The peer closed in the middle of an item.
    #[error(
        "read an item to its end: the peer closed in the middle of it, with {pending_bytes} bytes of it here"
    )]
    CutOff {
        /// What is here of it beyond what the decoder had already taken.
        pending_bytes: usize,
    },
    /// The peer began an item and did not come to its length.
    #[error("read the head of an item: it was not complete within {limit:?}")]
    SlowHead {
        /// How long it had.
        limit: Duration,
    },
}

/// The receiving end of a link.
pub struct Inbox<D: Decode> {
    half: Box<dyn AsyncRead + Send + Unpin>,
    decoder: D,
    buffer: BytesMut,
    chunk_bytes: usize,
    /// The decoder has taken the front of an item off the buffer and wants the rest.
    is_inside: bool,
    is_over: bool,
    /// How long the head of an item may take.
    head_limit: Option<Duration>,
    /// When the head that has begun must be complete.
    head_deadline: Option<Instant>,
}

impl<D: Decode + fmt::Debug> fmt::Debug for Inbox<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox")
            .field("decoder", &self.decoder)
            .field("buffered_bytes", &self.buffer.len())
            .field("is_over", &self.is_over)
            .finish_non_exhaustive()
    }
}

impl<D: Decode> Inbox<D> {
    pub(crate) fn new(half: Box<dyn AsyncRead + Send + Unpin>, decoder: D) -> Self {
        Self {
            half,
            decoder,
            buffer: BytesMut::new(),
            chunk_bytes: CHUNK_MIN_BYTES,
            is_inside: false,
            is_over: false,
            head_limit: None,
            head_deadline: None,
        }
    }

    /// Gives each item so long from its first byte until its head is read, which tells its length. Between items, and
    /// inside of their bodies, a peer may be silent for as long as it likes.
    pub fn limit_heads(&mut self, limit: Duration) {
        self.head_limit = Some(limit);
    }

    /// Waits for the next item; `None` at the end of the stream, and ever after.
    ///
    /// Cancel safe: yes, because the bytes of a half-read item stay in `self`.
    ///
    /// # Errors
    /// The stream is damaged, cut off in the middle of an item, too slow in the head of one, or can't be read. It is
    /// over then.
    pub async fn next(&mut self) -> Result<Option<D::Item>, LinkError<D::Error>> {
        if self.is_over {
            return Ok(None);
        }
        loop {
            if let Some(item) = self.decode()? {
                return Ok(Some(item));
            }
            self.buffer.reserve(self.chunk_bytes);
            let room = self.buffer.capacity() - self.buffer.len();
            let count = self.read().await.inspect_err(|_| self.is_over = true)?;
            if count == 0 {
                self.is_over = true;
                return self.end();
            }
            if count == room {
                self.chunk_bytes = (self.chunk_bytes * 2).min(CHUNK_MAX_BYTES);
            }
        }
    }

    async fn read(&mut self) -> Result<usize, LinkError<D::Error>> {
        let deadline = self.head_deadline();
        let read = self.half.read_buf(&mut self.buffer);
        let read = match (deadline, self.head_limit) {
            (Some(deadline), Some(limit)) => {
                timeout_at(deadline, read).await.map_err(|_| LinkError::SlowHead { limit })?
            }
            _ => read.await,
        };
        read.map_err(LinkError::Read)
    }

    fn head_deadline(&mut self) -> Option<Instant> {
        let limit = self.head_limit.filter(|_| !self.is_inside && !self.buffer.is_empty());
        match limit {
            Some(limit) => {
                self.head_deadline.get_or_insert_with(|| Instant::now() + limit);
            }
            None => self.head_deadline = None,
        }
        self.head_deadline
    }

    /// Returns the decoder, to be replaced between two items (other limits after a peer has shown who it is).
    pub fn decoder_mut(&mut self) -> &mut D {
        &mut self.decoder
    }

    fn decode(&mut self) -> Result<Option<D::Item>, LinkError<D::Error>> {
        if self.buffer.is_empty() {
            return Ok(None);
        }
        let before = self.buffer.len();
        match self.decoder.decode(&mut self.buffer) {
            Ok(Some(item)) => {
                self.is_inside = false;
                self.head_deadline = None;
                if self.buffer.is_empty() && before.max(self.buffer.capacity()) > KEPT_BYTES {
                    self.buffer = BytesMut::new();
                }
                Ok(Some(item))
            }
            Ok(None) => {
                self.is_inside |= self.buffer.len() < before;
                Ok(None)
            }
            Err(error) => {
                self.is_over = true;
                Err(LinkError::Decode(error))
            }
        }
    }

    fn end(&self) -> Result<Option<D::Item>, LinkError<D::Error>> {
        if self.buffer.is_empty() && !self.is_inside {
            return Ok(None);
        }
        Err(LinkError::CutOff { pending_bytes: self.buffer.len() })
    }
}
