//! Messages between a worker and its fork server, over a socket that preserves message boundaries. The
//! descriptors passed with them carry the rest.
//!
//! - Request: [`FORK_REQUEST`], with a guard's control connection, standard output, standard error
//!   and, if its test has one, report channel or standard input.
//! - Reply: a [`ForkReply`], with a descriptor of the guard's process if the fork succeeded.

/// Argument of an executed guard whose descriptor 3 is its test's report channel or standard input.
pub const CHANNEL_ARGUMENT: &str = "--channel";

/// Length of a request.
pub const FORK_REQUEST_BYTES: usize = 1;

/// Requests a fork of a guard.
pub const FORK_REQUEST: [u8; FORK_REQUEST_BYTES] = *b"g";

/// Length of a reply.
pub const FORK_REPLY_BYTES: usize = 5;

/// Reply to a fork request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForkReply {
    /// The guard was forked and has this process id.
    Pid(i32),
    /// The fork failed with this system error number.
    Errno(i32),
}

impl ForkReply {
    /// Returns the encoded reply.
    #[must_use]
    pub fn to_bytes(self) -> [u8; FORK_REPLY_BYTES] {
        let (kind, number) = match self {
            Self::Pid(pid) => (b'p', pid),
            Self::Errno(errno) => (b'e', errno),
        };
        let [one, two, three, four] = number.to_le_bytes();
        [kind, one, two, three, four]
    }

    /// Decodes a reply of [`Self::to_bytes`]; `None` for anything else.
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
    fn fork_reply_round_trips_and_rejects_other_bytes() {
        for reply in [ForkReply::Pid(1), ForkReply::Pid(i32::MAX), ForkReply::Errno(11)] {
            let bytes = reply.to_bytes();
            assert_eq!(ForkReply::from_bytes(&bytes), Some(reply));
            for cut in 0..bytes.len() {
                assert_eq!(ForkReply::from_bytes(&bytes[..cut]), None);
            }
        }
        assert_eq!(ForkReply::from_bytes(b"x0000"), None);
        assert_eq!(ForkReply::from_bytes(b"p00000"), None);
    }
}
