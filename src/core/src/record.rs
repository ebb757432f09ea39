//! What happened in a run, one event after the other, as it is recorded. Ids and values only: whoever reads a
//! record, for a protocol, a report or a history, decides what it looks like there.

use serde::{Deserialize, Serialize};

use crate::{Attempt, ExitReason, LeaseId, OsText, ProcessUsage, TestId, TestResult};

/// An event of a run.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "half of all records are results: a box would cost an allocation each"
)]
pub enum RunRecord {
    /// The test is running.
    Started(TestId),
    /// The test has a provisional result, which a retry or an isolated rerun may still replace.
    Provisional { test: TestId, attempt: Attempt },
    /// The test has its terminal result.
    Finished { test: TestId, result: TestResult },
    /// A process for tests runs.
    ProcessStarted(ProcessStart),
    /// A process for tests has ended.
    ProcessEnded(ProcessEnd),
    /// A program failed outside its tests.
    ProgramFailed(ProgramFailure),
}

/// Start of a process for tests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ProcessStart {
    pub pid: u32,
    /// The lease that it was started for.
    pub lease: LeaseId,
    /// Name of the program's suite.
    pub suite: String,
    /// Number of tests that it was started for.
    pub tests: u32,
    /// Milliseconds since 1970 (UTC).
    pub started_ms: u64,
}

/// End of a process for tests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ProcessEnd {
    pub pid: u32,
    /// Milliseconds since 1970 (UTC).
    pub ended_ms: u64,
    /// When its first test began, in milliseconds since 1970 (UTC); `None` if none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_test_ms: Option<u64>,
    /// When its last test ended, in milliseconds since 1970 (UTC); `None` if none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_test_ms: Option<u64>,
    /// `None` for a process that was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<ProcessUsage>,
    /// Why it ended, unless it exited with code 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<ExitReason>,
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
