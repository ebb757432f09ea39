//! The worker's end of a report channel: a stream socket that a test process inherits as descriptor 3, beside
//! its standard output and error.

use std::{
    io::{self, Read as _, Write as _},
    os::{fd::OwnedFd, unix::net::UnixStream as StdUnixStream},
};

use tokio::net::UnixStream;

use super::output_pipe::PipeRead;

/// The worker's end of one report channel.
///
/// As with [`super::output_pipe::OutputPipe`], a read always calls `read`, even before the runtime has noticed
/// that the socket is readable.
pub(crate) struct ReportChannel {
    ends: Option<ChannelEnds>,
    /// Requests that the process has not taken yet: bounded by what its adapter asks for at once.
    unsent: Vec<u8>,
}

/// The same end twice: registered with the runtime for waiting, and for reading and writing directly.
struct ChannelEnds {
    watched: UnixStream,
    stream: StdUnixStream,
}

impl ReportChannel {
    /// Returns the worker's end of a new channel, and the end for a test process.
    pub(crate) fn new() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = heeler_sys::io::socket_pair()?;
        let stream = StdUnixStream::from(ours);
        stream.set_nonblocking(true)?;
        let watched = UnixStream::from_std(stream.try_clone()?)?;
        Ok((Self { ends: Some(ChannelEnds { watched, stream }), unsent: Vec::new() }, theirs))
    }

    /// Waits until there is something to read, the end of file, or room for unsent bytes; forever after the
    /// end was read.
    ///
    /// Cancel safe: yes, because it only waits for readiness.
    pub(crate) async fn wait_ready(&self) {
        let Some(ends) = &self.ends else { return std::future::pending().await };
        // The read or the write reports the error.
        if self.unsent.is_empty() {
            drop(ends.watched.readable().await);
        } else {
            tokio::select! {
                _ = ends.watched.readable() => {}
                _ = ends.watched.writable() => {}
            }
        }
    }

    /// Reads the available bytes without blocking.
    pub(crate) fn try_read(&mut self, buffer: &mut [u8]) -> PipeRead {
        let Some(ends) = &mut self.ends else { return PipeRead::End };
        let read = match ends.stream.read(buffer) {
            // Only the runtime's own read clears its readiness flag for the socket.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => ends.watched.try_read(buffer),
            read => read,
        };
        match read {
            Ok(count) if count > 0 => PipeRead::Bytes(count),
            Err(error) if is_temporary(&error) => PipeRead::WouldBlock,
            Ok(_) | Err(_) => {
                self.ends = None;
                PipeRead::End
            }
        }
    }

    /// Writes without blocking; keeps what the process does not take yet, for the next call.
    pub(crate) fn send(&mut self, mut bytes: Vec<u8>) {
        if self.unsent.is_empty() {
            self.unsent = bytes;
        } else {
            self.unsent.append(&mut bytes);
        }
        while let (Some(ends), false) = (&mut self.ends, self.unsent.is_empty()) {
            let written = match ends.stream.write(&self.unsent) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ends.watched.try_write(&self.unsent)
                }
                written => written,
            };
            match written {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) if is_temporary(&error) => return,
                // The process has closed its end; its last words can still be read.
                Err(_) => self.unsent.clear(),
            }
        }
    }

    /// Returns whether end of file was read.
    pub(crate) fn is_at_end(&self) -> bool {
        self.ends.is_none()
    }
}

/// Waits as [`ReportChannel::wait_ready`] does; forever without a channel.
///
/// Cancel safe: yes, because it only waits for readiness.
pub(crate) async fn wait_ready(channel: Option<&ReportChannel>) {
    match channel {
        Some(channel) => channel.wait_ready().await,
        None => std::future::pending().await,
    }
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[tokio::test]
    async fn request_larger_than_the_socket_arrives_completely() {
        let (mut channel, theirs) = ReportChannel::new().unwrap();
        let request = vec![b'x'; 4 << 20];
        let length = request.len();
        let reader = std::thread::spawn(move || {
            let mut peer = File::from(theirs);
            let mut received = vec![0; length];
            peer.read_exact(&mut received).unwrap();
            peer.write_all(b"done").unwrap();
        });
        channel.send(request);
        let mut buffer = [0; 16];
        loop {
            channel.wait_ready().await;
            channel.send(Vec::new());
            if let PipeRead::Bytes(count) = channel.try_read(&mut buffer) {
                assert_eq!(&buffer[..count], b"done");
                break;
            }
        }
        reader.join().unwrap();
        channel.wait_ready().await;
        assert_eq!(channel.try_read(&mut buffer), PipeRead::End);
        assert!(channel.is_at_end());
    }
}
