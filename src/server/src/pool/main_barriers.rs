//! Barrier requests on the main connection of a client that also accepts callback connections.
//!
//! Right after `initialize`, when no result can be lost yet, the server probes whether the client answers
//! requests. It sends a request with an unknown method, and a request with a method that clients usually bind
//! as a notification. All processes that send to the client share the answers.
//!
//! If a worker's callback connection was refused, its updates go over the main connection. Before a test
//! started there may run again on another worker's connection, a barrier proves that the client has handled
//! them.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use heeler_core::ack_window::{AckWindow, AnswerState, WindowLimits};
use heeler_protocol::{
    control::{ClientId, DeliveryLimits, ProofLevel},
    mtp::{self, BarrierMethod},
    rpc::RequestId,
};
use heeler_transport::{Outbox, callback::SharedProgress, running_time::sleep_running};
use tokio::sync::watch;

/// First id of barriers: beyond the ids of debugger requests, but still a 32-bit number.
const FIRST_ID: u64 = 3 << 29;
/// Id of the probe that sends a log message as a request. Beyond the ids of all barriers.
const LOG_PROBE_ID: u64 = 7 << 28;
/// Id of the probe with an unknown method.
const UNKNOWN_PROBE_ID: u64 = LOG_PROBE_ID + 1;

/// Value of `answered` when no more answers will arrive.
const CLOSED: u64 = u64::MAX;

/// Barriers on one client's main connection. Clones share state.
#[derive(Debug, Clone)]
pub struct MainBarriers {
    shared: Arc<MainBarrierState>,
    limits: DeliveryLimits,
}

#[derive(Debug)]
struct MainBarrierState {
    window: Mutex<AckWindow>,
    /// Number of the latest answered barrier.
    answered: watch::Sender<u64>,
    answers: Mutex<MainAnswers>,
}

/// The client's answers on its main connection, shared with all processes.
#[derive(Debug, Default)]
struct MainAnswers {
    has_answered: bool,
    answers_log_requests: bool,
    accepts_unknown_methods: bool,
    progress: SharedProgress,
    /// Control socket of the session that `progress` belongs to.
    socket: Option<PathBuf>,
}

impl MainAnswers {
    fn publish(&self) {
        if self.has_answered {
            self.progress.note_answer();
        }
        if self.answers_log_requests {
            self.progress.note_log_requests(true);
        }
        if self.accepts_unknown_methods {
            self.progress.note_unknown_method();
        }
    }

    fn needs_unknown_methods(&self) -> bool {
        self.accepts_unknown_methods && !self.answers_log_requests
    }
}

/// Kind of a client response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseKind {
    Result,
    Error,
}

impl MainBarriers {
    /// Returns the barriers of a new connection.
    #[must_use]
    pub fn new(limits: DeliveryLimits) -> Self {
        let window = Mutex::new(AckWindow::new(WindowLimits::default()));
        let (answered, _) = watch::channel(0);
        Self { shared: Arc::new(MainBarrierState { window, answered, answers: Mutex::default() }), limits }
    }

    /// Returns the requests that probe which methods the client answers.
    #[must_use]
    pub(crate) fn probes(&self) -> [Bytes; 2] {
        [mtp::log_probe_frame(LOG_PROBE_ID), mtp::unknown_barrier_frame(UNKNOWN_PROBE_ID)]
    }

    /// Returns whether the last wait for the client timed out, with no answer since.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        self.answers().progress.answers().has_stopped()
    }

    /// From now on, lets every process that sends to the client see which barriers it has answered here.
    pub fn share(&self, control_socket: &Path, client: ClientId) {
        let mut answers = self.answers();
        if answers.socket.as_deref() != Some(control_socket) {
            answers.progress = SharedProgress::of_client(control_socket, client);
            answers.socket = Some(control_socket.to_owned());
            answers.publish();
        }
    }

    /// Records a client response. Returns whether it answers a probe or barrier.
    pub fn on_response(&self, id: &RequestId, kind: ResponseKind) -> bool {
        let RequestId::Number(id) = id else { return false };
        let Some(id) = id.parse().ok().filter(|id: &u64| (FIRST_ID..=UNKNOWN_PROBE_ID).contains(id)) else {
            return false;
        };
        let mut answers = self.answers();
        answers.has_answered = true;
        match id {
            LOG_PROBE_ID => answers.answers_log_requests = true,
            UNKNOWN_PROBE_ID => answers.accepts_unknown_methods |= kind == ResponseKind::Result,
            _ => {
                let number = id - FIRST_ID;
                self.window().on_answer(number);
                self.shared.answered.send_modify(|answered| *answered = number.max(*answered));
            }
        }
        answers.publish();
        true
    }

    /// Ends all waits because the client is gone.
    pub fn close(&self) {
        self.shared.answered.send_replace(CLOSED);
    }

    /// Waits until the client has handled everything sent on its main connection. The wait is short for a
    /// client that has never answered. Returns `Handled` or `None`.
    ///
    /// Cancel safe: yes, because a late answer still counts.
    pub async fn prove(&self, connection: &Outbox) -> ProofLevel {
        let barrier = self.open_barrier();
        let Some(number) = barrier else { return ProofLevel::None };
        let (method, is_answering) = self.method();
        if connection.send(mtp::main_barrier_frame(method, FIRST_ID + number)).await.is_err() {
            return ProofLevel::None;
        }
        let mut answered = self.shared.answered.subscribe();
        // Each answered barrier restarts the time limit.
        loop {
            let state = self.window().answers();
            let limit = match state {
                AnswerState::Answering => self.limits.answer_ms,
                AnswerState::Unknown if is_answering => self.limits.answer_ms,
                AnswerState::Unknown => self.limits.first_answer_ms,
                AnswerState::Silent => return ProofLevel::None,
            };
            let before = *answered.borrow_and_update();
            if before >= number {
                let is_closed = before == CLOSED;
                return if is_closed { ProofLevel::None } else { ProofLevel::Handled };
            }
            tokio::select! {
                biased;
                // The sender lives as long as `self`. Answers to earlier barriers count as progress.
                _ = answered.changed() => {}
                () = sleep_running(Duration::from_millis(limit)) => {
                    self.window().on_answer_overdue();
                    return ProofLevel::None;
                }
            }
        }
    }

    /// Returns the number of a new barrier; `None` if the client is known not to answer.
    fn open_barrier(&self) -> Option<u64> {
        let mut window = self.window();
        (window.answers() != AnswerState::Silent).then(|| window.open_barrier())
    }

    /// Returns the barriers' method, and whether the client is known to answer requests with it.
    fn method(&self) -> (BarrierMethod, bool) {
        let answers = self.answers();
        match answers.needs_unknown_methods() {
            true => (BarrierMethod::Unknown, true),
            false => (BarrierMethod::Notified, answers.answers_log_requests),
        }
    }

    fn answers(&self) -> MutexGuard<'_, MainAnswers> {
        self.shared.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn window(&self) -> MutexGuard<'_, AckWindow> {
        self.shared.window.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use heeler_protocol::frame::FrameDecoder;

    use super::*;

    const LIMITS: DeliveryLimits = DeliveryLimits {
        connect_ms: 0,
        stall_ms: 0,
        drain_ms: 0,
        answer_ms: 20_000,
        first_answer_ms: 20_000,
    };

    fn connect() -> (Outbox, impl Sized) {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (outbox, inbox, task) = heeler_transport::open(ours, FrameDecoder::default());
        (outbox, (inbox, task, theirs))
    }

    #[tokio::test]
    async fn barrier_is_proven_by_its_answer_and_no_earlier_one() {
        let (outbox, _connection) = connect();
        let barriers = MainBarriers::new(LIMITS);
        for number in 1..=2 {
            let answer = async {
                assert!(barriers.on_response(&RequestId::number(FIRST_ID + number - 1), ResponseKind::Error));
                tokio::task::yield_now().await;
                assert!(barriers.on_response(&RequestId::number(FIRST_ID + number), ResponseKind::Error));
            };
            let (proof, ()) = tokio::join!(barriers.prove(&outbox), answer);
            assert_eq!(proof, ProofLevel::Handled);
        }
        assert!(!barriers.on_response(&RequestId::number(7), ResponseKind::Error), "another request");
    }

    #[tokio::test]
    async fn client_that_leaves_is_not_waited_for() {
        let (outbox, _connection) = connect();
        let barriers = MainBarriers::new(LIMITS);
        let leave = async { barriers.close() };
        let (proof, ()) = tokio::join!(barriers.prove(&outbox), leave);
        assert_eq!(proof, ProofLevel::None);
    }

    #[tokio::test]
    async fn client_without_answers_is_waited_for_once() {
        let (outbox, _connection) = connect();
        let barriers = MainBarriers::new(DeliveryLimits { first_answer_ms: 0, ..LIMITS });
        assert_eq!(barriers.prove(&outbox).await, ProofLevel::None);
        let waiting = MainBarriers { limits: LIMITS, ..barriers.clone() };
        assert_eq!(waiting.prove(&outbox).await, ProofLevel::None, "it is known to be silent");
        // A late answer still counts.
        assert!(barriers.on_response(&RequestId::number(FIRST_ID + 1), ResponseKind::Error));
        let answer =
            async { assert!(barriers.on_response(&RequestId::number(FIRST_ID + 2), ResponseKind::Error)) };
        let (proof, ()) = tokio::join!(waiting.prove(&outbox), answer);
        assert_eq!(proof, ProofLevel::Handled);
    }

    #[tokio::test]
    async fn answers_to_the_probes_are_shared_and_choose_the_method() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("control");
        let progress = SharedProgress::of_client(&socket, ClientId(3));
        let barriers = MainBarriers::new(LIMITS);
        // An answer counts even if it arrives before the session has any processes.
        assert!(barriers.on_response(&RequestId::number(UNKNOWN_PROBE_ID), ResponseKind::Error));
        barriers.share(&socket, ClientId(3));
        let answers = progress.answers();
        assert!(answers.last.is_some() && !answers.needs_unknown_methods() && !barriers.has_stopped());
        assert_eq!(barriers.method(), (BarrierMethod::Notified, false));
        barriers.on_response(&RequestId::number(UNKNOWN_PROBE_ID), ResponseKind::Result);
        assert!(progress.answers().needs_unknown_methods());
        assert_eq!(barriers.method(), (BarrierMethod::Unknown, true));
        barriers.on_response(&RequestId::number(LOG_PROBE_ID), ResponseKind::Error);
        assert_eq!(progress.answers().answers_log_requests, Some(true));
        assert_eq!(barriers.method(), (BarrierMethod::Notified, true));
    }
}
