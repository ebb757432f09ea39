//! Receiving end of a link: a decoder splits received bytes into items.

use std::{fmt, io, time::Duration};

use bytes::BytesMut;
use heeler_protocol::StreamDecoder;
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    time::{Instant, timeout_at},
};

/// Size of the first reads.
const CHUNK_MIN_BYTES: usize = 8 << 10;
/// Maximum size of a read. Reads that fill their buffer grow up to this size; beyond it, saving system calls
/// gains nothing measurable.
const CHUNK_MAX_BYTES: usize = 256 << 10;

/// Maximum size of a buffer that is kept after a large item.
const KEPT_BUFFER_BYTES: usize = 4 * CHUNK_MAX_BYTES;

/// Fatal error of a link.
#[derive(Debug, thiserror::Error)]
pub enum LinkError<E: std::error::Error + 'static> {
    /// The operating system reported an error.
    #[error("read from the connection")]
    Read(#[source] io::Error),
    /// The received data is damaged.
    #[error("decode a message from the peer")]
    Decode(#[source] E),
    /// The peer closed in the middle of an item.
    #[error(
        "read a message: the peer closed the connection in the middle of it ({pending_bytes} bytes pending)"
    )]
    CutOff {
        /// Bytes of the item that have arrived but have not been decoded.
        pending_bytes: usize,
    },
    /// The peer did not complete an item's head, which contains the length, in time.
    #[error("read a message: its headers were not complete within {limit:?}")]
    SlowHead {
        /// Timeout of the head.
        limit: Duration,
    },
}

/// Receiving end of a link.
pub struct Inbox<D: StreamDecoder> {
    half: Box<dyn AsyncRead + Send + Unpin>,
    decoder: D,
    buffer: BytesMut,
    chunk_bytes: usize,
    is_over: bool,
    /// Timeout of an item's head.
    head_limit: Option<Duration>,
    /// Deadline of the current head.
    head_deadline: Option<Instant>,
}

impl<D: StreamDecoder + fmt::Debug> fmt::Debug for Inbox<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox")
            .field("decoder", &self.decoder)
            .field("buffered_bytes", &self.buffer.len())
            .field("is_over", &self.is_over)
            .finish_non_exhaustive()
    }
}

impl<D: StreamDecoder> Inbox<D> {
    pub(crate) fn new(half: Box<dyn AsyncRead + Send + Unpin>, decoder: D) -> Self {
        Self {
            half,
            decoder,
            buffer: BytesMut::new(),
            chunk_bytes: CHUNK_MIN_BYTES,
            is_over: false,
            head_limit: None,
            head_deadline: None,
        }
    }

    /// Limits the time from an item's first byte to the end of its head, which contains the length. Between
    /// items and within bodies, a peer may be silent for any time.
    pub fn limit_heads(&mut self, limit: Duration) {
        self.head_limit = Some(limit);
    }

    /// Waits for the next item; `None` at the end of the stream, and on every later call.
    ///
    /// Cancel safe: yes, because the bytes of a half-read item stay in `self`.
    ///
    /// # Errors
    /// The stream is damaged, cut off in the middle of an item, too slow in an item's head, or cannot be
    /// read. The stream is then over.
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
                return self.finish();
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
        let limit = self.head_limit.filter(|_| !self.decoder.is_inside_item() && !self.buffer.is_empty());
        match limit {
            Some(limit) => {
                self.head_deadline.get_or_insert_with(|| Instant::now() + limit);
            }
            None => self.head_deadline = None,
        }
        self.head_deadline
    }

    /// Returns the decoder. It may be replaced between two items, for example to change limits after a peer
    /// has authenticated.
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
                self.head_deadline = None;
                if self.buffer.is_empty() && before.max(self.buffer.capacity()) > KEPT_BUFFER_BYTES {
                    self.buffer = BytesMut::new();
                }
                Ok(Some(item))
            }
            Ok(None) => Ok(None),
            Err(error) => {
                self.is_over = true;
                Err(LinkError::Decode(error))
            }
        }
    }

    fn finish(&self) -> Result<Option<D::Item>, LinkError<D::Error>> {
        if self.buffer.is_empty() && !self.decoder.is_inside_item() {
            return Ok(None);
        }
        Err(LinkError::CutOff { pending_bytes: self.buffer.len() })
    }
}
