//! The events of a run, in order. Records contain only ids and values: each reader (protocol, report,
//! history) decides how to present them.

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
    /// The test has started.
    Started(TestStart),
    /// The running test has written this text.
    Output {
        test: TestId,
        text: String,
    },
    /// The test has passed an iteration and will run again.
    IterationPassed {
        test: TestId,
        /// Duration in microseconds.
        duration_us: u64,
    },
    /// The test has ended. Its result is held back until further output or the exit of the process confirms
    /// it.
    Held {
        test: TestId,
        /// Whether the process runs no other test, so the result follows soon.
        is_alone: bool,
    },
    /// The test has a provisional result, which a retry or an isolated rerun may still replace.
    Provisional {
        test: TestId,
        attempt: Attempt,
        next: NextRun,
    },
    /// The test has its terminal result.
    Finished {
        test: TestId,
        result: TestResult,
    },
    /// Files that belong to no test.
    FilesKept(Vec<DiagnosticsFile>),
    /// A process for tests has started.
    ProcessStarted(ProcessStart),
    /// A process for tests has ended.
    ProcessEnded(ProcessEnd),
    /// Progress in setting up a fixture that lives as long as its process.
    SetUp {
        fixture: String,
        progress: SetUpProgress,
    },
    /// The set-up or tear-down of a suite failed outside its tests.
    FixtureFailed {
        fixture: SuiteFixture,
        /// Description for users.
        message: String,
    },
    /// A program failed outside its tests.
    ProgramFailed(ProgramFailure),
    /// Processes outlived their test process and were killed.
    Leaked {
        /// The test that started the processes. If unknown, every test that may have started them; empty if
        /// no test can have.
        tests: Vec<TestId>,
        processes: Vec<LeakedProcess>,
    },
    Log(LogLine),
}

/// Receives the events of a run in chronological order.
pub trait RecordSink {
    /// Receives the next event.
    fn record(&mut self, record: RunRecord);
}

impl RecordSink for Vec<RunRecord> {
    fn record(&mut self, record: RunRecord) {
        self.push(record);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TestStart {
    pub test: TestId,
    /// Milliseconds since 1970 (UTC).
    pub started_ms: u64,
    /// Whether the test has started before in this run, without a result.
    pub is_again: bool,
}

/// How a test with a provisional result runs again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextRun {
    /// A retry that the user has configured.
    Retry,
    /// A rerun alone in a process, because the shared process died.
    Isolated,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// The test concerned, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test: Option<TestId>,
    pub severity: Severity,
    /// Text for users.
    pub message: String,
}

impl LogLine {
    /// Returns a line about something unusual that did not stop the run.
    #[must_use]
    pub fn warning(test: Option<TestId>, message: String) -> Self {
        Self { test, severity: Severity::Warning, message }
    }

    /// Returns a line about expected behaviour.
    #[must_use]
    pub fn information(test: Option<TestId>, message: String) -> Self {
        Self { test, severity: Severity::Information, message }
    }
}

/// Severity of a line for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Severity {
    /// Expected behaviour.
    Information,
    /// Unusual, but the run continues.
    Warning,
    /// The user must act.
    Error,
}

/// Start of a test process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ProcessStart {
    pub pid: u32,
    /// Lease that the process was started for.
    pub lease: LeaseId,
    /// Name of the program's suite.
    pub suite: String,
    /// Number of tests that the process was started for.
    pub tests: u32,
    /// Milliseconds since 1970 (UTC).
    pub started_ms: u64,
}

/// End of a test process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ProcessEnd {
    pub pid: u32,
    /// Milliseconds since 1970 (UTC).
    pub ended_ms: u64,
    /// Start of the first test, in milliseconds since 1970 (UTC); `None` if no test started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_test_ms: Option<u64>,
    /// End of the last test, in milliseconds since 1970 (UTC); `None` if no test ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_test_ms: Option<u64>,
    /// Number of tests given to the process.
    pub tests: u32,
    /// The only test of the process, if it was given one test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test: Option<TestId>,
    /// `None` for a process that was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<ProcessUsage>,
    /// Reason of the exit, unless the process exited with code 0.
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
    /// The failed set-up or tear-down; `None` for the program itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixture: Option<SuiteFixture>,
    /// Description for users.
    pub message: String,
}

impl ProgramFailure {
    /// Returns the uid of the failure's node: the name of the program's suite, followed by the fixture if
    /// there is one. No test has this uid.
    #[must_use]
    pub fn uid(&self) -> String {
        match &self.fixture {
            None => self.suite.clone(),
            Some(fixture) => format!("{}::{fixture}", self.suite),
        }
    }

    /// Returns the display name of the failure's node.
    #[must_use]
    pub fn display_name(&self) -> String {
        match &self.fixture {
            None => format!("{} (the program itself)", self.suite),
            Some(fixture) => fixture.to_string(),
        }
    }
}

/// Set-up or tear-down of a suite, as named by the framework.
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

/// Phase of a suite around its tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FixturePhase {
    SetUp,
    TearDown,
    /// Set-up or tear-down: the framework does not say which.
    Either,
}

impl FixturePhase {
    /// Returns the phase as text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SetUp => "set-up",
            Self::TearDown => "tear-down",
            Self::Either => "set-up or tear-down",
        }
    }
}
