//! The parser of a framework's reports, and the events that it recognizes.

use std::time::Duration;

use heeler_core::{Failure, NotRunReason, Outcome, SetUpProgress, SuiteFixture};
use heeler_protocol::control::ListedTest;

/// Parser of a framework's reports: on its standard output, or on its report channel. Its memory is bounded
/// by the names of the tests plus a constant, whatever the input.
pub trait TranscriptParser {
    /// Parses the next chunk of standard output, and appends the recognized events. Not called for a command
    /// that receives requests.
    fn on_stdout(&mut self, chunk: &[u8], events: &mut Vec<TranscriptEvent>) {
        let _ = (chunk, events);
    }

    /// Returns the first request to write to the report channel or to standard input. Appends the events of
    /// what it begins: where a request names a test, that test begins with it.
    fn opening_request(&mut self, events: &mut Vec<TranscriptEvent>) -> Vec<u8> {
        let _ = events;
        Vec::new()
    }

    /// Parses the next chunk of reports from the report channel, or from the standard output of a command
    /// that receives its requests on standard input; appends the recognized events, and returns the next
    /// request. A process that answers several requests runs several batches.
    fn on_channel(&mut self, chunk: &[u8], events: &mut Vec<TranscriptEvent>) -> Vec<u8> {
        let _ = (chunk, events);
        Vec::new()
    }

    /// Takes what the process has reported of fixtures that it sets up and keeps until its end, by their
    /// names.
    fn take_set_ups(&mut self) -> Vec<(String, SetUpProgress)> {
        Vec::new()
    }

    /// Handles what happens on one of several connections, numbered in the order in which they were made;
    /// returns the next request on this connection. A channel with only one end is connection 0, and always
    /// open.
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

    /// Handles the evidence of a process that has ended before its reports did, after
    /// [`Self::on_output_end`]: appends the beginning of the test in which it seems to have died.
    fn on_death(&mut self, evidence: &DeathEvidence<'_>, events: &mut Vec<TranscriptEvent>) {
        let _ = (evidence, events);
    }

    /// Returns in which test the process died, as far as its reports and [`Self::on_death`] show.
    fn culprit(&self) -> DeathCulprit {
        DeathCulprit::RunningTests
    }

    /// Returns why the process died, as [`Self::on_death`] has read it.
    fn death_detail(&self) -> Option<&str> {
        None
    }

    /// Parses the next chunks of standard output and standard error of a command with a report channel, after
    /// the reports that were read with them. Returns whether the parser divides them among the tests, with
    /// [`TranscriptEvent::Output`] and [`TranscriptEvent::ErrorOutput`]; otherwise the worker attributes them
    /// by the time at which they were read.
    fn on_outputs(&mut self, stdout: &[u8], stderr: &[u8], events: &mut Vec<TranscriptEvent>) -> bool {
        let _ = (stdout, stderr, events);
        false
    }

    /// Returns the request by which the running tests are asked to stop, before the process is ended. None of
    /// them has a [`TranscriptEvent::Ended`] after that, and no other begins.
    fn cancel_request(&mut self, reason: &str) -> Vec<u8> {
        let _ = reason;
        Vec::new()
    }

    /// Returns whether all tests have ended, and the process can be given others by [`Self::add_tests`].
    fn takes_more_tests(&self) -> bool {
        false
    }

    /// Adds tests, whose indices follow those before them; returns the request for them, as
    /// [`Self::opening_request`] does. Called when [`Self::takes_more_tests`].
    fn add_tests(&mut self, tests: &[&ListedTest], events: &mut Vec<TranscriptEvent>) -> Vec<u8> {
        let _ = (tests, events);
        Vec::new()
    }

    /// Returns the last request, when no test follows and the requests end.
    fn closing_request(&mut self) -> Vec<u8> {
        Vec::new()
    }

    /// Returns whether forked copies of the process read its requests as well.
    fn has_forked_copies(&self) -> bool {
        false
    }

    /// Called when no further test is to begin: a parser that requests one test after the other requests no
    /// more. Those that run may end.
    fn begin_no_more(&mut self) {}

    /// Returns whether no request follows, so that the process's standard input ends.
    fn is_over(&self) -> bool {
        self.is_complete()
    }

    /// Handles the end of the output. A test that is running then has no [`TranscriptEvent::Ended`].
    fn on_output_end(&mut self, events: &mut Vec<TranscriptEvent>);

    /// Handles the exit of the process by itself with this code, after the end of its output. Where the exit
    /// decides the test, its [`TranscriptEvent::Ended`] is appended.
    fn on_exit(&mut self, code: i32, events: &mut Vec<TranscriptEvent>) {
        let _ = (code, events);
    }

    /// Returns whether the framework printed its final line.
    fn is_complete(&self) -> bool;

    /// Returns whether the reported results explain this exit code. A failure that the framework reports
    /// outside of any test is in no result, so the exit code that it causes is not explained; see
    /// [`Self::outside_failure`].
    fn explains_exit(&self, code: i32) -> bool;

    /// Returns whether the tests are decided although the process goes on: it is of no further use.
    fn is_decided(&self) -> bool {
        false
    }

    /// Returns whether the running test already wrote its end marker, which is confirmed only when the
    /// framework continues after it. A process that dies then died in the test, or in the tear-down of its
    /// suite.
    fn is_after_end_marker(&self) -> bool {
        false
    }

    /// Returns whether the running test is where a tear-down may stand that the framework announces:
    /// [`Self::suite_phase`] tells. It is asked after each read.
    fn may_be_in_tear_down(&self) -> bool {
        self.is_after_end_marker()
    }

    /// Returns the first test since which the output contains markers that the framework does not write at
    /// their place: repeated, out of order, or after its final line. A test or another process may have
    /// written them, and the results since then are proven by [`crate::RunReport`] only.
    fn doubtful_since(&self) -> Option<usize> {
        None
    }

    /// Returns a test that began, by the output, and is not one of those given.
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

    /// Returns the failure that the framework reported outside of any test and suite: in set-up or tear-down
    /// of the environment.
    fn outside_failure(&self) -> Option<&str> {
        None
    }
}

/// What happens on a connection of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionInput<'a> {
    /// It was made.
    Opened,
    /// Bytes were received.
    Bytes(&'a [u8]),
    /// Bytes were received that this process has written.
    BytesOf(ReportWriter, &'a [u8]),
}

impl<'a> ConnectionInput<'a> {
    /// Returns the bytes that were received, if any were.
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Self::Opened => &[],
            Self::Bytes(bytes) | Self::BytesOf(_, bytes) => bytes,
        }
    }

    /// Returns the process that has written the bytes, if it is known.
    #[must_use]
    pub fn writer(self) -> Option<ReportWriter> {
        match self {
            Self::Opened | Self::Bytes(_) => None,
            Self::BytesOf(writer, _) => Some(writer),
        }
    }
}

/// Id of the process that has written a report. The process may be gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportWriter(pub u32);

/// The test in which a process has died.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DeathCulprit {
    /// One of those that were running.
    #[default]
    RunningTests,
    /// Any of those without an end: what was running is not known for certain.
    Unknown,
    /// This one: an index in the tests given. Others that were running are not to blame.
    Test(usize),
}

/// What a process left behind that has died.
#[derive(Debug, Clone, Copy, Default)]
pub struct DeathEvidence<'a> {
    /// The end of its standard error.
    pub stderr: &'a str,
    /// The report of its runtime.
    pub crash_report: &'a [u8],
    /// The journal of its tests.
    pub journal: &'a [u8],
}

/// A failure in the set-up or tear-down of a suite that the framework reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixtureFailure {
    /// Where it failed.
    pub fixture: SuiteFixture,
    /// What the framework wrote of it.
    pub message: String,
}

/// A phase of a run outside of the selected tests.
#[derive(Debug, Clone, PartialEq)]
pub enum SuitePhase {
    /// The suite has begun, and none of its tests.
    SetUp {
        /// Name of the suite.
        suite: String,
        /// The tests of the suite that have not begun: indices in the tests given.
        places: Vec<usize>,
    },
    /// A test that was not selected runs, because selected ones depend on it.
    Dependency {
        /// Name of the test.
        test: String,
        /// The tests that depend on it and have not begun: indices in the tests given.
        places: Vec<usize>,
    },
    /// All tests in a suite have ended, and the framework has gone on behind them.
    AfterTests {
        /// Name of the suite.
        suite: String,
    },
    /// The last of its tests has written its end marker.
    TearDown {
        /// Name of the suite.
        suite: String,
        /// The verdict of the running test, by that marker.
        verdict: FrameworkVerdict,
    },
    /// The running test tears down a fixture that other tests have used as well.
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
        /// Index in the tests given.
        place: usize,
    },
    /// Output of the running test, or of no test if none is running. If several are, any of them may have
    /// written it.
    Output(Vec<u8>),
    /// A running test waits until others have ended: no limit of time applies, and it writes nothing.
    Paused {
        /// Index in the tests given.
        place: usize,
    },
    /// A test that waited goes on.
    Resumed {
        /// Index in the tests given.
        place: usize,
    },
    /// Standard error of the running test, or of no test if none is running.
    ErrorOutput(Vec<u8>),
    /// Output of this running test, whichever others run.
    TestOutput {
        /// Index in the tests given.
        place: usize,
        /// Where the test wrote it.
        stream: OutputStream,
        /// What it wrote.
        bytes: Vec<u8>,
    },
    /// A part of a running test has begun or ended.
    Part {
        /// Index in the tests given.
        place: usize,
        /// The part; its name identifies it within its test.
        part: TestPart,
    },
    /// A running test gets another time limit.
    TimeLimit {
        /// Index in the tests given.
        place: usize,
        /// The limit, from now.
        limit: Duration,
    },
    /// A test has ended, as reported by the framework.
    Ended {
        /// Index in the tests given.
        place: usize,
        /// Result that the framework reported.
        verdict: FrameworkVerdict,
    },
    /// A file of a running test, which the framework may remove at any time.
    File {
        /// Index in the tests given.
        place: usize,
        /// Where it is.
        path: String,
        /// What it is.
        description: String,
    },
    /// No test that has ended ends again.
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

/// A part of a test, which can be neither listed nor selected: a subcase, a section, a data row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestPart {
    /// Name within the test, with the parts around it.
    pub name: String,
    /// Its result; `None` when it has only begun.
    pub result: Option<FrameworkResult>,
    /// The failure message, if the framework reports one for the part.
    pub message: Option<String>,
}

/// The results that a framework can report. All other outcomes are decided by how the process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameworkResult {
    /// The test passed.
    Passed,
    /// The test failed.
    Failed,
    /// The framework did not run the test, or the test ended itself as skipped.
    Skipped,
    /// The framework left out a test that it was asked to run.
    NotRun,
}

impl FrameworkResult {
    /// Returns the result as a word.
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

/// The end of a test, as reported by the framework.
#[derive(Debug, Clone, PartialEq)]
pub struct FrameworkVerdict {
    /// Result that the framework reported.
    pub result: FrameworkResult,
    /// Duration measured by the framework.
    pub duration: Option<Duration>,
    /// Reason of a skip.
    pub reason: Option<String>,
    /// Failures in the order in which they were reported; at most [`MAX_FAILURES`]. Empty for a failed test
    /// whose framework gives no details.
    pub failures: Vec<Failure>,
    /// Output that the framework itself captured.
    pub stdout: Option<String>,
    /// Standard error that the framework itself captured.
    pub stderr: Option<String>,
    /// What the test answered, in base64, where its framework passes answers on.
    pub answer: Option<String>,
}

/// Failures of one test that are kept apart. A test that checks in a loop reports thousands, which all
/// results would carry; the text of those that follow is kept with the last one, as far as there is room.
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

    /// Appends a failure, unless nothing is known of it.
    pub fn push_failure(&mut self, failure: Failure) {
        if !failure.is_empty() && self.failures.len() < MAX_FAILURES {
            self.failures.push(failure);
        }
    }
}
