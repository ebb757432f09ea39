//! Further tests for a process whose own have ended.

use std::ops::Range;

use heeler_protocol::control::WorkerLease;

use super::RunningBatch;
use crate::{process::process_clock::ClockReading, results::update_batch::UpdateBatch};

impl RunningBatch {
    /// Returns whether every test has ended and is settled, and the process is not being ended.
    pub(crate) fn is_settled(&self) -> bool {
        let is_done = self.order.is_all_done();
        is_done && self.terminate_reason.is_none() && !self.held_tests.awaits_end(&self.order)
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
        let added = self.settlement.extend(lease, updates);
        self.order.extend(added)
    }
}
