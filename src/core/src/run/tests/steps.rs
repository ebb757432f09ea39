//! What can happen next in a world, and what it does.

use std::collections::VecDeque;

use super::world::{CheckResult, ModelWorker, ModelWorld, SHORT, UNLIMITED};
use crate::{LeaseOutcome, Outcome, ProvisionalReason, TestId, WorkerId, run::RunEvent};

/// One step of the world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WorldStep {
    StartSucceeds,
    StartFails,
    /// The process begins the test at this place of its batch.
    Begin(WorkerId, usize),
    /// The test in flight ends.
    End(WorkerId, Outcome),
    /// The test in flight takes its process with it.
    Die(WorkerId),
    /// The test in flight is ended by its limit, and its process with it.
    TimeOut(WorkerId),
    /// The process ends outside any test.
    Leave(WorkerId, LeaseOutcome),
    /// The process is ended by our wish.
    EndCancelled(WorkerId),
    /// The run hears a message.
    Deliver(WorkerId),
    /// A worker dies; so many of its results are with the client.
    WorkerDies(WorkerId, usize),
    /// A worker has proven so many of its results.
    Drained(WorkerId, usize),
    Finished,
    Cancel,
    /// An idle worker serves another run.
    Lend(WorkerId),
    /// It comes back.
    GiveBack(WorkerId),
    /// The run may have so many leases at once.
    Share(usize),
}

impl WorldStep {
    /// Whether the adversary pays for it.
    pub(super) fn is_fault(&self, world: &ModelWorld) -> bool {
        match self {
            Self::StartFails | Self::Die(_) | Self::TimeOut(_) | Self::WorkerDies(..) | Self::Cancel => true,
            Self::Lend(_) => true,
            // Nobody is left without a share for ever.
            Self::Share(share) => world.share > 0 || *share < world.slots,
            Self::End(_, outcome) => outcome.is_failure(),
            Self::Begin(worker, place) => world.next_of(*worker) != Some(*place),
            Self::Leave(worker, end) => *end != LeaseOutcome::Complete || world.next_of(*worker).is_some(),
            Self::StartSucceeds
            | Self::EndCancelled(_)
            | Self::Deliver(_)
            | Self::Drained(..)
            | Self::GiveBack(_)
            | Self::Finished => false,
        }
    }
}

impl ModelWorld {
    /// The place that the process begins next; `None` when it is through.
    fn next_of(&self, worker: WorkerId) -> Option<usize> {
        let hand = self.workers[&worker].hand.as_ref()?;
        (hand.next < hand.lease.batch.tests.len()).then_some(hand.next)
    }

    /// All that can happen now.
    pub(super) fn steps(&self) -> Vec<WorldStep> {
        let mut steps = Vec::new();
        if self.is_completed {
            return steps;
        }
        for (id, worker) in &self.workers {
            self.worker_steps(*id, worker, &mut steps);
        }
        if self.starting > 0 {
            steps.push(WorldStep::StartSucceeds);
            if self.faults.deaths > 0 {
                steps.push(WorldStep::StartFails);
            }
        }
        if self.is_finishing {
            steps.push(WorldStep::Finished);
        }
        if self.faults.cancels > 0 {
            steps.push(WorldStep::Cancel);
        }
        self.loan_steps(&mut steps);
        steps
    }

    fn loan_steps(&self, steps: &mut Vec<WorldStep>) {
        steps.extend(self.away.iter().map(|worker| WorldStep::GiveBack(*worker)));
        if self.faults.loans > 0 {
            steps.extend(self.run.idle_workers().iter().map(|worker| WorldStep::Lend(*worker)));
            steps.extend((0..=self.slots).filter(|share| *share != self.share).map(WorldStep::Share));
        } else if self.share == 0 {
            steps.push(WorldStep::Share(self.slots));
        }
    }

    fn worker_steps(&self, id: WorkerId, worker: &ModelWorker, steps: &mut Vec<WorldStep>) {
        let may_die = self.faults.deaths > 0;
        let journal = self.journals.get(&id).map_or(0, Vec::len);
        // Where everything may die at any time, fewer proofs are enough.
        let is_endless = self.faults.deaths == UNLIMITED;
        let proofs = || [0, journal.min(1), journal].into_iter().skip(usize::from(is_endless));
        if !worker.outbox.is_empty() {
            steps.push(WorldStep::Deliver(id));
        } else if worker.is_asked_to_drain && !worker.is_drained {
            steps.extend(proofs().map(|proven| WorldStep::Drained(id, proven)));
        }
        if worker.outbox.len() < self.outbox {
            self.process_steps(id, worker, steps);
        }
        if may_die {
            steps.extend(proofs().map(|proven| WorldStep::WorkerDies(id, proven)));
        }
        steps.dedup();
    }

    fn process_steps(&self, id: WorkerId, worker: &ModelWorker, steps: &mut Vec<WorldStep>) {
        let Some(hand) = &worker.hand else { return };
        let may_die = self.faults.deaths > 0;
        let count = hand.lease.batch.tests.len();
        if hand.in_flight.is_some() {
            steps.push(WorldStep::End(id, Outcome::Passed));
            if self.faults.failures > 0 {
                steps.push(WorldStep::End(id, Outcome::Failed));
            }
            if may_die {
                steps.extend([WorldStep::Die(id), WorldStep::TimeOut(id)]);
            }
        } else {
            steps.extend(
                (hand.next..count).take(if may_die { 2 } else { 1 }).map(|place| WorldStep::Begin(id, place)),
            );
            if hand.next == count || may_die {
                steps.push(WorldStep::Leave(id, LeaseOutcome::Complete));
            }
            if may_die {
                let end = if hand.next == count { LeaseOutcome::BadExit } else { LeaseOutcome::DiedOutside };
                steps.push(WorldStep::Leave(id, end));
            }
            if may_die && hand.next == 0 {
                steps.push(WorldStep::Leave(id, LeaseOutcome::NotStarted));
            }
        }
        if worker.cancel_mode.is_some() {
            steps.push(WorldStep::EndCancelled(id));
        }
    }

    /// Lets a step happen.
    pub(super) fn take(&mut self, step: &WorldStep) -> CheckResult {
        if step.is_fault(self) {
            let left = match step {
                WorldStep::End(..) => &mut self.faults.failures,
                WorldStep::Cancel => &mut self.faults.cancels,
                WorldStep::Lend(_) | WorldStep::Share(_) => &mut self.faults.loans,
                _ => &mut self.faults.deaths,
            };
            *left -= u8::from(*left != UNLIMITED);
        }
        match step {
            WorldStep::StartSucceeds => {
                self.starting -= 1;
                self.last_worker += 1;
                self.tell(RunEvent::WorkerReady(WorkerId(self.last_worker)))
            }
            WorldStep::StartFails => {
                self.starting -= 1;
                self.tell(RunEvent::WorkerNotStarted)
            }
            WorldStep::Begin(worker, place) => self.begin_test(*worker, *place),
            WorldStep::End(worker, outcome) => self.end_test(*worker, *outcome, None),
            WorldStep::Die(worker) => self.die(*worker),
            WorldStep::TimeOut(worker) => {
                self.end_test(*worker, Outcome::TimedOut, Some(LeaseOutcome::DiedInTest))
            }
            WorldStep::Leave(worker, end) => self.leave(*worker, *end),
            WorldStep::EndCancelled(worker) => self.end_cancelled(*worker),
            WorldStep::Deliver(worker) => {
                let event = self.workers.get_mut(worker).unwrap().outbox.pop_front().unwrap();
                self.tell(event)
            }
            WorldStep::WorkerDies(worker, proven) => self.worker_dies(*worker, *proven),
            WorldStep::Drained(worker, proven) => {
                self.workers.get_mut(worker).unwrap().is_drained = true;
                self.tell(RunEvent::Drained { worker: *worker, proven: *proven as u64 })
            }
            WorldStep::Finished => self.tell(RunEvent::Finished),
            WorldStep::Cancel => self.tell(RunEvent::Cancel),
            WorldStep::Lend(worker) => self.tell(RunEvent::WorkerReassigned(*worker)),
            WorldStep::GiveBack(worker) => self.tell(RunEvent::WorkerReady(*worker)),
            WorldStep::Share(share) => self.tell(RunEvent::SlotShare(*share)),
        }
    }

    fn outbox(&mut self, worker: WorkerId) -> &mut VecDeque<RunEvent> {
        &mut self.workers.get_mut(&worker).unwrap().outbox
    }

    fn begin_test(&mut self, worker: WorkerId, place: usize) -> CheckResult {
        let hand = self.workers.get_mut(&worker).unwrap().hand.as_mut().unwrap();
        (hand.in_flight, hand.next) = (Some(place), place + 1);
        let event = RunEvent::Started { lease: hand.lease.lease, test: hand.lease.batch.tests[place] };
        self.outbox(worker).push_back(event);
        Ok(())
    }

    fn end_test(&mut self, worker: WorkerId, outcome: Outcome, end: Option<LeaseOutcome>) -> CheckResult {
        let hand = self.workers.get_mut(&worker).unwrap().hand.as_mut().unwrap();
        let place = hand.in_flight.take().unwrap();
        let (lease, test) = (hand.lease.lease, hand.lease.batch.tests[place]);
        if outcome.is_failure() && hand.lease.is_failure_provisional[place] {
            self.outbox(worker).push_back(RunEvent::Provisional {
                lease,
                test,
                by: ProvisionalReason::AwaitsRetry,
            });
        } else {
            self.settle(worker, test, outcome);
        }
        end.map_or(Ok(()), |end| self.leave(worker, end))
    }

    fn settle(&mut self, worker: WorkerId, test: TestId, outcome: Outcome) {
        let journal = self.journals.entry(worker).or_default();
        journal.push((test, outcome));
        let position = journal.len() as u64;
        self.outbox(worker).push_back(RunEvent::Settled { worker, test, outcome, duration: SHORT, position });
    }

    fn die(&mut self, worker: WorkerId) -> CheckResult {
        let hand = self.workers.get_mut(&worker).unwrap().hand.as_mut().unwrap();
        if hand.lease.batch.is_isolated {
            return self.end_test(worker, Outcome::Crashed, Some(LeaseOutcome::DiedInTest));
        }
        let place = hand.in_flight.take().unwrap();
        let (lease, test) = (hand.lease.lease, hand.lease.batch.tests[place]);
        self.outbox(worker).push_back(RunEvent::Provisional {
            lease,
            test,
            by: ProvisionalReason::AwaitsIsolatedRun,
        });
        self.leave(worker, LeaseOutcome::DiedInTest)
    }

    fn leave(&mut self, worker: WorkerId, end: LeaseOutcome) -> CheckResult {
        let hand = self.workers.get_mut(&worker).unwrap().hand.take().unwrap();
        let event = RunEvent::LeaseEnded { worker, lease: hand.lease.lease, end, start: None };
        self.outbox(worker).push_back(event);
        Ok(())
    }

    fn end_cancelled(&mut self, worker: WorkerId) -> CheckResult {
        let hand = self.workers[&worker].hand.as_ref().unwrap();
        if let Some(place) = hand.in_flight {
            self.settle(worker, hand.lease.batch.tests[place], Outcome::Cancelled);
        }
        self.leave(worker, LeaseOutcome::Cancelled)
    }

    fn worker_dies(&mut self, worker: WorkerId, proven: usize) -> CheckResult {
        let journal = self.journals.get(&worker).cloned().unwrap_or_default();
        let settled = journal.iter().map(|(test, outcome)| (*test, *outcome, SHORT)).collect();
        let outbox = std::mem::take(self.outbox(worker));
        self.tell(RunEvent::WorkerLost { worker, proven: proven as u64, settled })?;
        self.check_stale(worker, outbox)
    }
}
