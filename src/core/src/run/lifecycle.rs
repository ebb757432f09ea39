//! Stages of a run: the reason to stop, the drain of its workers, and its finisher, which may time out or
//! die.

use super::{CancelMode, DueResults, FinisherTask, RunAction, RunStage};
use crate::{NotRunReason, WorkerId, ledger::Ledger};

/// Stage of a run, and progress within the stage.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct RunLifecycle {
    stage: RunStage,
    stop_reason: Option<NotRunReason>,
    /// Effect of a stop on running tests.
    cancel_mode: CancelMode,
    /// Workers that have not finished draining their streams.
    draining: Vec<WorkerId>,
    /// Whether the finisher has proven everything except the completion.
    is_completing: bool,
    /// Whether the finisher has timed out.
    is_finisher_given_up: bool,
}

impl RunLifecycle {
    pub(super) fn new() -> Self {
        Self {
            stage: RunStage::Running,
            stop_reason: None,
            cancel_mode: CancelMode::AfterRunningTests,
            draining: Vec::new(),
            is_completing: false,
            is_finisher_given_up: false,
        }
    }

    pub(super) fn stage(&self) -> RunStage {
        self.stage
    }

    pub(super) fn stop_reason(&self) -> Option<NotRunReason> {
        self.stop_reason
    }

    pub(super) fn cancel_mode(&self) -> CancelMode {
        self.cancel_mode
    }

    /// Returns whether waiting tests are leased.
    pub(super) fn is_assigning(&self) -> bool {
        self.stage == RunStage::Running && self.stop_reason.is_none()
    }

    /// Stops the run. The first reason counts, but a later stop may still cancel tests that were allowed to
    /// finish.
    pub(super) fn stop(&mut self, why: NotRunReason, mode: CancelMode) {
        self.stop_reason.get_or_insert(why);
        self.cancel_mode = self.cancel_mode.max(mode);
    }

    /// Orders these workers to drain their streams.
    pub(super) fn begin_drain(&mut self, workers: Vec<WorkerId>, actions: &mut Vec<RunAction>) {
        self.stage = RunStage::Draining;
        actions.extend(workers.iter().map(|worker| RunAction::Drain(*worker)));
        self.draining = workers;
    }

    pub(super) fn draining_workers(&self) -> &[WorkerId] {
        &self.draining
    }

    /// Stops waiting for a worker to drain its stream; returns whether the run was waiting for it.
    pub(super) fn end_drain_of(&mut self, worker: WorkerId) -> bool {
        let place = self.draining.iter().position(|one| *one == worker);
        place.map(|place| self.draining.remove(place)).is_some()
    }

    /// Starts the finisher, which sends the pending results and the completion, once all workers are drained
    /// and the ledger balances.
    pub(super) fn begin_finish(&mut self, ledger: &Ledger) -> Option<RunAction> {
        if self.stage != RunStage::Draining || !self.draining.is_empty() || !ledger.is_balanced() {
            return None;
        }
        self.stage = RunStage::Finishing;
        Some(RunAction::Finish(DueResults::of(ledger)))
    }

    pub(super) fn on_completing(&mut self) {
        self.is_completing |= self.stage == RunStage::Finishing;
    }

    pub(super) fn on_finished(&mut self) -> Option<RunAction> {
        if self.stage != RunStage::Finishing {
            return None;
        }
        self.stage = RunStage::Completed;
        Some(RunAction::Complete)
    }

    pub(super) fn on_finisher_late(&mut self) -> Option<RunAction> {
        if self.stage != RunStage::Finishing || self.is_finisher_given_up {
            return None;
        }
        self.is_finisher_given_up = true;
        Some(RunAction::KillFinisher)
    }

    pub(super) fn is_finisher_given_up(&self) -> bool {
        self.is_finisher_given_up
    }

    /// Returns the task of a finisher that replaces a dead one.
    pub(super) fn finisher_task(&self, ledger: &Ledger) -> FinisherTask {
        match self.stage {
            RunStage::Running | RunStage::Draining => FinisherTask::Register,
            RunStage::Finishing if self.is_finisher_given_up => FinisherTask::CoordinatorCompletes,
            RunStage::Finishing => self.remaining_task(ledger),
            RunStage::Completed => FinisherTask::None,
        }
    }

    /// Completes the run at any stage. Returns the work left for the coordinator in place of the finisher.
    pub(super) fn complete(&mut self, ledger: &Ledger) -> FinisherTask {
        match std::mem::replace(&mut self.stage, RunStage::Completed) {
            RunStage::Completed => FinisherTask::None,
            RunStage::Running | RunStage::Draining | RunStage::Finishing => self.remaining_task(ledger),
        }
    }

    fn remaining_task(&self, ledger: &Ledger) -> FinisherTask {
        if self.is_completing { FinisherTask::Complete } else { FinisherTask::Finish(DueResults::of(ledger)) }
    }
}
