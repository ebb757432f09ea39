//! The read end of one output of a test process: a pipe, or a socket that identifies the writer of each byte.

use std::{
    fs::File,
    io::{self, Read as _},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::net::UnixStream as StdUnixStream,
    },
};

use heeler_sys::{output_socket, process::Pid};
use tokio::{
    io::Interest,
    net::{UnixStream, unix::pipe},
};

/// The read end of one output.
///
/// Unlike with tokio's pipes, each read calls `read`, even if the runtime has not noticed yet that the pipe
/// is readable. Otherwise bytes that a test wrote to one pipe before the other could be missed.
pub(crate) struct OutputPipe {
    end: Option<OutputEnd>,
    /// The output is a socket.
    names_writers: bool,
    /// Writers of the bytes of the last read. Empty for a pipe.
    pieces: Vec<OutputPiece>,
}

/// Bytes of one read that one process wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutputPiece {
    /// The writing process, which may be gone. `None` if the kernel does not identify it.
    pub(crate) writer: Option<Pid>,
    pub(crate) bytes: usize,
}

/// The same end twice: registered with the runtime for waiting, and unregistered for direct reads.
enum OutputEnd {
    Pipe { watched: pipe::Receiver, file: File },
    Socket { watched: UnixStream, stream: StdUnixStream },
}

/// Reads available bytes of a socket without blocking, up to the size of the buffer, and records their
/// writers. The end of file is reported after everything before it was read.
pub(super) fn read_pieces(
    watched: &UnixStream,
    stream: &StdUnixStream,
    buffer: &mut [u8],
    pieces: &mut Vec<OutputPiece>,
) -> PipeRead {
    let mut count = 0;
    while count < buffer.len() {
        let read = match output_socket::read(stream.as_fd(), &mut buffer[count..]) {
            // Only the runtime's own read clears its readiness flag.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => watched
                .try_io(Interest::READABLE, || output_socket::read(stream.as_fd(), &mut buffer[count..])),
            read => read,
        };
        match read {
            // A read ends where another writer's bytes begin.
            Ok((bytes, writer)) if bytes > 0 => {
                count += bytes;
                pieces.push(OutputPiece { writer, bytes });
            }
            Err(error) if is_temporary(&error) && count == 0 => return PipeRead::WouldBlock,
            Ok(_) | Err(_) if count == 0 => return PipeRead::End,
            Ok(_) | Err(_) => break,
        }
    }
    PipeRead::Bytes(count)
}

/// Returns whether a non-blocking read must be retried later.
pub(super) fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PipeRead {
    /// Number of bytes read.
    Bytes(usize),
    /// No bytes are available yet.
    WouldBlock,
    /// The pipe is closed.
    End,
}

impl OutputPipe {
    /// Creates a pipe. Returns its read end, and its write end for a test process.
    pub(crate) fn new() -> io::Result<(Self, OwnedFd)> {
        let (reader, writer) = heeler_sys::io::pipe()?;
        heeler_sys::io::set_nonblocking(reader.as_fd())?;
        let file = File::from(reader.try_clone()?);
        let end = OutputEnd::Pipe { watched: pipe::Receiver::from_owned_fd(reader)?, file };
        Ok((Self { end: Some(end), names_writers: false, pieces: Vec::new() }, writer))
    }

    /// Creates a socket. Returns its read end, and its write end for a test process.
    pub(crate) fn socket() -> io::Result<(Self, OwnedFd)> {
        let (reader, writer) = output_socket::pair()?;
        let stream = StdUnixStream::from(reader);
        stream.set_nonblocking(true)?;
        let end = OutputEnd::Socket { watched: UnixStream::from_std(stream.try_clone()?)?, stream };
        Ok((Self { end: Some(end), names_writers: true, pieces: Vec::new() }, writer))
    }

    /// Waits until there is something to read or the end of file. Waits forever after the end was read.
    ///
    /// Cancel safe: yes, because it only waits for readiness.
    pub(crate) async fn wait_readable(&self) {
        // Ignore errors: the read reports them.
        match &self.end {
            Some(OutputEnd::Pipe { watched, .. }) => drop(watched.readable().await),
            Some(OutputEnd::Socket { watched, .. }) => drop(watched.readable().await),
            None => std::future::pending().await,
        }
    }

    pub(crate) fn try_read(&mut self, buffer: &mut [u8]) -> PipeRead {
        self.pieces.clear();
        let read = match &mut self.end {
            None => PipeRead::End,
            Some(OutputEnd::Socket { watched, stream }) => {
                read_pieces(watched, stream, buffer, &mut self.pieces)
            }
            Some(OutputEnd::Pipe { watched, file }) => {
                let read = match file.read(buffer) {
                    // Only the runtime's own read clears its readiness flag for the pipe.
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => watched.try_read(buffer),
                    read => read,
                };
                match read {
                    Ok(count) if count > 0 => PipeRead::Bytes(count),
                    Err(error) if is_temporary(&error) => PipeRead::WouldBlock,
                    Ok(_) | Err(_) => PipeRead::End,
                }
            }
        };
        if read == PipeRead::End {
            self.end = None;
        }
        read
    }

    /// Clears this process as a writer in the last read, because a guard writes on behalf of its process.
    pub(crate) fn remove_writer(&mut self, guard: Pid) {
        for piece in self.pieces.iter_mut().filter(|piece| piece.writer == Some(guard)) {
            piece.writer = None;
        }
    }

    /// Returns the writers of the bytes of the last read, in order. Empty for a pipe.
    pub(crate) fn pieces(&self) -> &[OutputPiece] {
        &self.pieces
    }

    pub(crate) fn names_writers(&self) -> bool {
        self.names_writers
    }

    pub(crate) fn unread_bytes(&self) -> u64 {
        let unread = match &self.end {
            Some(OutputEnd::Pipe { file, .. }) => heeler_sys::io::unread_bytes(file.as_fd()),
            Some(OutputEnd::Socket { stream, .. }) => heeler_sys::io::unread_bytes(stream.as_fd()),
            None => return 0,
        };
        unread.unwrap_or_default()
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.end.is_none()
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, time::Duration};

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn read_needs_no_readiness_event() {
        for (mut reader, writer) in [OutputPipe::new().unwrap(), OutputPipe::socket().unwrap()] {
            check_reads(&mut reader, writer).await;
        }
    }

    async fn check_reads(reader: &mut OutputPipe, writer: OwnedFd) {
        let names_writers = reader.names_writers();
        let mut writer = File::from(writer);
        let mut buffer = [0; 4];
        for round in 0..100 {
            // The runtime does not run between the write and the read.
            writer.write_all(b"abcdef").unwrap();
            assert_eq!(reader.try_read(&mut buffer), PipeRead::Bytes(4), "round {round}");
            let own = OutputPiece { writer: Some(Pid::own()), bytes: 4 };
            assert_eq!(reader.pieces().first(), names_writers.then_some(&own));
            assert_eq!(reader.try_read(&mut buffer), PipeRead::Bytes(2), "round {round}");
            assert_eq!(reader.try_read(&mut buffer), PipeRead::WouldBlock, "round {round}");
            if round % 2 == 0 {
                writer.write_all(b"x").unwrap();
                reader.wait_readable().await;
                assert_eq!(reader.try_read(&mut buffer), PipeRead::Bytes(1), "round {round}");
                let wait = timeout(Duration::from_millis(1), reader.wait_readable()).await;
                assert!(wait.is_ok() || reader.try_read(&mut buffer) == PipeRead::WouldBlock);
            }
        }
        drop(writer);
        reader.wait_readable().await;
        assert_eq!(reader.try_read(&mut buffer), PipeRead::End);
        assert!(reader.is_at_end());
        assert_eq!(reader.try_read(&mut buffer), PipeRead::End);
    }
}
