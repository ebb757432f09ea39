//! Types of journal records.

use heeler_core::{Attempt, NotRunReason, OsText, OutcomeCounts, TestId, TestResult};
use serde::{Deserialize, Serialize};

use crate::mtp::RunResult;

/// Record of a journal.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "half of all records are results: a box would cost an allocation each"
)]
pub enum JournalRecord {
    /// The test is running.
    Started(TestId),
    /// The test has a provisional result, which a retry or an isolated rerun may still replace.
    Provisional { test: TestId, attempt: Attempt },
    /// The test has its terminal result.
    Finished { test: TestId, result: TestResult },
    /// A program failed outside its tests.
    ProgramFailed(ProgramFailure),
    /// The run is complete: every test has its terminal result.
    Ended(Box<RunEnd>),
}

/// Failure of a program outside its tests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ProgramFailure {
    pub suite: String,
    /// Path of the program.
    pub program: OsText,
    /// Description for users.
    pub message: String,
}

/// End of a run that was completed.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RunEnd {
    /// End time in ISO 8601.
    pub ended_utc: String,
    /// Duration in milliseconds.
    pub duration_ms: u64,
    /// Reason why no more tests were leased before all had run, if so.
    pub stopped_by: Option<NotRunReason>,
    /// Number of tests by outcome.
    pub counts: OutcomeCounts,
    /// Number of programs that failed outside their tests.
    pub failed_programs: usize,
    /// Result that answered the client's request.
    pub result: RunResult,
}
