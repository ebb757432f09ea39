//! What stands in a journal.

use serde::{Deserialize, Serialize};

use crate::{
    control::{Attempt, JournalledResult, TestIndex},
    mtp::RunResult,
};

/// One record.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// A test runs.
    Started(TestIndex),
    /// A test has its terminal result.
    Settled {
        /// The result without its node.
        result: JournalledResult,
        /// The JSON of the change, as the client gets it.
        change: Vec<u8>,
    },
    /// A result that may still be replaced.
    Held {
        /// Which test.
        test: TestIndex,
        /// What was seen.
        attempt: Attempt,
    },
    /// A program had trouble outside its tests.
    Charged {
        /// The JSON of the change, as the client gets it.
        change: Vec<u8>,
    },
    /// The run is complete: every test has its terminal result.
    Ended(Box<RunEnd>),
}

/// How a run ended that came to its end.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RunEnd {
    /// When, in ISO 8601.
    pub ended_utc: String,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// Why nothing was handed out any more before all tests had run, if so.
    pub stopped_by: Option<StopReason>,
    /// How many tests ended how.
    pub counts: EndCounts,
    /// Programs that had trouble outside their tests.
    pub charged_programs: usize,
    /// What the client's request was answered with.
    pub result: RunResult,
}

/// Why a run stopped early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StopReason {
    /// The user ended it.
    Cancelled,
    /// Its limit of failures.
    TooManyFailures,
    /// Its limit of time.
    TimeIsUp,
    /// A word that this version does not know.
    #[serde(other)]
    Unknown,
}

/// How many tests of a run ended how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct EndCounts {
    /// By the framework's word.
    pub passed: usize,
    /// Not run by their framework's own decision.
    pub skipped: usize,
    /// By the framework's word.
    pub failed: usize,
    /// Ended by their time limit.
    pub timed_out: usize,
    /// Their process died under them.
    pub crashed: usize,
    /// Could not be run to their end, or not be judged.
    pub error: usize,
    /// Ended by the user's wish.
    pub cancelled: usize,
    /// Never begun.
    pub not_run: usize,
}
