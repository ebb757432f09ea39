//! Callback connection: sends within the windows that the client acknowledges, and proves what the client has
//! handled. Messages from the client are read in `peer`.

use std::{io, os::fd::AsFd, sync::Arc, time::Duration};

use bytes::Bytes;
use heeler_core::{
    ack_window::{AckWindow, AnswerState, WindowLimits},
    client_progress::{AnswerLimits, OverdueDecision},
};
use heeler_protocol::{
    control::{CallbackAddress, DeliveryLimits, OsText},
    frame::FrameDecoder,
    mtp::{self, BarrierMethod, HelloParams, method},
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
    running_time::sleep_until_running,
    tcp::{self, DialError, PromptTcpStream},
    writer::FrameRecorder,
};

/// Why nothing more can be sent on a callback connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallbackBroken {
    /// The client closed or reset the connection.
    #[error("send to the client's callback port: the client closed the connection")]
    Closed,
    /// The client read nothing for `stall_ms` while there was something to send.
    #[error("send to the client's callback port: the client has stopped reading")]
    Stalled,
    /// The client answered no barrier for `answer_ms`, although it had answered earlier ones.
    #[error("send to the client's callback port: the client has stopped handling updates")]
    Unanswered,
    /// The client did not answer the opening barrier in time, and no update was sent.
    #[error("connect to the client's callback port: the client did not answer a request there in time")]
    Unopened,
    /// The peer is not a client: it has sent a message that only clients receive.
    #[error(
        "connect to the client's callback port: the listener is not a test client, because it sends a server's messages"
    )]
    NoClient,
}

/// Error of dialling a client's callback listener.
#[derive(Debug, thiserror::Error)]
pub enum CallbackDialError {
    /// The client's port could not be reached.
    #[error(transparent)]
    TcpPort(#[from] DialError),
    /// The connection broke before its first message, or this process has no descriptors left.
    #[error("send the first messages to the client's callback port")]
    Introduce(#[source] io::Error),
}

/// Connection to a client's callback port.
///
/// A broken or unproven connection is reset when it is dropped. The reset discards the kernel's buffer,
/// because the same results will be sent on another route.
#[derive(Debug)]
pub struct CallbackConnection {
    pub(super) outbox: Outbox,
    pub(super) task: LinkTask,
    /// Task of the background reader.
    pub(super) reader: JoinSet<()>,
    pub(super) peer: watch::Receiver<PeerState>,
    pub(super) socket: SocketHandle,
    pub(super) limits: DeliveryLimits,
    broken: Option<CallbackBroken>,
    pub(super) window: AckWindow,
    /// Run id of the latest frame, which barriers contain.
    pub(super) run: String,
    pub(super) barrier: BarrierMethod,
    /// Time of the latest answer.
    answered_at: Instant,
    /// Number of the latest answered barrier.
    pub(super) answered: u64,
    positions: StreamPositions,
    /// Answers of the client on all its connections.
    pub(super) progress: Arc<SharedProgress>,
    /// Record of the sent frames, if another process holds duplicates of the connection.
    pub(super) record: Option<ConnectionRecord>,
}

/// Dials a client's callback listener. If the listener requires a token, this end introduces itself as `from`
/// (such as `worker 3`). The client's requests are answered in the background.
///
/// Cancel safe: yes, because a half-open connection is dropped.
///
/// # Errors
/// The listener was not reached within `limits.connect_ms`.
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
    let stream = tcp::dial(&address.host, address.port, deadline).await?;
    let socket = SocketHandle::of(&stream).map_err(CallbackDialError::Introduce)?;
    let record = holders.and_then(|holders| holders.hand_over(socket.as_fd(), limits));
    let stream = PromptTcpStream::new(stream);
    let callback = CallbackConnection::open(stream, socket, *limits, progress, record);
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
        // The writer records each frame, if another process holds a duplicate.
        let recorder = record.as_ref().map(|record| {
            let recorder: Box<dyn FrameRecorder> = Box::new(StreamRecorder::new(Arc::clone(record)));
            recorder
        });
        let (outbox, inbox, task) = crate::open_with(
            stream,
            FrameDecoder::default(),
            crate::WriterOptions { recorder, heartbeat: None },
        );
        // A background task reads the client's messages.
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
            barrier: BarrierMethod::default(),
            answered_at: Instant::now(),
            answered: 0,
            positions: StreamPositions::default(),
            progress,
            record: record.map(ConnectionRecord::new),
        }
    }

    /// Opens the connection for updates, if it is not open: waits until the client has answered a barrier. No
    /// update is sent before, so if the client does not answer in time, everything can take another route
    /// without late or duplicate updates. A client that has answered before, on any connection, gets the full
    /// answer timeout.
    ///
    /// Cancel safe: yes, because a late answer still counts.
    ///
    /// # Errors
    /// The client did not answer in time, or the connection is broken. No update was sent.
    pub async fn open_updates(&mut self, run: &str) -> Result<(), CallbackBroken> {
        self.note_answers();
        if self.window.answers() != AnswerState::Unknown {
            return Ok(());
        }
        run.clone_into(&mut self.run);
        let since = Instant::now();
        if let Some(barrier) = self.window.opening_barrier() {
            self.write_barrier(barrier).await?;
            if self.progress.answers().needs_unknown_methods() {
                self.barrier = BarrierMethod::Unknown;
                let barrier = self.window.open_barrier();
                self.write_barrier(barrier).await?;
            }
        }
        while self.window.answers() == AnswerState::Unknown {
            if self.wait_for_answer(since).await == AnswerWait::Overdue {
                // The connection is not broken: without another route, updates are sent anyway.
                return Err(CallbackBroken::Unopened);
            }
            self.note_answers();
            if let Some(broken) = self.break_reason() {
                return Err(*self.broken.insert(broken));
            }
        }
        if self.peer.borrow().has_answered_opening {
            self.barrier = BarrierMethod::Notified;
        }
        Ok(())
    }

    /// Queues one frame of a run with this number of changes. Waits while the client has too many unhandled
    /// windows. The first frame waits until the connection is open, and a barrier follows the last frame of
    /// each window.
    ///
    /// Cancel safe: no, because the frame may or may not have been queued.
    ///
    /// # Errors
    /// The connection is broken. The frames after [`Self::handled_frames`] are unproven, and nothing more can
    /// be sent here.
    pub async fn send(&mut self, run: &str, frame: Bytes, changes: usize) -> Result<(), CallbackBroken> {
        self.open_updates(run).await?;
        if self.run != run {
            run.clone_into(&mut self.run);
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

    /// Queues the completion of a run after everything before it has been proven. `run_dir` identifies the
    /// run in the connection's record. Call [`Self::prove_completion`] next.
    ///
    /// Cancel safe: no, because the frame may or may not have been queued.
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

    /// Returns the mark of the current run's next frame, if there is a record.
    fn next_mark(&mut self, completing: Option<&OsText>) -> Option<Bytes> {
        let answers = self.window.answers();
        let record = self.record.as_mut()?;
        Some(record.next_mark(&self.run, completing, &self.positions, answers, self.barrier))
    }

    /// Returns how many of the sent frames the client is proven to have handled.
    pub fn handled_frames(&mut self) -> u64 {
        self.note_answers();
        self.window.handled_frames()
    }

    /// Returns whether the client is proven to have handled every frame.
    pub fn is_all_handled(&mut self) -> bool {
        self.note_answers();
        self.window.is_all_handled()
    }

    /// Returns whether updates are sent without answers.
    pub fn is_client_silent(&self) -> bool {
        self.window.answers() == AnswerState::Silent
    }

    /// Sends updates even if the client does not answer, because no other route exists.
    pub fn send_unopened(&mut self) {
        self.window.send_unopened();
    }

    pub(super) async fn write_barrier(&mut self, barrier: u64) -> Result<(), CallbackBroken> {
        self.write(mtp::barrier_frame(self.barrier, barrier, &self.run)).await
    }

    /// Sets the number of results of a run (or frames) sent up to and including the next frame.
    pub fn set_position(&mut self, run: &str, position: u64) {
        self.positions.set(run, position);
    }

    /// Returns the proven position of a run on this connection.
    pub fn handled_position(&mut self, run: &str) -> u64 {
        self.note_answers();
        self.positions.handled(run)
    }

    /// Records that the client has handled everything of a run up to a position, and that this connection
    /// sends nothing more of the run. If this process crashes later, the process that settles the connection
    /// still finds the position.
    pub fn drain_run(&mut self, run: &str, position: u64) {
        self.positions.drain(run, position);
    }

    pub(super) async fn write(&mut self, frame: Bytes) -> Result<(), CallbackBroken> {
        self.write_marked(frame, None).await
    }

    async fn write_marked(&mut self, frame: Bytes, mark: Option<Bytes>) -> Result<(), CallbackBroken> {
        if let Some(broken) = self.break_reason() {
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

    /// Waits until the client has handled enough for another frame.
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
            if let Some(broken) = self.break_reason() {
                return Err(*self.broken.insert(broken));
            }
        }
    }

    /// Waits for a new answer, the end of the client's side, or the answer timeout. The timeout starts at the
    /// latest answer or at `since`, whichever is later. If the client answers on another connection, the
    /// timeout starts again at that answer.
    pub(super) async fn wait_for_answer(&mut self, since: Instant) -> AnswerWait {
        let begin = self.answered_at.max(since);
        let mut deadline = begin + self.answer_limit();
        let answered = self.answered;
        let mut peer = self.peer.clone();
        loop {
            tokio::select! {
                biased;
                // An error means that the reader's task has ended, which also ends the wait.
                _ = peer.wait_for(|peer| peer.answered > answered || peer.ended.is_some()) => {
                    return AnswerWait::Changed;
                }
                () = sleep_until_running(deadline) => {}
            }
            // The client may have answered on another connection meanwhile.
            let limit = self.answer_limit();
            if begin + limit > Instant::now() {
                deadline = begin + limit;
                continue;
            }
            match self.progress.on_overdue(limit) {
                OverdueDecision::WaitOn(rest) => deadline = Instant::now() + rest,
                OverdueDecision::GiveUp => {
                    self.progress.note_given_up();
                    return AnswerWait::Overdue;
                }
            }
        }
    }

    /// Returns the timeout of the next answer.
    fn answer_limit(&self) -> Duration {
        let limits = AnswerLimits {
            first: Duration::from_millis(self.limits.first_answer_ms),
            next: Duration::from_millis(self.limits.answer_ms),
        };
        let answers = self.progress.answers();
        match self.window.answers() {
            AnswerState::Unknown => answers.opening_limit(limits),
            AnswerState::Answering | AnswerState::Silent => answers.answer_limit(limits),
        }
    }

    /// Records answers that have arrived.
    pub(super) fn note_answers(&mut self) {
        let answered = self.peer.borrow().answered;
        if answered > self.answered {
            self.answered = answered;
            self.answered_at = Instant::now();
            self.window.on_answer(answered);
        }
        self.positions.on_handled(self.window.handled_frames());
    }

    /// Resets the connection. Bytes that the client's kernel has not received are discarded; otherwise they
    /// could arrive late, after the same results on another route.
    ///
    /// Cancel safe: yes, because dropping the connection also resets it.
    pub async fn give_up(mut self) {
        self.broken.get_or_insert(CallbackBroken::Unanswered);
        self.outbox.close();
        self.reset();
        self.reader.shutdown().await;
        self.task.cut().await;
    }

    /// Returns why the connection is broken, if it is.
    #[must_use]
    pub fn break_reason(&self) -> Option<CallbackBroken> {
        self.broken.or_else(|| match self.peer.borrow().ended {
            Some(PeerEnd::NoClient) => Some(CallbackBroken::NoClient),
            // A client that has closed its sending side may still read, but cannot answer.
            Some(PeerEnd::Closed | PeerEnd::Failed) => Some(CallbackBroken::Closed),
            None => self.outbox.is_closed().then_some(CallbackBroken::Closed),
        })
    }

    /// Makes the next close discard all bytes that the kernel has not sent.
    fn reset(&self) {
        if let Err(error) = self.socket.discard_unsent() {
            tracing::debug!(%error, "failed to reset a broken callback connection");
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
    // An error means that the reader's task has ended, which also counts.
    drop(peer.wait_for(|peer| peer.ended.is_some()).await);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerWait {
    /// An answer has arrived, or the client's side has ended.
    Changed,
    Overdue,
}
