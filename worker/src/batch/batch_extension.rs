//! Further tests for a process whose own have ended.

use std::ops::Range;

use heeler_core::{Outcome, TestResult};
use heeler_protocol::control::{LeasedTest, WorkerLease};

use super::{RunningBatch, settle_without_process};
use crate::{
    process::process_clock::ClockReading,
    results::{node_writer::NodeWriter, update_batch::UpdateBatch},
};

impl RunningBatch {
    /// Returns whether every test has ended and is settled, and the process is not being ended.
    pub(crate) fn is_settled(&self) -> bool {
        let is_done = self.order.is_all_done();
        is_done && self.terminate_reason.is_none() && !self.awaits_end()
    }

    /// Sets whether the process waits for further tests. While it does, it has no time limit.
    pub(crate) fn set_waiting(&mut self, is_waiting: bool, now: ClockReading) {
        if self.is_waiting != is_waiting {
            self.is_waiting = is_waiting;
            self.idle_since = now.running;
        }
    }

    /// Adds the tests of an extended lease; returns their indices. Those that their framework would skip are
    /// settled at once.
    pub(crate) fn extend(&mut self, lease: WorkerLease, updates: &mut UpdateBatch) -> Range<usize> {
        let lease = self.node_writer.extend(lease);
        let added = settle_skipped(&mut self.node_writer, lease.tests, updates);
        self.order.extend(added)
    }
}

/// Settles the tests that their framework would skip; returns the others.
pub(super) fn settle_skipped(
    nodes: &mut NodeWriter,
    tests: Vec<LeasedTest>,
    updates: &mut UpdateBatch,
) -> Vec<LeasedTest> {
    let (skipped, tests): (Vec<_>, Vec<_>) = tests.into_iter().partition(|test| test.listed.skip.is_some());
    for test in skipped {
        let reason = test.listed.skip.as_deref().unwrap_or_default();
        let result = TestResult::with_reason(Outcome::Skipped, reason);
        settle_without_process(nodes, &test, result, updates);
    }
    tests
}
