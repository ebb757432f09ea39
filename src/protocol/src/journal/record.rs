//! Types of journal records.

use serde::{Deserialize, Serialize};

use crate::{
    control::{Attempt, JournalledResult, TestIndex},
    mtp::RunResult,
};

/// Record of a journal.
#[derive(Debug, Clone, PartialEq)]
pub enum JournalRecord {
    /// The test is running.
    Started(TestIndex),
    /// The test has its terminal result.
    Settled {
        /// Result without its node.
        result: JournalledResult,
        /// JSON of the change, as it is sent to the client.
        change: Vec<u8>,
    },
    /// The test has a provisional result, which a retry or an isolated rerun may still replace.
    Provisional { test: TestIndex, attempt: Attempt },
    /// A program failed outside its tests.
    ProgramFailure {
        /// JSON of the change, as it is sent to the client.
        change: Vec<u8>,
    },
    /// The run is complete: every test has its terminal result.
    Ended(Box<RunEnd>),
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
    pub stopped_by: Option<StopReason>,
    /// Number of tests by outcome.
    pub counts: EndCounts,
    /// Number of programs that failed outside their tests.
    pub failed_programs: usize,
    /// Result that answered the client's request.
    pub result: RunResult,
}

/// Reason why a run stopped early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StopReason {
    /// The user cancelled it.
    Cancelled,
    /// The limit of failures was reached.
    TooManyFailures,
    /// The time limit was reached.
    TimeLimitReached,
    /// A reason that this version does not know.
    #[serde(other)]
    Unknown,
}

/// Number of tests of a run by outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct EndCounts {
    /// Passed, as the framework reported.
    pub passed: usize,
    /// Not run by the framework's own decision.
    pub skipped: usize,
    /// Failed, as the framework reported.
    pub failed: usize,
    /// Ended by their time limit.
    pub timed_out: usize,
    /// Process died during the test.
    pub crashed: usize,
    /// Not run to their end, or without a usable verdict.
    pub error: usize,
    /// Cancelled by the user.
    pub cancelled: usize,
    /// Never started.
    pub not_run: usize,
}
