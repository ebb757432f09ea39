//! Handling of a late or dead finisher, and of a run that cannot have a finisher any more.

use super::{CancelMode, DueResults, FinisherTask, LostStream, RunAction, RunEvent, RunStage, RunState};
use crate::{NotRunReason, WorkerId};

impl RunState {
    /// Returns the task of a finisher that replaces a dead one.
    #[must_use]
    pub fn finisher_task(&self) -> FinisherTask {
        match self.stage {
            RunStage::Running | RunStage::Draining => FinisherTask::Register,
            RunStage::Finishing if self.is_finisher_given_up => FinisherTask::CoordinatorCompletes,
            RunStage::Finishing => self.remaining_task(),
            RunStage::Completed => FinisherTask::None,
        }
    }

    /// Returns whether the finisher exceeded its time limit, and its death is awaited.
    #[must_use]
    pub fn is_finisher_given_up(&self) -> bool {
        self.is_finisher_given_up
    }

    /// Completes the run immediately, because there is no finisher and therefore no worker any more: leases
    /// and unproven streams of workers are settled by what is left of them, all other tests are recorded as
    /// not run for lack of workers. Returns what remains to be done in the finisher's place; the run is
    /// complete afterwards.
    pub fn complete_without_finisher(
        &mut self,
        mut stream: impl FnMut(WorkerId) -> LostStream,
    ) -> FinisherTask {
        // The stop comes first: tests that a lost worker returns must not be assigned to the next one. It
        // takes effect even if no worker is awaited, as in a run whose share is 0.
        self.stop(NotRunReason::NoWorker, CancelMode::Now);
        let _not_executed = self.advance(None);
        while let Some(worker) = self.awaited_workers().first().copied() {
            let LostStream { proven, settled } = stream(worker);
            let _not_executed = self.handle(RunEvent::WorkerLost { worker, proven, settled });
        }
        let is_over = self.stage == RunStage::Completed;
        self.stage = RunStage::Completed;
        if is_over { FinisherTask::None } else { self.remaining_task() }
    }

    fn remaining_task(&self) -> FinisherTask {
        if self.is_completing { FinisherTask::Complete } else { FinisherTask::Finish(self.due()) }
    }

    pub(super) fn on_finisher_late(&mut self) -> Vec<RunAction> {
        let is_given_up = self.stage == RunStage::Finishing && !self.is_finisher_given_up;
        self.is_finisher_given_up |= is_given_up;
        if is_given_up { vec![RunAction::KillFinisher] } else { Vec::new() }
    }

    /// Returns the results that the client may lack, now that all streams are closed.
    pub(super) fn due(&self) -> DueResults {
        DueResults { resend: self.ledger.unproven_streams(), synthesized: self.ledger.synthesized_results() }
    }
}
