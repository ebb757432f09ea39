//! Messages as lines of JSON.

use bytes::{Buf, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use crate::{
    StreamDecoder,
    rpc::{self, InvalidMessage, RequestId, RpcError, RpcMessage},
    strict_envelope::{is_present, null_id},
};

/// Maximum length of a line.
const LINE_LIMIT_BYTES: usize = super::filter::LINE_LIMIT_BYTES;

/// A line received from a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerLine {
    /// A line that is not blank, without its line end.
    Message(Bytes),
    /// A dropped line, which was longer than the decoder's limit.
    TooLong,
}

/// Splits a stream into lines. An overlong line is dropped and reported, and decoding continues.
#[derive(Debug)]
pub struct LineDecoder {
    limit: usize,
    /// Bytes at the front that contain no line end.
    searched: usize,
    is_dropping: bool,
}

impl Default for LineDecoder {
    fn default() -> Self {
        Self::with_limit(LINE_LIMIT_BYTES)
    }
}

impl LineDecoder {
    /// Returns a decoder for lines up to this length.
    #[must_use]
    pub fn with_limit(limit: usize) -> Self {
        Self { limit, searched: 0, is_dropping: false }
    }
}

impl StreamDecoder for LineDecoder {
    type Item = PeerLine;
    type Error = std::convert::Infallible;

    fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<PeerLine>, Self::Error> {
        loop {
            let Some(end) = memchr::memchr(b'\n', &buffer[self.searched..]) else {
                self.searched = buffer.len();
                if self.is_dropping || buffer.len() > self.limit {
                    self.is_dropping = true;
                    self.searched = 0;
                    buffer.clear();
                }
                return Ok(None);
            };
            let line = buffer.split_to(self.searched + end);
            buffer.advance(1);
            self.searched = 0;
            if std::mem::take(&mut self.is_dropping) || line.len() > self.limit {
                return Ok(Some(PeerLine::TooLong));
            }
            if !line.trim_ascii().is_empty() {
                return Ok(Some(PeerLine::Message(line.freeze())));
            }
        }
    }

    fn is_inside_item(&self) -> bool {
        self.is_dropping
    }
}

/// Null members, which [`rpc::parse`] treats like absent ones.
#[derive(Deserialize)]
struct NullMembers {
    #[serde(default, deserialize_with = "is_present")]
    id: bool,
}

/// Reads a message of a client. A request id must not be null.
///
/// # Errors
/// The error to send in response.
pub fn read_message(body: &[u8]) -> Result<RpcMessage, InvalidMessage> {
    let message = rpc::parse(body)?;
    // The body is a valid object, so it can be parsed again.
    let has_id = || serde_json::from_slice::<NullMembers>(body).is_ok_and(|members| members.id);
    match message {
        RpcMessage::Notification { .. } if has_id() => Err(null_id()),
        RpcMessage::Request { id: RequestId::Null, .. } => Err(null_id()),
        message => Ok(message),
    }
}

/// Encodes a request as a line.
#[must_use]
pub fn encode_request(id: &RequestId, method: &str, params: &impl Serialize) -> Bytes {
    line(rpc::request_body(id, method, params))
}

/// Encodes a notification as a line.
#[must_use]
pub fn encode_notification(method: &str, params: &impl Serialize) -> Bytes {
    line(rpc::notification_body(method, params))
}

/// Encodes a successful response as a line.
#[must_use]
pub fn encode_result(id: &RequestId, result: &impl Serialize) -> Bytes {
    line(rpc::result_body(id, result))
}

/// Encodes an error response as a line.
#[must_use]
pub fn encode_error(id: &RequestId, error: &RpcError) -> Bytes {
    line(rpc::error_body(id, error))
}

fn line(mut body: Vec<u8>) -> Bytes {
    body.push(b'\n');
    body.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::code;

    fn decoded(pieces: &[&[u8]]) -> Vec<PeerLine> {
        let mut decoder = LineDecoder::with_limit(8);
        let mut buffer = BytesMut::new();
        let mut lines = Vec::new();
        for piece in pieces {
            buffer.extend_from_slice(piece);
            while let Some(line) = decoder.decode(&mut buffer).unwrap() {
                lines.push(line);
            }
        }
        lines
    }

    #[test]
    fn lines_are_the_same_however_they_are_cut() {
        let bytes = b"{}\n\r\n \n12345678\n123456789\n[]\r\n1234567890123\nx";
        let message = |text: &'static str| PeerLine::Message(Bytes::from_static(text.as_bytes()));
        let expected =
            [message("{}"), message("12345678"), PeerLine::TooLong, message("[]\r"), PeerLine::TooLong];
        for cut in 0..=bytes.len() {
            let (one, other) = bytes.split_at(cut);
            assert_eq!(decoded(&[one, other]), expected, "cut at {cut}");
        }
        let single: Vec<_> = bytes.chunks(1).collect();
        assert_eq!(decoded(&single), expected);
    }

    #[test]
    fn null_is_not_an_id() {
        for body in
            [r#"{"id":null,"method":"ping"}"#, r#"{"jsonrpc":"2.0","id":null,"method":"x","params":{}}"#]
        {
            let invalid = read_message(body.as_bytes()).unwrap_err();
            assert_eq!((invalid.id, invalid.error.code), (RequestId::Null, code::INVALID_REQUEST));
        }
        for body in [
            r#"{"id":0,"method":"ping"}"#,
            r#"{"method":"ping"}"#,
            r#"{"id":null,"error":{"code":1,"message":""}}"#,
        ] {
            assert!(read_message(body.as_bytes()).is_ok(), "{body}");
        }
    }

    #[test]
    fn endless_line_takes_no_memory() {
        let mut decoder = LineDecoder::with_limit(8);
        let mut buffer = BytesMut::new();
        for _ in 0..1000 {
            buffer.extend_from_slice(&[b'x'; 64]);
            assert_eq!(decoder.decode(&mut buffer), Ok(None));
            assert!(buffer.len() <= 64);
        }
        assert!(decoder.is_inside_item());
    }
}
