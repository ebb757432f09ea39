//! Failure policy: what happens to the remaining tests when a process or a worker dies. This module neither
//! looks at the results of tests nor assigns work.

use std::time::Duration;

use super::machine::{Held, Place, Run};
use crate::{LeaseEnd, LeaseId, NotRun, Outcome, TestId, WorkerId};

/// Number of worker deaths during a test's process after which the test is not tried again.
const WORKER_DEATHS_PER_TEST: u8 = 2;
/// Number of successful exits of a test's own process without running it after which the test is not tried
/// again.
const BARREN_ENDS_PER_TEST: u8 = 2;
/// Number of consecutive processes that end early after which the program's batches become smaller.
const EARLY_ENDS: u32 = 3;
/// Divisor: a process ends early if it completes at most a tenth of its batch, or only its first test.
const EARLY_PART: usize = 10;

impl Run {
    pub(super) fn lease_ended(
        &mut self,
        worker: WorkerId,
        lease: LeaseId,
        (end, start): (LeaseEnd, Option<Duration>),
    ) {
        if self.leases.get(&worker).is_none_or(|held| held.lease != lease) {
            return;
        }
        let Some(held) = self.leases.remove(&worker) else { return };
        self.free.push(worker);
        if let Some(start) = start {
            self.queue.observe_start(held.batch.program, start);
        }
        let rest = self.rest(&held);
        if self.stop.is_some() {
            self.put_back(&held, rest);
        } else if rest.is_empty() {
            self.ended_whole(&held, end);
        } else if rest.len() < held.batch.tests.len() {
            self.ended_between(&held, rest);
        } else {
            self.brought_nothing(&held, rest, end);
        }
    }

    /// Returns the tests that are still in this lease.
    fn rest(&self, held: &Held) -> Vec<TestId> {
        let is_here = |test: &&TestId| self.tests[test.index()].place.is_in(held.lease);
        held.batch.tests.iter().filter(is_here).copied().collect()
    }

    /// Returns tests to the queue: isolated tests one by one, others together.
    fn put_back(&mut self, held: &Held, rest: Vec<TestId>) {
        for test in &rest {
            self.tests[test.index()].place = Place::Waiting;
        }
        if held.batch.is_alone {
            for test in rest {
                self.wait_alone(held.batch.program, test);
            }
        } else {
            self.queue.resume(held.batch.program, rest);
        }
    }

    fn ended_whole(&mut self, held: &Held, end: LeaseEnd) {
        let program = held.batch.program;
        if !held.batch.is_alone {
            self.programs[program.index()].early_ends = 0;
        }
        match end {
            LeaseEnd::Complete | LeaseEnd::BadExit => self.queue.relax(program, held.batch.tests.len()),
            LeaseEnd::DiedInTest | LeaseEnd::DiedOutside | LeaseEnd::NotStarted | LeaseEnd::Cancelled => {}
        }
    }

    /// Handles a process that completed a part of its batch. The rest continues in one new process; but the
    /// batches of a program that does this repeatedly become smaller, because otherwise each of its processes
    /// would receive nearly all its tests.
    fn ended_between(&mut self, held: &Held, rest: Vec<TestId>) {
        let program = held.batch.program;
        let size = held.batch.tests.len();
        let state = &mut self.programs[program.index()];
        let is_early = (size - rest.len()) * EARLY_PART <= size.max(EARLY_PART);
        state.early_ends = if is_early { state.early_ends + 1 } else { 0 };
        if state.early_ends >= EARLY_ENDS {
            state.early_ends = 0;
            self.queue.shrink(program, size);
        }
        self.put_back(held, rest);
    }

    /// Handles a process that ended without a report about any test. That is counted against its program;
    /// otherwise a run could continue forever.
    fn brought_nothing(&mut self, held: &Held, rest: Vec<TestId>, end: LeaseEnd) {
        let program = held.batch.program;
        let is_smallest = held.batch.tests.len() == 1;
        let state = &mut self.programs[program.index()];
        state.barren += u32::from(is_smallest);
        let deaths = state.barren;
        let why = match end {
            LeaseEnd::Complete => NotRun::NeverBegan,
            LeaseEnd::BadExit
            | LeaseEnd::DiedInTest
            | LeaseEnd::DiedOutside
            | LeaseEnd::NotStarted
            | LeaseEnd::Cancelled => NotRun::GivenUp { deaths },
        };
        if deaths >= self.plan.give_up_after.max(1) {
            let waiting = self.queue.forget_program(program);
            for test in waiting.into_iter().chain(rest) {
                self.tell(test, why);
            }
        } else if is_smallest {
            self.try_last(rest, why);
        } else {
            self.queue.shrink(program, held.batch.tests.len());
            self.put_back(held, rest);
        }
    }

    /// Queues tests that could not start in isolation after all others of their program: possibly only these
    /// tests are affected.
    fn try_last(&mut self, tests: Vec<TestId>, why: NotRun) {
        for test in tests {
            let state = &mut self.tests[test.index()];
            state.barren_ends += u8::from(why == NotRun::NeverBegan);
            if state.barren_ends >= BARREN_ENDS_PER_TEST {
                self.tell(test, why);
            } else {
                state.place = Place::Waiting;
                let planned = &self.plan.tests[test.index()];
                self.queue.add_last(planned.program, test, planned.weight);
            }
        }
    }

    pub(super) fn worker_lost(
        &mut self,
        worker: WorkerId,
        proven: u64,
        settled: Vec<(TestId, Outcome, Duration)>,
    ) {
        if !self.gone.insert(worker) {
            return;
        }
        self.free.retain(|one| *one != worker);
        self.away.remove(&worker);
        self.draining.retain(|one| *one != worker);
        let held = self.leases.remove(&worker);
        self.barren_workers += usize::from(held.is_some() && settled.is_empty());
        for (position, (test, outcome, duration)) in (1..).zip(settled) {
            self.settled(worker, test, (outcome, duration, position));
        }
        if self.ledger.streams().contains_key(&worker) {
            self.ledger.close_stream(worker, proven);
        }
        if let Some(held) = held {
            self.left_behind(&held);
        }
    }

    /// Handles a worker that died with a lease. Tests that had started are rerun in isolation; if none is
    /// known to have started, the next test is suspected, because the report of its start may have been lost
    /// with the worker.
    fn left_behind(&mut self, held: &Held) {
        let rest = self.rest(held);
        if self.stop.is_some() {
            self.put_back(held, rest);
            return;
        }
        let is_begun = |test: &TestId| self.tests[test.index()].place == Place::InFlight(held.lease);
        let (mut suspects, mut waiting): (Vec<_>, Vec<_>) = rest.into_iter().partition(is_begun);
        if suspects.is_empty() && !waiting.is_empty() {
            suspects.push(waiting.remove(0));
        }
        for test in suspects {
            let state = &mut self.tests[test.index()];
            state.worker_deaths += 1;
            if state.worker_deaths >= WORKER_DEATHS_PER_TEST {
                self.tell(test, NotRun::WorkerDied);
            } else {
                self.wait_alone(held.batch.program, test);
            }
        }
        self.put_back(held, waiting);
    }
}
