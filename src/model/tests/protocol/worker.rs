//! What workers do: they run their leases, and bring each result into the journal, to the client, to the coordinator,
//! in this order.

use model::{HeldBy, LeaseEnd, Outcome, TestId, WorkerId, finish::Said};

use crate::{
    mistakes::Mistake,
    system::{At, Frame, FromWorker, Hand, Route, Scenario, Source, System, Worker},
};

/// What a worker does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Deed {
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

const STEPS: [Settling; 3] = [Settling::Journal, Settling::Send, Settling::Report];
const STEPS_MISTAKEN: [Settling; 3] = [Settling::Send, Settling::Journal, Settling::Report];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Settling {
    Journal,
    Send,
    Report,
}

fn settling(scenario: &Scenario, step: u8) -> Settling {
    let steps = if scenario.mistake == Mistake::JournalAfterSend { STEPS_MISTAKEN } else { STEPS };
    steps[usize::from(step)]
}

impl Deed {
    /// Whether it is one of the deaths.
    pub(crate) fn is_fault(self) -> bool {
        matches!(self, Self::DieInTest | Self::Refused | Self::Unanswered | Self::Reset | Self::Die)
    }
}

impl Worker {
    /// Lists what it may do, beside dying.
    pub(crate) fn deeds(&self, scenario: &Scenario, deeds: &mut Vec<Deed>) {
        if self.route == Route::Open {
            deeds.push(Deed::Reset);
        }
        let Some(hand) = &self.hand else {
            if self.is_to_drain {
                deeds.push(Deed::Drain);
                deeds.extend((self.route == Route::Open).then_some(Deed::Unanswered));
            }
            return;
        };
        match hand.at {
            At::Idle if self.is_cancelled || hand.next == hand.lease.batch.tests.len() => {
                deeds.push(Deed::Leave);
            }
            At::Idle => deeds.push(Deed::Begin),
            At::Running => {
                deeds.extend([Deed::End, Deed::DieInTest]);
                deeds.extend(hand.lease.is_failure_held[hand.next].then_some(Deed::Fail));
            }
            At::Settling(step) => {
                deeds.push(Deed::Settle);
                let is_dialling =
                    self.route == Route::NotDialled && settling(scenario, step) == Settling::Send;
                deeds.extend(is_dialling.then_some(Deed::Refused));
            }
        }
    }
}

impl System {
    /// Lets a worker do something.
    pub(crate) fn work(&mut self, scenario: &Scenario, id: WorkerId, deed: Deed) {
        match deed {
            Deed::Begin => {
                let hand = self.hand(id);
                hand.at = At::Running;
                let (lease, test) = (hand.lease.lease, hand.lease.batch.tests[hand.next]);
                self.journal(id, test, Said::Started);
                self.say(id, FromWorker::Started { lease, test });
            }
            Deed::End => {
                self.hand(id).at = At::Settling(0);
                self.worker(id).position += 1;
                self.settle(scenario, id);
            }
            Deed::Fail => self.hold(id, HeldBy::Retry),
            Deed::DieInTest => {
                if self.hand(id).lease.batch.is_alone {
                    self.hand(id).end = Some(LeaseEnd::DiedInTest);
                    self.work(scenario, id, Deed::End);
                } else {
                    self.hold(id, HeldBy::LoneRun);
                    self.leave(id, LeaseEnd::DiedInTest);
                }
            }
            Deed::Settle => self.settle(scenario, id),
            Deed::Refused => {
                self.worker(id).route = Route::Broken;
                self.settle(scenario, id);
            }
            Deed::Leave => {
                let is_whole = self.hand(id).next == self.hand(id).lease.batch.tests.len();
                self.leave(id, if is_whole { LeaseEnd::Complete } else { LeaseEnd::Cancelled });
            }
            Deed::Drain => self.drain(id),
            Deed::Unanswered => {
                self.break_route(id, Route::Broken);
                self.drain(id);
            }
            Deed::Reset => self.break_route(id, Route::Reset),
            Deed::Die => drop(self.workers.remove(&id)),
        }
    }

    fn worker(&mut self, id: WorkerId) -> &mut Worker {
        self.workers.get_mut(&id).expect("only the living do something")
    }

    fn hand(&mut self, id: WorkerId) -> &mut Hand {
        self.worker(id).hand.as_mut().expect("only workers with a lease do this")
    }

    fn journal(&mut self, id: WorkerId, test: TestId, said: Said) {
        self.journals.entry(id).or_default().push((test, said));
    }

    fn say(&mut self, id: WorkerId, message: FromWorker) {
        if self.coordinator.is_some() {
            self.from_workers.entry(id).or_default().push_back(message);
        }
    }

    /// A result is held back, because something may replace it.
    fn hold(&mut self, id: WorkerId, by: HeldBy) {
        let hand = self.hand(id);
        let (lease, test) = (hand.lease.lease, hand.lease.batch.tests[hand.next]);
        (hand.at, hand.next) = (At::Idle, hand.next + 1);
        self.journal(id, test, Said::Held);
        self.say(id, FromWorker::Held { lease, test, by });
    }

    fn settle(&mut self, scenario: &Scenario, id: WorkerId) {
        let position = self.worker(id).position;
        let hand = self.hand(id);
        let At::Settling(step) = hand.at else { return };
        let test = hand.lease.batch.tests[hand.next];
        hand.at = At::Settling(step + 1);
        match settling(scenario, step) {
            Settling::Journal => self.journal(id, test, Said::Settled),
            Settling::Send => self.send(id, (test, Source::Journal(id, position))),
            Settling::Report => {
                let (next, end) = (hand.next + 1, hand.end);
                (hand.at, hand.next) = (At::Idle, next);
                self.say(id, FromWorker::Settled { test, outcome: Outcome::Passed, position });
                if let Some(end) = end {
                    self.leave(id, end);
                }
            }
        }
    }

    fn send(&mut self, id: WorkerId, result: (TestId, Source)) {
        let frame = Frame::Results(vec![result]);
        let worker = self.workers.get_mut(&id).expect("only the living do something");
        match worker.route {
            Route::Relay => {
                let position = worker.position;
                self.say(id, FromWorker::Relayed { frame, position });
            }
            Route::NotDialled | Route::Open => {
                worker.route = Route::Open;
                self.client.send(&frame, Some(&mut worker.unproven));
            }
            Route::Reset | Route::Broken => worker.route = Route::Broken,
        }
    }

    fn leave(&mut self, id: WorkerId, end: LeaseEnd) {
        let lease = self.hand(id).lease.lease;
        self.worker(id).hand = None;
        self.say(id, FromWorker::Ended { lease, end });
    }

    fn break_route(&mut self, id: WorkerId, route: Route) {
        let worker = self.worker(id);
        worker.route = route;
        worker.unproven.clear();
    }

    fn drain(&mut self, id: WorkerId) {
        let worker = self.workers.get_mut(&id).expect("only the living do something");
        worker.is_to_drain = false;
        let proven = match worker.route {
            Route::Relay | Route::NotDialled => worker.position,
            Route::Open => {
                self.client.read(&mut worker.unproven);
                worker.position
            }
            Route::Reset | Route::Broken => 0,
        };
        self.say(id, FromWorker::Drained { proven });
    }
}
