//! Requests and answers, written from the specification without using Heeler's code.

use std::{
    fmt,
    io::{self, Read},
    time::Instant,
};

/// A client's answer to a case, and its arrival time.
#[derive(Debug, Clone)]
pub(crate) struct CaseAnswer {
    pub(crate) name: String,
    /// `None` for a response, otherwise the error text.
    pub(crate) error: Option<String>,
    pub(crate) at: Instant,
}

impl fmt::Display for CaseAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", self.name, self.error)
    }
}

/// Returns the length-prefixed request of a case that uses HTTP/2 and gRPC.
pub(super) fn request(name: &str) -> Vec<u8> {
    let message = [&[0x0a][..], &varint(name.len()), name.as_bytes(), &[0x10, 2, 0x18, 2]].concat();
    [&u32::try_from(message.len()).expect("requests are small").to_be_bytes()[..], &message].concat()
}

fn varint(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// Reads the next answer; `None` at the end of the stream, even inside an answer.
pub(super) fn read_answer(from: &mut impl Read) -> Option<CaseAnswer> {
    let message = read_message(from).ok()?;
    let (number, name, rest) = field(&message);
    assert_eq!(number, 1, "an answer begins with a name");
    let (kind, content, rest) = field(rest);
    assert!(rest.is_empty(), "an answer has one result");
    let error = match kind {
        2 => None,
        3 => Some(String::from_utf8_lossy(field(content).1).into_owned()),
        other => panic!("an answer has the field {other}"),
    };
    Some(CaseAnswer { name: String::from_utf8(name.to_vec()).unwrap(), error, at: Instant::now() })
}

fn read_message(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let mut message = vec![0; u32::from_be_bytes(length) as usize];
    from.read_exact(&mut message)?;
    Ok(message)
}

/// Splits off a length-delimited field: its number, its bytes, and the rest.
fn field(message: &[u8]) -> (u8, &[u8], &[u8]) {
    assert_eq!(message[0] & 7, 2, "a field with a length");
    let end = message[1..].iter().position(|byte| *byte < 0x80).expect("lengths end") + 2;
    let length = message[1..end].iter().rev().fold(0, |sum, byte| (sum << 7) | usize::from(byte & 0x7f));
    (message[0] >> 3, &message[end..end + length], &message[end + length..])
}
