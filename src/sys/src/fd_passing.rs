//! File descriptor passing between processes (SCM_RIGHTS), with a few bytes that identify their purpose.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
};

use crate::check;

/// Maximum number of descriptors in one message.
pub const MAX_PASSED_FDS: usize = 4;

/// Ancillary data, as the kernel calls it: a header, and the descriptors immediately after it.
#[repr(C)]
struct AncillaryData {
    header: libc::cmsghdr,
    fds: [RawFd; MAX_PASSED_FDS],
}

/// Offset of the descriptors.
const ANCILLARY_HEADER_BYTES: usize = std::mem::offset_of!(AncillaryData, fds);

/// Returns the two ends of a new socket pair that preserves message boundaries; both close on exec.
///
/// # Errors
/// The system has no free descriptors.
pub fn seqpacket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [-1; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: the array has room for the two descriptors.
    check(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) })?;
    // SAFETY: both are new and have no other owner.
    let [one, other] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    Ok((one, other))
}

/// Sends one message with duplicates of at most [`MAX_PASSED_FDS`] descriptors. A closed peer is an error, not a
/// signal.
///
/// # Errors
/// The peer is closed, or the socket is full and does not block.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    assert!(fds.len() <= MAX_PASSED_FDS, "no message of ours carries more");
    let mut ancillary = AncillaryData::new();
    for (slot, fd) in ancillary.fds.iter_mut().zip(fds) {
        *slot = fd.as_raw_fd();
    }
    let length = ANCILLARY_HEADER_BYTES + size_of_val(fds);
    ancillary.header.cmsg_len = length;
    let mut part = io_vector(bytes.as_ptr().cast_mut(), bytes.len());
    let header = message_header(&mut part, &mut ancillary, if fds.is_empty() { 0 } else { length });
    loop {
        // SAFETY: the header and all it points to are valid during the call.
        match unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL) } {
            -1 => {}
            _ => return Ok(()),
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Receives one message: its length in bytes, 0 at the end of the connection, and its descriptors, which
/// close on exec.
///
/// # Errors
/// The socket failed, is empty and does not block, or the message is larger than expected.
pub fn receive(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
) -> io::Result<(usize, [Option<OwnedFd>; MAX_PASSED_FDS])> {
    let mut ancillary = AncillaryData::new();
    let mut part = io_vector(bytes.as_mut_ptr(), bytes.len());
    let mut header = message_header(
        &mut part,
        &mut ancillary,
        ANCILLARY_HEADER_BYTES + MAX_PASSED_FDS * size_of::<RawFd>(),
    );
    let count = loop {
        // SAFETY: the header and all it points to are valid for writing during the call.
        match unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_CMSG_CLOEXEC) } {
            -1 => {}
            count => break usize::try_from(count).expect("not negative"),
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    };
    let length = if header.msg_controllen == 0 { 0 } else { ancillary.header.cmsg_len };
    let passed = length.saturating_sub(ANCILLARY_HEADER_BYTES) / size_of::<RawFd>();
    let fds = ancillary.take_fds(passed);
    if header.msg_flags & (libc::MSG_CTRUNC | libc::MSG_TRUNC) != 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message is larger than expected"));
    }
    Ok((count, fds))
}

impl AncillaryData {
    fn new() -> Self {
        // SAFETY: cmsghdr is a plain C struct that may be all zero.
        let mut header: libc::cmsghdr = unsafe { std::mem::zeroed() };
        header.cmsg_level = libc::SOL_SOCKET;
        header.cmsg_type = libc::SCM_RIGHTS;
        Self { header, fds: [-1; MAX_PASSED_FDS] }
    }

    /// Takes ownership of the descriptors that the kernel has put there. Other kinds of ancillary data are
    /// never requested.
    fn take_fds(self, passed: usize) -> [Option<OwnedFd>; MAX_PASSED_FDS] {
        let mut left = passed;
        self.fds.map(|fd| {
            left = left.checked_sub(1)?;
            // SAFETY: the kernel has created it for this message, and it has no other owner.
            Some(unsafe { OwnedFd::from_raw_fd(fd) })
        })
    }
}

fn io_vector(base: *mut u8, length: usize) -> libc::iovec {
    libc::iovec { iov_base: base.cast(), iov_len: length }
}

fn message_header(part: &mut libc::iovec, ancillary: &mut AncillaryData, length: usize) -> libc::msghdr {
    // SAFETY: msghdr is a plain C struct that may be all zero.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = part;
    header.msg_iovlen = 1;
    header.msg_control = std::ptr::from_mut(ancillary).cast();
    header.msg_controllen = length;
    header
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        io::{Read as _, Write as _},
        os::fd::AsFd as _,
    };

    use super::*;
    use crate::io::pipe;

    #[test]
    fn message_arrives_with_its_descriptors_before_end_of_connection() {
        let (one, other) = seqpacket_pair().unwrap();
        let (mut reader, writer) = pipe().map(|(reader, writer)| (File::from(reader), writer)).unwrap();
        send(one.as_fd(), b"two", &[writer.as_fd(), writer.as_fd()]).unwrap();
        send(one.as_fd(), b"none", &[]).unwrap();
        drop((one, writer));
        let mut bytes = [0; 8];
        let (count, fds) = receive(other.as_fd(), &mut bytes).unwrap();
        assert_eq!((&bytes[..count], fds.iter().flatten().count()), (&b"two"[..], 2));
        for fd in fds.into_iter().flatten() {
            File::from(fd).write_all(b"x").unwrap();
        }
        let (count, fds) = receive(other.as_fd(), &mut bytes).unwrap();
        assert_eq!((&bytes[..count], fds.iter().flatten().count()), (&b"none"[..], 0));
        assert_eq!(receive(other.as_fd(), &mut bytes).unwrap().0, 0);
        // No process holds the pipe any more, so its end of file is reached.
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "xx");
    }

    #[test]
    fn message_to_closed_peer_is_an_error_without_signal() {
        let (one, other) = seqpacket_pair().unwrap();
        drop(other);
        assert_eq!(send(one.as_fd(), b"x", &[]).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn oversized_message_is_refused() {
        let (one, other) = seqpacket_pair().unwrap();
        send(one.as_fd(), b"too long", &[]).unwrap();
        assert_eq!(receive(other.as_fd(), &mut [0; 2]).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
