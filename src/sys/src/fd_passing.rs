//! Passes file descriptors between processes (SCM_RIGHTS), with a few bytes that state their purpose.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{BorrowedFd, OwnedFd},
};

use rustix::{
    cmsg_space,
    io::{Errno, retry_on_intr},
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
        SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg,
        socketpair,
    },
};

/// Maximum number of descriptors per message.
pub(crate) const MAX_PASSED_FDS: usize = 4;
/// Size of a message's ancillary data.
const ANCILLARY_BYTES: usize = cmsg_space!(ScmRights(MAX_PASSED_FDS));

/// Returns the ends of a new socket pair that preserves message boundaries; both close on exec.
///
/// # Errors
/// The system has no free descriptors.
pub fn seqpacket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends one message with duplicates of at most `MAX_PASSED_FDS` descriptors. A closed peer causes an error
/// instead of a signal.
///
/// # Errors
/// The peer is closed, or a non-blocking socket is full. A socket without message boundaries may have
/// accepted only part of the message.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    assert!(fds.len() <= MAX_PASSED_FDS, "no message of ours carries more");
    let mut space = [MaybeUninit::uninit(); ANCILLARY_BYTES];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        let fits = ancillary.push(SendAncillaryMessage::ScmRights(fds));
        assert!(fits, "the buffer has room for the largest number");
    }
    let sent =
        retry_on_intr(|| sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL))?;
    if sent < bytes.len() {
        return Err(io::Error::new(io::ErrorKind::WriteZero, "the socket accepted only part of the message"));
    }
    Ok(())
}

/// Receives one message: its length in bytes (0 at the end of the connection), and its descriptors, which
/// close on exec.
///
/// # Errors
/// The socket failed, is empty and non-blocking, or the message is larger than expected.
pub fn receive(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
) -> io::Result<(usize, [Option<OwnedFd>; MAX_PASSED_FDS])> {
    let mut space = [MaybeUninit::uninit(); ANCILLARY_BYTES];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let message = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            outcome => break outcome?,
        }
    };
    let mut passed = ancillary.drain().flat_map(|one| match one {
        RecvAncillaryMessage::ScmRights(fds) => fds.collect(),
        // No other kind of ancillary data is requested.
        _ => Vec::new(),
    });
    let fds = std::array::from_fn(|_| passed.next());
    // Alignment leaves room for more descriptors than requested.
    let is_larger =
        passed.next().is_some() || message.flags.intersects(ReturnFlags::CTRUNC | ReturnFlags::TRUNC);
    if is_larger {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "received a message larger than expected"));
    }
    Ok((message.bytes, fds))
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
        // All write ends are closed, so the pipe is at its end.
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
