//! File descriptors: pipes, socket pairs, and polling of several descriptors.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    io::{Errno, fcntl_dupfd_cloexec, ioctl_fionread},
    stdio::{dup2_stderr, dup2_stdin, dup2_stdout, stdin},
};

use crate::check;

/// First descriptor after the standard streams.
const FIRST_FREE_FD: i32 = 3;
/// Descriptor of a process's report channel.
const REPORT_CHANNEL: libc::c_int = 3;

/// Returns whether an operation failed because the process or machine has no descriptors or memory left. Such
/// an error is not caused by the file.
#[must_use]
pub fn is_exhausted(error: &io::Error) -> bool {
    let exhausted = [Errno::MFILE, Errno::NFILE, Errno::NOMEM].map(|one| Some(one.raw_os_error()));
    exhausted.contains(&error.raw_os_error())
}

/// Returns the read and write ends of a new pipe; both close on exec.
///
/// # Errors
/// The system has no free descriptors.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = std::io::pipe()?;
    Ok((reader.into(), writer.into()))
}

/// Returns the ends of a new stream socket pair; both close on exec.
///
/// # Errors
/// The system has no free descriptors.
pub fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (one, other) = std::os::unix::net::UnixStream::pair()?;
    Ok((one.into(), other.into()))
}

/// Makes reads and writes return `WouldBlock` instead of waiting, for all processes that share the open file.
///
/// # Errors
/// The system call failed.
pub fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::NONBLOCK)?)
}

/// Sets a socket's send buffer to the minimum size.
///
/// # Errors
/// The descriptor is not a socket.
pub fn shrink_send_buffer(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::net::sockopt::set_socket_send_buffer_size(socket, 1)?)
}

/// Sets a pipe's buffer to the minimum size, given either end.
///
/// # Errors
/// The descriptor is not a pipe, or the pipe holds more unread bytes.
pub fn shrink_pipe(pipe: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: this command takes one integer, and touches no memory.
    check(unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, 1) })?;
    Ok(())
}

/// Acknowledges the next bytes received on a TCP socket immediately. The kernel returns to delayed
/// acknowledgements later, so call this after each read.
///
/// # Errors
/// The descriptor is not a TCP socket.
pub fn acknowledge_at_once(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::net::sockopt::set_tcp_quickack(socket, true)?)
}

/// Returns the number of unread bytes in a pipe, given either end.
///
/// # Errors
/// The descriptor is not a pipe.
pub fn unread_bytes(pipe: BorrowedFd<'_>) -> io::Result<u64> {
    Ok(ioctl_fionread(pipe)?)
}

/// Returns the number of bytes written to a TCP socket that the peer's kernel has not acknowledged.
///
/// # Errors
/// The descriptor is not a TCP socket.
pub fn unacknowledged_bytes(socket: BorrowedFd<'_>) -> io::Result<usize> {
    let mut count: libc::c_int = 0;
    // libc names SIOCOUTQ only as TIOCOUTQ.
    // SAFETY: the request writes one int, which `count` is.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut count) })?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// Returns the number of bytes that a TCP socket has accepted from its writers since it was created. The
/// absolute value may be off, but differences between two values are exact. Works in any process with a
/// duplicate of the socket.
///
/// # Errors
/// The descriptor is not a TCP socket, or the kernel is older than Linux 4.1.
pub fn tcp_accepted_bytes(socket: BorrowedFd<'_>) -> io::Result<u64> {
    // Bytes acknowledged between the two reads would be in neither count, so retry until the acknowledged
    // count is stable.
    let mut acknowledged = tcp_acknowledged_bytes(socket)?;
    loop {
        let unacknowledged = unacknowledged_bytes(socket)? as u64;
        let after = tcp_acknowledged_bytes(socket)?;
        if after == acknowledged {
            return Ok(acknowledged + unacknowledged);
        }
        acknowledged = after;
    }
}

/// Returns the number of bytes of a TCP socket that its peer's kernel has acknowledged.
fn tcp_acknowledged_bytes(socket: BorrowedFd<'_>) -> io::Result<u64> {
    /// Offset of `tcpi_bytes_acked` in `struct tcp_info`, which only grows at its end.
    const BYTES_ACKED_OFFSET: usize = 120;
    let mut info = [0_u8; 256];
    let mut length = libc::socklen_t::try_from(info.len()).unwrap_or(0);
    // SAFETY: the kernel writes at most `length` bytes to `info`, which has that size, and their number to
    // `length`.
    check(unsafe {
        let (option, value) = (libc::TCP_INFO, (&raw mut info).cast());
        libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, option, value, &raw mut length)
    })?;
    let acknowledged = info
        .get(BYTES_ACKED_OFFSET..BYTES_ACKED_OFFSET + 8)
        .filter(|_| length as usize >= BYTES_ACKED_OFFSET + 8)
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))?;
    Ok(u64::from_ne_bytes(acknowledged))
}

/// Resets a TCP connection for all processes with a duplicate of the socket. Bytes that the peer's kernel has
/// not received are discarded, and the peer sees an error instead of an end of stream.
///
/// # Errors
/// The descriptor is not a connected TCP socket.
pub fn reset_tcp(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::net::connect_unspec(socket)?)
}

/// Opens a file for reading. Opening a pipe does not wait for a writer.
///
/// # Errors
/// The file cannot be opened.
pub fn open_without_waiting(path: &std::path::Path) -> io::Result<std::fs::File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, rustix::fs::Mode::empty())?.into())
}

/// Writes to a pipe held by other processes, given its path, such as a path below `/proc`. Waits while the
/// pipe is full, until the deadline.
///
/// # Errors
/// The path is not a writable pipe, its last reader is gone, or the deadline has passed. Some of the bytes
/// may have been written.
pub fn write_to_pipe(path: &std::path::Path, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let pipe = rustix::fs::open(path, flags, rustix::fs::Mode::empty())?;
    let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&pipe)?.st_mode);
    if kind != rustix::fs::FileType::Fifo {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    while !bytes.is_empty() {
        match rustix::io::write(&pipe, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                poll_until(
                    PollFd::from_borrowed_fd(std::os::fd::AsFd::as_fd(&pipe), PollFlags::OUT),
                    deadline,
                )?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Waits for one descriptor until the deadline.
pub(crate) fn poll_until(polled: PollFd<'_>, deadline: Instant) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() || poll(&mut [polled], Some(&timespec(left))) == Ok(0) {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(())
}

/// Acknowledges received TCP bytes immediately instead of up to 40 ms later. A peer with Nagle's algorithm
/// may be waiting for the acknowledgement before it sends its next small message. Only affects bytes that
/// have arrived, so call this after reads.
///
/// # Errors
/// The descriptor is not a connected TCP socket.
pub fn acknowledge_tcp(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::net::sockopt::set_tcp_quickack(socket, true)?)
}

/// Returns a new file in memory that closes on exec. The file exists as long as any process has it open.
///
/// # Errors
/// The system has no free descriptors.
pub fn memory_file(name: &str) -> io::Result<std::fs::File> {
    Ok(rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC)?.into())
}

/// Redirects this process's standard output and error to `/dev/null`. Their readers see the end of file once
/// no other process has them open.
///
/// # Errors
/// The null device cannot be opened.
pub fn redirect_output_to_null() -> io::Result<()> {
    let null = std::fs::OpenOptions::new().write(true).open("/dev/null")?;
    dup2_stdout(&null)?;
    Ok(dup2_stderr(&null)?)
}

/// Returns a duplicate of standard input that closes on exec, numbered above the standard streams.
///
/// # Errors
/// Standard input is not open.
pub fn duplicate_standard_input() -> io::Result<OwnedFd> {
    Ok(fcntl_dupfd_cloexec(stdin(), FIRST_FREE_FD)?)
}

/// Returns a duplicate of standard input like [`duplicate_standard_input`], and replaces standard input with
/// `/dev/null`.
///
/// # Errors
/// Standard input is not open, or the null device cannot be opened.
pub fn take_standard_input() -> io::Result<OwnedFd> {
    let fd = duplicate_standard_input()?;
    let null = std::fs::File::open("/dev/null")?;
    dup2_stdin(null)?;
    Ok(fd)
}

/// Takes ownership of descriptor 3, the report channel that [`SpawnOptions::channel`] passes to a process.
///
/// [`SpawnOptions::channel`]: crate::spawn::SpawnOptions::channel
///
/// # Errors
/// Descriptor 3 is not open.
pub fn take_report_channel() -> io::Result<OwnedFd> {
    // SAFETY: the caller's process was given this descriptor, and no other value owns it.
    let channel = unsafe { OwnedFd::from_raw_fd(REPORT_CHANNEL) };
    match fcntl_dupfd_cloexec(&channel, REPORT_CHANNEL + 1) {
        Ok(duplicate) => Ok(duplicate),
        Err(error) => {
            // Do not close a descriptor that is not open.
            let _not_open = channel.into_raw_fd();
            Err(error.into())
        }
    }
}

/// Makes two descriptors this process's standard output and error, and closes the originals.
///
/// # Errors
/// The system call failed.
pub fn replace_outputs(stdout: OwnedFd, stderr: OwnedFd) -> io::Result<()> {
    dup2_stdout(stdout)?;
    Ok(dup2_stderr(stderr)?)
}

/// Waits until one of `fds` is readable or closed by its peer, or until the deadline; returns which are
/// readable.
///
/// # Errors
/// The system call failed. Signals cause no error.
pub fn wait_readable<const N: usize>(
    fds: [Option<BorrowedFd<'_>>; N],
    deadline: Option<Instant>,
) -> io::Result<[bool; N]> {
    let mut polled: Vec<_> =
        fds.into_iter().flatten().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    loop {
        let timeout = deadline.map(|deadline| timespec(deadline.saturating_duration_since(Instant::now())));
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut results = polled.iter().map(|one| !one.revents().is_empty());
    Ok(fds.map(|fd| fd.is_some() && results.next().unwrap_or(false)))
}

/// Converts a duration; a duration beyond the kernel's range becomes the longest one.
pub(crate) fn timespec(duration: Duration) -> Timespec {
    Timespec::try_from(duration).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 })
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        os::fd::AsFd,
    };

    use super::*;

    #[test]
    fn exhaustion_is_told_from_other_errors() {
        for (error, expected) in [(libc::EMFILE, true), (libc::ENOMEM, true), (libc::EACCES, false)] {
            assert_eq!(is_exhausted(&io::Error::from_raw_os_error(error)), expected);
        }
        assert!(!is_exhausted(&io::Error::other("no number")));
    }

    #[test]
    fn shrunk_buffers_take_little() {
        let (reader, writer) = pipe().unwrap();
        shrink_pipe(reader.as_fd()).unwrap();
        let (one, other) = socket_pair().unwrap();
        shrink_send_buffer(one.as_fd()).unwrap();
        for writer in [writer, one] {
            set_nonblocking(writer.as_fd()).unwrap();
            let mut file = std::fs::File::from(writer);
            let mut taken = 0;
            let error = loop {
                match file.write(&[b'x'; 512]) {
                    Ok(count) => taken += count,
                    Err(error) => break error,
                }
            };
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
            assert!((1..=16 << 10).contains(&taken), "{taken}");
        }
        drop((reader, other));
    }

    #[test]
    fn full_pipe_is_waited_for_and_nothing_but_a_pipe_is_written() {
        let (mut reader, writer) = io::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&writer));
        let path = std::path::Path::new(&path);
        let bytes = vec![b'x'; 300_000];
        let soon = Instant::now() + Duration::from_millis(20);
        let error = write_to_pipe(path, &bytes, soon).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let read = std::thread::spawn(move || {
            let mut text = Vec::new();
            reader.read_to_end(&mut text).unwrap();
            text.len()
        });
        write_to_pipe(path, &bytes, Instant::now() + Duration::from_secs(60)).unwrap();
        drop(writer);
        assert!(read.join().unwrap() > bytes.len());
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = write_to_pipe(file.path(), b"x", soon).unwrap_err();
        assert_eq!(
            (error.kind(), std::fs::read(file.path()).unwrap()),
            (io::ErrorKind::InvalidInput, vec![])
        );
    }

    #[test]
    fn wait_reports_readable_descriptors_only() {
        let (silent, _silent_writer) = pipe().unwrap();
        let (closed, closed_writer) = pipe().unwrap();
        drop(closed_writer);
        let fds = [Some(silent.as_fd()), Some(closed.as_fd()), None];
        assert_eq!(wait_readable(fds, None).unwrap(), [false, true, false]);
        let soon = Instant::now() + Duration::from_millis(5);
        assert_eq!(wait_readable([Some(silent.as_fd())], Some(soon)).unwrap(), [false]);
        assert!(Instant::now() >= soon);
    }

    #[test]
    fn accepted_bytes_do_not_change_while_the_peer_acknowledges() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut writer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut reader, _) = listener.accept().unwrap();
        let before = tcp_accepted_bytes(writer.as_fd()).unwrap();
        let reading = std::thread::spawn(move || {
            let mut bytes = vec![0; 4096];
            let mut total = 0;
            loop {
                match std::io::Read::read(&mut reader, &mut bytes).unwrap() {
                    0 => return total,
                    count => total += count,
                }
            }
        });
        let chunk = vec![7; 64 << 10];
        let mut written = 0;
        for _ in 0..200 {
            std::io::Write::write_all(&mut writer, &chunk).unwrap();
            written += chunk.len() as u64;
            let mut is_acknowledged = false;
            while !is_acknowledged {
                is_acknowledged = unacknowledged_bytes(writer.as_fd()).unwrap() == 0;
                assert_eq!(tcp_accepted_bytes(writer.as_fd()).unwrap() - before, written);
            }
        }
        drop(writer);
        assert_eq!(reading.join().unwrap() as u64, written);
    }

    #[test]
    fn unacknowledged_bytes_are_zero_on_idle_socket() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(unacknowledged_bytes(stream.as_fd()).unwrap(), 0);
        let (pipe, _writer) = pipe().unwrap();
        assert!(unacknowledged_bytes(pipe.as_fd()).is_err());
    }

    #[test]
    fn acknowledgement_ends_the_delay_of_a_conversation() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut own, _) = listener.accept().unwrap();
        // After alternating requests and answers, the kernel delays acknowledgements to combine them with
        // answers.
        let mut byte = [0];
        for _ in 0..50 {
            peer.write_all(&byte).unwrap();
            own.read_exact(&mut byte).unwrap();
            own.write_all(&byte).unwrap();
            peer.read_exact(&mut byte).unwrap();
        }
        assert!(!rustix::net::sockopt::tcp_quickack(&own).unwrap());
        peer.write_all(&byte).unwrap();
        own.read_exact(&mut byte).unwrap();
        acknowledge_tcp(own.as_fd()).unwrap();
        assert!(rustix::net::sockopt::tcp_quickack(&own).unwrap());
    }
}
