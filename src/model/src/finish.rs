//! Delivery of the end of a run by its finisher: in which order and by which route the pending updates and
//! the completion are sent, and what is pending when the coordinator has died.
//!
//! ```text
//! due ──► own connection ──proof──► announced ──► completion ──proof──► done
//!             │ refused, broken, unproven              │ unproven
//!             ▼                                        ▼
//!          resend all, relayed ────────────────► completion, relayed ──► done (order is the proof)
//! ```
//!
//! The completion is sent only when all updates before it are proven: otherwise updates that are sent again
//! by the other route could arrive after it. If the coordinator has died, there is no other route: then the
//! completion follows the unproven updates on the same connection, which preserves their order, and a client
//! that responds late receives it when it resumes reading. The completion is announced to the coordinator
//! before it is sent, because a finisher that dies after the announcement is replaced, and its replacement
//! may send only the completion.

use std::collections::{BTreeMap, BTreeSet};

use crate::{TestId, WorkerId};

/// State of the finisher's own connection to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Line {
    /// Not dialled yet, or closed in order.
    Down,
    /// Connected.
    Up,
    /// No port was offered, or data sent there may be lost: from now on the coordinator's connection is used.
    Relayed,
}

/// A route to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Way {
    /// The finisher's own connection.
    Own,
    /// Through the coordinator.
    Relay,
}

/// The next step of the finisher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Order {
    /// Dial the client; fails if the client refuses.
    Dial,
    /// Send everything before the completion; fails if the route is broken.
    SendDue(Way),
    /// Have the client confirm the barrier on the own connection; fails if it does not.
    Prove,
    /// Close the own connection in order; fails if the client does not close it after having read everything.
    Close,
    /// Report to the coordinator that only the completion is missing; fails if the coordinator is gone, which
    /// changes nothing.
    Announce,
    /// Send the completion; fails if the route is broken.
    SendCompletion(Way),
}

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Went {
    /// The step succeeded.
    Well,
    /// The step failed.
    Badly,
}

/// The result of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Delivered {
    /// Over the own connection, with proof.
    Directly,
    /// Through the coordinator, whose connection preserves the order.
    Relayed,
    /// Not delivered: the coordinator is gone, and there is no other route.
    Nowhere,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum At {
    Dialling,
    SendingDue(Way),
    ProvingDue,
    ClosingDue,
    Announcing,
    Completing(Way),
    ProvingCompletion,
    ClosingCompletion,
    Ended(Delivered),
}

/// Delivery of the end of one run to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Delivery {
    line: Line,
    at: At,
    has_due: bool,
    has_relay: bool,
}

impl Delivery {
    /// Starts from the connection's current state; with nothing pending, the completion is sent immediately.
    #[must_use]
    pub fn new(line: Line, has_due: bool) -> Self {
        let at = match line {
            Line::Down => At::Dialling,
            Line::Up => Self::first(has_due),
            Line::Relayed => At::SendingDue(Way::Relay),
        };
        Self { line, at, has_due, has_relay: true }
    }

    fn first(has_due: bool) -> At {
        if has_due { At::SendingDue(Way::Own) } else { At::Announcing }
    }

    /// Records that the coordinator is gone, and with it the relay route.
    pub fn lose_relay(&mut self) {
        self.has_relay = false;
    }

    /// Returns the next step, or the result of the delivery.
    ///
    /// # Errors
    /// The result of the delivery: no step is left.
    pub fn order(&self) -> Result<Order, Delivered> {
        match self.at {
            At::Dialling => Ok(Order::Dial),
            At::SendingDue(way) => Ok(Order::SendDue(way)),
            At::ProvingDue | At::ProvingCompletion => Ok(Order::Prove),
            At::ClosingDue | At::ClosingCompletion => Ok(Order::Close),
            At::Announcing => Ok(Order::Announce),
            At::Completing(way) => Ok(Order::SendCompletion(way)),
            At::Ended(delivered) => Err(delivered),
        }
    }

    /// Records the result of the last step.
    pub fn went(&mut self, went: Went) {
        use Went::{Badly, Well};
        (self.line, self.at) = match (self.at, went) {
            (At::Dialling, Well) => (Line::Up, Self::first(self.has_due)),
            (At::Dialling, Badly) => (Line::Relayed, At::SendingDue(Way::Relay)),
            (At::SendingDue(Way::Own), Well) => (self.line, At::ProvingDue),
            (At::ProvingDue, Badly) if !self.has_relay => (self.line, At::Completing(Way::Own)),
            (At::SendingDue(Way::Own) | At::ProvingDue, Badly) => (self.line, At::ClosingDue),
            (At::ProvingDue, Well) => (self.line, At::Announcing),
            (At::ClosingDue, Well) => (Line::Relayed, At::Completing(Way::Relay)),
            (At::ClosingDue, Badly) => (Line::Relayed, At::SendingDue(Way::Relay)),
            (At::Announcing, Well | Badly) => (self.line, At::Completing(Way::Own)),
            (At::Completing(Way::Own), Well) => (self.line, At::ProvingCompletion),
            (At::ProvingCompletion, Well) => (self.line, At::Ended(Delivered::Directly)),
            (At::Completing(Way::Own) | At::ProvingCompletion, Badly) => (self.line, At::ClosingCompletion),
            (At::ClosingCompletion, Well) => (Line::Down, At::Ended(Delivered::Directly)),
            (At::ClosingCompletion, Badly) => (Line::Relayed, At::Completing(Way::Relay)),
            (At::SendingDue(Way::Relay), Well) => (self.line, At::Completing(Way::Relay)),
            (At::Completing(Way::Relay), Well) => (self.line, At::Ended(Delivered::Relayed)),
            (At::SendingDue(Way::Relay) | At::Completing(Way::Relay), Badly) => {
                (self.line, At::Ended(Delivered::Nowhere))
            }
            (At::Ended(_), Well | Badly) => (self.line, self.at),
        };
    }

    /// Returns the state of the connection.
    #[must_use]
    pub fn line(&self) -> Line {
        self.line
    }
}

/// The last frame that a finisher relayed, held by the coordinator until the finisher reports that it has
/// finished.
///
/// It is the run's completion. If a finisher dies between the two, its replacement completes the run, and the
/// client must not receive the completion twice.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HeldFrame<T>(Option<T>);

impl<T> Default for HeldFrame<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> HeldFrame<T> {
    /// Holds a relayed frame; returns the one before it, which is to be forwarded.
    pub fn relayed(&mut self, frame: T) -> Option<T> {
        self.0.replace(frame)
    }

    /// Returns the last frame, which is to be forwarded now that the finisher has finished.
    pub fn finished(&mut self) -> Option<T> {
        self.0.take()
    }
}

/// The kind of a journal record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Said {
    /// The test runs.
    Started,
    /// The test has a provisional result, which may still be replaced.
    Held,
    /// The test has its result.
    Settled,
}

/// The state of a test without a result on any stream when the coordinator has died.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unsettled {
    /// Its provisional result is final; nothing can replace it any more.
    Held,
    /// It was running.
    Interrupted,
    /// It never ran.
    NotRun,
}

/// Pending deliveries of a run whose coordinator has died.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DueAlone {
    /// Journals to send again, each from a position: all of them from the first, because it is unknown what
    /// the client has received.
    pub resend: Vec<(WorkerId, u64)>,
    /// Tests without a result on any stream.
    pub told: Vec<(TestId, Unsettled)>,
}

/// Settles a run without its coordinator, from all its journals in any order and the number of its selected
/// tests.
#[must_use]
pub fn settle_alone<'a>(
    selected: usize,
    journals: impl IntoIterator<Item = (WorkerId, &'a [(TestId, Said)])>,
) -> DueAlone {
    let mut settled = BTreeSet::new();
    let mut known = BTreeMap::new();
    let mut resend = Vec::new();
    for (worker, records) in journals {
        resend.push((worker, 0));
        for (test, said) in records {
            match said {
                Said::Settled => drop(settled.insert(*test)),
                // A provisional result says more than that the test was started again.
                Said::Held => drop(known.insert(*test, Unsettled::Held)),
                Said::Started => drop(known.entry(*test).or_insert(Unsettled::Interrupted)),
            }
        }
    }
    let open = (0..).map(TestId).take(selected).filter(|test| !settled.contains(test));
    let told = open.map(|test| (test, known.get(&test).copied().unwrap_or(Unsettled::NotRun))).collect();
    DueAlone { resend, told }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a delivery in which the given steps fail and all others succeed.
    fn deliver(line: Line, has_due: bool, badly: &[Order]) -> (Vec<Order>, Delivered, Line) {
        let mut delivery = Delivery::new(line, has_due);
        let mut orders = Vec::new();
        loop {
            match delivery.order() {
                Ok(order) => {
                    delivery.went(if badly.contains(&order) { Went::Badly } else { Went::Well });
                    orders.push(order);
                }
                Err(delivered) => return (orders, delivered, delivery.line()),
            }
        }
    }

    #[test]
    fn the_completion_is_announced_behind_the_proof_of_all_before_it() {
        use Order::{Announce, Dial, Prove, SendCompletion, SendDue};
        let (orders, delivered, line) = deliver(Line::Down, true, &[]);
        let all = [Dial, SendDue(Way::Own), Prove, Announce, SendCompletion(Way::Own), Prove];
        assert_eq!((orders.as_slice(), delivered, line), (all.as_slice(), Delivered::Directly, Line::Up));
        let (orders, _, _) = deliver(Line::Up, false, &[]);
        assert_eq!(orders, [Announce, SendCompletion(Way::Own), Prove]);
    }

    #[test]
    fn what_is_not_proven_goes_again_by_the_other_way() {
        let (orders, delivered, line) = deliver(Line::Down, true, &[Order::Prove, Order::Close]);
        assert_eq!(orders[4..], [Order::SendDue(Way::Relay), Order::SendCompletion(Way::Relay)]);
        assert_eq!((delivered, line), (Delivered::Relayed, Line::Relayed));
    }

    #[test]
    fn without_the_coordinator_a_client_that_is_late_to_answer_gets_the_completion_on_the_same_connection() {
        let mut delivery = Delivery::new(Line::Up, true);
        delivery.went(Went::Well);
        delivery.lose_relay();
        assert_eq!(delivery.order(), Ok(Order::Prove));
        delivery.went(Went::Badly);
        assert_eq!(delivery.order(), Ok(Order::SendCompletion(Way::Own)));
        delivery.went(Went::Well);
        assert_eq!(delivery.order(), Ok(Order::Prove));
        delivery.went(Went::Badly);
        assert_eq!(delivery.order(), Ok(Order::Close));
        delivery.went(Went::Well);
        assert_eq!(delivery.order(), Err(Delivered::Directly));
    }

    #[test]
    fn without_the_coordinator_and_the_line_there_is_no_way() {
        let badly = [Order::Dial, Order::SendDue(Way::Relay)];
        assert_eq!(deliver(Line::Down, true, &badly).1, Delivered::Nowhere);
    }

    #[test]
    fn a_test_that_ran_in_vain_is_told_by_what_is_known_of_it() {
        let settled = [(TestId(0), Said::Started), (TestId(0), Said::Settled), (TestId(1), Said::Started)];
        let held = [(TestId(2), Said::Started), (TestId(2), Said::Held), (TestId(2), Said::Started)];
        let journals = [(WorkerId(2), held.as_slice()), (WorkerId(5), settled.as_slice())];
        let due = settle_alone(4, journals);
        assert_eq!(due.resend, [(WorkerId(2), 0), (WorkerId(5), 0)]);
        let told = [
            (TestId(1), Unsettled::Interrupted),
            (TestId(2), Unsettled::Held),
            (TestId(3), Unsettled::NotRun),
        ];
        assert_eq!(due.told, told);
    }
}
