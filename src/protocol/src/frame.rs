//! `Content-Length` framing of client protocols, as clients use it in practice.
//!
//! Output: `Content-Length: N\r
//!
//! \r
//!
//! ` and N bytes of UTF-8. Input is lenient: header names may be in any case, and lines may end in LF. A byte
//! order mark may precede the first header, and blank lines may precede each header block. Unknown headers
//! are ignored. The length is checked against a limit before memory is allocated.

use bytes::{Buf, Bytes, BytesMut};

use crate::StreamDecoder;

/// Maximum body size for reading. A run request that names 100,000 tests with all their members has about 60
/// MB.
pub const BODY_LIMIT_BYTES: usize = 256 << 20;
/// Maximum size of the header block, including the blank lines before it.
pub(crate) const HEADERS_LIMIT_BYTES: usize = 8 << 10;

/// Byte order mark in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Fatal error of a framed stream.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FrameError {
    /// The header block does not end within the limit.
    #[error("headers of more than {HEADERS_LIMIT_BYTES} bytes")]
    HeadersTooLong,
    /// A header line has no colon, or is not text.
    #[error("malformed header line {line:?}")]
    MalformedHeader {
        /// The line, made printable and truncated.
        line: String,
    },
    /// The headers have no `Content-Length`.
    #[error("headers without Content-Length")]
    MissingLength,
    /// `Content-Length` is repeated, even with the same value.
    #[error("more than one Content-Length")]
    RepeatedLength,
    /// `Content-Length` is not a number.
    #[error("Content-Length {value:?} is not a length in bytes")]
    MalformedLength {
        /// The value found, truncated.
        value: String,
    },
    /// The body is larger than the limit.
    #[error("body of {length} bytes exceeds the limit of {limit}")]
    TooLarge {
        /// Length announced by the header.
        length: u64,
        /// Limit of this decoder.
        limit: usize,
    },
    /// The charset is not UTF-8.
    #[error("Content-Type {value:?} has a charset other than utf-8")]
    Charset {
        /// The header's value, truncated.
        value: String,
    },
}

/// Decoder of framed bodies.
#[derive(Debug)]
pub struct FrameDecoder {
    limit_bytes: usize,
    is_first: bool,
    /// Length of the body, after its headers have been read.
    expected: Option<usize>,
    /// Bytes of the buffer already searched for the end of the headers.
    searched: usize,
    /// Bytes of blank lines since the last body.
    blank_bytes: usize,
}

impl Default for FrameDecoder {
    fn default() -> Self {
        Self::with_limit(BODY_LIMIT_BYTES)
    }
}

impl FrameDecoder {
    /// Returns a decoder that rejects bodies of more than `limit_bytes`.
    #[must_use]
    pub fn with_limit(limit_bytes: usize) -> Self {
        Self { limit_bytes, is_first: true, expected: None, searched: 0, blank_bytes: 0 }
    }

    /// Skips blank lines, which some clients send after a body.
    fn skip_blank_lines(&mut self, buffer: &mut BytesMut) -> Result<(), FrameError> {
        while let Some(bytes) = blank_line(buffer) {
            buffer.advance(bytes);
            (self.searched, self.is_first) = (0, false);
            self.blank_bytes += bytes;
            if self.blank_bytes > HEADERS_LIMIT_BYTES {
                return Err(FrameError::HeadersTooLong);
            }
        }
        Ok(())
    }

    fn decode_headers(&mut self, buffer: &mut BytesMut) -> Result<Option<usize>, FrameError> {
        self.skip_blank_lines(buffer)?;
        // The mark stays in the buffer with the headers, because readers must see that a frame has begun.
        let mark =
            if self.is_first && buffer.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
        let Some(end) = end_of_headers(buffer, self.searched) else {
            if buffer.len() > HEADERS_LIMIT_BYTES {
                return Err(FrameError::HeadersTooLong);
            }
            self.searched = buffer.len().saturating_sub(3);
            return Ok(None);
        };
        if end > HEADERS_LIMIT_BYTES {
            return Err(FrameError::HeadersTooLong);
        }
        (self.searched, self.blank_bytes, self.is_first) = (0, 0, false);
        let length = content_length(&buffer[mark..end], self.limit_bytes)?;
        buffer.advance(end);
        Ok(Some(length))
    }
}

impl StreamDecoder for FrameDecoder {
    type Item = Bytes;
    type Error = FrameError;

    fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Bytes>, FrameError> {
        let length = match self.expected {
            Some(length) => length,
            None => match self.decode_headers(buffer)? {
                Some(length) => *self.expected.insert(length),
                None => return Ok(None),
            },
        };
        if buffer.len() < length {
            return Ok(None);
        }
        self.expected = None;
        Ok(Some(buffer.split_to(length).freeze()))
    }

    fn is_inside_item(&self) -> bool {
        self.expected.is_some()
    }
}

/// Returns the length of the blank line at the start of the buffer.
fn blank_line(buffer: &[u8]) -> Option<usize> {
    [&b"\n"[..], b"\r\n"].into_iter().find(|line| buffer.starts_with(line)).map(<[u8]>::len)
}

/// Returns the position after the empty line that ends the headers; CRLF and LF both end a line.
fn end_of_headers(buffer: &[u8], from: usize) -> Option<usize> {
    memchr::memchr_iter(b'\n', &buffer[from..]).map(|at| from + at).find_map(|at| match buffer.get(at + 1) {
        Some(b'\n') => Some(at + 2),
        Some(b'\r') if buffer.get(at + 2) == Some(&b'\n') => Some(at + 3),
        _ => None,
    })
}

fn content_length(headers: &[u8], limit: usize) -> Result<usize, FrameError> {
    let mut length = None;
    for line in headers.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            continue;
        }
        let malformed = || FrameError::MalformedHeader { line: printable_prefix(line) };
        let text = std::str::from_utf8(line).map_err(|_| malformed())?;
        let (name, value) = text.split_once(':').ok_or_else(malformed)?;
        let value = value.trim();
        if name.trim().eq_ignore_ascii_case("content-length") {
            if length.replace(read_length(value, limit)?).is_some() {
                return Err(FrameError::RepeatedLength);
            }
        } else if name.trim().eq_ignore_ascii_case("content-type") && !is_utf8(value) {
            return Err(FrameError::Charset { value: printable_prefix(value.as_bytes()) });
        }
    }
    length.ok_or(FrameError::MissingLength)
}

fn read_length(value: &str, limit: usize) -> Result<usize, FrameError> {
    let malformed = || FrameError::MalformedLength { value: printable_prefix(value.as_bytes()) };
    if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(malformed());
    }
    // A number of 20 or more digits may not fit into 64 bits, but is too large in any case.
    let length = value.parse::<u64>().unwrap_or(u64::MAX);
    usize::try_from(length)
        .ok()
        .filter(|length| *length <= limit)
        .ok_or(FrameError::TooLarge { length, limit })
}

fn is_utf8(content_type: &str) -> bool {
    content_type.split(';').skip(1).all(|parameter| match parameter.split_once('=') {
        Some((name, value)) if name.trim().eq_ignore_ascii_case("charset") => {
            let value = value.trim().trim_matches('"');
            value.eq_ignore_ascii_case("utf-8") || value.eq_ignore_ascii_case("utf8")
        }
        _ => true,
    })
}

fn printable_prefix(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).into_owned()
}

/// Encodes one body as a frame.
#[must_use]
pub fn encode(body: &[u8]) -> Bytes {
    let mut out = frame_with_head(body.len());
    out.extend_from_slice(body);
    Bytes::from(out)
}

/// Returns a frame with only its header, and with capacity for its body.
pub(crate) fn frame_with_head(body_bytes: usize) -> Vec<u8> {
    let head = format!("Content-Length: {body_bytes}\r\n\r\n");
    let mut out = Vec::with_capacity(head.len() + body_bytes);
    out.extend_from_slice(head.as_bytes());
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode_all(decoder: &mut FrameDecoder, bytes: &[u8]) -> Result<Vec<Bytes>, FrameError> {
        let mut buffer = BytesMut::from(bytes);
        let mut out = Vec::new();
        while let Some(body) = decoder.decode(&mut buffer)? {
            out.push(body);
        }
        Ok(out)
    }

    #[test]
    fn headers_of_known_clients_are_read() {
        for headers in [
            "Content-Length: 2\r\n\r\n",
            "content-length:2\r\nContent-Type: application/vscode-jsonrpc; charset=utf-8\r\n\r\n",
            "\u{feff}Content-Length: 2\r\n\r\n",
            "CONTENT-LENGTH: 2\n\n",
            "X-Other: 1\r\nContent-Length: 2\r\nContent-Type: application/testingplatform\r\n\r\n",
            "Content-Length: 2\r\nContent-Type: a/b; charset=\"UTF8\"\r\n\r\n",
        ] {
            let bodies =
                decode_all(&mut FrameDecoder::default(), format!("{headers}{{}}").as_bytes()).unwrap();
            assert_eq!(bodies, vec![Bytes::from_static(b"{}")], "{headers:?}");
        }
    }

    #[test]
    fn blank_lines_before_headers_are_skipped() {
        let frame = "Content-Length: 2\r\n\r\n{}";
        for blank in ["\n", "\r\n", "\r\n\r\n", "\n\n\r\n\n"] {
            let text = format!("{blank}{frame}{blank}{frame}{blank}");
            let bodies = decode_all(&mut FrameDecoder::default(), text.as_bytes()).unwrap();
            assert_eq!(bodies, [&b"{}"[..]; 2], "{blank:?}");
            let (mut decoder, mut buffer, mut count) = (FrameDecoder::default(), BytesMut::new(), 0);
            for byte in text.bytes() {
                buffer.extend_from_slice(&[byte]);
                count += usize::from(decoder.decode(&mut buffer).unwrap().is_some());
            }
            assert_eq!((count, buffer.len(), decoder.is_inside_item()), (2, 0, false), "{blank:?}");
        }
        for blank in ["\n", "\r\n"] {
            let endless = blank.repeat(HEADERS_LIMIT_BYTES + 1);
            assert_eq!(
                decode_all(&mut FrameDecoder::default(), endless.as_bytes()),
                Err(FrameError::HeadersTooLong)
            );
        }
    }

    #[test]
    fn each_bad_header_has_its_own_error() {
        let error = |text: &str| decode_all(&mut FrameDecoder::with_limit(100), text.as_bytes()).unwrap_err();
        assert_eq!(error("Content-Type: a/b\r\n\r\n"), FrameError::MissingLength);
        assert!(matches!(error("Content-Length: -1\r\n\r\n"), FrameError::MalformedLength { .. }));
        assert!(matches!(error("Content-Length: \r\n\r\n"), FrameError::MalformedLength { .. }));
        for second in ["Content-Length: 2", "Content-Length: 1", "content-length:1"] {
            let text = format!("Content-Length: 1\r\n{second}\r\n\r\n");
            assert_eq!(error(&text), FrameError::RepeatedLength);
        }
        assert_eq!(error("Content-Length: 101\r\n\r\n"), FrameError::TooLarge { length: 101, limit: 100 });
        assert!(matches!(error("Content-Length: 9223372036854775808\r\n\r\n"), FrameError::TooLarge { .. }));
        assert!(matches!(
            error("Content-Length: 99999999999999999999999\r\n\r\n"),
            FrameError::TooLarge { .. }
        ));
        assert!(matches!(error("no colon\r\n\r\n"), FrameError::MalformedHeader { .. }));
        assert!(matches!(
            error("Content-Length: 1\r\nContent-Type: a; charset=utf-16\r\n\r\n"),
            FrameError::Charset { .. }
        ));
        assert_eq!(error(&"a".repeat(9000)), FrameError::HeadersTooLong);
    }

    proptest! {
        #[test]
        fn bodies_survive_any_cutting(
            bodies in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..5),
            step in 1_usize..50,
        ) {
            let mut wire = Vec::new();
            for body in &bodies {
                wire.extend_from_slice(&encode(body));
            }
            let mut decoder = FrameDecoder::default();
            let mut buffer = BytesMut::new();
            let mut seen = Vec::new();
            for chunk in wire.chunks(step) {
                buffer.extend_from_slice(chunk);
                while let Some(body) = decoder.decode(&mut buffer).unwrap() {
                    seen.push(body.to_vec());
                }
            }
            prop_assert_eq!(seen, bodies);
        }

        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _outcome = decode_all(&mut FrameDecoder::default(), &bytes);
        }
    }
}
