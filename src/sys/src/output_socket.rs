//! Standard output as a socket. Unlike for a pipe, the kernel identifies the process that wrote each byte.

use std::{
    io::{self, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    time::Instant,
};

use rustix::{
    cmsg_space,
    event::{PollFd, PollFlags},
    fs::FileType,
    io::{Errno, retry_on_intr},
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, Shutdown,
        SocketFlags, SocketType, recvmsg, send, shutdown, socketpair,
        sockopt::{set_socket_passcred, set_socket_send_buffer_size},
    },
};

use crate::{
    io::poll_until,
    process::{Pid, pidfd_open},
};

/// Standard output's descriptor in any process.
const STDOUT: i32 = 1;

/// Requested send buffer. The kernel charges several hundred bytes for each short line, so the default buffer
/// holds fewer lines than a pipe. The system's own limit applies.
const SEND_BUFFER_BYTES: usize = 1 << 20;

/// Returns the read and write ends of a new output; both close on exec. A process that reads from its
/// standard output sees an immediate end of file.
///
/// # Errors
/// The system has no free descriptors.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Enable this before the first byte: the kernel does not record the writers of earlier bytes.
    set_socket_passcred(&reader, true)?;
    shutdown(&reader, Shutdown::Write)?;
    set_socket_send_buffer_size(&writer, SEND_BUFFER_BYTES)?;
    Ok((reader, writer))
}

/// Makes the kernel record who writes to the other end of a stream socket from now on.
///
/// # Errors
/// The descriptor is not a Unix socket.
pub fn record_writers(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(set_socket_passcred(socket, true)?)
}

/// Reads available bytes written by a single process. Returns their number (0 at the end) and the process,
/// which may have exited; `None` if the kernel does not know it.
///
/// # Errors
/// The socket failed, or is empty and non-blocking.
pub fn read(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<(usize, Option<Pid>)> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(8), ScmCredentials(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let message = retry_on_intr(|| {
        recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?;
    // Descriptors that a program passes are closed.
    let writer = ancillary.drain().find_map(|one| match one {
        RecvAncillaryMessage::ScmCredentials(writer) => Some(Pid(writer.pid.as_raw_nonzero().get())),
        _ => None,
    });
    Ok((message.bytes, writer))
}

/// Writes to the standard output of another process, which this process must be allowed to trace. The kernel
/// records this process as the writer. Waits while the socket is full, until the deadline.
///
/// # Errors
/// The process is gone or may not be traced, its standard output is not a socket (`InvalidInput`) or has no
/// reader, or the deadline has passed. Some of the bytes may have been written.
pub fn write_to_stdout_of(process: Pid, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    let flags = rustix::process::PidfdGetfdFlags::empty();
    let socket = rustix::process::pidfd_getfd(pidfd_open(process)?, STDOUT, flags)?;
    if FileType::from_raw_mode(rustix::fs::fstat(&socket)?.st_mode) != FileType::Socket {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    while !bytes.is_empty() {
        // The socket itself must stay blocking, because the other process expects its writes to wait.
        match send(&socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                poll_until(PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::OUT), deadline)?
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Write as _, os::fd::AsFd as _};

    use super::*;
    use crate::{
        process::reap_child,
        spawn::{ChildStdio, SpawnOptions, spawn},
    };

    #[test]
    fn each_read_has_one_writer() {
        let (reader, writer) = pair().unwrap();
        let mut own = File::from(writer.try_clone().unwrap());
        own.write_all(b"one ").unwrap();
        own.write_all(b"two").unwrap();
        let args = vec!["-c".into(), "printf three; (printf four)".into()];
        let stdout = ChildStdio::Fd(writer);
        let shell = spawn(SpawnOptions { args, stdout, ..SpawnOptions::new("/bin/sh") }).unwrap();
        reap_child(shell.pid()).unwrap();
        own.write_all(b"five").unwrap();
        drop(own);
        let mut bytes = [0; 64];
        let mut next = || {
            let (count, writer) = read(reader.as_fd(), &mut bytes).unwrap();
            (String::from_utf8_lossy(&bytes[..count]).into_owned(), writer)
        };
        assert_eq!(next(), ("one two".to_owned(), Some(Pid::own())));
        assert_eq!(next(), ("three".to_owned(), Some(shell.pid())));
        let (text, copy) = next();
        assert!(text == "four" && copy.is_some_and(|copy| copy != shell.pid() && copy != Pid::own()));
        assert_eq!(next(), ("five".to_owned(), Some(Pid::own())));
        assert_eq!(next().0, "");
    }

    #[test]
    fn output_is_at_its_end_for_its_writer() {
        let (_reader, writer) = pair().unwrap();
        assert_eq!(std::io::Read::read(&mut File::from(writer), &mut [0; 4]).unwrap(), 0);
    }
}
