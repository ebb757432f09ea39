//! Attempts of one test: whether it is tried again, and its result if it is not.

use std::time::Duration;

use super::guard_loss::GuardLosses;
use crate::{
    GuardLoss, NotRunReason, ProvisionalReason, RetryPolicy, SynthesizedResult, TestId, retry_random,
};

/// After this many worker deaths during a test, the test is not tried again.
const WORKER_DEATHS_PER_TEST: u8 = 2;
/// After this many watchdog deaths during a test, the test is not tried again. A death of the watchdog kills
/// all workers with their tests. A test that kills every watchdog must be given up before the run has used up
/// its watchdogs.
const WATCHDOG_DEATHS_PER_TEST: u8 = 3;
/// A test is not tried again after this many processes of the test alone have exited successfully without
/// running it.
const UNPRODUCTIVE_EXITS_PER_TEST: u8 = 2;
/// After this many consecutive guard losses during a test, the test is not tried again: a test that kills its
/// guard does so every time.
const GUARD_LOSSES_PER_TEST: u32 = 3;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct TestAttempts {
    /// Provisional failures, each followed by a retry.
    failures: u32,
    passed_iterations: u32,
    worker_deaths: u8,
    watchdog_deaths: u8,
    /// Processes of this test alone that exited successfully without running it.
    unproductive_exits: u8,
    /// Consecutive guard losses of the test's processes.
    guard_losses: GuardLosses,
    /// Provisional result; final if no other attempt replaces it.
    provisional: Option<ProvisionalReason>,
}

impl TestAttempts {
    /// Records a provisional result. Returns whether it is final, because the test has no attempt left.
    pub(super) fn record_provisional(
        &mut self,
        by: ProvisionalReason,
        retries: RetryPolicy,
        is_isolated: bool,
    ) -> bool {
        self.provisional = Some(by);
        self.guard_losses = GuardLosses::default();
        match by {
            ProvisionalReason::AwaitsRetry => {
                self.failures += 1;
                self.failures > retries.count
            }
            ProvisionalReason::AwaitsIsolatedRun => is_isolated,
        }
    }

    pub(super) fn is_failure_provisional(&self, retries: RetryPolicy) -> bool {
        // The result of an isolated rerun after a death is always final.
        let is_lone_check = self.provisional == Some(ProvisionalReason::AwaitsIsolatedRun);
        !is_lone_check && self.failures < retries.count
    }

    /// Returns the delay of the attempt that follows the provisional result.
    pub(super) fn delay(&self, test: TestId, retries: RetryPolicy, seed: u64) -> Duration {
        match self.provisional {
            Some(ProvisionalReason::AwaitsRetry) => {
                retries.delay.before(self.failures, retry_random(seed, test, self.failures))
            }
            Some(ProvisionalReason::AwaitsIsolatedRun) | None => Duration::ZERO,
        }
    }

    /// Returns the synthesized result of a test that is not tried again. A provisional result is more useful
    /// than the reason why nothing replaces it.
    pub(super) fn synthesized(&self, why: NotRunReason) -> SynthesizedResult {
        self.provisional.map_or(SynthesizedResult::NotRun(why), SynthesizedResult::Provisional)
    }

    pub(super) fn passed_iterations(&self) -> u32 {
        self.passed_iterations
    }

    pub(super) fn pass_iteration(&mut self) {
        self.passed_iterations = self.passed_iterations.saturating_add(1);
    }

    /// Counts the death of a worker during the test, alone or with the watchdog. Returns the reason if the
    /// test is not tried again.
    pub(super) fn count_death(&mut self, is_with_watchdog: bool) -> Option<NotRunReason> {
        let (deaths, most) = match is_with_watchdog {
            true => (&mut self.watchdog_deaths, WATCHDOG_DEATHS_PER_TEST),
            false => (&mut self.worker_deaths, WORKER_DEATHS_PER_TEST),
        };
        *deaths += 1;
        (*deaths >= most).then_some(NotRunReason::WorkerDied)
    }

    /// Counts a guard loss of the test's process. Returns the reason if the test is not tried again.
    pub(super) fn count_guard_loss(&mut self, loss: GuardLoss, has_begun: bool) -> Option<NotRunReason> {
        self.guard_losses.record(loss, has_begun);
        (self.guard_losses.count() >= GUARD_LOSSES_PER_TEST).then(|| self.guard_losses.reason_of_test())
    }

    /// Counts a process of the test alone that ended for the reason `why` without reporting the test. Returns
    /// whether the test is given up.
    pub(super) fn count_unproductive_exit(&mut self, why: NotRunReason) -> bool {
        self.unproductive_exits += u8::from(why == NotRunReason::NeverStarted);
        self.unproductive_exits >= UNPRODUCTIVE_EXITS_PER_TEST
    }
}
