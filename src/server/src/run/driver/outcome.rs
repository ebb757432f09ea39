//! The result of a run.

use std::{collections::BTreeSet, time::Duration};

use heeler_core::{NotRunReason, TestId, ledger::Ledger};
use heeler_protocol::{control::ProofLevel, mtp::RunResult};

use crate::run::RunResourceUsage;

/// The result of a run.
#[derive(Debug)]
pub struct RunOutcome {
    /// The ledger of all tests.
    pub ledger: Ledger,
    /// Why the run was stopped early, if it was.
    pub stopped_by: Option<NotRunReason>,
    /// Durations of tests that ended, for the history.
    pub durations: Vec<(TestId, Duration)>,
    /// Tests during which a process crashed.
    pub crashed: BTreeSet<TestId>,
    /// Resource usage of the run's processes.
    pub resource_usage: RunResourceUsage,
    /// Number of workers that died.
    pub worker_deaths: usize,
    /// Number of programs that failed outside any test.
    pub failed_programs: usize,
    /// How certain it is that the client has received the completion.
    pub proof: ProofLevel,
    /// `result` member of the response.
    pub result: RunResult,
}
