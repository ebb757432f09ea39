//! Callback connection: sending with a stall timeout, and the proofs of what the client has read. Messages
//! from the client are read in `peer`.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use bytes::Bytes;
use heeler_protocol::{
    control::{CallbackAddress, CallbackEndpoint, DeliveryLimits, ProofLevel},
    frame::FrameDecoder,
    mtp::{HelloParams, method},
    rpc::{self, RequestId},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::peer::{self, PeerEnd, PeerState};
use crate::{
    LinkTask, Outbox, TrySendError,
    local::{self, ConnectError},
    tcp::{self, DialError},
};

/// Maximum duration of a drain with progress, as a multiple of its limit.
const DRAIN_LIMIT_FACTOR: u32 = 6;

/// Reason why nothing more can be sent on a callback connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallbackBroken {
    /// The client closed or reset it.
    #[error("send to the client's callback port: the client closed the connection")]
    Closed,
    /// The client read nothing for `stall_ms` while there was something to send.
    #[error("send to the client's callback port: the client has stopped reading")]
    Stalled,
}

/// Error of dialling a client's callback listener.
#[derive(Debug, thiserror::Error)]
pub enum CallbackDialError {
    /// The client's port was not reached.
    #[error(transparent)]
    TcpPort(#[from] DialError),
    /// The client's local socket was not reached.
    #[error(transparent)]
    LocalSocket(#[from] ConnectError),
    /// The connection broke before its first message, or there are no descriptors left.
    #[error("introduce itself to the client's callback port")]
    Introduce(#[source] io::Error),
}

/// Second descriptor of a connection's socket, for socket state that the two halves don't expose.
#[derive(Debug)]
enum SocketHandle {
    Tcp(TcpStream),
    Local(UnixStream),
}

impl SocketHandle {
    fn of_tcp(stream: &TcpStream) -> io::Result<Self> {
        TcpStream::from_std(stream.as_fd().try_clone_to_owned()?.into()).map(Self::Tcp)
    }

    fn of_local(stream: &UnixStream) -> io::Result<Self> {
        UnixStream::from_std(stream.as_fd().try_clone_to_owned()?.into()).map(Self::Local)
    }

    /// Returns the pending error of the socket, and clears it.
    fn take_error(&self) -> io::Result<Option<io::Error>> {
        match self {
            Self::Tcp(socket) => socket.take_error(),
            Self::Local(socket) => socket.take_error(),
        }
    }

    /// Makes the following close discard all bytes that the peer's kernel has not received yet. Those of a
    /// local socket are received as soon as they are written.
    fn discard_unsent(&self) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.set_zero_linger(),
            Self::Local(_) => Ok(()),
        }
    }
}

impl AsFd for SocketHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Local(socket) => socket.as_fd(),
        }
    }
}

/// Connection to a client's callback port.
///
/// If it is dropped while it is broken or unproven, it is reset: the content of its kernel buffer is
/// discarded, because the sender is about to send the same results on another route.
#[derive(Debug)]
pub struct CallbackConnection {
    pub(super) outbox: Outbox,
    task: LinkTask,
    /// Task of the background reader.
    reader: JoinSet<()>,
    pub(super) peer: watch::Receiver<PeerState>,
    socket: SocketHandle,
    limits: DeliveryLimits,
    broken: Option<CallbackBroken>,
    barriers: u64,
}

/// Dials a client's callback listener and introduces this end as `from` (`worker 3`) if the listener requires a
/// token. The client's requests are answered in the background.
///
/// Cancel safe: yes, because a half-made connection is dropped.
///
/// # Errors
/// The listener is not reached within `limits.connect_ms`.
///
/// # Panics
/// Outside a tokio runtime.
pub async fn dial(
    address: &CallbackAddress,
    limits: &DeliveryLimits,
    from: &str,
) -> Result<CallbackConnection, CallbackDialError> {
    let deadline = Instant::now() + Duration::from_millis(limits.connect_ms);
    let callback = match &address.endpoint {
        CallbackEndpoint::TcpPort { host, port } => {
            let stream = tcp::dial(host, *port, deadline).await?;
            let socket = SocketHandle::of_tcp(&stream).map_err(CallbackDialError::Introduce)?;
            CallbackConnection::open(stream, socket, *limits)
        }
        CallbackEndpoint::LocalSocket { name } => {
            let stream = local::connect_abstract(name, deadline).await?;
            let socket = SocketHandle::of_local(&stream).map_err(CallbackDialError::Introduce)?;
            CallbackConnection::open(stream, socket, *limits)
        }
    };
    if let Some(token) = &address.token {
        let hello = HelloParams { token: token.clone(), from: from.to_owned() };
        let frame = rpc::encode_notification(method::HELLO, &hello);
        let sent = callback.outbox.send(frame).await;
        sent.map_err(|closed| CallbackDialError::Introduce(into_io(closed)))?;
    }
    Ok(callback)
}

fn into_io(closed: crate::LinkClosed) -> io::Error {
    closed.cause.map_or_else(|| io::ErrorKind::NotConnected.into(), io::Error::other)
}

impl CallbackConnection {
    fn open<S>(stream: S, socket: SocketHandle, limits: DeliveryLimits) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (outbox, inbox, task) = crate::open(stream, FrameDecoder::default());
        let (state, peer) = watch::channel(PeerState::default());
        let mut reader = JoinSet::new();
        reader.spawn(peer::read(inbox, outbox.clone(), state));
        Self { outbox, task, reader, peer, socket, limits, broken: None, barriers: 0 }
    }

    /// Queues one frame, waiting while a megabyte is queued.
    ///
    /// Cancel safe: yes, because the frame is queued in one step after the wait; a cancelled call has sent
    /// nothing.
    ///
    /// # Errors
    /// The connection is broken, now or since an earlier call. What the client has of earlier frames is
    /// unproven, and nothing more can be sent here.
    pub async fn send(&mut self, frame: Bytes) -> Result<(), CallbackBroken> {
        if let Some(broken) = self.break_reason().copied() {
            return Err(*self.broken.insert(broken));
        }
        match self.outbox.try_send(frame) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(frame)) => {
                let limit = Duration::from_millis(self.limits.stall_ms);
                self.send_waiting(frame, WaitLimits { limit, end: None }).await
            }
            Err(TrySendError::Closed(_)) => Err(*self.broken.insert(CallbackBroken::Closed)),
        }
    }

    async fn send_waiting(&mut self, frame: Bytes, watch: WaitLimits) -> Result<(), CallbackBroken> {
        let sent = tokio::select! {
            biased;
            sent = self.outbox.send(frame) => sent.map_err(|_| CallbackBroken::Closed),
            () = wait_for_peer_end(self.peer.clone()) => Err(CallbackBroken::Closed),
            () = wait_for_stall(&self.outbox, &self.socket, watch) => Err(CallbackBroken::Stalled),
        };
        sent.map_err(|broken| *self.broken.insert(broken))
    }

    /// Proves that the client has read everything sent: sends a request that no client knows, and waits for
    /// its answer. The connection stays usable if the proof is [`ProofLevel::Answered`].
    ///
    /// The wait ends `drain_ms` after the client last took bytes, and in any case after six times `drain_ms`.
    /// The proof is then [`ProofLevel::DeliveryResult`] if the client's kernel acknowledged every byte, otherwise
    /// [`ProofLevel::None`].
    ///
    /// Cancel safe: yes, because a late answer to a barrier that no caller waits for is ignored.
    pub async fn prove(&mut self) -> ProofLevel {
        if self.break_reason().is_some() {
            return self.kernel_proof();
        }
        let watch = self.drain_limits();
        self.barriers += 1;
        let id = RequestId::String(peer::barrier_id(self.barriers).into());
        let request = rpc::encode_request(&id, method::BARRIER, &serde_json::Map::new());
        if self.send_waiting(request, watch).await.is_err() {
            return self.kernel_proof();
        }
        match self.wait_for_peer(watch).await {
            PeerResponse::Answer => ProofLevel::Answered,
            PeerResponse::End | PeerResponse::Nothing => self.kernel_proof(),
        }
    }

    /// Proves delivery as [`Self::prove`] does and closes the connection. For a client that does not answer
    /// there is a second proof: this end half-closes, and a client that reads to the end and closes has
    /// proven it ([`ProofLevel::LinkClosed`]).
    ///
    /// Below these proof levels the connection is reset, so that unread results do not arrive twice by two
    /// routes.
    ///
    /// Cancel safe: no, because the connection is given up with the call.
    pub async fn finish(mut self) -> ProofLevel {
        let proof = match self.prove().await {
            ProofLevel::Answered => ProofLevel::Answered,
            below => self.wait_for_close().await.unwrap_or(below),
        };
        self.outbox.close();
        if proof.is_enough() {
            let flushed = Duration::from_millis(self.limits.drain_ms);
            // The proof already holds; only answers to the client's own requests are left to write.
            drop(tokio::time::timeout(flushed, self.task.join()).await);
        } else {
            self.reset();
        }
        self.reader.shutdown().await;
        self.task.cut().await;
        proof
    }

    /// Returns the reason why nothing more can be sent, if there is one.
    #[must_use]
    pub fn break_reason(&self) -> Option<&CallbackBroken> {
        self.broken.as_ref().or_else(|| {
            let is_over = self.peer.borrow().ended.is_some() || self.outbox.is_closed();
            is_over.then_some(&CallbackBroken::Closed)
        })
    }

    /// Half-closes and waits until the client closes too; `None` if that proves nothing.
    async fn wait_for_close(&mut self) -> Option<ProofLevel> {
        if self.break_reason().is_some() {
            return None;
        }
        self.outbox.close();
        Some(match self.wait_for_peer(self.drain_limits()).await {
            // A late answer still proves delivery, because the barrier followed everything else.
            PeerResponse::Answer => ProofLevel::Answered,
            // A peer that closes with unread bytes resets the connection, and one that closes before it has
            // received them leaves them unacknowledged: only an orderly end with nothing outstanding proves
            // that it read to our end of stream.
            PeerResponse::End if self.kernel_has_all() => ProofLevel::Closed,
            PeerResponse::End => ProofLevel::None,
            PeerResponse::Nothing => self.kernel_proof(),
        })
    }

    /// Waits for the answer to the latest barrier, for the peer's end, or until the peer times out.
    async fn wait_for_peer(&self, watch: WaitLimits) -> PeerResponse {
        let barrier = self.barriers;
        let mut peer = self.peer.clone();
        tokio::select! {
            biased;
            seen = peer.wait_for(|peer| peer.answered >= barrier || peer.ended.is_some()) => match seen {
                Ok(peer) if peer.answered >= barrier => PeerResponse::Answer,
                Ok(_) | Err(_) => PeerResponse::End,
            },
            () = wait_for_stall(&self.outbox, &self.socket, watch) => PeerResponse::Nothing,
        }
    }

    fn drain_limits(&self) -> WaitLimits {
        let limit = Duration::from_millis(self.limits.drain_ms);
        WaitLimits { limit, end: Some(Instant::now() + limit * DRAIN_LIMIT_FACTOR) }
    }

    fn kernel_proof(&self) -> ProofLevel {
        if self.kernel_has_all() { ProofLevel::Delivered } else { ProofLevel::None }
    }

    /// Returns whether the peer's kernel acknowledged every byte, and nothing indicates that it discarded
    /// some.
    fn kernel_has_all(&self) -> bool {
        let is_reset = matches!(self.peer.borrow().ended, Some(PeerEnd::Failed))
            || !matches!(self.socket.take_error(), Ok(None));
        let is_written = self.outbox.backlog_bytes() == 0;
        let unacknowledged = heeler_sys::io::unacknowledged_bytes(self.socket.as_fd());
        !is_reset && is_written && matches!(unacknowledged, Ok(0))
    }

    /// Makes the following close discard all bytes that the kernel has not sent yet.
    fn reset(&self) {
        if let Err(error) = self.socket.discard_unsent() {
            tracing::debug!(%error, "could not ask for a reset of a broken callback connection");
        }
    }
}

impl Drop for CallbackConnection {
    fn drop(&mut self) {
        if self.broken.is_some() {
            self.reset();
        }
    }
}

/// Waits until the peer's side has ended.
pub(super) async fn wait_for_peer_end(mut peer: watch::Receiver<PeerState>) {
    // An error means that the reader task is gone, which is an end too.
    drop(peer.wait_for(|peer| peer.ended.is_some()).await);
}

/// Result of waiting for a peer's proof.
enum PeerResponse {
    Answer,
    End,
    Nothing,
}

/// Timeouts of a peer.
#[derive(Clone, Copy)]
struct WaitLimits {
    /// Limit without progress.
    limit: Duration,
    /// Limit in any case.
    end: Option<Instant>,
}

/// Waits until the peer has taken no bytes for the limit, or until the end.
async fn wait_for_stall(outbox: &Outbox, socket: &SocketHandle, watch: WaitLimits) {
    // Interval between two checks of progress; a peer may get this much more than its limit.
    let look = (watch.limit / 8).clamp(Duration::from_millis(1), Duration::from_millis(250));
    let mut best = taken_bytes(outbox, socket);
    let mut since = Instant::now();
    loop {
        let now = Instant::now();
        let taken = taken_bytes(outbox, socket);
        if taken > best {
            best = taken;
            since = now;
        }
        if now >= since + watch.limit || watch.end.is_some_and(|end| now >= end) {
            return;
        }
        let next = now + look;
        sleep_until(watch.end.map_or(next, |end| end.min(next))).await;
    }
}

/// Returns the number of bytes that the peer's kernel has acknowledged since the start; over a local socket, those
/// that the peer has read.
fn taken_bytes(outbox: &Outbox, socket: &SocketHandle) -> u64 {
    let pending = heeler_sys::io::unacknowledged_bytes(socket.as_fd()).unwrap_or(0);
    outbox.written_bytes().saturating_sub(pending as u64)
}
