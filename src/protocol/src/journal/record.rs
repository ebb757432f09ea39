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
    /// The set-up or tear-down that failed; `None` for the program itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixture: Option<SuiteFixture>,
    /// Description for users.
    pub message: String,
}

impl ProgramFailure {
    /// Returns the uid of its node: the name of the program's suite, or that of the fixture below it. No test
    /// has it.
    #[must_use]
    pub fn uid(&self) -> String {
        match &self.fixture {
            None => self.suite.clone(),
            Some(fixture) => format!("{}::{fixture}", self.suite),
        }
    }

    /// Returns the display name of its node.
    #[must_use]
    pub fn display_name(&self) -> String {
        match &self.fixture {
            None => format!("{} (the program itself)", self.suite),
            Some(fixture) => fixture.to_string(),
        }
    }
}

/// Set-up or tear-down of a suite, as its framework names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct SuiteFixture {
    pub suite: String,
    pub phase: FixturePhase,
}

impl std::fmt::Display for SuiteFixture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.suite, self.phase.as_str())
    }
}

/// A phase of a suite around its tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FixturePhase {
    SetUp,
    TearDown,
    /// The framework does not say which.
    Either,
}

impl FixturePhase {
    /// Returns the phase in words.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SetUp => "set-up",
            Self::TearDown => "tear-down",
            Self::Either => "set-up or tear-down",
        }
    }
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
