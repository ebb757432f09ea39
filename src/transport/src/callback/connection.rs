//! Callback connection: sending within the windows that the client acknowledges, and the proofs of what it
//! has handled. Messages from the client are read in `peer`.

use std::{io, os::fd::AsFd, sync::Arc, time::Duration};

use bytes::Bytes;
use heeler_core::{
    ack_window::{AckWindow, AnswerState, WindowLimits},
    client_progress::OverdueDecision,
};
use heeler_protocol::{
    control::{CallbackAddress, CallbackEndpoint, DeliveryLimits, OsText, ProofLevel},
    frame::FrameDecoder,
    mtp::{self, HelloParams, method},
    rpc,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
    task::JoinSet,
    time::Instant,
};

use super::{
    client_progress::SharedProgress,
    connection_record::{ConnectionRecord, StreamHolders},
    peer::{self, PeerEnd, PeerState},
    positions::StreamPositions,
    socket::{SocketHandle, WaitLimits, wait_for_stall},
    stream_record::{StreamRecord, StreamRecorder},
};
use crate::{
    LinkTask, Outbox, TrySendError,
    local::{self, ConnectError},
    running_time::sleep_until_running,
    tcp::{self, DialError, PromptTcpStream},
    writer::FrameRecorder,
};

/// Maximum duration of a wait for the kernel of a client that does not answer, as a multiple of its limit.
const DRAIN_LIMIT_FACTOR: u32 = 6;

/// Interval at which the kernel's acknowledgements are checked while a client that does not answer drains.
const DELIVERY_CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// Reason why nothing more can be sent on a callback connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallbackBroken {
    /// The client closed or reset it.
    #[error("send to the client's callback port: the client closed the connection")]
    Closed,
    /// The client read nothing for `stall_ms` while there was something to send.
    #[error("send to the client's callback port: the client has stopped reading")]
    Stalled,
    /// The client answered no barrier for `answer_ms`, after it had answered earlier ones.
    #[error("send to the client's callback port: the client has stopped handling updates")]
    Unanswered,
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

/// Connection to a client's callback port.
///
/// If it is dropped while it is broken or unproven, it is reset: the content of its kernel buffer is
/// discarded, because the sender is about to send the same results on another route.
#[derive(Debug)]
pub struct CallbackConnection {
    pub(super) outbox: Outbox,
    pub(super) task: LinkTask,
    /// Task of the background reader.
    pub(super) reader: JoinSet<()>,
    pub(super) peer: watch::Receiver<PeerState>,
    socket: SocketHandle,
    limits: DeliveryLimits,
    broken: Option<CallbackBroken>,
    window: AckWindow,
    /// The run of the latest frame: barriers name it.
    run: String,
    /// When the first barrier counts as unanswered; `None` before it is sent.
    first_answer_deadline: Option<Instant>,
    /// When the latest answer was seen.
    answered_at: Instant,
    /// Number of the latest barrier whose answer was seen.
    answered: u64,
    positions: StreamPositions,
    /// What the client answers on all its connections.
    progress: Arc<SharedProgress>,
    /// The record of the connection, if duplicates of it are held.
    record: Option<ConnectionRecord>,
}

/// Dials a client's callback listener and introduces this end as `from` (`worker 3`) if the listener requires
/// a token. The client's requests are answered in the background.
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
    holders: Option<&StreamHolders>,
) -> Result<CallbackConnection, CallbackDialError> {
    let deadline = Instant::now() + Duration::from_millis(limits.connect_ms);
    let progress = Arc::new(holders.map(StreamHolders::shared_progress).unwrap_or_default());
    let callback = match &address.endpoint {
        CallbackEndpoint::TcpPort { host, port } => {
            let stream = tcp::dial(host, *port, deadline).await?;
            let socket = SocketHandle::of_tcp(&stream).map_err(CallbackDialError::Introduce)?;
            let record = holders.and_then(|holders| holders.hand_over(socket.as_fd(), limits));
            CallbackConnection::open(PromptTcpStream::new(stream), socket, *limits, progress, record)
        }
        CallbackEndpoint::LocalSocket { name } => {
            let stream = local::connect_abstract(name, deadline).await?;
            let socket = SocketHandle::of_local(&stream).map_err(CallbackDialError::Introduce)?;
            // Both ends are this program, and the number of bytes that such a socket has accepted is not
            // known.
            CallbackConnection::open(stream, socket, *limits, progress, None)
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
    fn open<S>(
        stream: S,
        socket: SocketHandle,
        limits: DeliveryLimits,
        progress: Arc<SharedProgress>,
        record: Option<Arc<StreamRecord>>,
    ) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let recorder = record.as_ref().map(|record| {
            let recorder: Box<dyn FrameRecorder> = Box::new(StreamRecorder::new(Arc::clone(record)));
            recorder
        });
        let (outbox, inbox, task) = crate::open_with(
            stream,
            FrameDecoder::default(),
            crate::WriterOptions { recorder, heartbeat: None },
        );
        let (state, peer) = watch::channel(PeerState::default());
        let mut reader = JoinSet::new();
        reader.spawn(peer::read(inbox, outbox.clone(), state, Arc::clone(&progress)));
        Self {
            outbox,
            task,
            reader,
            peer,
            socket,
            limits,
            broken: None,
            window: AckWindow::new(WindowLimits::default()),
            run: String::new(),
            first_answer_deadline: None,
            answered_at: Instant::now(),
            answered: 0,
            positions: StreamPositions::default(),
            progress,
            record: record.map(ConnectionRecord::new),
        }
    }

    /// Queues one frame of a run, which holds this number of changes: waits while the client has not handled
    /// what was sent before, up to its windows. The first frame follows a barrier, and the last one of a
    /// window is followed by one.
    ///
    /// Cancel safe: no, because it is unknown whether the frame was queued.
    ///
    /// # Errors
    /// The connection is broken, now or since an earlier call. What the client has of the frames behind
    /// [`Self::handled_frames`] is unproven, and nothing more can be sent here.
    pub async fn send(&mut self, run: &str, frame: Bytes, changes: usize) -> Result<(), CallbackBroken> {
        if self.run != run {
            run.clone_into(&mut self.run);
        }
        if let Some(barrier) = self.window.before_frame() {
            self.start_first_answer_limit();
            self.write_barrier(barrier).await?;
        }
        self.wait_for_room().await?;
        let bytes = frame.len();
        self.positions.on_frame(run, self.is_client_silent());
        let mark = self.next_mark(None);
        self.write_marked(frame, mark).await?;
        match self.window.on_frame(changes, bytes) {
            Some(barrier) => self.write_barrier(barrier).await,
            None => Ok(()),
        }
    }

    /// Queues the completion of a run, of which everything is proven; `run_dir` names the run in the
    /// connection's record. [`Self::prove_completion`] follows.
    ///
    /// Cancel safe: no, because it is unknown whether the frame was queued.
    ///
    /// # Errors
    /// The connection is broken.
    pub async fn send_completion(
        &mut self,
        run: &str,
        run_dir: &OsText,
        frame: Bytes,
    ) -> Result<(), CallbackBroken> {
        run.clone_into(&mut self.run);
        self.positions.forget(run);
        let mark = self.next_mark(Some(run_dir));
        self.write_marked(frame, mark).await
    }

    /// Returns the mark of the next frame of the present run, if there is a record.
    fn next_mark(&mut self, completing: Option<&OsText>) -> Option<Bytes> {
        let answers = self.window.answers();
        let record = self.record.as_mut()?;
        Some(record.next_mark(&self.run, completing, &self.positions, answers))
    }

    /// Proves that the client has handled the completion, as [`Self::prove`] does for updates: a client may
    /// not handle the response of the run, which another connection carries, before it. No barrier of updates
    /// may follow a completion, so a line for the client's log is its barrier.
    ///
    /// Cancel safe: yes, as [`Self::prove`].
    pub async fn prove_completion(&mut self) -> ProofLevel {
        self.start_first_answer_limit();
        let barrier = self.window.open_barrier();
        let frame = mtp::completion_barrier_frame(barrier, &self.run);
        if self.write(frame).await.is_err() {
            return ProofLevel::None;
        }
        let proof = self.wait_for_proof(|connection| connection.answered >= barrier).await;
        if let Some(record) = self.record.as_mut().filter(|_| proof == ProofLevel::Handled) {
            record.set_completed();
        }
        proof
    }

    /// Returns whether the client answers barriers here: asks it, if that is not known, and waits for the
    /// answer to the first barrier as long as it may take. The run must not be complete.
    ///
    /// Cancel safe: yes, because a late answer is still counted.
    pub async fn probe(&mut self, run: &str) -> bool {
        self.note_answers();
        match self.window.answers() {
            AnswerState::Answering => return true,
            AnswerState::Silent => return false,
            AnswerState::Unknown => {}
        }
        run.clone_into(&mut self.run);
        self.start_first_answer_limit();
        let barrier = self.window.open_barrier();
        self.write_barrier(barrier).await.is_ok()
            && self.wait_for_proof(|connection| connection.answered >= barrier).await == ProofLevel::Handled
    }

    fn start_first_answer_limit(&mut self) {
        let limit = Duration::from_millis(self.limits.first_answer_ms);
        self.first_answer_deadline.get_or_insert_with(|| Instant::now() + limit);
    }

    /// Returns the number of frames that the client is proven to have handled, of all that were sent.
    pub fn handled_frames(&mut self) -> u64 {
        self.note_answers();
        self.window.handled_frames()
    }

    /// Returns whether the client is known to answer no barriers.
    #[must_use]
    pub fn is_client_silent(&self) -> bool {
        self.window.answers() == AnswerState::Silent
    }

    /// Has the client count as one that answers no barriers until it answers one, without waiting for it.
    pub fn expect_no_answers(&mut self) {
        self.window.on_first_answer_overdue();
    }

    async fn write_barrier(&mut self, barrier: u64) -> Result<(), CallbackBroken> {
        self.write(mtp::barrier_frame(barrier, &self.run)).await
    }

    /// Sets the number of results of a run, or of frames, that are sent including the next frame.
    pub fn set_position(&mut self, run: &str, position: u64) {
        self.positions.set(run, position);
    }

    /// Returns the position of a run up to which the client is proven to have handled it here.
    pub fn handled_position(&mut self, run: &str) -> u64 {
        self.note_answers();
        self.positions.handled(run)
    }

    /// Records that the client has handled everything of a run up to a position, and that nothing more of it
    /// is sent here: whoever brings the connection to an end still learns it.
    pub fn drain_run(&mut self, run: &str, position: u64) {
        self.positions.drain(run, position);
    }

    /// Forgets a run of which nothing more is to be known.
    pub fn forget_run(&mut self, run: &str) {
        self.positions.forget(run);
    }

    async fn write(&mut self, frame: Bytes) -> Result<(), CallbackBroken> {
        self.write_marked(frame, None).await
    }

    async fn write_marked(&mut self, frame: Bytes, mark: Option<Bytes>) -> Result<(), CallbackBroken> {
        if let Some(broken) = self.break_reason().copied() {
            return Err(*self.broken.insert(broken));
        }
        match self.outbox.try_send_marked(frame, mark.clone()) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(frame)) => self.write_waiting(frame, mark).await,
            Err(TrySendError::Closed(_)) => Err(*self.broken.insert(CallbackBroken::Closed)),
        }
    }

    async fn write_waiting(&mut self, frame: Bytes, mark: Option<Bytes>) -> Result<(), CallbackBroken> {
        let watch = WaitLimits { limit: Duration::from_millis(self.limits.stall_ms), end: None };
        let sent = tokio::select! {
            biased;
            sent = self.outbox.send_marked(frame, mark) => sent.map_err(|_| CallbackBroken::Closed),
            () = wait_for_peer_end(self.peer.clone()) => Err(CallbackBroken::Closed),
            () = wait_for_stall(&self.outbox, &self.socket, watch) => Err(CallbackBroken::Stalled),
        };
        sent.map_err(|broken| *self.broken.insert(broken))
    }

    /// Waits until the client has handled enough that another frame may be sent.
    async fn wait_for_room(&mut self) -> Result<(), CallbackBroken> {
        let since = Instant::now();
        loop {
            self.note_answers();
            if self.window.has_room() {
                return Ok(());
            }
            if self.wait_for_answer(since).await == AnswerWait::Overdue {
                return Err(*self.broken.insert(CallbackBroken::Unanswered));
            }
            if let Some(broken) = self.break_reason().copied() {
                return Err(*self.broken.insert(broken));
            }
        }
    }

    /// Waits for an answer that was not seen yet, or until the client's side ends, up to the limit for
    /// answers since the latest one and since `since`. For a client that answers on another connection, the
    /// limit counts from there.
    async fn wait_for_answer(&mut self, since: Instant) -> AnswerWait {
        let (limit, mut deadline) = match (self.window.answers(), self.first_answer_deadline) {
            (AnswerState::Unknown, Some(deadline)) => (self.limits.first_answer_ms, deadline),
            _ => {
                let limit = self.limits.answer_ms;
                (limit, self.answered_at.max(since) + Duration::from_millis(limit))
            }
        };
        let answered = self.answered;
        let mut peer = self.peer.clone();
        loop {
            tokio::select! {
                biased;
                // An error means that the reader's task is gone, which is an end too.
                _ = peer.wait_for(|peer| peer.answered > answered || peer.ended.is_some()) => {
                    return AnswerWait::Changed;
                }
                () = sleep_until_running(deadline) => {}
            }
            match self.progress.on_overdue(Duration::from_millis(limit)) {
                OverdueDecision::GiveUp => return AnswerWait::Overdue,
                OverdueDecision::WaitOn(rest) => deadline = Instant::now() + rest,
            }
            self.first_answer_deadline = self.first_answer_deadline.map(|first| first.max(deadline));
        }
    }

    /// Notes the answers that have arrived.
    fn note_answers(&mut self) {
        let answered = self.peer.borrow().answered;
        if answered > self.answered {
            self.answered = answered;
            self.answered_at = Instant::now();
            self.window.on_answer(answered);
        }
        self.positions.on_handled(self.window.handled_frames());
    }

    /// Proves that the client has handled everything sent: waits for the answer to a barrier behind it. The
    /// connection stays usable if the proof is enough.
    ///
    /// A client that answers is waited for as long as it answers something every `answer_ms`. One that has
    /// not answered the first barrier within `first_answer_ms` is not waited for: the proof is then
    /// [`ProofLevel::Delivered`] as soon as its kernel has acknowledged every byte, and [`ProofLevel::None`]
    /// if it takes none for `drain_ms`.
    ///
    /// Cancel safe: yes, because a late answer to a barrier that no caller waits for is still counted.
    pub async fn prove(&mut self) -> ProofLevel {
        let proof = self.prove_all().await;
        if let Some(record) = self.record.as_mut().filter(|_| proof == ProofLevel::Handled) {
            record.set_proven();
        }
        proof
    }

    async fn prove_all(&mut self) -> ProofLevel {
        self.note_answers();
        if let Some(barrier) = self.window.final_barrier()
            && self.write_barrier(barrier).await.is_err()
        {
            return ProofLevel::None;
        }
        self.wait_for_proof(|connection| connection.window.is_all_handled()).await
    }

    /// Waits until something is proven by answers, or can't be.
    async fn wait_for_proof(&mut self, is_proven: impl Fn(&Self) -> bool) -> ProofLevel {
        let since = Instant::now();
        loop {
            self.note_answers();
            if is_proven(self) {
                return ProofLevel::Handled;
            }
            if self.break_reason().is_some() {
                return ProofLevel::None;
            }
            if self.is_client_silent() {
                return self.prove_delivery().await;
            }
            match (self.wait_for_answer(since).await, self.window.answers()) {
                (AnswerWait::Changed, _) => {}
                (AnswerWait::Overdue, AnswerState::Unknown) => self.window.on_first_answer_overdue(),
                (AnswerWait::Overdue, AnswerState::Answering | AnswerState::Silent) => {
                    return ProofLevel::None;
                }
            }
        }
    }

    /// Waits until the client's kernel has acknowledged everything, as long as it takes bytes every
    /// `drain_ms`: [`ProofLevel::Delivered`] or [`ProofLevel::None`].
    ///
    /// Cancel safe: yes, because it only watches.
    pub async fn prove_delivery(&mut self) -> ProofLevel {
        let limit = Duration::from_millis(self.limits.drain_ms);
        let watch = WaitLimits { limit, end: Some(limit * DRAIN_LIMIT_FACTOR) };
        let delivered = async {
            while !self.kernel_has_all() {
                if self.break_reason().is_some() {
                    return ProofLevel::None;
                }
                tokio::time::sleep(DELIVERY_CHECK_INTERVAL).await;
            }
            ProofLevel::Delivered
        };
        tokio::select! {
            biased;
            proof = delivered => proof,
            () = wait_for_stall(&self.outbox, &self.socket, watch) => ProofLevel::None,
        }
    }

    /// Proves delivery as [`Self::prove`] does and closes the connection. The close itself proves nothing:
    /// some clients close as soon as they have read the end of the stream, with updates in their own queue.
    ///
    /// Without a proof the connection is reset, as by [`Self::give_up`].
    ///
    /// Cancel safe: no, because the connection is given up with the call.
    pub async fn finish(mut self) -> ProofLevel {
        let proof = self.prove().await;
        if !proof.is_enough() {
            self.give_up().await;
            return proof;
        }
        self.outbox.close();
        let flushed = Duration::from_millis(self.limits.drain_ms);
        // The proof already holds; only answers to the client's own requests are left to write.
        drop(tokio::time::timeout(flushed, self.task.join()).await);
        self.reader.shutdown().await;
        self.task.cut().await;
        proof
    }

    /// Resets the connection: what the client's kernel has not received is discarded, so that it does not
    /// arrive late beside the same results on another route.
    ///
    /// Cancel safe: yes, because dropping the connection resets it too.
    pub async fn give_up(mut self) {
        self.broken.get_or_insert(CallbackBroken::Unanswered);
        self.outbox.close();
        self.reset();
        self.reader.shutdown().await;
        self.task.cut().await;
    }

    /// Returns the reason why nothing more can be sent, if there is one.
    #[must_use]
    pub fn break_reason(&self) -> Option<&CallbackBroken> {
        self.broken.as_ref().or_else(|| {
            // A client that has closed its sending side may still read, but can't answer any more.
            let is_over = self.peer.borrow().ended.is_some() || self.outbox.is_closed();
            is_over.then_some(&CallbackBroken::Closed)
        })
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
async fn wait_for_peer_end(mut peer: watch::Receiver<PeerState>) {
    // An error means that the reader task is gone, which is an end too.
    drop(peer.wait_for(|peer| peer.ended.is_some()).await);
}

/// Result of waiting for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AnswerWait {
    /// There is an answer, or the client's side has ended.
    Changed,
    Overdue,
}
