//! The attempts of one test: how often it may still be tried, and what its result is if it is not.

use std::time::Duration;

use super::guard_loss::GuardLosses;
use crate::{
    GuardLoss, NotRunReason, ProvisionalReason, RetryPolicy, SynthesizedResult, TestId, retry_random,
};

/// Number of worker deaths during a test's process after which the test is not tried again.
const WORKER_DEATHS_PER_TEST: u8 = 2;
/// The same for deaths of the watchdog, during which all workers die with all their tests. A test that kills
/// the watchdog each time is left out before there is none any more, for the sake of the others.
const WATCHDOG_DEATHS_PER_TEST: u8 = 3;
/// Number of successful exits of a test's own process without running it after which the test is not tried
/// again.
const UNPRODUCTIVE_EXITS_PER_TEST: u8 = 2;
/// Number of consecutive losses of guards during a test after which the test is not tried again: a test that
/// kills its guard does so every time.
const GUARD_LOSSES_PER_TEST: u32 = 3;

/// The attempts of one test.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct TestAttempts {
    /// Number of failures that were provisional because a retry followed.
    failures: u32,
    /// Number of iterations that it has passed.
    passed_iterations: u32,
    /// Number of workers that died during the test.
    worker_deaths: u8,
    /// Number of deaths of the watchdog while it ran.
    watchdog_deaths: u8,
    /// Number of its own processes that exited successfully without running it.
    unproductive_exits: u8,
    /// The consecutive losses of the guards of its processes.
    guard_losses: GuardLosses,
    /// Provisional result; it becomes final if no other attempt replaces it.
    provisional: Option<ProvisionalReason>,
}

impl TestAttempts {
    /// Records a provisional result; returns whether it is final, because it was not to be provisional.
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

    /// Returns whether a failure is to be reported as provisional.
    pub(super) fn is_failure_provisional(&self, retries: RetryPolicy) -> bool {
        // The result of an isolated rerun after a death is final, whatever it is.
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

    /// Returns the synthesized result of the test if it is not tried again. A provisional result says more
    /// than the reason why it cannot be replaced.
    pub(super) fn synthesized(&self, why: NotRunReason) -> SynthesizedResult {
        self.provisional.map_or(SynthesizedResult::NotRun(why), SynthesizedResult::Provisional)
    }

    pub(super) fn passed_iterations(&self) -> u32 {
        self.passed_iterations
    }

    pub(super) fn pass_iteration(&mut self) {
        self.passed_iterations = self.passed_iterations.saturating_add(1);
    }

    /// Counts the death of a worker during the test, alone or with the watchdog. Returns why the test is not
    /// tried again, if it is not.
    pub(super) fn count_death(&mut self, is_with_watchdog: bool) -> Option<NotRunReason> {
        let (deaths, most) = match is_with_watchdog {
            true => (&mut self.watchdog_deaths, WATCHDOG_DEATHS_PER_TEST),
            false => (&mut self.worker_deaths, WORKER_DEATHS_PER_TEST),
        };
        *deaths += 1;
        (*deaths >= most).then_some(NotRunReason::WorkerDied)
    }

    /// Counts the loss of the guard of one of its processes. Returns why the test is not tried again, if it
    /// is not.
    pub(super) fn count_guard_loss(&mut self, loss: GuardLoss, has_begun: bool) -> Option<NotRunReason> {
        self.guard_losses.record(loss, has_begun);
        (self.guard_losses.count() >= GUARD_LOSSES_PER_TEST).then(|| self.guard_losses.reason_of_test())
    }

    /// Counts a process of its own that ended without a report about it, for this reason. Returns whether
    /// the test is not tried again.
    pub(super) fn count_unproductive_exit(&mut self, why: NotRunReason) -> bool {
        self.unproductive_exits += u8::from(why == NotRunReason::NeverStarted);
        self.unproductive_exits >= UNPRODUCTIVE_EXITS_PER_TEST
    }
}
