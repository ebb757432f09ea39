//! How busy the slots of a run are, as batching sees them.

use std::time::Duration;

use super::state::{ActiveLease, RunState, TestLocation};
use crate::{
    TestId,
    batching::{BusySlot, SlotLoads},
};

impl RunState {
    /// Returns the slots with the programs that they run: how long they are busy is not looked at.
    pub(super) fn occupied_slots(&self) -> SlotLoads {
        self.slot_loads(|_| Duration::ZERO)
    }

    /// Returns the slots with the programs that they run, and how long each lease is expected to remain.
    pub(super) fn slot_loads(&self, remaining: impl Fn(&ActiveLease) -> Duration) -> SlotLoads {
        let busy = |held: &ActiveLease| BusySlot { program: held.batch.program, remaining: remaining(held) };
        SlotLoads { slots: self.slots.limit(), busy: self.leases.values().map(busy).collect() }
    }

    /// Returns how long a lease is expected to take from now. Of a test that runs, half is left on average.
    pub(super) fn remaining_time(&self, held: &ActiveLease) -> Duration {
        let program = held.batch.program;
        let of_test = |test: &TestId| {
            let duration = self.queue.estimated_duration(program, self.plan.tests[test.index()].weight);
            match self.tests[test.index()].location {
                TestLocation::Leased(lease) if lease == held.lease => duration,
                TestLocation::InFlight(lease) if lease == held.lease => duration / 2,
                TestLocation::Leased(_)
                | TestLocation::InFlight(_)
                | TestLocation::Held(_)
                | TestLocation::Waiting
                | TestLocation::Settled => Duration::ZERO,
            }
        };
        let is_starting = !held.is_ready() && held.batch.tests.iter().all(|test| self.is_leased(*test, held));
        let start = if is_starting { self.queue.start_cost(program) / 2 } else { Duration::ZERO };
        held.batch.tests.iter().map(of_test).fold(start, Duration::saturating_add)
    }
}
