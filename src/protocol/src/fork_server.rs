//! Messages between a worker and its fork server, over a socket that preserves message boundaries. Everything
//! else goes through the descriptors passed along.
//!
//! - Request: [`FORK_REQUEST`], with a guard's control connection, standard output, standard error and, if
//!   its test has one, report channel or standard input.
//! - Reply: a [`ForkReply`], with a descriptor of the guard's process if the fork succeeded.
//! - Request: [`exit_request`], about a lost guard. Reply: an [`ExitReply`].

/// Argument of an executed guard that receives its test's report channel or standard input as descriptor 3.
pub const CHANNEL_ARGUMENT: &str = "--channel";

/// Argument of an executed guard that starts no test process. The next argument is the process id of an
/// existing child, which waits until descriptor 3, the write end of a pipe, yields a byte.
pub const ADOPT_ARGUMENT: &str = "--adopt";

/// Maximum length of a request.
pub const FORK_REQUEST_BYTES: usize = 5;

/// Requests a fork of a guard.
pub const FORK_REQUEST: [u8; 1] = *b"g";

/// Maximum length of a reply.
pub const FORK_REPLY_BYTES: usize = 5;

/// Requests how the guard with this process id ended. The guard must have ended already.
#[must_use]
pub fn exit_request(pid: i32) -> [u8; FORK_REQUEST_BYTES] {
    tagged_number(b'x', pid)
}

/// Returns the process id of an [`exit_request`]; `None` for anything else.
#[must_use]
pub fn requested_exit(bytes: &[u8]) -> Option<i32> {
    match read_tagged_number(bytes)? {
        (b'x', pid) => Some(pid),
        _ => None,
    }
}

/// Reply to an [`exit_request`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitReply {
    /// This signal killed the guard.
    Killed(i32),
    /// The guard exited with this code.
    Exited(i32),
    /// The fork server does not know the guard, or has forgotten it.
    Unknown,
}

impl ExitReply {
    /// Returns the encoded reply.
    #[must_use]
    pub fn to_bytes(self) -> [u8; FORK_REPLY_BYTES] {
        match self {
            Self::Killed(signal) => tagged_number(b'k', signal),
            Self::Exited(code) => tagged_number(b'c', code),
            Self::Unknown => tagged_number(b'u', 0),
        }
    }

    /// Decodes a reply of [`Self::to_bytes`]; `None` for anything else.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        match read_tagged_number(bytes)? {
            (b'k', signal) => Some(Self::Killed(signal)),
            (b'c', code) => Some(Self::Exited(code)),
            (b'u', 0) => Some(Self::Unknown),
            _ => None,
        }
    }
}

fn tagged_number(tag: u8, number: i32) -> [u8; 5] {
    let [one, two, three, four] = number.to_le_bytes();
    [tag, one, two, three, four]
}

fn read_tagged_number(bytes: &[u8]) -> Option<(u8, i32)> {
    let (tag, number) = bytes.split_first()?;
    Some((*tag, i32::from_le_bytes(number.try_into().ok()?)))
}

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
        match self {
            Self::Pid(pid) => tagged_number(b'p', pid),
            Self::Errno(errno) => tagged_number(b'e', errno),
        }
    }

    /// Decodes a reply of [`Self::to_bytes`]; `None` for anything else.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        match read_tagged_number(bytes)? {
            (b'p', pid) => Some(Self::Pid(pid)),
            (b'e', errno) => Some(Self::Errno(errno)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_round_trip_and_other_bytes_are_rejected() {
        for reply in [ForkReply::Pid(1), ForkReply::Pid(i32::MAX), ForkReply::Errno(11)] {
            let bytes = reply.to_bytes();
            assert_eq!(ForkReply::from_bytes(&bytes), Some(reply));
            for cut in 0..bytes.len() {
                assert_eq!(ForkReply::from_bytes(&bytes[..cut]), None);
            }
        }
        for reply in [ExitReply::Killed(9), ExitReply::Exited(-1), ExitReply::Unknown] {
            assert_eq!(ExitReply::from_bytes(&reply.to_bytes()), Some(reply));
            assert_eq!(ForkReply::from_bytes(&reply.to_bytes()), None);
        }
        assert_eq!(ExitReply::from_bytes(b"u0001"), None);
        assert_eq!(requested_exit(&exit_request(7)), Some(7));
        assert_eq!(requested_exit(&FORK_REQUEST), None);
        assert_eq!(ForkReply::from_bytes(b"x0000"), None);
        assert_eq!(ForkReply::from_bytes(b"p00000"), None);
    }
}
