//! What happened in a run, one event after the other, as it is recorded. Ids and values only: whoever reads a
//! record, for a protocol, a report or a history, decides what it looks like there.

use serde::{Deserialize, Serialize};

use crate::{
    Attempt, DiagnosticsFile, ExitReason, LeakedProcess, LeaseId, OsText, ProcessUsage, SetUpProgress,
    TestId, TestResult,
};

/// An event of a run.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "half of all records are results: a box would cost an allocation each"
)]
pub enum RunRecord {
    /// The test is running.
    Started(TestStart),
    /// The running test has written this text.
    Output { test: TestId, text: String },
    /// The test has passed an iteration, and is to run again.
    IterationPassed {
        test: TestId,
        /// Duration in microseconds.
        duration_us: u64,
    },
    /// The test has ended, and its result is held until its process has proven it.
    Held {
        test: TestId,
        /// Whether its process runs no other test, so that the result follows soon.
        is_alone: bool,
    },
    /// The test has a provisional result, which a retry or an isolated rerun may still replace.
    Provisional { test: TestId, attempt: Attempt, next: NextRun },
    /// The test has its terminal result.
    Finished { test: TestId, result: TestResult },
    /// Files that belong to no test.
    FilesKept(Vec<DiagnosticsFile>),
    /// A process for tests runs.
    ProcessStarted(ProcessStart),
    /// A process for tests has ended.
    ProcessEnded(ProcessEnd),
    /// A process sets up a fixture that it keeps until its end.
    SetUp { fixture: String, progress: SetUpProgress },
    /// The set-up or tear-down of a suite failed, outside its tests.
    FixtureFailed {
        fixture: SuiteFixture,
        /// Description for users.
        message: String,
    },
    /// A program failed outside its tests.
    ProgramFailed(ProgramFailure),
    /// Processes outlived their test process and were killed.
    Leaked {
        /// The test that started them. If that is unknown, every test that may have started them; empty if
        /// none can have.
        tests: Vec<TestId>,
        processes: Vec<LeakedProcess>,
    },
    /// A line for the log.
    Log(LogLine),
}

/// Takes the events of a run, in the order in which they happened.
pub trait RecordSink {
    /// Takes the next event.
    fn record(&mut self, record: RunRecord);
}

impl RecordSink for Vec<RunRecord> {
    fn record(&mut self, record: RunRecord) {
        self.push(record);
    }
}

/// Start of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TestStart {
    pub test: TestId,
    /// Milliseconds since 1970 (UTC).
    pub started_ms: u64,
    /// Whether it has started before in this run, and has no result yet.
    pub is_again: bool,
}

/// How a test runs again whose result is provisional.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextRun {
    /// As the retries that the user has set.
    Retry,
    /// Alone in its process, because its process died.
    Isolated,
}

/// A line for the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// Test that the line is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test: Option<TestId>,
    pub severity: Severity,
    /// Text for users.
    pub message: String,
}

impl LogLine {
    /// Returns a line about something unusual from which the run has recovered.
    #[must_use]
    pub fn warning(test: Option<TestId>, message: String) -> Self {
        Self { test, severity: Severity::Warning, message }
    }

    /// Returns a line about something that is as the user wants it.
    #[must_use]
    pub fn information(test: Option<TestId>, message: String) -> Self {
        Self { test, severity: Severity::Information, message }
    }
}

/// Severity of a line for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Severity {
    /// As the user wants it.
    Information,
    /// Unusual, but recovered.
    Warning,
    /// The user must act.
    Error,
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
    /// Number of tests that it was given.
    pub tests: u32,
    /// Its only test, if it was given one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test: Option<TestId>,
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
