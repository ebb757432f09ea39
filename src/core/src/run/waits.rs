//! Says what the tests of a run wait for, so that users see why slots are idle.

use std::cmp::Reverse;

use super::run_tests::RunTests;
use crate::{
    ProgramId, ResourceId, Slots, TestId,
    batching::{QueueWait, SlotLoads, waits::queue_waits},
};

/// Tests that wait for the same reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WaitingTests {
    pub cause: WaitCause,
    /// Number of waiting tests, at least one.
    pub tests: usize,
}

/// Reason why tests wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitCause {
    /// The tests take this number of slots, and fewer are free. Never less than two slots.
    Slots(Slots),
    /// Running tests have taken the resource.
    Resource(ResourceId),
    /// The program may have no more processes.
    Process(ProgramId),
    /// Tests that have been passed over too often go first.
    Turn,
    /// This prerequisite has no result yet.
    Prerequisite(TestId),
}

impl From<QueueWait> for WaitCause {
    fn from(wait: QueueWait) -> Self {
        match wait {
            QueueWait::Slots(slots) => Self::Slots(slots),
            QueueWait::Resource(resource) => Self::Resource(resource),
            QueueWait::Process(program) => Self::Process(program),
            QueueWait::Turn => Self::Turn,
        }
    }
}

/// Returns the waiting tests by cause, largest group first. `free` is the number of slots that no lease
/// takes. The run's share may be smaller, because a run gets no share that it can't use.
pub(super) fn waiting_tests(tests: &RunTests, loads: &SlotLoads, free: Slots) -> Vec<WaitingTests> {
    // Free slots for which a worker is on its way are not idle.
    let is_idle = free.0 > tests.queue().startable_leases(loads);
    let queued = queue_waits(tests.queue(), loads).into_iter();
    let mut waits: Vec<_> = queued
        .filter(|(reason, _)| is_idle || matches!(reason, QueueWait::Slots(_) | QueueWait::Resource(_)))
        .map(|(reason, tests)| WaitingTests { cause: reason.into(), tests })
        .collect();
    if is_idle && !tests.blocked().is_empty() {
        let blocked = tests.blocked().counts().into_iter();
        waits.extend(
            blocked.map(|(test, tests)| WaitingTests { cause: WaitCause::Prerequisite(test), tests }),
        );
    }
    waits.sort_by_key(|wait| (Reverse(wait.tests), wait.cause));
    waits
}
