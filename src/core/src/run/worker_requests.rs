//! The workers that a run requests, those that do not start or die without a result, and a process that
//! already waits at the worker that is granted next.

use crate::{ProgramId, Slots, WorkerId, batching::LEASE_WEIGHT};

/// Number of workers per slot that may fail to start, or die without having settled anything, before no more
/// are requested. Per slot, because a common cause (a dead watchdog, a full disk) may kill all of them.
const UNPRODUCTIVE_WORKERS_PER_SLOT: usize = 4;

/// The workers that a run has requested.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct WorkerRequests {
    /// Number of requested workers that were neither granted nor reported as failed to start.
    requested: usize,
    /// Number of workers that failed to start since the last successful start.
    failed_starts: usize,
    /// Number of workers that died without having settled anything, since a test was last settled.
    unproductive: usize,
    /// The worker that is granted next, if a process of this program waits for tests there.
    waiting_process: Option<(WorkerId, ProgramId)>,
}

impl WorkerRequests {
    pub(super) fn on_granted(&mut self) {
        self.requested = self.requested.saturating_sub(1);
        self.failed_starts = 0;
    }

    pub(super) fn on_not_started(&mut self) {
        if self.requested > 0 {
            self.requested -= 1;
            self.failed_starts += 1;
        }
    }

    /// Records that a worker has brought a test to its end.
    pub(super) fn on_result(&mut self) {
        self.unproductive = 0;
    }

    /// Records that a worker has died without having settled anything.
    pub(super) fn on_unproductive_death(&mut self) {
        self.unproductive += 1;
    }

    /// Returns whether a worker may still be granted that the run has requested, or may request.
    pub(super) fn may_be_granted(&self, slots: Slots) -> bool {
        self.requested > 0 || self.may_start(slots)
    }

    /// Returns whether further workers may be requested for this number of free slots.
    pub(super) fn may_request(&self, free: Slots, slots: Slots) -> bool {
        self.requested < free.leases_of(LEASE_WEIGHT) && self.may_start(slots)
    }

    /// Requests workers up to this number; returns the number of new ones.
    pub(super) fn request_up_to(&mut self, wanted: usize) -> usize {
        let missing = wanted.saturating_sub(self.requested);
        self.requested += missing;
        missing
    }

    fn may_start(&self, slots: Slots) -> bool {
        self.failed_starts.max(self.unproductive) < slots.0.saturating_mul(UNPRODUCTIVE_WORKERS_PER_SLOT)
    }

    /// Records that a process of a program waits for tests at a worker without a lease.
    pub(super) fn on_process_waiting(&mut self, worker: WorkerId, program: ProgramId) {
        self.waiting_process = Some((worker, program));
    }

    /// Returns the program of the process that waits for tests at this worker.
    pub(super) fn program_waiting_at(&self, worker: WorkerId) -> Option<ProgramId> {
        self.waiting_process.filter(|(waits_at, _)| *waits_at == worker).map(|(_, program)| program)
    }

    /// Forgets a process that waited, because its worker was not granted next.
    pub(super) fn forget_waiting_process(&mut self) {
        self.waiting_process = None;
    }
}
