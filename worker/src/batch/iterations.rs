//! Tests that run several times: a number of times, one process for each, or until a time, one lease for
//! each.

use std::{sync::Arc, time::Duration};

use heeler_core::{Iteration, RecordSink, RunRecord};
use heeler_protocol::control::LeasedTest;

use super::verdict::microseconds;
use crate::process::process_clock::ClockReading;

/// The iterations of the tests of one process.
#[derive(Debug)]
pub(crate) struct Iterations {
    /// The iteration that this process is, unless time limits the iterations of each test.
    iteration: Iteration,
    /// Time since boot until which tests that pass run again, in other leases.
    repeat_until: Option<Duration>,
    /// Tests that have passed this iteration, which is not the last, with their places.
    repeatable: Vec<(usize, Arc<LeasedTest>)>,
}

impl Iterations {
    pub(super) fn new(iteration: Iteration, repeat_until_ms: Option<u64>) -> Self {
        let repeat_until = repeat_until_ms.map(Duration::from_millis);
        Self { iteration, repeat_until, repeatable: Vec::new() }
    }

    /// Returns the iteration of a test.
    pub(super) fn of(&self, test: &LeasedTest) -> Iteration {
        match self.repeat_until {
            Some(_) => Iteration::after(test.passed_iterations),
            None => self.iteration,
        }
    }

    /// Returns whether time limits the iterations of each test.
    pub(super) fn are_timed(&self) -> bool {
        self.repeat_until.is_some()
    }

    /// Returns whether a test that passes now has its result.
    pub(super) fn is_last(&self, now: ClockReading) -> bool {
        match self.repeat_until {
            Some(until) => now.since_boot >= until,
            None => self.iteration.is_last(),
        }
    }

    /// Records that a test has passed an iteration that is not its last.
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

    /// Takes the tests that have passed this iteration and have others left, in order.
    pub(crate) fn take_repeatable(&mut self) -> Vec<Arc<LeasedTest>> {
        in_order(std::mem::take(&mut self.repeatable))
    }
}

/// Returns tests in the order of their places.
pub(super) fn in_order(mut tests: Vec<(usize, Arc<LeasedTest>)>) -> Vec<Arc<LeasedTest>> {
    tests.sort_unstable_by_key(|(place, _)| *place);
    tests.into_iter().map(|(_, test)| test).collect()
}
