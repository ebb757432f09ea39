//! What becomes of the tests of a process that has ended with its guard.

use super::{
    failure_policy::is_unproductive,
    state::{ActiveLease, RunState},
};
use crate::{GuardLoss, NotRunReason, TestId};

/// Number of consecutive losses of guards during a test after which the test is not tried again: a test that
/// kills its guard does so every time.
const GUARD_LOSSES_PER_TEST: u32 = 3;
/// Number of consecutive processes of a program whose guards are lost before any test has begun, after which
/// the program is not tried again: at least this number, and so many for each slot, because a common cause
/// may kill the guards of all slots at once.
const MIN_GUARD_LOSSES_PER_PROGRAM: u32 = 12;
const GUARD_LOSSES_PER_SLOT: u32 = 4;
/// Consecutive losses of guards.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct GuardLosses {
    pub(super) count: u32,
    /// How they were lost.
    loss: Option<GuardLoss>,
    /// Whether the test had begun before one of them.
    has_begun: bool,
}

impl GuardLosses {
    /// Counts one more loss; returns how the guards were lost so far.
    pub(super) fn record(&mut self, loss: GuardLoss) -> GuardLoss {
        let together = self.loss.map_or(loss, |earlier| earlier.and(loss));
        self.count += 1;
        self.loss = Some(together);
        together
    }
}

impl RunState {
    /// Handles a process that ended with its guard. Tests that had begun run again in isolation, and the
    /// others continue in one new process: no test and no program is to blame. Only the losses of guards are
    /// counted, because a test or a program that kills them would never end.
    pub(super) fn on_guard_lost(&mut self, held: &ActiveLease, rest: Vec<TestId>, loss: GuardLoss) {
        let is_unreported = is_unproductive(held, &rest);
        let (mut suspects, mut waiting) = self.split_begun(held, rest);
        let is_begun = !suspects.is_empty();
        if held.batch.tests.len() == 1 {
            suspects.append(&mut waiting);
        }
        for test in suspects {
            let recorded = &mut self.tests[test.index()].guard_losses;
            let loss = recorded.record(loss);
            recorded.has_begun |= is_begun;
            let GuardLosses { count: losses, has_begun, .. } = *recorded;
            if losses >= GUARD_LOSSES_PER_TEST {
                self.synthesize_result(test, NotRunReason::GuardLost { losses, loss, has_begun });
            } else {
                self.requeue_isolated(held.batch.program, test);
            }
        }
        if is_begun || !is_unreported {
            self.on_partial_batch(held, waiting);
        } else {
            self.on_unreported_guard_loss(held, waiting, loss);
        }
    }

    /// Handles a guard that was lost before any test of its process had begun. After the second in a row the
    /// program's batches become smaller, so that a test which kills its guard is left alone with it.
    fn on_unreported_guard_loss(&mut self, held: &ActiveLease, waiting: Vec<TestId>, loss: GuardLoss) {
        let program = held.batch.program;
        let losses = &mut self.programs[program.index()].guard_losses;
        let loss = losses.record(loss);
        let losses = losses.count;
        let slots = u32::try_from(self.plan.slots).unwrap_or(u32::MAX);
        if losses >= slots.saturating_mul(GUARD_LOSSES_PER_SLOT).max(MIN_GUARD_LOSSES_PER_PROGRAM) {
            let queued = self.take_program(program);
            for test in queued.into_iter().chain(waiting) {
                self.synthesize_result(test, NotRunReason::ProgramGuardsLost { losses, loss });
            }
            return;
        }
        if losses > 1 {
            self.queue.shrink_batches(program, held.batch.tests.len());
        }
        self.requeue(held, waiting);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KILLED: GuardLoss = GuardLoss::Killed { signal: 9 };

    #[test]
    fn only_consecutive_losses_of_one_kind_are_reported_as_such() {
        let mut losses = GuardLosses::default();
        assert_eq!(losses.record(KILLED), KILLED);
        assert_eq!(losses.record(KILLED), KILLED);
        assert_eq!(losses.record(GuardLoss::Exited { code: 1 }), GuardLoss::Unknown);
        assert_eq!((losses.record(KILLED), losses.count), (GuardLoss::Unknown, 4));
    }
}
