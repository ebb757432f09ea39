//! Processes that have listed the tests of their program and wait for the first of them, and the delay of the
//! starts of further ones: where a start takes longer than all tests, another process would be ready when all
//! is done.

use super::{RunAction, lease_extension::LeaseIdleness, state::RunState};
use crate::{ProgramId, WorkerId};

impl RunState {
    /// Records that a process of a program waits for tests at a worker without a lease.
    pub(super) fn on_process_waiting(&mut self, worker: WorkerId, program: ProgramId) {
        let takes_more =
            self.plan.programs.get(program.index()).is_some_and(|one| one.process.takes_more_tests);
        if takes_more && self.lifecycle.is_assigning() && !self.leases.contains_key(&worker) {
            self.workers.on_process_waiting(worker, program);
        }
    }

    /// Puts off the start of further processes of the program of this worker's lease, if its process takes
    /// their tests and will have run them before another one is ready.
    pub(super) fn delay_starts(&mut self, worker: WorkerId) -> Option<RunAction> {
        let held = self.leases.get(&worker).filter(|held| held.is_ready() && self.slots.limit() > 1)?;
        let program = held.batch.program;
        let Some(delay) = self.queue.hold_starts(program) else {
            self.queue.release_starts(program);
            return None;
        };
        Some(RunAction::DelayStarts { program, delay })
    }

    /// Lets processes start again of programs of which no process takes further tests any more.
    pub(super) fn release_starts(&mut self) {
        let takes_more = |program: ProgramId| {
            let mut leases = self.leases.values().filter(|held| held.batch.program == program);
            leases.any(|held| {
                held.is_ready() && held.cancel_mode.is_none() && held.idle != LeaseIdleness::Ending
            })
        };
        let held = self.queue.held_programs().iter().copied();
        for program in held.filter(|program| !takes_more(*program)).collect::<Vec<_>>() {
            self.queue.release_starts(program);
        }
    }
}
