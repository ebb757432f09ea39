//! Types of journal records.

use heeler_core::{NotRunReason, OutcomeCounts, RunRecord};
use serde::{Deserialize, Serialize};

use crate::mtp::RunResult;

#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "all records but the last one are events")]
pub enum JournalRecord {
    Event(RunRecord),
    /// The run is complete: every test has its terminal result.
    Ended(Box<RunEnd>),
}

/// End of a completed run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RunEnd {
    /// End time in ISO 8601.
    pub ended_utc: String,
    /// Duration in milliseconds.
    pub duration_ms: u64,
    /// Why the run stopped before all tests had run; `None` if all of them ran.
    pub stopped_by: Option<NotRunReason>,
    /// Number of tests by outcome.
    pub counts: OutcomeCounts,
    /// Programs that failed outside their tests.
    pub failed_programs: usize,
    /// Result sent in response to the client's request.
    pub result: RunResult,
}

/// Kind of a record, as a number in its journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum RecordKind {
    Started,
    Finished,
    FailedProvisionally,
    ProgramFailed,
    RunEnded,
    ProcessStarted,
    ProcessEnded,
    CrashedProvisionally,
    FilesKept,
    SetUp,
    FixtureFailed,
    Leaked,
    Log,
}

impl RecordKind {
    /// All kinds, in the order of their numbers.
    const ALL: [Self; 13] = [
        Self::Started,
        Self::Finished,
        Self::FailedProvisionally,
        Self::ProgramFailed,
        Self::RunEnded,
        Self::ProcessStarted,
        Self::ProcessEnded,
        Self::CrashedProvisionally,
        Self::FilesKept,
        Self::SetUp,
        Self::FixtureFailed,
        Self::Leaked,
        Self::Log,
    ];

    pub(super) fn number(self) -> u8 {
        self as u8
    }

    /// Returns the kind with this number, if there is one.
    pub(super) fn of(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}
