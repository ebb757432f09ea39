//! The read end of one output of a test process.

use std::{
    fs::File,
    io::{self, Read as _},
    os::fd::{AsFd as _, OwnedFd},
};

use tokio::net::unix::pipe;

/// The read end of one output pipe.
///
/// Unlike tokio's pipes, a read always calls `read`, even before the runtime has noticed that the pipe is
/// readable: bytes that a test wrote to one pipe before it wrote to the other must not be missed.
pub(crate) struct OutputPipe(Option<PipeEnds>);

/// The same end twice: registered with the runtime for waiting, and as a file for reading directly.
struct PipeEnds {
    watched: pipe::Receiver,
    file: File,
}

/// Result of a non-blocking read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PipeRead {
    /// The number of bytes read.
    Bytes(usize),
    /// No bytes available yet.
    WouldBlock,
    /// The pipe is closed.
    End,
}

impl OutputPipe {
    /// Returns the read end of a new pipe, and its write end for a test process.
    pub(crate) fn new() -> io::Result<(Self, OwnedFd)> {
        let (reader, writer) = heeler_sys::io::pipe()?;
        heeler_sys::io::set_nonblocking(reader.as_fd())?;
        let file = File::from(reader.try_clone()?);
        Ok((Self(Some(PipeEnds { watched: pipe::Receiver::from_owned_fd(reader)?, file })), writer))
    }

    /// Waits until there is something to read, or the end of file; forever after the end was read.
    ///
    /// Cancel safe: yes, because it only waits for readiness.
    pub(crate) async fn wait_readable(&self) {
        match &self.0 {
            // The read reports the error.
            Some(ends) => drop(ends.watched.readable().await),
            None => std::future::pending().await,
        }
    }

    /// Reads the available bytes without blocking.
    pub(crate) fn try_read(&mut self, buffer: &mut [u8]) -> PipeRead {
        let Some(ends) = &mut self.0 else { return PipeRead::End };
        let read = match ends.file.read(buffer) {
            // Only the runtime's own read clears its readiness flag for the pipe.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => ends.watched.try_read(buffer),
            read => read,
        };
        match read {
            Ok(count) if count > 0 => PipeRead::Bytes(count),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                PipeRead::WouldBlock
            }
            Ok(_) | Err(_) => {
                self.0 = None;
                PipeRead::End
            }
        }
    }

    /// Returns the number of bytes that wait to be read.
    pub(crate) fn unread_bytes(&self) -> u64 {
        let ends = self.0.as_ref();
        ends.map_or(0, |ends| heeler_sys::io::unread_bytes(ends.file.as_fd()).unwrap_or_default())
    }

    /// Returns whether end of file was read.
    pub(crate) fn is_at_end(&self) -> bool {
        self.0.is_none()
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, time::Duration};

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn pipe_read_needs_no_readiness_event() {
        let (mut reader, writer) = OutputPipe::new().unwrap();
        let mut writer = File::from(writer);
        let mut buffer = [0; 4];
        for round in 0..100 {
            // The runtime does not run between the write and the read.
            writer.write_all(b"abcdef").unwrap();
            assert_eq!(reader.try_read(&mut buffer), PipeRead::Bytes(4), "round {round}");
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
