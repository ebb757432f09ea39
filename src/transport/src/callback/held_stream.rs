//! Holds duplicates of other processes' callback connections. When such a process dies, this process
//! completes its unfinished frame and sends a barrier, which proves that the client has handled everything.
//! Otherwise, the dead process's last bytes would stay unread in the client's kernel, and be handled after
//! the completion.

use std::{
    collections::BTreeMap,
    io,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::net::UnixDatagram as StdUnixDatagram,
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::{Buf as _, BytesMut};
use heeler_core::client_progress::{AnswerLimits, OverdueDecision};
use heeler_protocol::{
    StreamDecoder as _,
    control::{ClientId, DeliveryLimits, OsText, ProofLevel, StreamHandOver, StreamMark, StreamSender},
    frame::FrameDecoder,
    mtp,
    rpc::{self, RpcMessage},
};
use heeler_sys::fd_passing;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, Interest},
    net::{TcpStream, UnixDatagram},
    task::JoinSet,
    time::{Instant, timeout},
};

use crate::running_time::sleep_until_running;

use super::{
    client_progress::{self, SharedProgress},
    stream_record::{RecordedFrame, StreamRecord},
};

/// Timeout of handing a duplicate over. The holder uses its socket only to receive duplicates.
const HAND_OVER_LIMIT: Duration = Duration::from_millis(500);
/// Maximum number of held streams; each uses two descriptors. The oldest are dropped first, because their
/// workers have probably been dead for a long time.
const MAX_HELD_STREAMS: usize = 192;
/// Maximum size of the message that accompanies a duplicate.
const MAX_MESSAGE_BYTES: usize = 512;
/// Interval between two checks of the kernel's acknowledgements.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);
/// Header at the start of every message.
const HEADER_NAME: &[u8] = b"Content-Length:";

/// A process that holds duplicates. Each holder has its own barrier id, which no other sender uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamHolder {
    /// The coordinator, while it lives.
    Coordinator,
    /// The watchdog, after the coordinator's death.
    Watchdog,
}

impl StreamHolder {
    /// Returns the holder's socket path, next to the coordinator's control socket.
    #[must_use]
    pub fn socket_path(self, control_socket: &Path, watchdog_pid: u32) -> PathBuf {
        // A coordinator may have several watchdogs, one after the other.
        control_socket.with_file_name(match self {
            Self::Coordinator => "streams".to_owned(),
            Self::Watchdog => format!("streams-{watchdog_pid}"),
        })
    }

    fn barrier_id(self) -> u64 {
        match self {
            Self::Coordinator => 1_000_000_001,
            Self::Watchdog => 1_000_000_002,
        }
    }
}

/// Sends duplicates of a connection and its record to the holder at this path.
///
/// # Errors
/// The holder is gone, or does not receive.
pub(super) fn hand_over(
    path: &Path,
    sender: StreamSender,
    client: ClientId,
    limits: &DeliveryLimits,
    duplicates: [std::os::fd::BorrowedFd<'_>; 2],
) -> io::Result<()> {
    let socket = StdUnixDatagram::unbound()?;
    socket.connect(path)?;
    socket.set_write_timeout(Some(HAND_OVER_LIMIT))?;
    let message = serde_json::to_vec(&StreamHandOver { sender, client, limits: *limits })?;
    fd_passing::send(socket.as_fd(), &message, &duplicates)
}

/// Duplicates held by this process.
#[derive(Debug)]
pub struct HeldStreams {
    shared: Arc<HeldShared>,
    _receiver: JoinSet<()>,
}

#[derive(Debug)]
struct HeldShared {
    socket: UnixDatagram,
    path: PathBuf,
    /// One stream per process and client, because a process has one connection to a client at a time.
    streams: Mutex<BTreeMap<(StreamSender, ClientId), HeldStream>>,
}

/// Duplicate of a process's connection to a client.
#[derive(Debug)]
pub struct HeldStream {
    pub client: ClientId,
    socket: OwnedFd,
    record: StreamRecord,
    limits: DeliveryLimits,
    /// Path of the client's answers on all its streams.
    progress_path: PathBuf,
}

/// State of a stream after its sender's death.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettledStream {
    pub client: ClientId,
    /// How certain it is that the client has everything up to `positions`.
    pub proof: ProofLevel,
    /// Results or frames that the client has, by run.
    pub positions: BTreeMap<String, u64>,
    /// Directories of the runs whose completion the client has handled.
    pub completed: Vec<OsText>,
}

impl SettledStream {
    /// Returns the state of a stream whose frames up to `mark` have this proof level.
    fn new(client: ClientId, proof: ProofLevel, mark: StreamMark) -> Self {
        let StreamMark { positions, handled, completing, mut completed, .. } = mark;
        let is_handled = proof == ProofLevel::Handled;
        completed.extend(completing.filter(|_| is_handled));
        Self { client, proof, positions: if is_handled { positions } else { handled }, completed }
    }
}

impl HeldStreams {
    /// Listens for duplicates at a path in a private directory.
    ///
    /// # Errors
    /// The path exists, or is too long for a socket.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn listen(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::bind(path)?;
        let shared = Arc::new(HeldShared { socket, path: path.to_owned(), streams: Mutex::default() });
        let mut receiver = JoinSet::new();
        let receiving = Arc::clone(&shared);
        receiver.spawn(async move {
            while receiving.socket.readable().await.is_ok() && receiving.receive_all().is_ok() {}
        });
        Ok(Self { shared, _receiver: receiver })
    }

    /// Takes the duplicates of one process's connections.
    #[must_use]
    pub fn take(&self, sender: StreamSender) -> Vec<HeldStream> {
        let _failed = self.shared.receive_all();
        self.shared.lock().extract_if(.., |(one, _), _| *one == sender).map(|(_, stream)| stream).collect()
    }

    /// Takes all duplicates with their sending processes.
    #[must_use]
    pub fn take_all(&self) -> Vec<(StreamSender, HeldStream)> {
        let _failed = self.shared.receive_all();
        let streams = std::mem::take(&mut *self.shared.lock());
        streams.into_iter().map(|((sender, _), stream)| (sender, stream)).collect()
    }

    /// Drops the duplicates and the shared answers of a client that has left.
    pub fn drop_client(&self, client: ClientId) {
        // Ignore errors: before the first connection, the file does not exist.
        drop(std::fs::remove_file(client_progress::path_beside(&self.shared.path, client)));
        let _failed = self.shared.receive_all();
        self.shared.lock().retain(|(_, one), _| *one != client);
    }
}

impl Drop for HeldShared {
    fn drop(&mut self) {
        let address = self.socket.local_addr();
        if let Some(path) = address.as_ref().ok().and_then(|address| address.as_pathname()) {
            // Other processes may also remove the directory.
            drop(std::fs::remove_file(path));
        }
    }
}

impl HeldShared {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(StreamSender, ClientId), HeldStream>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Receives all pending messages, and drops invalid ones.
    fn receive_all(&self) -> io::Result<()> {
        let mut streams = self.lock();
        let mut bytes = [0; MAX_MESSAGE_BYTES];
        loop {
            let received = self
                .socket
                .try_io(Interest::READABLE, || fd_passing::receive(self.socket.as_fd(), &mut bytes));
            let (count, fds) = match received {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    tracing::debug!(%error, "failed to receive a duplicate of a callback connection");
                    continue;
                }
                Err(error) => {
                    tracing::warn!(%error, "can no longer receive duplicates of callback connections");
                    return Err(error);
                }
            };
            let [Some(socket), Some(record), None, None] = fds else { continue };
            match serde_json::from_slice(&bytes[..count]) {
                Ok(StreamHandOver { sender, client, limits }) => {
                    let record = StreamRecord::of_file(record);
                    let progress_path = client_progress::path_beside(&self.path, client);
                    let stream = HeldStream { client, socket, record, limits, progress_path };
                    streams.insert((sender, client), stream);
                    if streams.len() > MAX_HELD_STREAMS {
                        drop(streams.pop_first());
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "a duplicate of a callback connection has no valid description")
                }
            }
        }
    }
}

/// Why it is unknown whether the client has handled a stream.
#[derive(Debug, thiserror::Error)]
enum UnsettledError {
    #[error("failed to read the record of the stream")]
    Record(#[source] io::Error),
    #[error("failed to write to the client")]
    Write(#[source] io::Error),
    #[error("the client closed the connection")]
    Closed,
    #[error("no answer from the client for {} s", .0.as_secs_f64())]
    Unanswered(Duration),
}

impl HeldStream {
    /// Settles the stream of a dead process: completes its unfinished frame, and has the client prove that it
    /// has handled everything. The process must be dead, and no other process may write to the connection.
    /// Keeps waiting as long as the client answers anything within its timeout.
    ///
    /// Cancel safe: no, because a part of the barrier may have been written.
    pub async fn settle(self, holder: StreamHolder) -> SettledStream {
        let client = self.client;
        let mut mark = StreamMark::default();
        let proof = match self.last_frame() {
            Ok(Some(last)) => {
                mark = last.mark.clone();
                self.settle_frame(last, holder).await
            }
            Ok(None) => Ok(ProofLevel::Handled),
            Err(error) => Err(error),
        };
        let proof = proof.unwrap_or_else(|error| {
            let error = heeler_core::error_chain(&error);
            tracing::warn!(error, "no proof that the client received all updates of a dead process");
            ProofLevel::None
        });
        SettledStream::new(client, proof, mark)
    }

    fn last_frame(&self) -> Result<Option<RecordedFrame>, UnsettledError> {
        self.record.last_frame().map_err(UnsettledError::Record)
    }

    async fn settle_frame(
        self,
        last: RecordedFrame,
        holder: StreamHolder,
    ) -> Result<ProofLevel, UnsettledError> {
        let RecordedFrame { start, bytes, mark } = last;
        // If everything was proven before the process died, nothing is left to do.
        if !self.record.is_unproven().map_err(UnsettledError::Record)? {
            return Ok(ProofLevel::Handled);
        }
        // Write the missing rest and a barrier.
        let base = self.record.base().map_err(UnsettledError::Record)?;
        let accepted =
            heeler_sys::io::tcp_accepted_bytes(self.socket.as_fd()).map_err(UnsettledError::Record)?;
        let written = accepted.saturating_sub(base).saturating_sub(start);
        let written = usize::try_from(written).unwrap_or(usize::MAX);
        let stream = std::net::TcpStream::from(self.socket);
        let mut stream = TcpStream::from_std(stream).map_err(UnsettledError::Record)?;
        let rest = rest_of_stream(&bytes, &mark, written, holder);
        let answer_limit = Duration::from_millis(self.limits.answer_ms);
        write_with_progress(&mut stream, &rest, answer_limit).await?;
        // Wait for the answer.
        let progress = SharedProgress::open(&self.progress_path);
        let first_answer_limit = Duration::from_millis(self.limits.first_answer_ms);
        // Only a sender without another route sends updates before the client's first answer.
        let first_limit = match mark.is_answering {
            Some(true) => progress
                .answers()
                .answer_limit(AnswerLimits { first: first_answer_limit, next: answer_limit }),
            Some(false) | None => Duration::ZERO,
        };
        let limits = AnswerLimits { first: first_limit, next: answer_limit };
        // A client that never answers proves at most that its kernel has everything.
        match wait_for_answer(&mut stream, holder.barrier_id(), limits, &progress).await {
            Ok(()) => Ok(ProofLevel::Handled),
            Err(UnsettledError::Unanswered(_) | UnsettledError::Closed)
                if mark.is_answering != Some(true) =>
            {
                wait_for_delivery(&stream, Duration::from_millis(self.limits.drain_ms)).await
            }
            Err(error) => Err(error),
        }
    }
}

/// Returns the bytes still to be written: the rest of the last frame and the holder's barrier. `written`
/// counts from the start of that frame. If a coordinator died while it settled the same stream, part of its
/// own barrier has been written and is completed first. After a run's completion, the barrier must not be an
/// update.
fn rest_of_stream(frame: &[u8], mark: &StreamMark, written: usize, holder: StreamHolder) -> Vec<u8> {
    let barrier = |holder: StreamHolder| match &mark.completing {
        Some(_) => mtp::completion_barrier_frame(mark.barrier, holder.barrier_id(), &mark.run),
        None => mtp::barrier_frame(mark.barrier, holder.barrier_id(), &mark.run),
    };
    let earlier = barrier(StreamHolder::Coordinator);
    let mut rest = match written.checked_sub(frame.len()) {
        None => frame[written..].to_vec(),
        Some(0) => Vec::new(),
        Some(excess) => earlier.get(excess..).unwrap_or_default().to_vec(),
    };
    rest.extend_from_slice(&barrier(holder));
    rest
}

async fn write_with_progress(
    stream: &mut TcpStream,
    mut bytes: &[u8],
    limit: Duration,
) -> Result<(), UnsettledError> {
    while !bytes.is_empty() {
        let written =
            timeout(limit, stream.write(bytes)).await.map_err(|_| UnsettledError::Unanswered(limit))?;
        let written = written.map_err(UnsettledError::Write)?;
        bytes = &bytes[written..];
    }
    Ok(())
}

/// Waits for the answer to a barrier while the client answers earlier barriers, or on other connections.
async fn wait_for_answer(
    stream: &mut TcpStream,
    id: u64,
    limits: AnswerLimits,
    progress: &SharedProgress,
) -> Result<(), UnsettledError> {
    let mut buffer = BytesMut::new();
    let mut limit = limits.first;
    let mut deadline = Instant::now() + limit;
    loop {
        let read = tokio::select! {
            biased;
            read = stream.read_buf(&mut buffer) => Some(read),
            () = sleep_until_running(deadline) => None,
        };
        match read {
            Some(Ok(0)) => return Err(UnsettledError::Closed),
            Some(Err(error)) => return Err(UnsettledError::Write(error)),
            Some(Ok(_)) => {}
            None => match progress.on_overdue(limit) {
                OverdueDecision::GiveUp => {
                    progress.note_given_up();
                    return Err(UnsettledError::Unanswered(limit));
                }
                OverdueDecision::WaitOn(rest) => deadline = Instant::now() + rest,
            },
        }
        while let Some(answered) = next_answer(&mut buffer) {
            progress.note_answer();
            if answered == id {
                return Ok(());
            }
            limit = limits.next;
            deadline = Instant::now() + limit;
        }
    }
}

/// Takes the next whole message from the buffer; returns the number of its id if it is a response. The dead
/// process may have read part of the first message, so everything before the next header is skipped.
fn next_answer(buffer: &mut BytesMut) -> Option<u64> {
    loop {
        let start = memchr::memmem::find(buffer, HEADER_NAME)?;
        buffer.advance(start);
        let mut rest = buffer.clone();
        let body = match FrameDecoder::default().decode(&mut rest) {
            Ok(Some(body)) => body,
            Ok(None) => return None,
            Err(_) => {
                buffer.advance(HEADER_NAME.len());
                continue;
            }
        };
        *buffer = rest;
        if let Ok(RpcMessage::Response { id: rpc::RequestId::Number(number), .. }) = rpc::parse(&body)
            && let Ok(number) = number.parse()
        {
            return Some(number);
        }
    }
}

/// Waits until the kernel of a client without answers has acknowledged everything.
async fn wait_for_delivery(stream: &TcpStream, limit: Duration) -> Result<ProofLevel, UnsettledError> {
    let deadline = Instant::now() + limit;
    loop {
        if let Ok(Some(error)) = stream.take_error() {
            return Err(UnsettledError::Write(error));
        }
        if matches!(heeler_sys::io::unacknowledged_bytes(stream.as_fd()), Ok(0)) {
            return Ok(ProofLevel::Delivered);
        }
        if Instant::now() >= deadline {
            return Err(UnsettledError::Unanswered(limit));
        }
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use heeler_protocol::mtp::BarrierMethod;

    use super::*;

    #[test]
    fn rest_of_stream_completes_the_frame_and_an_earlier_holders_barrier() {
        let method = BarrierMethod::Notified;
        let barrier = |holder: StreamHolder| mtp::barrier_frame(method, holder.barrier_id(), "r").to_vec();
        let (first, second) = (barrier(StreamHolder::Coordinator), barrier(StreamHolder::Watchdog));
        let whole = [b"frame".to_vec(), first.clone(), second.clone()].concat();
        let mark = StreamMark { run: "r".into(), ..StreamMark::default() };
        let rest = |written, holder| rest_of_stream(b"frame", &mark, written, holder);
        for written in 0..=5 {
            let expected = [&b"frame"[written..], &first[..]].concat();
            assert_eq!(rest(written, StreamHolder::Coordinator), expected);
        }
        assert_eq!(rest(5, StreamHolder::Watchdog), second, "the coordinator has written nothing");
        for written in 6..=5 + first.len() {
            assert_eq!(rest(written, StreamHolder::Watchdog), whole[written..]);
        }
        let completion = StreamMark { completing: Some("/runs/r".into()), ..mark };
        let behind = rest_of_stream(b"frame", &completion, 5, StreamHolder::Coordinator);
        let id = StreamHolder::Coordinator.barrier_id();
        let expected = mtp::completion_barrier_frame(method, id, "r");
        assert_eq!(behind, expected, "no update follows a completion");
    }

    #[test]
    fn answers_are_found_behind_a_part_of_a_message() {
        let answer = |id: u64| rpc::encode_result(&rpc::RequestId::number(id), &());
        let whole = [answer(1), answer(2), answer(1_000_000_001)].concat();
        for read in 0..=answer(1).len() {
            let mut buffer = BytesMut::from(&whole[read..]);
            let mut found = Vec::new();
            while let Some(id) = next_answer(&mut buffer) {
                found.push(id);
            }
            let expected: &[u64] = if read == 0 { &[1, 2, 1_000_000_001] } else { &[2, 1_000_000_001] };
            assert_eq!(found, expected, "after {read} bytes");
        }
        // A message that has not fully arrived stays in the buffer.
        let mut buffer = BytesMut::from(&whole[..answer(1).len() + 10]);
        assert_eq!([next_answer(&mut buffer), next_answer(&mut buffer)], [Some(1), None]);
        buffer.extend_from_slice(&whole[answer(1).len() + 10..]);
        assert_eq!(next_answer(&mut buffer), Some(2));
    }
}
