//! Length-prefixed messages: four bytes of size, big-endian.

use bytes::{Buf, Bytes, BytesMut};

use crate::StreamDecoder;

/// Maximum size of a request. The suite's largest requests contain messages of a few hundred KiB.
pub const REQUEST_LIMIT_BYTES: usize = 64 << 20;
/// Maximum size of a response, the same as the conformance suite's own.
pub const RESPONSE_LIMIT_BYTES: usize = 16 << 20;

const SIZE_BYTES: usize = 4;

/// A size beyond the limit: the stream is damaged, or not a stream of such messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("message of {size} bytes exceeds the limit of {limit}")]
pub struct MessageTooLarge {
    pub size: usize,
    pub limit: usize,
}

/// Decoder of messages up to a maximum size.
#[derive(Debug, Clone, Copy)]
pub struct MessageDecoder {
    limit: usize,
}

impl MessageDecoder {
    /// Returns a decoder for messages of at most `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { limit }
    }
}

impl StreamDecoder for MessageDecoder {
    type Item = Bytes;
    type Error = MessageTooLarge;

    fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Bytes>, MessageTooLarge> {
        let Some(size) = buffer.first_chunk::<SIZE_BYTES>() else { return Ok(None) };
        let size = u32::from_be_bytes(*size) as usize;
        if size > self.limit {
            return Err(MessageTooLarge { size, limit: self.limit });
        }
        if buffer.len() - SIZE_BYTES < size {
            return Ok(None);
        }
        buffer.advance(SIZE_BYTES);
        Ok(Some(buffer.split_to(size).freeze()))
    }

    fn is_inside_item(&self) -> bool {
        // A message is taken from the buffer as a whole.
        false
    }
}

/// Appends a message with its length prefix.
///
/// # Panics
/// The message has 4 GiB or more. No decoder returns such a message.
pub fn append_message(out: &mut Vec<u8>, message: &[u8]) {
    let size = u32::try_from(message.len()).expect("messages are within their limits");
    out.reserve(SIZE_BYTES + message.len());
    out.extend_from_slice(&size.to_be_bytes());
    out.extend_from_slice(message);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_the_same_wherever_they_are_cut() {
        let mut stream = Vec::new();
        let messages: [&[u8]; 3] = [b"one", b"", b"three"];
        for message in messages {
            append_message(&mut stream, message);
        }
        for cut in 0..=stream.len() {
            let mut decoder = MessageDecoder::new(5);
            let (mut buffer, mut read) = (BytesMut::new(), Vec::new());
            for piece in [&stream[..cut], &stream[cut..]] {
                buffer.extend_from_slice(piece);
                while let Some(message) = decoder.decode(&mut buffer).unwrap() {
                    read.push(message);
                }
            }
            assert_eq!(read, messages, "cut at {cut}");
            assert!(buffer.is_empty());
        }
    }

    #[test]
    fn size_over_the_limit_is_refused_before_the_message() {
        let error = MessageDecoder::new(5).decode(&mut BytesMut::from(&[0, 0, 0, 6][..])).unwrap_err();
        assert_eq!(error.to_string(), "message of 6 bytes exceeds the limit of 5");
        let mut text = BytesMut::from(&b"hello"[..]);
        assert!(MessageDecoder::new(RESPONSE_LIMIT_BYTES).decode(&mut text).is_err());
    }
}
