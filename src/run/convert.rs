//! Conversions between the types of the wire and those of the model.

use model::WorkerId as ModelWorker;
use wire::{
    control::{LeaseEnd, WorkerId},
    mtp::ExecutionState,
};

pub(super) fn to_model(worker: WorkerId) -> ModelWorker {
    ModelWorker(worker.0)
}

pub(super) fn from_model(worker: ModelWorker) -> WorkerId {
    WorkerId(worker.0)
}

pub(super) fn outcome_of(state: ExecutionState) -> model::Outcome {
    match state {
        ExecutionState::Passed => model::Outcome::Passed,
        ExecutionState::Skipped => model::Outcome::Skipped,
        ExecutionState::Failed => model::Outcome::Failed,
        ExecutionState::TimedOut => model::Outcome::TimedOut,
        ExecutionState::Cancelled => model::Outcome::Cancelled,
        ExecutionState::Error
        | ExecutionState::Discovered
        | ExecutionState::InProgress
        | ExecutionState::Unknown => model::Outcome::Error,
    }
}

pub(super) fn lease_end_of(end: &LeaseEnd) -> model::LeaseOutcome {
    match end {
        LeaseEnd::Complete => model::LeaseOutcome::Complete,
        LeaseEnd::BadExit { .. } => model::LeaseOutcome::BadExit,
        LeaseEnd::DiedInTest { .. } => model::LeaseOutcome::DiedInTest,
        LeaseEnd::DiedOutsideTest { .. } => model::LeaseOutcome::DiedOutside,
        LeaseEnd::NotStarted { .. } => model::LeaseOutcome::NotStarted,
        LeaseEnd::Cancelled => model::LeaseOutcome::Cancelled,
    }
}

/// Returns the program failure of a lease's end, if it is one.
pub(super) fn program_failure(end: &LeaseEnd) -> Option<String> {
    match end {
        LeaseEnd::BadExit { message, .. } | LeaseEnd::DiedOutsideTest { message, .. } => {
            Some(message.clone())
        }
        LeaseEnd::NotStarted { error } => Some(error.clone()),
        LeaseEnd::Complete | LeaseEnd::DiedInTest { .. } | LeaseEnd::Cancelled => None,
    }
}
