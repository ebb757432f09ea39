//! Conversions between the types of the wire and those of the model.

use heeler_core::WorkerId as ModelWorker;
use heeler_protocol::{
    control::{LeaseEnd, WorkerId},
    mtp::ExecutionState,
};

pub(super) fn to_model(worker: WorkerId) -> ModelWorker {
    ModelWorker(worker.0)
}

pub(super) fn from_model(worker: ModelWorker) -> WorkerId {
    WorkerId(worker.0)
}

pub(super) fn outcome_of(state: ExecutionState) -> heeler_core::Outcome {
    match state {
        ExecutionState::Passed => heeler_core::Outcome::Passed,
        ExecutionState::Skipped => heeler_core::Outcome::Skipped,
        ExecutionState::Failed => heeler_core::Outcome::Failed,
        ExecutionState::TimedOut => heeler_core::Outcome::TimedOut,
        ExecutionState::Cancelled => heeler_core::Outcome::Cancelled,
        ExecutionState::Error
        | ExecutionState::Discovered
        | ExecutionState::InProgress
        | ExecutionState::Unknown => heeler_core::Outcome::Error,
    }
}

pub(super) fn lease_end_of(end: &LeaseEnd) -> heeler_core::LeaseOutcome {
    match end {
        LeaseEnd::Complete => heeler_core::LeaseOutcome::Complete,
        LeaseEnd::BadExit { .. } => heeler_core::LeaseOutcome::BadExit,
        LeaseEnd::DiedInTest { .. } => heeler_core::LeaseOutcome::DiedInTest,
        LeaseEnd::DiedOutsideTest { .. } => heeler_core::LeaseOutcome::DiedOutside,
        LeaseEnd::NotStarted { .. } => heeler_core::LeaseOutcome::NotStarted,
        LeaseEnd::Cancelled => heeler_core::LeaseOutcome::Cancelled,
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
