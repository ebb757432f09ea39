//! Failure policy: what happens to the remaining tests when a process or a worker dies. This module neither
//! looks at the results of tests nor assigns work.

use super::{
    active_lease::ActiveLease,
    guard_loss::GuardLosses,
    run_tests::{RunTests, TestSituation},
};
use crate::{GuardLoss, LeaseOutcome, NotRunReason, ProgramId, TestId};

/// Number of consecutive processes that end early after which the program's batches become smaller.
const EARLY_ENDS_BEFORE_SHRINK: u32 = 3;
/// Divisor: a process ends early if it completes at most a tenth of its batch, or only its first test.
const EARLY_END_DIVISOR: usize = 10;
/// Number of consecutive processes of a program whose guards are lost before any test has begun, after which
/// the program is not tried again: at least this number, and so many for each slot, because a common cause
/// may kill the guards of all slots at once.
const MIN_GUARD_LOSSES_PER_PROGRAM: u32 = 12;
const GUARD_LOSSES_PER_SLOT: u32 = 4;

/// The failures of the processes of one program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct ProcessFailures {
    /// Number of consecutive processes with a batch of one that reported nothing.
    unproductive_processes: u32,
    /// Number of startup limits that its processes have exceeded, each twice the one before.
    start_timeouts: u32,
    /// Number of consecutive processes that completed only a small part of their batch.
    early_ends: u32,
    /// The consecutive losses of the guards of its processes, before any of its tests had begun.
    guard_losses: GuardLosses,
}

/// The failures of all programs, and when a program is given up for them.
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

    /// Returns the number of startup limits that processes of a program have exceeded.
    pub(super) fn start_timeouts(&self, program: ProgramId) -> u32 {
        self.programs[program.index()].start_timeouts
    }

    /// Records that a process of the program has reported a test's end.
    pub(super) fn on_report(&mut self, program: ProgramId) {
        let failures = &mut self.programs[program.index()];
        failures.unproductive_processes = 0;
        failures.guard_losses = GuardLosses::default();
    }

    /// Handles an unexpected end of a process that left these tests without a result.
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

    /// Handles a process that completed a part of its batch. The rest continues in one new process; but the
    /// batches of a program that does this repeatedly become smaller, because otherwise each of its processes
    /// would receive nearly all its tests.
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

    /// Handles a process that ended without a report about any test. That is counted against its program;
    /// otherwise a run could continue forever.
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

    /// Handles a process that began no test within its startup limit: that is no fault of its tests. They are
    /// started again as they are, with twice the limit; processes that were started with the same limit count
    /// once.
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

    /// Handles a process that ended with its guard. Tests that had begun run again in isolation, and the
    /// others continue in one new process: no test and no program is to blame. Only the losses of guards are
    /// counted, because a test or a program that kills them would never end.
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

    /// Handles a guard that was lost before any test of its process had begun. After the second in a row the
    /// program's batches become smaller, so that a test which kills its guard is left alone with it.
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

/// Handles a worker that died with a lease. Tests that were running are rerun in isolation; if none is known
/// to have run, the next test is suspected, because the report of its start may have been lost with the
/// worker. Tests that had ended run again with the others, because their results are lost; if there are no
/// others, one of them may kill each worker at its end.
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
