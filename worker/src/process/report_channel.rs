//! The worker's end of a dialogue with a test process. Usually a stream socket, which the process inherits as
//! descriptor 3. If the process reports on standard output, a pipe that the process inherits as standard
//! input.

use std::{
    fs::File,
    io::{self, Write as _},
    net::Shutdown,
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::net::UnixStream as StdUnixStream,
    },
};

use heeler_sys::output_socket;
use tokio::net::{UnixStream, unix::pipe};

use super::output_pipe::{OutputPiece, PipeRead, is_temporary, read_pieces};

/// The worker's end of a report channel or a standard input.
///
/// As in [`super::output_pipe::OutputPipe`], each read calls `read`, even if the runtime has not noticed yet
/// that the socket is readable.
pub(crate) struct ReportChannel {
    ends: Option<ChannelEnds>,
    /// Reports come on standard output, and this channel only sends requests.
    is_for_requests_only: bool,
    /// No more requests follow. Standard input ends after the unsent requests.
    is_finished: bool,
    /// Requests that the process has not received yet. Bounded, because the adapter makes one request at a
    /// time, and even a process that answers without reading gets at most the requests of its lease. The
    /// batch limits how long requests may stay unsent.
    unsent: Vec<u8>,
    last_request: usize,
    /// The process closed its end before receiving all requests.
    is_refused: bool,
    /// Writers of the bytes of the last read.
    pieces: Vec<OutputPiece>,
}

/// The same end twice: registered with the runtime for waiting, and unregistered for direct reads and writes.
enum ChannelEnds {
    Socket { watched: UnixStream, stream: StdUnixStream },
    Requests { watched: pipe::Sender, file: File },
}

impl ChannelEnds {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Only the runtime's own write clears its readiness flag.
        match self {
            Self::Socket { watched, stream } => match stream.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => watched.try_write(bytes),
                written => written,
            },
            Self::Requests { watched, file } => match file.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => watched.try_write(bytes),
                written => written,
            },
        }
    }
}

impl ReportChannel {
    /// Creates a channel. Returns the worker's end, and the end for a test process.
    pub(crate) fn new() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = heeler_sys::io::socket_pair()?;
        output_socket::record_writers(ours.as_fd())?;
        let stream = StdUnixStream::from(ours);
        stream.set_nonblocking(true)?;
        let watched = UnixStream::from_std(stream.try_clone()?)?;
        Ok((Self::with_ends(ChannelEnds::Socket { watched, stream }, false), theirs))
    }

    /// Creates a standard input. Returns the worker's end, and the end for a test process, which reports on
    /// its standard output.
    pub(crate) fn for_requests() -> io::Result<(Self, OwnedFd)> {
        let (theirs, ours) = heeler_sys::io::pipe()?;
        heeler_sys::io::set_nonblocking(ours.as_fd())?;
        let file = File::from(ours.try_clone()?);
        let watched = pipe::Sender::from_owned_fd(ours)?;
        Ok((Self::with_ends(ChannelEnds::Requests { watched, file }, true), theirs))
    }

    fn with_ends(ends: ChannelEnds, is_for_requests_only: bool) -> Self {
        Self {
            ends: Some(ends),
            is_for_requests_only,
            is_finished: false,
            unsent: Vec::new(),
            last_request: 0,
            is_refused: false,
            pieces: Vec::new(),
        }
    }

    pub(crate) fn is_for_requests_only(&self) -> bool {
        self.is_for_requests_only
    }

    /// Returns whether some requests are still unsent.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    pub(crate) fn unread_bytes(&self) -> u64 {
        let Some(ChannelEnds::Socket { stream, .. }) = &self.ends else { return 0 };
        heeler_sys::io::unread_bytes(stream.as_fd()).unwrap_or_default()
    }

    /// Returns whether the process has not begun to read the last request on its standard input.
    pub(crate) fn is_last_request_unread(&self) -> bool {
        let Some(ChannelEnds::Requests { file, .. }) = &self.ends else { return false };
        let unread = heeler_sys::io::unread_bytes(file.as_fd()).unwrap_or_default();
        let unread = usize::try_from(unread).unwrap_or(usize::MAX).saturating_add(self.unsent.len());
        self.is_refused || (self.last_request > 0 && unread >= self.last_request)
    }

    /// Waits until there is something to read, the end of file, or room for unsent bytes. Waits forever after
    /// the end was read.
    ///
    /// Cancel safe: yes, because it only waits for readiness.
    pub(crate) async fn wait_ready(&self) {
        // Ignore errors: the read or write reports them.
        match &self.ends {
            Some(ChannelEnds::Socket { watched, .. }) if self.unsent.is_empty() => {
                drop(watched.readable().await);
            }
            Some(ChannelEnds::Socket { watched, .. }) => tokio::select! {
                _ = watched.readable() => {}
                _ = watched.writable() => {}
            },
            Some(ChannelEnds::Requests { watched, .. }) if !self.unsent.is_empty() => {
                drop(watched.writable().await);
            }
            Some(ChannelEnds::Requests { .. }) | None => std::future::pending().await,
        }
    }

    /// Reads available bytes without blocking, up to the size of the buffer.
    pub(crate) fn try_read(&mut self, buffer: &mut [u8]) -> PipeRead {
        self.pieces.clear();
        let Some(ChannelEnds::Socket { watched, stream }) = &self.ends else { return PipeRead::End };
        let read = read_pieces(watched, stream, buffer, &mut self.pieces);
        if read == PipeRead::End {
            self.ends = None;
            self.unsent.clear();
        }
        read
    }

    /// Returns the writers of the bytes of the last read, in order.
    pub(crate) fn pieces(&self) -> &[OutputPiece] {
        &self.pieces
    }

    /// Writes without blocking, and keeps bytes that the process cannot receive yet for the next call.
    pub(crate) fn send(&mut self, mut bytes: Vec<u8>) {
        if self.ends.is_none() {
            return;
        }
        if !bytes.is_empty() {
            self.last_request = bytes.len();
        }
        if self.unsent.is_empty() {
            self.unsent = bytes;
        } else {
            self.unsent.append(&mut bytes);
        }
        while let (Some(ends), false) = (&mut self.ends, self.unsent.is_empty()) {
            match ends.write(&self.unsent) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) if is_temporary(&error) => return,
                // The process has closed its end, but data it sent before can still be read.
                Err(_) => {
                    self.unsent.clear();
                    self.is_refused = true;
                }
            }
        }
        if self.is_finished && self.is_for_requests_only {
            self.ends = None;
        }
    }

    /// Writes a request with descriptors, without blocking.
    pub(crate) fn send_with_descriptors(
        &mut self,
        request: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        match &self.ends {
            Some(ChannelEnds::Socket { stream, .. }) if self.unsent.is_empty() => {
                heeler_sys::fd_passing::send(stream.as_fd(), request, descriptors)
            }
            Some(ChannelEnds::Socket { .. } | ChannelEnds::Requests { .. }) => {
                Err(io::ErrorKind::WouldBlock.into())
            }
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Ends standard input after the unsent requests. A report channel stays open for reports.
    pub(crate) fn finish(&mut self) {
        self.is_finished = true;
        self.send(Vec::new());
    }

    /// Ends the requests of a report channel for all processes that read them.
    pub(crate) fn shut_down_requests(&mut self) {
        if let Some(ChannelEnds::Socket { stream, .. }) = &self.ends {
            // Ignore errors: a process that is gone reads nothing.
            drop(stream.shutdown(Shutdown::Write));
        }
    }

    /// Returns whether no more reports come from this channel: its end was read, or reports come on standard
    /// output.
    pub(crate) fn is_at_end(&self) -> bool {
        self.ends.is_none() || self.is_for_requests_only
    }
}

/// Waits like [`ReportChannel::wait_ready`]. Waits forever without a channel.
///
/// Cancel safe: yes, because it only waits for readiness.
pub(crate) async fn wait_ready(channel: Option<&ReportChannel>) {
    match channel {
        Some(channel) => channel.wait_ready().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Read as _};

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

    #[tokio::test]
    async fn standard_input_larger_than_its_pipe_arrives_completely_and_ends() {
        let (mut requests, theirs) = ReportChannel::for_requests().unwrap();
        requests.send(vec![b'x'; 1 << 20]);
        assert!(requests.has_unsent() && requests.is_at_end());
        requests.finish();
        let reader = std::thread::spawn(move || {
            let mut received = Vec::new();
            File::from(theirs).read_to_end(&mut received).unwrap();
            received.len()
        });
        while requests.has_unsent() {
            requests.wait_ready().await;
            requests.send(Vec::new());
        }
        assert_eq!(reader.join().unwrap(), 1 << 20);
    }

    #[tokio::test]
    async fn request_is_unread_until_the_process_reads_of_it() {
        let (mut requests, theirs) = ReportChannel::for_requests().unwrap();
        assert!(!requests.is_last_request_unread(), "there is none");
        requests.send(b"first".to_vec());
        let mut process = File::from(theirs);
        let mut taken = [0; 5];
        process.read_exact(&mut taken).unwrap();
        assert!(!requests.is_last_request_unread());
        requests.send(b"second".to_vec());
        assert!(requests.is_last_request_unread());
        process.read_exact(&mut taken[..1]).unwrap();
        assert!(!requests.is_last_request_unread(), "a part is read");
        requests.send(b"third".to_vec());
        drop(process);
        assert!(requests.is_last_request_unread(), "the process is gone");
        requests.send(b"fourth".to_vec());
        assert!(requests.is_last_request_unread(), "nobody took it");
    }

    #[tokio::test]
    async fn closed_standard_input_takes_no_more_requests() {
        let (mut requests, theirs) = ReportChannel::for_requests().unwrap();
        drop(theirs);
        requests.send(b"x".to_vec());
        assert!(!requests.has_unsent());
    }
}
