//! Failure policy: what happens to the remaining tests when a process or a worker dies. This module neither
//! looks at the results of tests nor assigns work.

use std::time::Duration;

use super::state::{ActiveLease, RunState, TestLocation};
use crate::{LeaseId, LeaseOutcome, NotRunReason, Outcome, TestId, WorkerId, ledger::ResultStream};

/// Number of worker deaths during a test's process after which the test is not tried again.
const WORKER_DEATHS_PER_TEST: u8 = 2;
/// The same for deaths of the watchdog, during which all workers die with all their tests. A test that kills
/// the watchdog each time is left out before there is none any more, for the sake of the others.
const WATCHDOG_DEATHS_PER_TEST: u8 = 3;
/// Number of successful exits of a test's own process without running it after which the test is not tried
/// again.
const UNPRODUCTIVE_EXITS_PER_TEST: u8 = 2;
/// Number of consecutive processes that end early after which the program's batches become smaller.
const EARLY_ENDS_BEFORE_SHRINK: u32 = 3;
/// Divisor: a process ends early if it completes at most a tenth of its batch, or only its first test.
const EARLY_END_DIVISOR: usize = 10;

/// Returns whether the process of a lease has brought no test to its end; these are left of its tests.
pub(super) fn is_unproductive(held: &ActiveLease, rest: &[TestId]) -> bool {
    !held.is_extended && rest.len() == held.batch.tests.len()
}

impl RunState {
    /// Returns the worker if it had this lease.
    pub(super) fn on_lease_ended(
        &mut self,
        worker: WorkerId,
        lease: LeaseId,
        end: LeaseOutcome,
        start: Option<Duration>,
    ) -> Option<WorkerId> {
        if self.leases.get(&worker).is_none_or(|held| held.lease != lease) {
            return None;
        }
        let held = self.leases.remove(&worker)?;
        if let Some(start) = start {
            self.queue.observe_start(held.batch.program, start);
        }
        let rest = self.unfinished_tests(&held);
        if self.lifecycle.stop_reason().is_some() {
            self.requeue(&held, rest);
        } else if end == LeaseOutcome::Cancelled && held.cancel_mode.is_some() {
            if held.batch.is_isolated {
                self.requeue(&held, rest);
            } else {
                self.return_to_queue(&held, &rest);
            }
        } else if let LeaseOutcome::GuardLost(loss) = end {
            self.on_guard_lost(&held, rest, loss);
        } else if end == LeaseOutcome::StartTimedOut && is_unproductive(&held, &rest) {
            self.on_start_timeout(&held, rest);
        } else if rest.is_empty() {
            self.on_complete_batch(&held, end);
        } else if !is_unproductive(&held, &rest) {
            self.on_partial_batch(&held, rest);
        } else {
            self.on_unproductive_process(&held, rest, end);
        }
        Some(worker)
    }

    /// Returns the tests that are still in this lease.
    fn unfinished_tests(&self, held: &ActiveLease) -> Vec<TestId> {
        let is_here = |test: &&TestId| self.tests[test.index()].location.is_in(held.lease);
        held.batch.tests.iter().filter(is_here).copied().collect()
    }

    /// Returns tests to the queue: isolated tests one by one, others together.
    pub(super) fn requeue(&mut self, held: &ActiveLease, rest: Vec<TestId>) {
        for test in &rest {
            self.tests[test.index()].location = TestLocation::Waiting;
        }
        if held.batch.is_isolated {
            for test in rest {
                self.requeue_isolated(held.batch.program, test);
            }
        } else {
            self.queue.add_remainder(held.batch.program, rest);
        }
    }

    fn on_complete_batch(&mut self, held: &ActiveLease, end: LeaseOutcome) {
        let program = held.batch.program;
        if !held.batch.is_isolated {
            self.programs[program.index()].early_ends = 0;
        }
        match end {
            LeaseOutcome::Complete | LeaseOutcome::BadExit => {
                self.queue.grow_batches(program, held.batch.tests.len())
            }
            LeaseOutcome::DiedInTest
            | LeaseOutcome::DiedOutside
            | LeaseOutcome::StartTimedOut
            | LeaseOutcome::NotStarted
            | LeaseOutcome::GuardLost(_)
            | LeaseOutcome::Cancelled => {}
        }
    }

    /// Splits the unfinished tests of a lease into those that had begun and the others.
    pub(super) fn split_begun(&self, held: &ActiveLease, rest: Vec<TestId>) -> (Vec<TestId>, Vec<TestId>) {
        rest.into_iter().partition(|test| !self.is_leased(*test, held))
    }

    /// Handles a process that completed a part of its batch. The rest continues in one new process; but the
    /// batches of a program that does this repeatedly become smaller, because otherwise each of its processes
    /// would receive nearly all its tests.
    pub(super) fn on_partial_batch(&mut self, held: &ActiveLease, rest: Vec<TestId>) {
        let program = held.batch.program;
        let size = held.batch.tests.len();
        let state = &mut self.programs[program.index()];
        let is_early = (size - rest.len()) * EARLY_END_DIVISOR <= size.max(EARLY_END_DIVISOR);
        state.early_ends = if is_early { state.early_ends + 1 } else { 0 };
        if state.early_ends >= EARLY_ENDS_BEFORE_SHRINK {
            state.early_ends = 0;
            self.queue.shrink_batches(program, size);
        }
        self.requeue(held, rest);
    }

    /// Handles a process that ended without a report about any test. That is counted against its program;
    /// otherwise a run could continue forever.
    fn on_unproductive_process(&mut self, held: &ActiveLease, rest: Vec<TestId>, end: LeaseOutcome) {
        let program = held.batch.program;
        let is_smallest = held.batch.tests.len() == 1;
        let state = &mut self.programs[program.index()];
        state.unproductive_processes += u32::from(is_smallest);
        let deaths = state.unproductive_processes;
        let why = match end {
            LeaseOutcome::Complete => NotRunReason::NeverStarted,
            LeaseOutcome::BadExit
            | LeaseOutcome::DiedInTest
            | LeaseOutcome::DiedOutside
            | LeaseOutcome::StartTimedOut
            | LeaseOutcome::NotStarted
            | LeaseOutcome::GuardLost(_)
            | LeaseOutcome::Cancelled => NotRunReason::ProgramGivenUp { deaths },
        };
        if deaths >= self.plan.max_startup_crashes.max(1) {
            let waiting = self.take_program(program);
            for test in waiting.into_iter().chain(rest) {
                self.synthesize_result(test, why);
            }
        } else if is_smallest {
            self.requeue_last(rest, why);
        } else {
            self.queue.shrink_batches(program, held.batch.tests.len());
            self.requeue(held, rest);
        }
    }

    /// Handles a process that began no test within its startup limit: that is no fault of its tests. They are
    /// started again as they are, with twice the limit; processes that were started with the same limit count
    /// once.
    fn on_start_timeout(&mut self, held: &ActiveLease, rest: Vec<TestId>) {
        let program = held.batch.program;
        let timeouts = &mut self.programs[program.index()].start_timeouts;
        if held.start_timeouts == *timeouts {
            *timeouts += 1;
        }
        let attempts = *timeouts;
        if attempts < self.plan.max_startup_crashes.max(1) {
            return self.requeue(held, rest);
        }
        let waiting = self.take_program(program);
        for test in waiting.into_iter().chain(rest) {
            self.synthesize_result(test, NotRunReason::StartTimedOut { attempts });
        }
    }

    /// Queues tests that could not start in isolation after all others of their program: possibly only these
    /// tests are affected.
    fn requeue_last(&mut self, tests: Vec<TestId>, why: NotRunReason) {
        for test in tests {
            let state = &mut self.tests[test.index()];
            state.unproductive_exits += u8::from(why == NotRunReason::NeverStarted);
            if state.unproductive_exits >= UNPRODUCTIVE_EXITS_PER_TEST {
                self.synthesize_result(test, why);
            } else {
                state.location = TestLocation::Waiting;
                let planned = &self.plan.tests[test.index()];
                self.queue.add_last(planned.program, test, planned.weight);
            }
        }
    }

    /// Notes that a worker dies with the watchdog.
    pub(super) fn on_watchdog_died(&mut self, worker: WorkerId) {
        if let Some(held) = self.leases.get_mut(&worker) {
            held.is_lost_with_watchdog = true;
        }
    }

    pub(super) fn on_worker_lost(
        &mut self,
        worker: WorkerId,
        proven: u64,
        settled: Vec<(TestId, Outcome, Duration)>,
    ) {
        // The state of a closed stream is final, and without a stream the worker never had a lease.
        if !self.involves(worker) {
            return;
        }
        self.lifecycle.end_drain_of(worker);
        let held = self.leases.remove(&worker);
        let is_blamed = held.as_ref().is_some_and(|held| !held.is_lost_with_watchdog);
        if is_blamed && settled.is_empty() {
            self.workers.on_unproductive_death();
        }
        for (position, (test, outcome, duration)) in (1..).zip(settled) {
            self.on_settled(worker, test, outcome, duration, position);
        }
        self.ledger.close_stream(worker, proven);
        // Results that the client may lack are sent again at the end of the run, which must not wait for
        // further tests: a client may wait for these results before it adds any.
        self.is_open &= self.ledger.streams().get(&worker).is_none_or(ResultStream::is_proven);
        if let Some(held) = held {
            self.reclaim_lease(&held);
        }
    }

    /// Handles a worker that died with a lease. Tests that were running are rerun in isolation; if none is
    /// known to have run, the next test is suspected, because the report of its start may have been lost with
    /// the worker. Tests that had ended run again with the others, because their results are lost; if there
    /// are no others, one of them may kill each worker at its end.
    fn reclaim_lease(&mut self, held: &ActiveLease) {
        let rest = self.unfinished_tests(held);
        if self.lifecycle.stop_reason().is_some() {
            self.requeue(held, rest);
            return;
        }
        let is_in = |test: &TestId, place: TestLocation| self.tests[test.index()].location == place;
        let (mut suspects, mut others): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|test| is_in(test, TestLocation::InFlight(held.lease)));
        if suspects.is_empty() {
            let next = others.iter().position(|test| is_in(test, TestLocation::Leased(held.lease)));
            suspects = match next {
                Some(next) => vec![others.remove(next)],
                None => std::mem::take(&mut others),
            };
        }
        for test in suspects {
            let state = &mut self.tests[test.index()];
            let (deaths, most) = match held.is_lost_with_watchdog {
                true => (&mut state.watchdog_deaths, WATCHDOG_DEATHS_PER_TEST),
                false => (&mut state.worker_deaths, WORKER_DEATHS_PER_TEST),
            };
            *deaths += 1;
            if *deaths >= most {
                self.synthesize_result(test, NotRunReason::WorkerDied);
            } else {
                self.requeue_isolated(held.batch.program, test);
            }
        }
        self.requeue(held, others);
    }
}
