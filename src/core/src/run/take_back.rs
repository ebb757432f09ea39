//! Taking tests back: tests that wait in a process behind others are given to slots that have nothing to do.
//! The process is ended between two tests, where its framework allows that.

use std::time::Duration;

use super::{
    CancelMode, RunAction,
    state::{ActiveLease, RunState, TestLocation},
};
use crate::{TestId, WorkerId, batching::QueuedTest};

/// Least time by which the run ends earlier for tests that are taken back, as a multiple of the cost of a
/// start: they need another process.
const SAVED_PER_START: u32 = 3;
/// Tests are not expected to take less than this: they would be no measure of what a test really takes.
const LEAST_EXPECTED: Duration = Duration::from_micros(10);

/// How long the tests of a lease take, compared with what they were expected to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct LeasePace {
    /// Sum of the durations of the tests that have ended.
    taken: Duration,
    /// Sum of their estimates.
    expected: Duration,
}

impl LeasePace {
    pub(super) fn record(&mut self, taken: Duration, expected: Duration) {
        self.taken = self.taken.saturating_add(taken);
        self.expected = self.expected.saturating_add(expected.max(LEAST_EXPECTED));
    }

    /// Returns what a test will take by what those before it took; `None` while none has ended.
    fn estimate(self, expected: Duration) -> Option<Duration> {
        if self.expected.is_zero() {
            return None;
        }
        let expected = expected.max(LEAST_EXPECTED);
        let factor = (self.taken.as_secs_f64() / self.expected.as_secs_f64()).max(1.0);
        Some(Duration::try_from_secs_f64(expected.as_secs_f64() * factor).unwrap_or(Duration::MAX))
    }
}

impl RunState {
    /// Ends the process of the lease whose waiting tests are worth most to idle slots, after its running
    /// tests. One at a time: what comes back is shared out before another is looked at.
    pub(super) fn take_back(&mut self, actions: &mut Vec<RunAction>) {
        if !self.plan.programs.iter().any(|costs| costs.process.ends_between_tests) {
            return;
        }
        // A process that waits for tests soon has some, and taking tests back would end another for it.
        let idle = self.slots.idle(self.leases.len());
        let is_taking = self.leases.values().any(|held| held.cancel_mode.is_some());
        if idle == 0 || is_taking || self.queue.available_batches(&self.occupied_slots()) > 0 {
            return;
        }
        let saved =
            self.leases.iter().filter_map(|(worker, held)| Some((self.time_saved(held, idle)?, *worker)));
        let Some((_, worker)) = saved.max_by_key(|(saved, _)| *saved) else { return };
        if let Some(held) = self.leases.get_mut(&worker) {
            held.cancel_mode = Some(CancelMode::AfterRunningTests);
            actions.push(RunAction::CancelLease { worker, mode: CancelMode::AfterRunningTests });
        }
    }

    /// Returns the time by which a lease ends earlier without the tests that it shares with idle slots, if
    /// that is worth another process. Only a lease whose process has brought a test to its end tells how long
    /// the others take, and only then does taking tests back lead anywhere.
    fn time_saved(&self, held: &ActiveLease, idle: usize) -> Option<Duration> {
        let program = held.batch.program;
        if !self.plan.programs[program.index()].process.ends_between_tests || held.batch.is_isolated {
            return None;
        }
        let idle = idle.min(self.queue.room_for(program, &self.occupied_slots()));
        let waiting = held.batch.tests.iter().filter(|test| self.is_leased(**test, held));
        let estimates = waiting.map(|test| self.paced_duration(held, *test));
        let estimates = estimates.collect::<Option<Vec<_>>>()?;
        let whole = estimates.iter().copied().fold(Duration::ZERO, Duration::saturating_add);
        let longest = estimates.iter().copied().max()?;
        let parts = u32::try_from(idle.saturating_add(1)).unwrap_or(u32::MAX);
        let saved = whole.saturating_sub((whole / parts).max(longest));
        (saved >= self.queue.start_cost(program).saturating_mul(SAVED_PER_START)).then_some(saved)
    }

    /// Returns whether a test waits in this lease: its process has not begun it.
    pub(super) fn is_leased(&self, test: TestId, held: &ActiveLease) -> bool {
        self.tests[test.index()].location == TestLocation::Leased(held.lease)
    }

    /// Returns what a test of a lease will take by the pace of that lease.
    fn paced_duration(&self, held: &ActiveLease, test: TestId) -> Option<Duration> {
        held.pace.estimate(self.expected_duration(held, test))
    }

    /// Returns what a test of a lease was expected to take.
    pub(super) fn expected_duration(&self, held: &ActiveLease, test: TestId) -> Duration {
        self.queue.estimated_duration(held.batch.program, self.plan.tests[test.index()].weight)
    }

    /// Returns tests of a process that was ended between two of them to the queue, with what they will take
    /// by the pace of their lease. Tests that had begun nevertheless run again like the others.
    pub(super) fn return_to_queue(&mut self, held: &ActiveLease, rest: &[TestId]) {
        let returned = |test: &TestId| {
            let (program, item) = self.plan.tests[test.index()].queued(*test);
            let weight = self.paced_duration(held, *test).or(item.weight);
            (program, QueuedTest { weight, is_isolated: false, ..item })
        };
        let items: Vec<_> = rest.iter().map(returned).collect();
        for test in rest {
            self.tests[test.index()].location = TestLocation::Waiting;
        }
        self.queue.add_returned(items);
    }

    /// Records how long a test has taken that ended in a worker's lease.
    pub(super) fn record_pace(&mut self, worker: WorkerId, test: TestId, duration: Duration) {
        let Some(held) = self.leases.get(&worker) else { return };
        let expected = self.expected_duration(held, test);
        if let Some(held) = self.leases.get_mut(&worker) {
            held.pace.record(duration, expected);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn pace_never_makes_tests_faster_than_expected() {
        let mut pace = LeasePace::default();
        assert_eq!(pace.estimate(SECOND), None);
        pace.record(Duration::from_millis(1), SECOND);
        assert_eq!(pace.estimate(SECOND), Some(SECOND));
        let mut slow = LeasePace::default();
        slow.record(SECOND, Duration::ZERO);
        assert_eq!(slow.estimate(Duration::ZERO), Some(SECOND));
        slow.record(Duration::MAX, Duration::ZERO);
        assert!(slow.estimate(Duration::MAX).is_some(), "bounded");
    }
}
