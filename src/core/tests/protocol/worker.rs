//! What workers do: they run their leases, and bring each result into the journal, to the client, to the coordinator,
//! in this order.

use heeler_core::{LeaseOutcome, Outcome, ProvisionalReason, TestId, WorkerId, delivery::JournalMark};

use crate::{
    mistakes::PlantedMistake,
    system::{
        ProtocolScenario, ProtocolSystem, ResultSource, SimFrame, SimLease, SimRoute, SimTestPhase,
        SimWorker, SimWorkerMessage,
    },
};

/// What a worker does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum SimWorkerStep {
    /// The next test begins.
    Begin,
    /// It ends with its result.
    End,
    /// It fails, and is to be tried again.
    Fail,
    /// Its process dies under it.
    DieInTest,
    /// The result goes its next step.
    Settle,
    /// The client refuses the connection that the result was to go by.
    Refused,
    /// The process of the lease ends.
    Leave,
    /// The stream is proven, as far as it can be.
    Drain,
    /// The client does not answer the barrier.
    Unanswered,
    /// The client resets the connection.
    Reset,
    /// The worker dies.
    Die,
}

const STEPS: [SettlingStep; 3] = [SettlingStep::Journal, SettlingStep::Send, SettlingStep::Report];
const STEPS_MISTAKEN: [SettlingStep; 3] = [SettlingStep::Send, SettlingStep::Journal, SettlingStep::Report];

#[derive(Clone, Copy, PartialEq, Eq)]
enum SettlingStep {
    Journal,
    Send,
    Report,
}

fn settling(scenario: &ProtocolScenario, step: u8) -> SettlingStep {
    let steps = if scenario.mistake == PlantedMistake::JournalAfterSend { STEPS_MISTAKEN } else { STEPS };
    steps[usize::from(step)]
}

impl SimWorkerStep {
    /// Whether it is one of the deaths.
    pub(crate) fn is_fault(self) -> bool {
        matches!(self, Self::DieInTest | Self::Refused | Self::Unanswered | Self::Reset | Self::Die)
    }
}

impl SimWorker {
    /// Lists what it may do, beside dying.
    pub(crate) fn deeds(&self, scenario: &ProtocolScenario, deeds: &mut Vec<SimWorkerStep>) {
        if self.route == SimRoute::Open {
            deeds.push(SimWorkerStep::Reset);
        }
        let Some(hand) = &self.hand else {
            if self.is_to_drain {
                deeds.push(SimWorkerStep::Drain);
                deeds.extend((self.route == SimRoute::Open).then_some(SimWorkerStep::Unanswered));
            }
            return;
        };
        match hand.at {
            SimTestPhase::Idle if self.is_cancelled || hand.next == hand.lease.batch.tests.len() => {
                deeds.push(SimWorkerStep::Leave);
            }
            SimTestPhase::Idle => deeds.push(SimWorkerStep::Begin),
            SimTestPhase::Running => {
                deeds.extend([SimWorkerStep::End, SimWorkerStep::DieInTest]);
                deeds.extend(hand.lease.is_failure_provisional[hand.next].then_some(SimWorkerStep::Fail));
            }
            SimTestPhase::Settling(step) => {
                deeds.push(SimWorkerStep::Settle);
                let is_dialling =
                    self.route == SimRoute::NotDialled && settling(scenario, step) == SettlingStep::Send;
                deeds.extend(is_dialling.then_some(SimWorkerStep::Refused));
            }
        }
    }
}

impl ProtocolSystem {
    /// Lets a worker do something.
    pub(crate) fn work(&mut self, scenario: &ProtocolScenario, id: WorkerId, deed: SimWorkerStep) {
        match deed {
            SimWorkerStep::Begin => {
                let hand = self.hand(id);
                hand.at = SimTestPhase::Running;
                let (lease, test) = (hand.lease.lease, hand.lease.batch.tests[hand.next]);
                self.journal(id, test, JournalMark::Started);
                self.say(id, SimWorkerMessage::Started { lease, test });
            }
            SimWorkerStep::End => {
                self.hand(id).at = SimTestPhase::Settling(0);
                self.worker(id).position += 1;
                self.settle(scenario, id);
            }
            SimWorkerStep::Fail => self.hold(id, ProvisionalReason::AwaitsRetry),
            SimWorkerStep::DieInTest => {
                if self.hand(id).lease.batch.is_isolated {
                    self.hand(id).end = Some(LeaseOutcome::DiedInTest);
                    self.work(scenario, id, SimWorkerStep::End);
                } else {
                    self.hold(id, ProvisionalReason::AwaitsIsolatedRun);
                    self.leave(id, LeaseOutcome::DiedInTest);
                }
            }
            SimWorkerStep::Settle => self.settle(scenario, id),
            SimWorkerStep::Refused => {
                self.worker(id).route = SimRoute::Broken;
                self.settle(scenario, id);
            }
            SimWorkerStep::Leave => {
                let is_whole = self.hand(id).next == self.hand(id).lease.batch.tests.len();
                self.leave(id, if is_whole { LeaseOutcome::Complete } else { LeaseOutcome::Cancelled });
            }
            SimWorkerStep::Drain => self.drain(id),
            SimWorkerStep::Unanswered => {
                self.break_route(id, SimRoute::Broken);
                self.drain(id);
            }
            SimWorkerStep::Reset => self.break_route(id, SimRoute::Reset),
            SimWorkerStep::Die => drop(self.workers.remove(&id)),
        }
    }

    fn worker(&mut self, id: WorkerId) -> &mut SimWorker {
        self.workers.get_mut(&id).expect("only the living do something")
    }

    fn hand(&mut self, id: WorkerId) -> &mut SimLease {
        self.worker(id).hand.as_mut().expect("only workers with a lease do this")
    }

    fn journal(&mut self, id: WorkerId, test: TestId, said: JournalMark) {
        self.journals.entry(id).or_default().push((test, said));
    }

    fn say(&mut self, id: WorkerId, message: SimWorkerMessage) {
        if self.coordinator.is_some() {
            self.from_workers.entry(id).or_default().push_back(message);
        }
    }

    /// A result is held back, because something may replace it.
    fn hold(&mut self, id: WorkerId, by: ProvisionalReason) {
        let hand = self.hand(id);
        let (lease, test) = (hand.lease.lease, hand.lease.batch.tests[hand.next]);
        (hand.at, hand.next) = (SimTestPhase::Idle, hand.next + 1);
        self.journal(id, test, JournalMark::Provisional);
        self.say(id, SimWorkerMessage::Held { lease, test, by });
    }

    fn settle(&mut self, scenario: &ProtocolScenario, id: WorkerId) {
        let position = self.worker(id).position;
        let hand = self.hand(id);
        let SimTestPhase::Settling(step) = hand.at else { return };
        let test = hand.lease.batch.tests[hand.next];
        hand.at = SimTestPhase::Settling(step + 1);
        match settling(scenario, step) {
            SettlingStep::Journal => self.journal(id, test, JournalMark::Settled),
            SettlingStep::Send => self.send(id, (test, ResultSource::Journal(id, position))),
            SettlingStep::Report => {
                let (next, end) = (hand.next + 1, hand.end);
                (hand.at, hand.next) = (SimTestPhase::Idle, next);
                self.say(id, SimWorkerMessage::Settled { test, outcome: Outcome::Passed, position });
                if let Some(end) = end {
                    self.leave(id, end);
                }
            }
        }
    }

    fn send(&mut self, id: WorkerId, result: (TestId, ResultSource)) {
        let frame = SimFrame::Results(vec![result]);
        let worker = self.workers.get_mut(&id).expect("only the living do something");
        match worker.route {
            SimRoute::Relay => {
                let position = worker.position;
                self.say(id, SimWorkerMessage::Relayed { frame, position });
            }
            SimRoute::NotDialled | SimRoute::Open => {
                worker.route = SimRoute::Open;
                self.client.send(&frame, Some(&mut worker.unproven));
            }
            SimRoute::Reset | SimRoute::Broken => worker.route = SimRoute::Broken,
        }
    }

    fn leave(&mut self, id: WorkerId, end: LeaseOutcome) {
        let lease = self.hand(id).lease.lease;
        self.worker(id).hand = None;
        self.say(id, SimWorkerMessage::Ended { lease, end });
    }

    fn break_route(&mut self, id: WorkerId, route: SimRoute) {
        let worker = self.worker(id);
        worker.route = route;
        worker.unproven.clear();
    }

    fn drain(&mut self, id: WorkerId) {
        let worker = self.workers.get_mut(&id).expect("only the living do something");
        worker.is_to_drain = false;
        let proven = match worker.route {
            SimRoute::Relay | SimRoute::NotDialled => worker.position,
            SimRoute::Open => {
                self.client.read(&mut worker.unproven);
                worker.position
            }
            SimRoute::Reset | SimRoute::Broken => 0,
        };
        self.say(id, SimWorkerMessage::Drained { proven });
    }
}
