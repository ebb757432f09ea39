//! Repeated tests: a fixed number of iterations, with one process per iteration, or iterations until a given
//! time, each in another lease.

use std::{sync::Arc, time::Duration};

use heeler_core::{Iteration, RecordSink, RunRecord};
use heeler_protocol::control::LeasedTest;

use super::verdict::microseconds;
use crate::process::process_clock::ClockReading;

#[derive(Debug)]
pub(crate) struct Iterations {
    /// Iteration of this process. Ignored if `repeat_until` is set, since each test then counts its own
    /// iterations.
    iteration: Iteration,
    /// Passing tests run again, in other leases, until this time since boot.
    repeat_until: Option<Duration>,
    /// Tests, with their places, that have passed this iteration and have more to run.
    repeatable: Vec<(usize, Arc<LeasedTest>)>,
}

impl Iterations {
    pub(super) fn new(iteration: Iteration, repeat_until_ms: Option<u64>) -> Self {
        let repeat_until = repeat_until_ms.map(Duration::from_millis);
        Self { iteration, repeat_until, repeatable: Vec::new() }
    }

    pub(super) fn of(&self, test: &LeasedTest) -> Iteration {
        match self.repeat_until {
            Some(_) => Iteration::after(test.passed_iterations),
            None => self.iteration,
        }
    }

    /// Returns whether tests repeat until a given time instead of a fixed number of times.
    pub(super) fn are_timed(&self) -> bool {
        self.repeat_until.is_some()
    }

    /// Returns whether a test that passes now needs no further iteration.
    pub(super) fn is_last(&self, now: ClockReading) -> bool {
        match self.repeat_until {
            Some(until) => now.since_boot >= until,
            None => self.iteration.is_last(),
        }
    }

    /// Records that a test has passed an iteration other than its last.
    pub(super) fn record_pass(
        &mut self,
        place: usize,
        test: &Arc<LeasedTest>,
        duration: Duration,
        records: &mut dyn RecordSink,
    ) {
        if self.are_timed() {
            let (test, duration_us) = (test.test, microseconds(duration));
            records.record(RunRecord::IterationPassed { test, duration_us });
        } else {
            self.repeatable.push((place, Arc::clone(test)));
        }
    }

    /// Takes the tests that passed this iteration and have more to run, in order.
    pub(crate) fn take_repeatable(&mut self) -> Vec<Arc<LeasedTest>> {
        in_order(std::mem::take(&mut self.repeatable))
    }
}

/// Returns tests in the order of their places.
pub(super) fn in_order(mut tests: Vec<(usize, Arc<LeasedTest>)>) -> Vec<Arc<LeasedTest>> {
    tests.sort_unstable_by_key(|(place, _)| *place);
    tests.into_iter().map(|(_, test)| test).collect()
}
