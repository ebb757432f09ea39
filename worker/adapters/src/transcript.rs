//! The parser of a framework's reports, and the events that it recognizes.

use std::time::Duration;

use heeler_core::{Failure, Outcome};
use heeler_protocol::journal::SuiteFixture;

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

    /// Returns the request by which the running tests are asked to stop, before the process is ended. None of
    /// them has a [`TranscriptEvent::Ended`] after that, and no other begins.
    fn cancel_request(&mut self, reason: &str) -> Vec<u8> {
        let _ = reason;
        Vec::new()
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

    /// Returns whether the framework printed its final line.
    fn is_complete(&self) -> bool;

    /// Returns whether the reported results explain this exit code. A failure that the framework reports
    /// outside of any test is in no result, so the exit code that it causes is not explained; see
    /// [`Self::outside_failure`].
    fn explains_exit(&self, code: i32) -> bool;

    /// Returns whether the running test already wrote its end marker, which is confirmed only when the
    /// framework continues after it. A process that dies then died in the test, or in the tear-down of its
    /// suite.
    fn is_after_end_marker(&self) -> bool {
        false
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

/// A failure in the set-up or tear-down of a suite that the framework reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixtureFailure {
    /// Where it failed.
    pub fixture: SuiteFixture,
    /// What the framework wrote of it.
    pub message: String,
}

/// A phase of a suite outside of its tests.
#[derive(Debug, Clone, PartialEq)]
pub enum SuitePhase {
    /// The suite has begun, and none of its tests.
    SetUp {
        /// Name of the suite.
        suite: String,
        /// The tests of the suite that have not begun: indices in the tests given.
        places: Vec<usize>,
    },
    /// The last of its tests has written its end marker.
    TearDown {
        /// Name of the suite.
        suite: String,
        /// The verdict of the running test, by that marker.
        verdict: FrameworkVerdict,
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
    /// Output of the running test, or of no test if none is running.
    Output(Vec<u8>),
    /// A part of a running test has begun or ended.
    Part {
        /// Index in the tests given.
        place: usize,
        /// The part; its name identifies it within its test.
        part: TestPart,
    },
    /// A test has ended, as reported by the framework.
    Ended {
        /// Index in the tests given.
        place: usize,
        /// Result that the framework reported.
        verdict: FrameworkVerdict,
    },
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
}

impl FrameworkResult {
    /// Returns the result as a word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

impl From<FrameworkResult> for Outcome {
    fn from(result: FrameworkResult) -> Self {
        match result {
            FrameworkResult::Passed => Self::Passed,
            FrameworkResult::Failed => Self::Failed,
            FrameworkResult::Skipped => Self::Skipped,
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
        Self { result, duration, reason: None, failures: Vec::new(), stdout: None, answer: None }
    }

    /// Appends a failure, unless nothing is known of it.
    pub fn push_failure(&mut self, failure: Failure) {
        if !failure.is_empty() && self.failures.len() < MAX_FAILURES {
            self.failures.push(failure);
        }
    }
}
