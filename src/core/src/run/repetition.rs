//! Tests that run again because the plan says so: retries after failures, each after its delay, and
//! iterations after passes. Neither holds a slot while it waits.

use std::time::Duration;

use super::{
    guard_loss::GuardLosses,
    state::{RunState, TestLocation},
};
use crate::{LeaseId, ProvisionalReason, SynthesizedResult, TestId, retry_random};

impl RunState {
    /// Returns the test with the delay of its retry, if it has one.
    pub(super) fn on_provisional(
        &mut self,
        lease: LeaseId,
        test: TestId,
        by: ProvisionalReason,
    ) -> Option<(TestId, Duration)> {
        let held = self.leases.values().find(|held| held.lease == lease)?;
        let state = &mut self.tests[test.index()];
        if !state.location.is_in(lease) {
            return None;
        }
        let program = held.batch.program;
        state.provisional = Some(by);
        state.guard_losses = GuardLosses::default();
        let is_final = match by {
            ProvisionalReason::AwaitsRetry => {
                state.failures += 1;
                state.failures > self.plan.tests[test.index()].retries.count
            }
            ProvisionalReason::AwaitsIsolatedRun => held.batch.is_isolated,
        };
        self.on_report_of(program);
        if is_final {
            // The result was not to be provisional: it is final.
            self.record_synthesized(test, SynthesizedResult::Provisional(by));
            return None;
        }
        let delay = match by {
            ProvisionalReason::AwaitsRetry => self.retry_delay(test),
            ProvisionalReason::AwaitsIsolatedRun => Duration::ZERO,
        };
        if delay.is_zero() {
            self.requeue_isolated(program, test);
            return None;
        }
        self.tests[test.index()].location = TestLocation::Waiting;
        self.delayed.insert(test);
        Some((test, delay))
    }

    /// Returns the delay of the retry that follows the failures of a test.
    fn retry_delay(&self, test: TestId) -> Duration {
        let retry = self.tests[test.index()].failures;
        let delay = self.plan.tests[test.index()].retries.delay;
        delay.before(retry, retry_random(self.plan.retry_seed, test, retry))
    }

    pub(super) fn on_retry_due(&mut self, test: TestId) {
        if self.delayed.remove(&test) && self.tests[test.index()].location == TestLocation::Waiting {
            self.requeue_isolated(self.plan.tests[test.index()].program, test);
        }
    }

    pub(super) fn on_iteration_passed(&mut self, lease: LeaseId, test: TestId, duration: Duration) {
        let state = &mut self.tests[test.index()];
        if !state.location.is_in(lease) {
            return;
        }
        state.location = TestLocation::Waiting;
        state.passed_iterations = state.passed_iterations.saturating_add(1);
        self.workers.on_result();
        self.next_round.push(test);
        let program = self.plan.tests[test.index()].program;
        self.queue.observe_duration(program, duration);
        self.on_report_of(program);
    }

    /// Queues the tests that have passed an iteration when a slot is free for them and no other test waits.
    /// Not before: each that passes would become a batch of its own.
    pub(super) fn begin_next_round(&mut self) {
        if self.next_round.is_empty() || !self.queue.is_empty() || self.leases.len() >= self.slots.limit() {
            return;
        }
        let mut tests = std::mem::take(&mut self.next_round);
        tests.sort_unstable();
        tests.retain(|test| self.tests[test.index()].location == TestLocation::Waiting);
        let plan = &self.plan.tests;
        self.queue.add(tests.into_iter().map(|test| plan[test.index()].queued(test)));
    }
}
