//! The end of a run as its finisher brings it about: in which order and by which way what is due and the completion go
//! out, and what is due when the coordinator has died.
//!
//! ```text
//! due ──► own connection ──proof──► announced ──► completion ──proof──► done
//!             │ refused, broken, unproven              │ unproven
//!             ▼                                        ▼
//!          all again, relayed ─────────────────► completion, relayed ──► done (order is the proof)
//! ```
//!
//! The completion is sent only when all before it is proven: otherwise updates that are sent again by the other way
//! could come after it. Where the coordinator has died there is no other way: then the completion follows what is not
//! proven on the same connection, whose order holds, and a client that is late to answer has it when it reads on. It is announced to the coordinator before it is sent, because a finisher that dies behind it is
//! replaced, and its replacement may send nothing but the completion.

use std::collections::{BTreeMap, BTreeSet};

use crate::{TestId, WorkerId};

/// The finisher's own connection to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Line {
    /// Not dialled yet, or closed in good order.
    Down,
    /// There.
    Up,
    /// No port was offered, or what was sent there may be lost: the coordinator's connection from now on.
    Relayed,
}

/// A way to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Way {
    /// The finisher's own connection.
    Own,
    /// Through the coordinator.
    Relay,
}

/// What the finisher is to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Order {
    /// Dial the client; fails when it refuses.
    Dial,
    /// Send all that stands before the completion; fails when the way is broken.
    SendDue(Way),
    /// Have the client answer the barrier on the own connection; fails when it does not.
    Prove,
    /// Give the own connection up in good order; fails when the client does not close it after having read all.
    Close,
    /// Tell the coordinator that only the completion is missing; fails when it is gone, which changes nothing.
    Announce,
    /// Send the completion; fails when the way is broken.
    SendCompletion(Way),
}

/// How an order went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Went {
    /// It is done.
    Well,
    /// It could not be done.
    Badly,
}

/// How a delivery ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Delivered {
    /// By the own connection, with proof.
    Directly,
    /// Through the coordinator, whose connection has an order.
    Relayed,
    /// The coordinator is gone, and there is no other way.
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

/// One finish on its way to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Delivery {
    line: Line,
    at: At,
    has_due: bool,
    has_relay: bool,
}

impl Delivery {
    /// Begins with the line as it is; without anything due the completion goes at once.
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

    /// Takes in that the coordinator is gone, and with it the other way.
    pub fn lose_relay(&mut self) {
        self.has_relay = false;
    }

    /// Returns what to do next, or how it ended.
    ///
    /// # Errors
    /// How it ended: there is nothing more to do.
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

    /// Takes in how the last order went.
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

    /// Returns what the line is now.
    #[must_use]
    pub fn line(&self) -> Line {
        self.line
    }
}

/// The last frame that a finisher relayed, held back by the coordinator until the finisher says that it has finished.
///
/// It is the run's completion. A finisher that dies between the two leaves its replacement to complete the run, which
/// must not happen twice.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HeldFrame<T>(Option<T>);

impl<T> Default for HeldFrame<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> HeldFrame<T> {
    /// Takes a relayed frame in; the one before it is to be passed on.
    pub fn relayed(&mut self, frame: T) -> Option<T> {
        self.0.replace(frame)
    }

    /// The finisher has finished; the last frame is to be passed on.
    pub fn finished(&mut self) -> Option<T> {
        self.0.take()
    }
}

/// What a record of a journal says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Said {
    /// The test runs.
    Started,
    /// The test has a result that may still be replaced.
    Held,
    /// The test has its result.
    Settled,
}

/// Why a test has no result on any stream when the coordinator has died.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unsettled {
    /// What was held back is its result; nothing can replace it any more.
    Held,
    /// It was running.
    Interrupted,
    /// It never ran.
    NotRun,
}

/// What is due when the coordinator has died.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DueAlone {
    /// Journals, each from a position on: all of them from the first, because nobody knows what the client has.
    pub resend: Vec<(WorkerId, u64)>,
    /// Tests without a result on any stream.
    pub told: Vec<(TestId, Unsettled)>,
}

/// Settles a run without its coordinator, from all its journals in any order and the number of its selected tests.
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
                // What was held back is truer than that it was tried again.
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

    /// Lets orders go as it is said, then well.
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
