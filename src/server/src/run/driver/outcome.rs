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
    /// Why no more tests were leased, if the run was stopped early.
    pub stopped_by: Option<NotRunReason>,
    /// Durations of tests that ended, for the history.
    pub durations: Vec<(TestId, Duration)>,
    /// Tests during which a process died.
    pub crashed: BTreeSet<TestId>,
    /// Resource usage of its processes.
    pub resource_usage: RunResourceUsage,
    /// Number of workers that died.
    pub worker_deaths: usize,
    /// Number of programs with failures outside any test.
    pub failed_programs: usize,
    /// Proof level of the completion's delivery to the client.
    pub proof: ProofLevel,
    /// The result member of the response.
    pub result: RunResult,
}
