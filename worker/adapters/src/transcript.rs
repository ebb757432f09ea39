//! The parser interface for a framework's reports, and the events it produces.

use std::time::Duration;

use heeler_core::{Failure, NotRunReason, Outcome, RuntimeDeath, SetUpProgress, SuiteFixture};
use heeler_protocol::control::ListedTest;

/// Cause of a process's death, from a report of the language's runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeathCause {
    /// Message of the runtime and place of the code.
    pub detail: String,
    /// How the runtime ended the process; `None` if it reported a signal.
    pub runtime: Option<RuntimeDeath>,
    /// Name of the signal that the runtime handled.
    pub signal: Option<String>,
}

/// Parser of a framework's reports on standard output or on its report channel. Memory is bounded by the test
/// names plus a constant, for any input.
pub trait TranscriptParser {
    /// Parses the next chunk of standard output and appends the recognized events. Not called for commands
    /// that receive requests.
    fn on_stdout(&mut self, chunk: &[u8], events: &mut Vec<TranscriptEvent>) {
        let _ = (chunk, events);
    }

    /// Returns the first request for the report channel or standard input. If the request names a test,
    /// appends the begin event of this test.
    fn opening_request(&mut self, events: &mut Vec<TranscriptEvent>) -> Vec<u8> {
        let _ = events;
        Vec::new()
    }

    /// Parses the next chunk from the report channel, or from standard output if requests go to standard
    /// input. Appends the recognized events and returns the next request. A process that answers several
    /// requests runs several batches.
    fn on_channel(&mut self, chunk: &[u8], events: &mut Vec<TranscriptEvent>) -> Vec<u8> {
        let _ = (chunk, events);
        Vec::new()
    }

    /// Takes the reported progress of fixtures that the process keeps until its end, by fixture name.
    fn take_set_ups(&mut self) -> Vec<(String, SetUpProgress)> {
        Vec::new()
    }

    /// Handles an event on one of several connections and returns the next request for it. Connections are
    /// numbered from the oldest. A channel with only one peer is connection 0 and always open.
    fn on_connection(
        &mut self,
        connection: usize,
        input: ConnectionInput<'_>,
        events: &mut Vec<TranscriptEvent>,
    ) -> Vec<u8> {
        let _ = connection;
        match input {
            ConnectionInput::Opened => Vec::new(),
            ConnectionInput::Bytes(chunk) | ConnectionInput::BytesOf(_, chunk) => {
                self.on_channel(chunk, events)
            }
        }
    }

    /// Called after [`Self::on_output_end`] if the process ended before its reports did. Appends a begin
    /// event for the test that seems to have been running when the process died.
    fn on_death(&mut self, evidence: &DeathEvidence<'_>, events: &mut Vec<TranscriptEvent>) {
        let _ = (evidence, events);
    }

    /// Returns the test that caused the death, as far as the reports and [`Self::on_death`] show.
    fn culprit(&self) -> DeathCulprit {
        DeathCulprit::RunningTests
    }

    /// Returns the cause of death that [`Self::on_death`] found.
    fn death_cause(&self) -> Option<&DeathCause> {
        None
    }

    /// Parses the next chunks of standard output and standard error of a command with a report channel.
    /// Called after the reports that were read at the same time. Returns whether the parser itself attributes
    /// this output to tests, with [`TranscriptEvent::Output`] and [`TranscriptEvent::ErrorOutput`]. Otherwise
    /// the worker attributes it by the time it was read.
    fn on_outputs(&mut self, stdout: &[u8], stderr: &[u8], events: &mut Vec<TranscriptEvent>) -> bool {
        let _ = (stdout, stderr, events);
        false
    }

    /// Returns the request that asks the running tests to stop, before the process is killed. After this
    /// request no test has a [`TranscriptEvent::Ended`] and no test begins.
    fn cancel_request(&mut self, reason: &str) -> Vec<u8> {
        let _ = reason;
        Vec::new()
    }

    /// Returns whether all tests have ended and [`Self::add_tests`] may be called.
    fn takes_more_tests(&self) -> bool {
        false
    }

    /// Adds tests, with indices that follow the existing ones, and returns the request for them like
    /// [`Self::opening_request`]. Called only if [`Self::takes_more_tests`] returns true.
    fn add_tests(&mut self, tests: &[&ListedTest], events: &mut Vec<TranscriptEvent>) -> Vec<u8> {
        let _ = (tests, events);
        Vec::new()
    }

    /// Returns the last request, sent when no more tests follow.
    fn closing_request(&mut self) -> Vec<u8> {
        Vec::new()
    }

    /// Returns whether forked copies of the process also read its requests.
    fn has_forked_copies(&self) -> bool {
        false
    }

    /// Called when no more tests should begin. The parser stops requesting tests; running tests may end.
    fn begin_no_more(&mut self) {}

    /// Returns whether no request follows, so that standard input can be closed.
    fn is_over(&self) -> bool {
        self.is_complete()
    }

    /// Called at the end of the output. Tests that are still running get no [`TranscriptEvent::Ended`].
    fn on_output_end(&mut self, events: &mut Vec<TranscriptEvent>);

    /// Called after the end of the output if the process exited by itself with this code. Appends a
    /// [`TranscriptEvent::Ended`] if the exit decides the test.
    fn on_exit(&mut self, code: i32, events: &mut Vec<TranscriptEvent>) {
        let _ = (code, events);
    }

    /// Returns whether the framework printed its final line.
    fn is_complete(&self) -> bool;

    /// Returns whether the reported results explain this exit code. A failure outside any test is in no
    /// result, so the exit code it causes is not explained; see [`Self::outside_failure`].
    fn explains_exit(&self, code: i32) -> bool;

    /// Returns whether all results are known although the process still runs. The process can then be ended.
    fn is_decided(&self) -> bool {
        false
    }

    /// Returns whether the running test has written its end marker. The marker is confirmed only when the
    /// framework continues after it, so a process that dies here died in the test or in the tear-down of its
    /// suite.
    fn is_after_end_marker(&self) -> bool {
        false
    }

    /// Returns whether a tear-down that [`Self::suite_phase`] reports may be running. Asked after each read.
    fn may_be_in_tear_down(&self) -> bool {
        self.is_after_end_marker()
    }

    /// Returns the first test with a doubtful result. Since its start, the output contains misplaced markers:
    /// repeated, out of order, or after the final line. A test or another process may have written them, so
    /// only [`crate::RunReport`] proves the results from this test on.
    fn doubtful_since(&self) -> Option<usize> {
        None
    }

    /// Returns a test that began according to the output but was not selected.
    fn unselected_test(&self) -> Option<&str> {
        None
    }

    /// Returns the suite whose set-up or tear-down is running.
    fn suite_phase(&self) -> Option<SuitePhase> {
        None
    }

    /// Returns the failures that the framework reported in set-up or tear-down of suites.
    fn fixture_failures(&self) -> &[FixtureFailure] {
        &[]
    }

    /// Returns the failure reported outside any test and suite: in the set-up or tear-down of the
    /// environment.
    fn outside_failure(&self) -> Option<&str> {
        None
    }
}

/// An event on a connection of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionInput<'a> {
    /// The connection was made.
    Opened,
    /// Bytes were received.
    Bytes(&'a [u8]),
    /// Bytes were received that this process wrote.
    BytesOf(ReportWriter, &'a [u8]),
}

impl<'a> ConnectionInput<'a> {
    /// Returns the received bytes, if any.
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Self::Opened => &[],
            Self::Bytes(bytes) | Self::BytesOf(_, bytes) => bytes,
        }
    }

    /// Returns the process that wrote the bytes, if known.
    #[must_use]
    pub fn writer(self) -> Option<ReportWriter> {
        match self {
            Self::Opened | Self::Bytes(_) => None,
            Self::BytesOf(writer, _) => Some(writer),
        }
    }
}

/// Id of the process that wrote a report. The process may be gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportWriter(pub u32);

/// The test that a process died in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DeathCulprit {
    /// One of the running tests.
    #[default]
    RunningTests,
    /// Any test without an end: the running tests are not known for certain.
    Unknown,
    /// This test: an index in the given tests. Other running tests are not to blame.
    Test(usize),
}

/// Evidence that a dead process left behind.
#[derive(Debug, Clone, Copy, Default)]
pub struct DeathEvidence<'a> {
    /// Tail of its standard error.
    pub stderr: &'a str,
    /// Crash report of its runtime.
    pub crash_report: &'a [u8],
    /// Test journal of the process.
    pub journal: &'a [u8],
}

/// A failure that the framework reported in the set-up or tear-down of a suite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixtureFailure {
    /// The fixture that failed.
    pub fixture: SuiteFixture,
    /// Message of the framework.
    pub message: String,
}

/// A phase of a run outside the selected tests.
#[derive(Debug, Clone, PartialEq)]
pub enum SuitePhase {
    /// The suite has begun, but none of its tests has.
    SetUp {
        /// Name of the suite.
        suite: String,
        /// Indices of the suite's tests that have not begun.
        places: Vec<usize>,
    },
    /// An unselected test is running because selected tests depend on it.
    Dependency {
        /// Name of the test.
        test: String,
        /// Indices of the tests that depend on it and have not begun.
        places: Vec<usize>,
    },
    /// All tests of a suite have ended, and the framework has continued after them.
    AfterTests {
        /// Name of the suite.
        suite: String,
    },
    /// The last test of the suite has written its end marker.
    TearDown {
        /// Name of the suite.
        suite: String,
        /// Verdict of the running test according to that marker.
        verdict: FrameworkVerdict,
    },
    /// The running test tears down a fixture that other tests used too.
    FixtureTearDown {
        /// Name of the fixture.
        fixture: String,
    },
}

/// An event recognized in a transcript.
#[derive(Debug, Clone, PartialEq)]
pub enum TranscriptEvent {
    /// A test has begun.
    Begun {
        /// Index in the given tests.
        place: usize,
    },
    /// Output of the running test, or of no test if none is running. If several tests are running, any of
    /// them may have written it.
    Output(Vec<u8>),
    /// A running test waits for others to end. The time limit is suspended, and the test writes nothing.
    Paused {
        /// Index in the given tests.
        place: usize,
    },
    /// A paused test continues.
    Resumed {
        /// Index in the given tests.
        place: usize,
    },
    /// Standard error of the running test, or of no test if none is running.
    ErrorOutput(Vec<u8>),
    /// Output of this running test, even if other tests are running.
    TestOutput {
        /// Index in the given tests.
        place: usize,
        /// Stream written by the test.
        stream: OutputStream,
        /// The bytes written.
        bytes: Vec<u8>,
    },
    /// A part of a running test has begun or ended.
    Part {
        /// Index in the given tests.
        place: usize,
        /// The part, identified within its test by its name.
        part: TestPart,
    },
    /// A running test gets another time limit.
    TimeLimit {
        /// Index in the given tests.
        place: usize,
        /// The limit, from now.
        limit: Duration,
    },
    /// A test has ended according to the framework.
    Ended {
        /// Index in the given tests.
        place: usize,
        /// Result that the framework reported.
        verdict: FrameworkVerdict,
    },
    /// A file of a running test. The framework may remove it at any time.
    File {
        /// Index in the given tests.
        place: usize,
        /// Path of the file.
        path: String,
        /// Description of the file.
        description: String,
    },
    /// All [`Self::Ended`] events so far are final: none of these tests will end again.
    Confirmed,
}

/// An output of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

/// A part of a test that can be neither listed nor selected: a subcase, a section, a data row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestPart {
    /// Name within the test, including the enclosing parts.
    pub name: String,
    /// Result; `None` when the part has only begun.
    pub result: Option<FrameworkResult>,
    /// The failure message, if the framework reports one for the part.
    pub message: Option<String>,
}

/// Results that a framework can report. All other outcomes depend on how the process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameworkResult {
    /// The test passed.
    Passed,
    /// The test failed.
    Failed,
    /// The framework did not run the test, or the test ended itself as skipped.
    Skipped,
    /// The framework did not run a test that it was asked to run.
    NotRun,
}

impl FrameworkResult {
    /// Returns the result as text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::NotRun => "not run",
        }
    }
}

impl From<FrameworkResult> for Outcome {
    fn from(result: FrameworkResult) -> Self {
        match result {
            FrameworkResult::Passed => Self::Passed,
            FrameworkResult::Failed => Self::Failed,
            FrameworkResult::Skipped => Self::Skipped,
            FrameworkResult::NotRun => Self::NotRun(NotRunReason::Unrunnable),
        }
    }
}

/// The end of a test, as the framework reports it.
#[derive(Debug, Clone, PartialEq)]
pub struct FrameworkVerdict {
    /// Result that the framework reported.
    pub result: FrameworkResult,
    /// Duration measured by the framework.
    pub duration: Option<Duration>,
    /// Reason of a skip.
    pub reason: Option<String>,
    /// Failures in the order reported; at most [`MAX_FAILURES`]. Empty for a failed test without details.
    pub failures: Vec<Failure>,
    /// Output that the framework itself captured.
    pub stdout: Option<String>,
    /// Standard error that the framework itself captured.
    pub stderr: Option<String>,
    /// Answer of the test in base64, if its framework passes answers on.
    pub answer: Option<String>,
}

/// Maximum number of separate failures of one test. A test that checks in a loop reports thousands, and every
/// result would contain them. The texts of later failures are appended to the last one until it is full.
pub const MAX_FAILURES: usize = 100;

impl FrameworkVerdict {
    /// Returns a verdict with only a result and a duration.
    #[must_use]
    pub fn new(result: FrameworkResult, duration: Option<Duration>) -> Self {
        Self {
            result,
            duration,
            reason: None,
            failures: Vec::new(),
            stdout: None,
            stderr: None,
            answer: None,
        }
    }

    /// Appends a failure, unless it is empty.
    pub fn push_failure(&mut self, failure: Failure) {
        if !failure.is_empty() && self.failures.len() < MAX_FAILURES {
            self.failures.push(failure);
        }
    }
}
