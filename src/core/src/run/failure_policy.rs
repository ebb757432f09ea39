//! Failure policy: decides about the remaining tests when a process or worker dies. This module does not look
//! at test results or assign work.

use super::{
    active_lease::ActiveLease,
    guard_loss::GuardLosses,
    run_tests::{RunTests, TestSituation},
};
use crate::{GuardLoss, LeaseOutcome, NotRunReason, ProgramId, TestId};

/// After this many consecutive processes that end early, the program's batches become smaller.
const EARLY_ENDS_BEFORE_SHRINK: u32 = 3;
/// Divisor: a process ends early if it completes at most a tenth of its batch, or only the first test.
const EARLY_END_DIVISOR: usize = 10;
/// A program is given up after this many consecutive processes lost their guards before any test started, or
/// after [`GUARD_LOSSES_PER_SLOT`] per slot if that is more: a common cause may kill the guards of all slots
/// at once.
const MIN_GUARD_LOSSES_PER_PROGRAM: u32 = 12;
const GUARD_LOSSES_PER_SLOT: u32 = 4;

/// Failures of one program's processes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct ProcessFailures {
    /// Consecutive processes with a batch of one test that reported nothing.
    unproductive_processes: u32,
    /// Startup timeouts of the program's processes. Each one doubles the limit.
    start_timeouts: u32,
    /// Consecutive processes that completed only a small part of their batch.
    early_ends: u32,
    /// Consecutive guard losses before any test of the program had started.
    guard_losses: GuardLosses,
}

/// Failures of all programs, and how many a program may have before it is given up.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct FailurePolicy {
    programs: Vec<ProcessFailures>,
    max_startup_crashes: u32,
    max_guard_losses: u32,
}

impl FailurePolicy {
    pub(super) fn new(programs: usize, max_startup_crashes: u32, slots: usize) -> Self {
        let losses = u32::try_from(slots).unwrap_or(u32::MAX).saturating_mul(GUARD_LOSSES_PER_SLOT);
        Self {
            programs: vec![ProcessFailures::default(); programs],
            max_startup_crashes: max_startup_crashes.max(1),
            max_guard_losses: losses.max(MIN_GUARD_LOSSES_PER_PROGRAM),
        }
    }

    /// Returns the number of startup timeouts of a program's processes.
    pub(super) fn start_timeouts(&self, program: ProgramId) -> u32 {
        self.programs[program.index()].start_timeouts
    }

    /// Records that a process of the program has reported the end of a test.
    pub(super) fn on_report(&mut self, program: ProgramId) {
        let failures = &mut self.programs[program.index()];
        failures.unproductive_processes = 0;
        failures.guard_losses = GuardLosses::default();
    }

    /// Handles the unexpected end of a process that left these tests without a result.
    pub(super) fn on_process_ended(
        &mut self,
        tests: &mut RunTests,
        held: &ActiveLease,
        end: LeaseOutcome,
        rest: Vec<TestId>,
    ) {
        if let LeaseOutcome::GuardLost(loss) = end {
            self.on_guard_lost(tests, held, rest, loss);
        } else if end == LeaseOutcome::StartTimedOut && held.is_unproductive(&rest) {
            self.on_start_timeout(tests, held, rest);
        } else if rest.is_empty() {
            self.on_complete_batch(tests, held, end);
        } else if !held.is_unproductive(&rest) {
            self.on_partial_batch(tests, held, rest);
        } else {
            self.on_unproductive_process(tests, held, rest, end);
        }
    }

    fn on_complete_batch(&mut self, tests: &mut RunTests, held: &ActiveLease, end: LeaseOutcome) {
        let batch = held.batch();
        if !batch.is_isolated {
            self.programs[batch.program.index()].early_ends = 0;
        }
        match end {
            LeaseOutcome::Complete | LeaseOutcome::BadExit => {
                tests.grow_batches(batch.program, batch.tests.len());
            }
            LeaseOutcome::DiedInTest
            | LeaseOutcome::DiedOutside
            | LeaseOutcome::StartTimedOut
            | LeaseOutcome::NotStarted
            | LeaseOutcome::GuardLost(_)
            | LeaseOutcome::Cancelled => {}
        }
    }

    /// Handles a process that completed only part of its batch. The rest continues in one new process. If
    /// this happens repeatedly, the program's batches become smaller; otherwise each process would get nearly
    /// all remaining tests.
    fn on_partial_batch(&mut self, tests: &mut RunTests, held: &ActiveLease, rest: Vec<TestId>) {
        let program = held.program();
        let size = held.batch().tests.len();
        let early_ends = &mut self.programs[program.index()].early_ends;
        let is_early = (size - rest.len()) * EARLY_END_DIVISOR <= size.max(EARLY_END_DIVISOR);
        *early_ends = if is_early { *early_ends + 1 } else { 0 };
        if *early_ends >= EARLY_ENDS_BEFORE_SHRINK {
            *early_ends = 0;
            tests.shrink_batches(program, size);
        }
        tests.requeue(held.batch(), rest);
    }

    /// Handles a process that ended without reporting any test. The end is counted against the program;
    /// otherwise the run might never end.
    fn on_unproductive_process(
        &mut self,
        tests: &mut RunTests,
        held: &ActiveLease,
        rest: Vec<TestId>,
        end: LeaseOutcome,
    ) {
        let (program, size) = (held.program(), held.batch().tests.len());
        let failures = &mut self.programs[program.index()];
        failures.unproductive_processes += u32::from(size == 1);
        let deaths = failures.unproductive_processes;
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
        if deaths >= self.max_startup_crashes {
            tests.give_up_program(program, rest, why);
        } else if size == 1 {
            rest.into_iter().for_each(|test| tests.requeue_last(test, why));
        } else {
            tests.shrink_batches(program, size);
            tests.requeue(held.batch(), rest);
        }
    }

    /// Handles a process that started no test within its startup limit. The tests are not at fault: they
    /// start again unchanged, with twice the limit. Several processes started with the same limit count once.
    fn on_start_timeout(&mut self, tests: &mut RunTests, held: &ActiveLease, rest: Vec<TestId>) {
        let timeouts = &mut self.programs[held.program().index()].start_timeouts;
        if held.start_timeouts() == *timeouts {
            *timeouts += 1;
        }
        let attempts = *timeouts;
        if attempts < self.max_startup_crashes {
            tests.requeue(held.batch(), rest);
        } else {
            tests.give_up_program(held.program(), rest, NotRunReason::StartTimedOut { attempts });
        }
    }

    /// Handles a process that ended with its guard. Tests that had started run again in isolation, and the
    /// others continue in one new process. No test or program is blamed, but guard losses are counted:
    /// otherwise a test or program that kills its guards would be retried forever.
    fn on_guard_lost(
        &mut self,
        tests: &mut RunTests,
        held: &ActiveLease,
        rest: Vec<TestId>,
        loss: GuardLoss,
    ) {
        let is_unreported = held.is_unproductive(&rest);
        let is_waiting = |test: &TestId| tests.location(*test) == TestSituation::Leased(held.id());
        let (mut waiting, mut suspects): (Vec<_>, Vec<_>) = rest.into_iter().partition(is_waiting);
        let is_begun = !suspects.is_empty();
        if held.batch().tests.len() == 1 {
            suspects.append(&mut waiting);
        }
        for test in suspects {
            tests.rerun_after_guard_loss(test, loss, is_begun);
        }
        if is_begun || !is_unreported {
            self.on_partial_batch(tests, held, waiting);
        } else {
            self.on_unreported_guard_loss(tests, held, waiting, loss);
        }
    }

    /// Handles a guard that was lost before any test of its process had started. After the second such loss
    /// in a row, the program's batches become smaller, which finally isolates a test that kills its guard.
    fn on_unreported_guard_loss(
        &mut self,
        tests: &mut RunTests,
        held: &ActiveLease,
        waiting: Vec<TestId>,
        loss: GuardLoss,
    ) {
        let program = held.program();
        let losses = &mut self.programs[program.index()].guard_losses;
        losses.record(loss, false);
        if losses.count() >= self.max_guard_losses {
            return tests.give_up_program(program, waiting, losses.reason_of_program());
        }
        if losses.count() > 1 {
            tests.shrink_batches(program, held.batch().tests.len());
        }
        tests.requeue(held.batch(), waiting);
    }
}

/// Handles a worker that died with a lease. Running tests are rerun in isolation. If no test is known to be
/// running, the next test is the suspect, because the report of its start may have been lost with the worker.
/// Tests that had ended run again with the others, because their results are lost. If all tests had ended,
/// one of them may kill every worker at its end.
pub(super) fn rerun_after_worker_death(tests: &mut RunTests, held: &ActiveLease) {
    let rest = tests.unfinished(held.id(), held.batch());
    let is_running = |test: &TestId| tests.location(*test) == TestSituation::InFlight(held.id());
    let (mut suspects, mut others): (Vec<_>, Vec<_>) = rest.into_iter().partition(is_running);
    if suspects.is_empty() {
        let is_next = |test: &TestId| tests.location(*test) == TestSituation::Leased(held.id());
        suspects = match others.iter().position(is_next) {
            Some(next) => vec![others.remove(next)],
            None => std::mem::take(&mut others),
        };
    }
    for test in suspects {
        tests.rerun_after_death(test, held.is_lost_with_watchdog());
    }
    tests.requeue(held.batch(), others);
}
