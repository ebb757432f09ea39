//! Leases whose processes run further tests when theirs have ended, and runs to which tests are added.
//!
//! A lease is one process from its start to its end, however many batches it runs: its worker reports that
//! its tests have ended, and the run extends the lease or has the process end.

use super::{
    RunAction, ScheduledTest,
    state::{ActiveLease, RunState},
};
use crate::{LeaseId, TestId, WorkerId};

/// Whether the process of a lease waits for further tests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) enum LeaseIdleness {
    /// It runs tests, or has not reported that they have ended.
    #[default]
    Busy,
    /// It waits.
    Idle,
    /// It has waited, and was told to end.
    Ending,
}

impl ActiveLease {
    /// Returns whether its process was running before it was given the batch.
    pub(super) fn is_ready(&self) -> bool {
        self.has_waited || self.is_extended
    }
}

impl RunState {
    pub(super) fn on_lease_idle(&mut self, worker: WorkerId, lease: LeaseId) {
        let Some(held) = self.leases.get_mut(&worker).filter(|held| held.lease == lease) else { return };
        let takes_more = self.plan.programs[held.batch.program.index()].process.takes_more_tests;
        // The process of a cancelled lease is being ended.
        if takes_more && held.cancel_mode.is_none() && held.idle == LeaseIdleness::Busy {
            held.idle = LeaseIdleness::Idle;
        }
    }

    /// Adds tests to an open run.
    pub(super) fn on_tests_added(&mut self, added: Vec<ScheduledTest>) {
        if self.is_open() {
            self.add_tests(added);
        }
    }

    /// Gives the processes that wait further tests of their programs, or has them end. While tests may be
    /// added, they wait for those if no test waits.
    pub(super) fn serve_idle_leases(&mut self, actions: &mut Vec<RunAction>) {
        let is_idle =
            |(worker, held): (&WorkerId, &ActiveLease)| (held.idle == LeaseIdleness::Idle).then_some(*worker);
        for worker in self.leases.iter().filter_map(is_idle).collect::<Vec<_>>() {
            let is_within_share = self.leases.len() <= self.slots.usable();
            if is_within_share && let Some(extended) = self.extend_lease(worker) {
                actions.push(extended);
                actions.extend(self.delay_starts(worker));
            } else if !(self.is_open && is_within_share && self.queue.is_empty()) {
                actions.extend(self.end_lease(worker));
            }
        }
    }

    fn extend_lease(&mut self, worker: WorkerId) -> Option<RunAction> {
        let held = self.leases.get(&worker).filter(|held| !held.batch.is_isolated)?;
        let (lease, program, start_timeouts) = (held.lease, held.batch.program, held.start_timeouts);
        // A process that says so while one of its tests has no result is not trusted with others.
        if held.batch.tests.iter().any(|test| self.tests[test.index()].location.is_in(lease)) {
            return None;
        }
        let loads = self.slot_loads(|held| self.remaining_time(held));
        let batch = self.next_batch(|queue| queue.next_extension(program, &loads))?;
        let extended = self.assign(worker, lease, batch, start_timeouts);
        let held = self.leases.get_mut(&worker)?;
        held.batch = extended.batch.clone();
        (held.is_extended, held.idle) = (true, LeaseIdleness::Busy);
        Some(RunAction::ExtendLease(Box::new(extended)))
    }

    fn end_lease(&mut self, worker: WorkerId) -> Option<RunAction> {
        let held = self.leases.get_mut(&worker)?;
        held.idle = LeaseIdleness::Ending;
        Some(RunAction::EndLease { worker, lease: held.lease })
    }

    /// Returns whether the duration of a test says nothing about those of others, because it includes the
    /// start of its process.
    pub(super) fn includes_start(&self, held: &ActiveLease, test: TestId) -> bool {
        !held.is_ready() && self.queue.includes_start(&held.batch, test)
    }
}
