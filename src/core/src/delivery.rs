//! Delivery of the end of a run by its finisher: order and route of the pending updates and the completion.
//! After the coordinator has died, also decides which updates are pending.
//!
//! ```text
//! due ──► own connection ──proof──► announced ──► completion ──proof──► done
//!             │ refused, broken, unproven              │ unproven
//!             ▼                                        ▼
//!          resend all, relayed ────────────────► completion, relayed ──► done (order is the proof)
//! ```
//!
//! The completion is sent only after all updates before it are proven. Otherwise, updates that are resent by
//! the other route could arrive after it. If the coordinator has died, there is no other route: the
//! completion follows the unproven updates on the same connection, which keeps their order, and a slow client
//! receives it when it reads again. The finisher announces the completion to the coordinator before sending
//! it. If the finisher then dies, its replacement sends only the completion.

use std::collections::{BTreeMap, BTreeSet};

use crate::{TestId, WorkerId};

/// State of the finisher's connection to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FinisherConnection {
    /// Not dialled yet, or closed cleanly.
    Closed,
    /// Connected.
    Open,
    /// The client offered no port, or data sent there may be lost. From now on, only the coordinator's
    /// connection is used.
    Relayed,
}

/// A route to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeliveryRoute {
    /// The finisher's own connection.
    Direct,
    /// Through the coordinator.
    Relay,
}

/// Next step of the finisher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeliveryStep {
    /// Dial the client; fails if the client refuses.
    Dial,
    /// Send everything before the completion; fails if the route is broken.
    SendDue(DeliveryRoute),
    /// Wait until the client confirms the barrier on the finisher's connection; fails if the client does not.
    Prove,
    /// Give up the finisher's connection. The sent messages stay unproven.
    GiveUp,
    /// Report to the coordinator that only the completion is missing. Failure means that the coordinator is
    /// gone, and is ignored.
    Announce,
    /// Send the completion; fails if the route is broken.
    SendCompletion(DeliveryRoute),
    /// Wait until the client confirms a barrier sent after the completion on the finisher's connection; fails
    /// if the client does not. Without this barrier, the client could handle the run's response, which
    /// arrives on another connection, before the completion.
    ProveCompletion,
}

/// Result of a delivery step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StepResult {
    Ok,
    Failed,
}

/// How the end of a run was delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeliveryResult {
    /// Sent over the finisher's connection; the client has confirmed it.
    Directly,
    /// Sent through the coordinator, whose connection preserves the order.
    Relayed,
    /// Not delivered: the coordinator is gone, and there is no other route.
    Undelivered,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum DeliveryPhase {
    Dialling,
    SendingDue(DeliveryRoute),
    ProvingDue,
    GivingUpDue,
    Announcing,
    Completing(DeliveryRoute),
    ProvingCompletion,
    GivingUpCompletion,
    Ended(DeliveryResult),
}

/// Delivery of the end of one run to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Delivery {
    connection: FinisherConnection,
    phase: DeliveryPhase,
    has_due: bool,
    has_relay: bool,
}

impl Delivery {
    /// Starts from the connection's current state. Without pending updates, the completion is sent
    /// immediately.
    #[must_use]
    pub fn new(connection: FinisherConnection, has_due: bool) -> Self {
        let phase = match connection {
            FinisherConnection::Closed => DeliveryPhase::Dialling,
            FinisherConnection::Open => Self::first_phase(has_due),
            FinisherConnection::Relayed => DeliveryPhase::SendingDue(DeliveryRoute::Relay),
        };
        Self { connection, phase, has_due, has_relay: true }
    }

    fn first_phase(has_due: bool) -> DeliveryPhase {
        if has_due { DeliveryPhase::SendingDue(DeliveryRoute::Direct) } else { DeliveryPhase::Announcing }
    }

    /// Records that the coordinator is gone, and the relay route with it.
    pub fn lose_relay(&mut self) {
        self.has_relay = false;
    }

    /// Returns the next step.
    ///
    /// # Errors
    /// The result of the delivery, if no step is left.
    pub fn next_step(&self) -> Result<DeliveryStep, DeliveryResult> {
        match self.phase {
            DeliveryPhase::Dialling => Ok(DeliveryStep::Dial),
            DeliveryPhase::SendingDue(way) => Ok(DeliveryStep::SendDue(way)),
            DeliveryPhase::ProvingDue => Ok(DeliveryStep::Prove),
            DeliveryPhase::ProvingCompletion => Ok(DeliveryStep::ProveCompletion),
            DeliveryPhase::GivingUpDue | DeliveryPhase::GivingUpCompletion => Ok(DeliveryStep::GiveUp),
            DeliveryPhase::Announcing => Ok(DeliveryStep::Announce),
            DeliveryPhase::Completing(way) => Ok(DeliveryStep::SendCompletion(way)),
            DeliveryPhase::Ended(delivered) => Err(delivered),
        }
    }

    /// Records the result of the last step.
    pub fn on_step_result(&mut self, went: StepResult) {
        use StepResult::{Failed, Ok};
        (self.connection, self.phase) = match (self.phase, went) {
            // Dial. A refused connection is replaced by the relay.
            (DeliveryPhase::Dialling, Ok) => (FinisherConnection::Open, Self::first_phase(self.has_due)),
            (DeliveryPhase::Dialling, Failed) => {
                (FinisherConnection::Relayed, DeliveryPhase::SendingDue(DeliveryRoute::Relay))
            }
            // Send the pending results and wait for the client's confirmation. Without it, resend everything
            // through the relay, if there is one.
            (DeliveryPhase::SendingDue(DeliveryRoute::Direct), Ok) => {
                (self.connection, DeliveryPhase::ProvingDue)
            }
            (DeliveryPhase::ProvingDue, Failed) if !self.has_relay => {
                (self.connection, DeliveryPhase::Completing(DeliveryRoute::Direct))
            }
            (DeliveryPhase::SendingDue(DeliveryRoute::Direct) | DeliveryPhase::ProvingDue, Failed) => {
                (self.connection, DeliveryPhase::GivingUpDue)
            }
            (DeliveryPhase::ProvingDue, Ok) => (self.connection, DeliveryPhase::Announcing),
            (DeliveryPhase::GivingUpDue, Ok | Failed) => {
                (FinisherConnection::Relayed, DeliveryPhase::SendingDue(DeliveryRoute::Relay))
            }
            // Announce and send the completion, and wait for its confirmation. Without confirmation, only the
            // completion is relayed.
            (DeliveryPhase::Announcing, Ok | Failed) => {
                (self.connection, DeliveryPhase::Completing(DeliveryRoute::Direct))
            }
            (DeliveryPhase::Completing(DeliveryRoute::Direct), Ok) => {
                (self.connection, DeliveryPhase::ProvingCompletion)
            }
            (DeliveryPhase::ProvingCompletion, Ok) => {
                (self.connection, DeliveryPhase::Ended(DeliveryResult::Directly))
            }
            (DeliveryPhase::Completing(DeliveryRoute::Direct) | DeliveryPhase::ProvingCompletion, Failed) => {
                (self.connection, DeliveryPhase::GivingUpCompletion)
            }
            (DeliveryPhase::GivingUpCompletion, Ok | Failed) => {
                (FinisherConnection::Relayed, DeliveryPhase::Completing(DeliveryRoute::Relay))
            }
            // The relay keeps the order, so no confirmation is needed.
            (DeliveryPhase::SendingDue(DeliveryRoute::Relay), Ok) => {
                (self.connection, DeliveryPhase::Completing(DeliveryRoute::Relay))
            }
            (DeliveryPhase::Completing(DeliveryRoute::Relay), Ok) => {
                (self.connection, DeliveryPhase::Ended(DeliveryResult::Relayed))
            }
            (
                DeliveryPhase::SendingDue(DeliveryRoute::Relay)
                | DeliveryPhase::Completing(DeliveryRoute::Relay),
                Failed,
            ) => (self.connection, DeliveryPhase::Ended(DeliveryResult::Undelivered)),
            (DeliveryPhase::Ended(_), Ok | Failed) => (self.connection, self.phase),
        };
    }

    /// Returns the state of the connection.
    #[must_use]
    pub fn connection(&self) -> FinisherConnection {
        self.connection
    }
}

/// Holds back the last frame that a finisher relayed until the finisher reports that it has finished.
///
/// This frame is the run's completion. If a finisher dies before that report, its replacement completes the
/// run, and the client must not receive the completion twice.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LastRelayedFrame<T>(Option<T>);

impl<T> Default for LastRelayedFrame<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> LastRelayedFrame<T> {
    /// Holds a relayed frame; returns the previous one, to be forwarded.
    pub fn hold(&mut self, frame: T) -> Option<T> {
        self.0.replace(frame)
    }

    /// Returns the last frame, to be forwarded after the finisher has finished.
    pub fn release(&mut self) -> Option<T> {
        self.0.take()
    }
}

/// Kind of a journal record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum JournalMark {
    /// The test has started.
    Started,
    /// The test has a provisional result, which may still be replaced.
    Provisional,
    /// The test has its final result.
    Settled,
}

/// State of a test without a result on any stream after the coordinator has died.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UnfinishedTest {
    /// The provisional result becomes final, because no later attempt will replace it.
    Provisional,
    /// The test was running.
    Interrupted,
    /// The test never ran.
    NotRun,
}

/// Pending deliveries of a run whose coordinator has died.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OrphanedRunDue {
    /// Journals to resend, each with its start position. All are resent from the first record, because it is
    /// unknown which records the client has received.
    pub resend: Vec<(WorkerId, u64)>,
    /// Tests without a result on any stream.
    pub unfinished: Vec<(TestId, UnfinishedTest)>,
}

/// Settles a run without its coordinator, from all its journals in any order and the number of selected
/// tests.
#[must_use]
pub fn settle_orphaned_run<'a>(
    selected: usize,
    journals: impl IntoIterator<Item = (WorkerId, &'a [(TestId, JournalMark)])>,
) -> OrphanedRunDue {
    let mut settled = BTreeSet::new();
    let mut known = BTreeMap::new();
    let mut resend = Vec::new();
    for (worker, records) in journals {
        resend.push((worker, 0));
        for (test, said) in records {
            match said {
                JournalMark::Settled => drop(settled.insert(*test)),
                // A provisional result is more useful than the fact that the test started again.
                JournalMark::Provisional => drop(known.insert(*test, UnfinishedTest::Provisional)),
                JournalMark::Started => drop(known.entry(*test).or_insert(UnfinishedTest::Interrupted)),
            }
        }
    }
    let open = (0..).map(TestId).take(selected).filter(|test| !settled.contains(test));
    let unfinished =
        open.map(|test| (test, known.get(&test).copied().unwrap_or(UnfinishedTest::NotRun))).collect();
    OrphanedRunDue { resend, unfinished }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a delivery. The given steps fail, and all others succeed.
    fn run_delivery(
        line: FinisherConnection,
        has_due: bool,
        badly: &[DeliveryStep],
    ) -> (Vec<DeliveryStep>, DeliveryResult, FinisherConnection) {
        let mut delivery = Delivery::new(line, has_due);
        let mut orders = Vec::new();
        loop {
            match delivery.next_step() {
                Ok(order) => {
                    delivery.on_step_result(if badly.contains(&order) {
                        StepResult::Failed
                    } else {
                        StepResult::Ok
                    });
                    orders.push(order);
                }
                Err(delivered) => return (orders, delivered, delivery.connection()),
            }
        }
    }

    #[test]
    fn completion_is_announced_after_proof_of_all_updates() {
        use DeliveryStep::{Announce, Dial, Prove, ProveCompletion, SendCompletion, SendDue};
        let (orders, delivered, line) = run_delivery(FinisherConnection::Closed, true, &[]);
        let all = [
            Dial,
            SendDue(DeliveryRoute::Direct),
            Prove,
            Announce,
            SendCompletion(DeliveryRoute::Direct),
            ProveCompletion,
        ];
        assert_eq!(
            (orders.as_slice(), delivered, line),
            (all.as_slice(), DeliveryResult::Directly, FinisherConnection::Open)
        );
        let (orders, _, _) = run_delivery(FinisherConnection::Open, false, &[]);
        assert_eq!(orders, [Announce, SendCompletion(DeliveryRoute::Direct), ProveCompletion]);
    }

    #[test]
    fn unproven_updates_are_resent_through_the_coordinator() {
        let (orders, delivered, line) =
            run_delivery(FinisherConnection::Closed, true, &[DeliveryStep::Prove]);
        assert_eq!(
            orders[4..],
            [DeliveryStep::SendDue(DeliveryRoute::Relay), DeliveryStep::SendCompletion(DeliveryRoute::Relay)]
        );
        assert_eq!((delivered, line), (DeliveryResult::Relayed, FinisherConnection::Relayed));
    }

    #[test]
    fn slow_client_of_orphaned_run_still_gets_completion() {
        let mut delivery = Delivery::new(FinisherConnection::Open, true);
        delivery.on_step_result(StepResult::Ok);
        delivery.lose_relay();
        assert_eq!(delivery.next_step(), Ok(DeliveryStep::Prove));
        delivery.on_step_result(StepResult::Failed);
        assert_eq!(delivery.next_step(), Ok(DeliveryStep::SendCompletion(DeliveryRoute::Direct)));
        delivery.on_step_result(StepResult::Ok);
        assert_eq!(delivery.next_step(), Ok(DeliveryStep::ProveCompletion));
        delivery.on_step_result(StepResult::Failed);
        assert_eq!(delivery.next_step(), Ok(DeliveryStep::GiveUp));
        delivery.on_step_result(StepResult::Ok);
        assert_eq!(delivery.next_step(), Ok(DeliveryStep::SendCompletion(DeliveryRoute::Relay)));
        delivery.on_step_result(StepResult::Failed);
        assert_eq!(
            delivery.next_step(),
            Err(DeliveryResult::Undelivered),
            "another connection is to be dialled"
        );
    }

    #[test]
    fn delivery_fails_without_coordinator_and_connection() {
        let badly = [DeliveryStep::Dial, DeliveryStep::SendDue(DeliveryRoute::Relay)];
        assert_eq!(run_delivery(FinisherConnection::Closed, true, &badly).1, DeliveryResult::Undelivered);
    }

    #[test]
    fn unfinished_tests_are_classified_by_their_journal_records() {
        let settled = [
            (TestId(0), JournalMark::Started),
            (TestId(0), JournalMark::Settled),
            (TestId(1), JournalMark::Started),
        ];
        let held = [
            (TestId(2), JournalMark::Started),
            (TestId(2), JournalMark::Provisional),
            (TestId(2), JournalMark::Started),
        ];
        let journals = [(WorkerId(2), held.as_slice()), (WorkerId(5), settled.as_slice())];
        let due = settle_orphaned_run(4, journals);
        assert_eq!(due.resend, [(WorkerId(2), 0), (WorkerId(5), 0)]);
        let unfinished = [
            (TestId(1), UnfinishedTest::Interrupted),
            (TestId(2), UnfinishedTest::Provisional),
            (TestId(3), UnfinishedTest::NotRun),
        ];
        assert_eq!(due.unfinished, unfinished);
    }
}
