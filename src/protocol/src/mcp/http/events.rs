//! Event streams (server-sent events): the data of each event is one message.

use bytes::{Bytes, BytesMut};

use crate::StreamDecoder;

/// Maximum length of an event, including lines without data.
pub(crate) const EVENT_LIMIT_BYTES: usize = crate::mcp::LINE_LIMIT_BYTES;
/// A comment that keeps an idle connection open.
pub const KEEP_ALIVE_COMMENT: &[u8] = b": running\n\n";

/// The event is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("read an event: it exceeds {EVENT_LIMIT_BYTES} bytes")]
pub struct EventTooLong;

/// Lines up to and including a blank line, as received. A block may be a comment instead of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventBlock {
    bytes: Bytes,
}

impl EventBlock {
    /// Returns the bytes of the block, including the blank line.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns the data of the event, if there is any.
    #[must_use]
    pub fn data(&self) -> Option<Vec<u8>> {
        let mut data: Option<Vec<u8>> = None;
        for line in lines(&self.bytes) {
            let Some(value) = data_value(line) else { continue };
            match &mut data {
                None => data = Some(value.to_vec()),
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
            }
        }
        data
    }

    /// Returns the block with its data replaced, and its other lines unchanged.
    #[must_use]
    pub fn with_data(&self, data: &[u8]) -> Bytes {
        let mut bytes = BytesMut::with_capacity(self.bytes.len());
        let mut is_written = false;
        for line in lines(&self.bytes) {
            if matches!(line, b"\r" | b"\r\n") {
                // A reader then need not wait for the byte after CR.
                bytes.extend_from_slice(b"\n");
            } else if data_value(line).is_none() {
                bytes.extend_from_slice(line);
            } else if !is_written {
                is_written = true;
                put_data(&mut bytes, data);
            }
        }
        bytes.freeze()
    }
}

/// Returns the data in a line; `None` for other lines.
fn data_value(line: &[u8]) -> Option<&[u8]> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    // A stream may begin with a byte order mark.
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    match line.strip_prefix(b"data")? {
        [] => Some(&[]),
        [b':', b' ', value @ ..] | [b':', value @ ..] => Some(value),
        _ => None,
    }
}

/// Returns the lines including their ends: CR, LF or both.
fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (line, next) = rest.split_at(line_end(rest, 0).map_or(rest.len(), |(_, next)| next));
        rest = next;
        Some(line)
    })
}

/// Returns the end of the first line after `from`, without and with its line end.
fn line_end(bytes: &[u8], from: usize) -> Option<(usize, usize)> {
    let end = from + memchr::memchr2(b'\n', b'\r', &bytes[from..])?;
    let is_pair = bytes[end..].starts_with(b"\r\n");
    Some((end, end + 1 + usize::from(is_pair)))
}

fn put_data(bytes: &mut BytesMut, data: &[u8]) {
    for line in data.split(|byte| matches!(byte, b'\n' | b'\r')) {
        bytes.extend_from_slice(b"data: ");
        bytes.extend_from_slice(line);
        bytes.extend_from_slice(b"\n");
    }
}

/// Encodes a message as an event.
#[must_use]
pub fn encode_event(message: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(message.len() + 32);
    bytes.extend_from_slice(b"event: message\n");
    put_data(&mut bytes, message.trim_ascii_end());
    bytes.extend_from_slice(b"\n");
    bytes.freeze()
}

/// Splits a stream into blocks.
#[derive(Debug, Default)]
pub struct EventDecoder {
    /// Start of the first incomplete line.
    line: usize,
    /// End of the bytes that have been searched for that line's end.
    searched: usize,
}

impl StreamDecoder for EventDecoder {
    type Item = EventBlock;
    type Error = EventTooLong;

    fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<EventBlock>, EventTooLong> {
        loop {
            let found = line_end(buffer, self.searched);
            // A final CR may still be followed by LF.
            let is_whole = |next: usize| buffer[next - 1] == b'\n' || next < buffer.len();
            let Some((end, next)) = found.filter(|(_, next)| is_whole(*next)) else {
                self.searched = found.map_or(buffer.len(), |(end, _)| end);
                return if buffer.len() > EVENT_LIMIT_BYTES { Err(EventTooLong) } else { Ok(None) };
            };
            let is_blank = end == self.line;
            (self.line, self.searched) = (next, next);
            if next > EVENT_LIMIT_BYTES {
                return Err(EventTooLong);
            }
            if is_blank {
                (self.line, self.searched) = (0, 0);
                return Ok(Some(EventBlock { bytes: buffer.split_to(next).freeze() }));
            }
        }
    }

    fn is_inside_item(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(pieces: &[&[u8]]) -> (Vec<EventBlock>, Vec<u8>) {
        let (mut decoder, mut buffer, mut blocks) = (EventDecoder::default(), BytesMut::new(), Vec::new());
        for piece in pieces {
            buffer.extend_from_slice(piece);
            blocks.extend(std::iter::from_fn(|| decoder.decode(&mut buffer).unwrap()));
        }
        (blocks, buffer.to_vec())
    }

    const STREAM: &[u8] =
        b"\xef\xbb\xbfdata: {\"a\":\ndata:1}\nid: 7\n\n: comment\r\n\r\nevent: message\r\ndata: {}\r\n\r\n\
        \n\ndata\n\ndatax: 1\n\ndata: cr\r\rdata: cut";

    #[test]
    fn blocks_are_the_same_however_they_are_cut() {
        let (expected, rest) = blocks(&[STREAM]);
        let data: Vec<_> =
            expected.iter().map(|block| block.data().map(|data| String::from_utf8(data).unwrap())).collect();
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(data, [text("{\"a\":\n1}"), None, text("{}"), None, None, text(""), None, text("cr")]);
        assert_eq!(rest, b"data: cut");
        let all: Vec<u8> = expected.iter().flat_map(|block| block.bytes().to_vec()).collect();
        assert_eq!([all, rest].concat(), STREAM, "no byte is lost");
        for (number, stream) in [b"data: 1\n\n".as_slice(), b"data: 1\r\n\r\n", b"\n"].into_iter().enumerate()
        {
            assert_eq!(blocks(&[stream]).0.len(), 1, "the end of stream {number} is not waited for");
        }
        for cut in 0..=STREAM.len() {
            let (one, other) = STREAM.split_at(cut);
            assert_eq!(blocks(&[one, other]).0, expected, "cut at {cut}");
        }
        assert_eq!(blocks(&STREAM.chunks(1).collect::<Vec<_>>()).0, expected);
    }

    #[test]
    fn data_is_replaced_and_other_lines_stay() {
        let (found, _) = blocks(&[b"id: 1\ndata: a\nretry: 5\ndata: b\n: c\n\n"]);
        assert_eq!(found[0].with_data(b"x\ny"), b"id: 1\ndata: x\ndata: y\nretry: 5\n: c\n\n".as_slice());
    }

    #[test]
    fn encoded_message_is_decoded() {
        let event = encode_event(b"{\"id\":1}\n");
        assert_eq!(event, b"event: message\ndata: {\"id\":1}\n\n".as_slice());
        assert_eq!(blocks(&[&event]).0[0].data().unwrap(), b"{\"id\":1}");
        assert_eq!(blocks(&[KEEP_ALIVE_COMMENT]).0[0].data(), None);
    }

    #[test]
    fn event_without_end_is_an_error() {
        let (mut decoder, mut buffer) = (EventDecoder::default(), BytesMut::new());
        let line = [b"data: ", vec![b'x'; 1 << 20].as_slice(), b"\n"].concat();
        for _ in 0..16 {
            let decoded = decoder.decode(&mut buffer);
            assert_eq!(decoded, Ok(None));
            buffer.extend_from_slice(&line);
        }
        assert_eq!(decoder.decode(&mut buffer), Err(EventTooLong));
    }
}
