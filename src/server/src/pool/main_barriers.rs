//! Barriers on the main connection of a client that also takes callback connections. Where a worker's
//! connection was refused, its updates go over the main one: before a test that it has begun may run again on
//! another worker's connection, the client has handled them.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use heeler_core::ack_window::{AckWindow, AnswerState, WindowLimits};
use heeler_protocol::{
    control::{DeliveryLimits, ProofLevel},
    mtp,
    rpc::RequestId,
};
use heeler_transport::{Outbox, running_time::sleep_running};
use tokio::sync::watch;

/// First id of the barriers: behind those of requests for debuggers, and still a 32-bit number.
const FIRST_ID: u64 = 3 << 29;

/// Stands for the number of the latest answered barrier when there will be no further answers.
const CLOSED: u64 = u64::MAX;

/// The barriers on one client's main connection. Clones share them.
#[derive(Debug, Clone)]
pub struct MainBarriers {
    shared: Arc<MainBarrierState>,
    limits: DeliveryLimits,
}

#[derive(Debug)]
struct MainBarrierState {
    window: Mutex<AckWindow>,
    /// Number of the latest barrier that is answered.
    answered: watch::Sender<u64>,
}

impl MainBarriers {
    /// Returns the barriers of a new connection.
    #[must_use]
    pub fn new(limits: DeliveryLimits) -> Self {
        let window = Mutex::new(AckWindow::new(WindowLimits::default()));
        let (answered, _) = watch::channel(0);
        Self { shared: Arc::new(MainBarrierState { window, answered }), limits }
    }

    /// Notes a response of the client; returns whether it answers a barrier.
    pub fn on_response(&self, id: &RequestId) -> bool {
        let RequestId::Number(id) = id else { return false };
        let Some(number) = id.parse().ok().and_then(|id: u64| id.checked_sub(FIRST_ID)) else { return false };
        self.window().on_answer(number);
        self.shared.answered.send_modify(|answered| *answered = number.max(*answered));
        true
    }

    /// Ends all waits: the client is gone.
    pub fn close(&self) {
        self.shared.answered.send_replace(CLOSED);
    }

    /// Waits until the client has handled everything that was sent on its main connection. One that does not
    /// answer is waited for once, shortly. The proof is `Handled` or `None`.
    ///
    /// Cancel safe: yes, because a late answer still counts.
    pub async fn prove(&self, connection: &Outbox) -> ProofLevel {
        let barrier = self.open_barrier();
        let Some(number) = barrier else { return ProofLevel::None };
        if connection.send(mtp::main_barrier_frame(FIRST_ID + number)).await.is_err() {
            return ProofLevel::None;
        }
        let mut answered = self.shared.answered.subscribe();
        loop {
            let state = self.window().answers();
            let limit = match state {
                AnswerState::Answering => self.limits.answer_ms,
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
                // The sender lives as long as these barriers. Answers to earlier barriers are progress.
                _ = answered.changed() => {}
                () = sleep_running(Duration::from_millis(limit)) => {
                    self.window().on_answer_overdue();
                    return ProofLevel::None;
                }
            }
        }
    }

    /// Returns the number of a new barrier, unless the client is known to answer none.
    fn open_barrier(&self) -> Option<u64> {
        let mut window = self.window();
        (window.answers() != AnswerState::Silent).then(|| window.open_barrier())
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
                assert!(barriers.on_response(&RequestId::number(FIRST_ID + number - 1)));
                tokio::task::yield_now().await;
                assert!(barriers.on_response(&RequestId::number(FIRST_ID + number)));
            };
            let (proof, ()) = tokio::join!(barriers.prove(&outbox), answer);
            assert_eq!(proof, ProofLevel::Handled);
        }
        assert!(!barriers.on_response(&RequestId::number(7)), "another request");
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
        // A late answer counts.
        assert!(barriers.on_response(&RequestId::number(FIRST_ID + 1)));
        let answer = async { assert!(barriers.on_response(&RequestId::number(FIRST_ID + 2))) };
        let (proof, ()) = tokio::join!(waiting.prove(&outbox), answer);
        assert_eq!(proof, ProofLevel::Handled);
    }
}
