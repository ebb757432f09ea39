//! Workers that a run has requested, workers that did not start or died without a result, and a process that
//! already waits at the next worker.

use crate::{ProgramId, Slots, WorkerId};

/// Stop requesting workers after this many per slot have failed to start or died without settling any test.
/// The limit is per slot because a common cause (a dead watchdog, a full disk) may kill all of them.
const UNPRODUCTIVE_WORKERS_PER_SLOT: usize = 4;

/// Workers that a run has requested.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct WorkerRequests {
    /// Requested workers that have not been granted or reported as failed.
    requested: usize,
    /// Workers that failed to start since the last successful start.
    failed_starts: usize,
    /// Workers that have died without settling a test since the last settled test.
    unproductive: usize,
    /// Worker to be granted next, if a process of this program waits for tests there.
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

    /// Records that a worker has settled a test.
    pub(super) fn on_result(&mut self) {
        self.unproductive = 0;
    }

    /// Records that a worker has died without settling any test.
    pub(super) fn on_unproductive_death(&mut self) {
        self.unproductive += 1;
    }

    /// Returns whether a worker may still be granted: it was requested, or may be requested.
    pub(super) fn may_be_granted(&self, slots: Slots) -> bool {
        self.requested > 0 || self.may_start(slots)
    }

    /// Returns whether more workers may be requested for these free slots.
    pub(super) fn may_request(&self, free: Slots, slots: Slots) -> bool {
        self.requested < free.0 && self.may_start(slots)
    }

    /// Requests workers up to this number; returns how many are new.
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

    /// Forgets a waiting process whose worker was not granted next.
    pub(super) fn forget_waiting_process(&mut self) {
        self.waiting_process = None;
    }
}
