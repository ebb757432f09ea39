//! What a worker and its nursery say to each other: messages of a socket that keeps them apart. The descriptors that go
//! with them say the rest.
//!
//! - Request: [`REQUEST`], with a guard's control connection, standard output and standard error.
//! - Answer: a [`Birth`], with a descriptor of the guard's process if it was born.

/// How many bytes a request has.
pub const REQUEST_BYTES: usize = 1;

/// Asks for a guard.
pub const REQUEST: [u8; REQUEST_BYTES] = *b"g";

/// How many bytes an answer has.
pub const BIRTH_BYTES: usize = 5;

/// The answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Birth {
    /// The guard lives, under this process id.
    Pid(i32),
    /// There is none; the system's error number.
    Errno(i32),
}

impl Birth {
    /// Returns the bytes that stand for it.
    #[must_use]
    pub fn to_bytes(self) -> [u8; BIRTH_BYTES] {
        let (kind, number) = match self {
            Self::Pid(pid) => (b'p', pid),
            Self::Errno(errno) => (b'e', errno),
        };
        let [one, two, three, four] = number.to_le_bytes();
        [kind, one, two, three, four]
    }

    /// Reads what [`Self::to_bytes`] has written; `None` for what it never writes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (kind, number) = bytes.split_first()?;
        let number = i32::from_le_bytes(number.try_into().ok()?);
        match kind {
            b'p' => Some(Self::Pid(number)),
            b'e' => Some(Self::Errno(number)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_reads_as_it_was_written_and_nothing_else_reads() {
        for birth in [Birth::Pid(1), Birth::Pid(i32::MAX), Birth::Errno(11)] {
            let bytes = birth.to_bytes();
            assert_eq!(Birth::from_bytes(&bytes), Some(birth));
            for cut in 0..bytes.len() {
                assert_eq!(Birth::from_bytes(&bytes[..cut]), None);
            }
        }
        assert_eq!(Birth::from_bytes(b"x0000"), None);
        assert_eq!(Birth::from_bytes(b"p00000"), None);
    }
}
