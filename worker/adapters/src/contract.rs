//! The trait that a framework implements, and the values passed between it and the runner. No framework is
//! named here.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use heeler_core::test_path::NameNesting;
use heeler_protocol::{
    control::{ListedTest, OsText, TestProgram},
    mtp::ExecutionState,
};

/// One test framework: the commands of its programs, and the parsers of their output.
pub trait Adapter: Sync {
    /// Returns the framework's name, as configuration and control messages write it.
    fn name(&self) -> &'static str;

    /// Returns whether the program's bytes look like this framework. The hint orders the adapters to try, and
    /// keeps a program from being listed that would ignore the arguments and run; the listing itself decides.
    fn looks_like(&self, image: &[u8]) -> bool;

    /// Returns the listing commands, to be run one after the other while [`Adapter::needs_next_listing`] returns
    /// true.
    fn listing_commands(&self, program: &TestProgram, scratch: &Path) -> Vec<AdapterInvocation>;

    /// Returns whether the next listing command must run too, after these outputs of the first ones.
    fn needs_next_listing(&self, outputs: &[ListingOutput]) -> bool {
        let _ = outputs;
        true
    }

    /// Parses the outputs of the listing commands.
    ///
    /// # Errors
    /// The program is not of this framework, died while listing, or its listing is damaged.
    fn read_listing(
        &self,
        program: &TestProgram,
        outputs: &[ListingOutput],
    ) -> Result<AdapterListing, ListingError>;

    /// Returns how names of tests nest.
    fn nesting(&self) -> NameNesting {
        NameNesting::Flat
    }

    /// Returns command-line markers of processes that crash on purpose, as death tests do.
    fn expected_crash_markers(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns the number of bytes that the selection of this test takes on the command line; 0 where names
    /// travel in a file.
    fn selection_cost(&self, test: &ListedTest) -> usize {
        let _ = test;
        0
    }

    /// Returns the maximum sum of the selection costs of one batch.
    fn selection_budget(&self) -> usize {
        usize::MAX
    }

    /// Returns the command that runs these tests, given in listing order, in one process.
    ///
    /// # Errors
    /// One of the tests cannot be selected; the others still can.
    fn run_command(
        &self,
        program: &TestProgram,
        tests: &[&ListedTest],
        scratch: &Path,
    ) -> Result<AdapterInvocation, CommandLineError>;

    /// Returns the parser of that process's standard output.
    fn transcript_parser(&self, tests: &[&ListedTest]) -> Box<dyn TranscriptParser + Send>;

    /// Adds the details of a failed test that the framework writes to standard error, if it writes them
    /// there.
    fn complete_verdict(&self, verdict: &mut FrameworkVerdict, stderr: &str) {
        let _ = (verdict, stderr);
    }

    /// Returns a quoted shell command line that runs only this test.
    fn reproduce_command(&self, program: &TestProgram, test: &ListedTest) -> String;
}

/// A command of an adapter, without the program's own path, arguments and environment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AdapterInvocation {
    /// Arguments that follow the program's own, which are not repeated here.
    pub args: Vec<OsText>,
    /// Environment variables set in addition to the program's own; `None` unsets one.
    pub env: Vec<(OsText, Option<OsText>)>,
    /// Files to write before the start, all of them in the scratch directory.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// The file that a listing writes; must not exist before.
    pub listing_file: Option<PathBuf>,
}

/// The output of one listing command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListingOutput {
    /// Bytes of its standard output.
    pub stdout: Vec<u8>,
    /// Bytes of its standard error.
    pub stderr: Vec<u8>,
    /// Contents of the file named by [`AdapterInvocation::listing_file`], if it was written.
    pub file: Option<Vec<u8>>,
    /// Its exit code, if it exited by itself.
    pub code: Option<i32>,
    /// The number of the signal that killed it.
    pub signal: Option<i32>,
}

/// The tests of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdapterListing {
    /// The name of the adapter that must run them: the one that listed, or a variant of it.
    pub framework: &'static str,
    /// The tests, in the order in which the framework runs them. A name may occur more than once.
    pub tests: Vec<ListedTest>,
}

/// The error of listing a program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListingError {
    /// It exited with success, but its output is not a listing.
    #[error("list tests as a {framework} program: {reason}")]
    NotThisFramework {
        /// Name of the framework whose listing was tried.
        framework: &'static str,
        /// Its output instead of a listing.
        reason: String,
    },
    /// Its listing begins correctly, but cannot be parsed to its end.
    #[error("read the {framework} listing: {reason}")]
    Damaged {
        /// Name of the framework whose listing was tried.
        framework: &'static str,
        /// Description of the damage.
        reason: String,
    },
    /// It was killed, or exited with a code other than 0.
    #[error("list tests: the program {}{}", describe_exit(*signal, *code), describe_tail(stderr))]
    Died {
        /// The number of the signal that killed it, if any.
        signal: Option<i32>,
        /// Its exit code, if it exited by itself.
        code: Option<i32>,
        /// The tail of its standard error, otherwise of its standard output.
        stderr: String,
    },
}

impl ListingError {
    /// Returns the error of a listing command that did not exit with code 0.
    pub(super) fn of_exit(output: &ListingOutput) -> Self {
        let said = if output.stderr.trim_ascii().is_empty() { &output.stdout } else { &output.stderr };
        Self::Died { signal: output.signal, code: output.code, stderr: tail(said) }
    }
}

const TAIL_BYTES: usize = 2000;

fn tail(said: &[u8]) -> String {
    let said = said.trim_ascii_end();
    let cut = said.len().saturating_sub(TAIL_BYTES);
    let text = String::from_utf8_lossy(&said[cut..]);
    if cut == 0 { text.into_owned() } else { format!("... {}", text.trim_start_matches('\u{fffd}')) }
}

fn describe_exit(signal: Option<i32>, code: Option<i32>) -> String {
    match (signal, code) {
        (Some(signal), _) => format!("was killed by signal {signal}"),
        (None, Some(code)) => format!("left with exit code {code}"),
        (None, None) => "ended in an unknown way".to_owned(),
    }
}

fn describe_tail(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!("; it said:\n{stderr}") }
}

/// The error of building the command of a batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandLineError {
    /// One test cannot be selected.
    #[error("select test {place} of the batch: {reason}")]
    Unselectable {
        /// Index in the tests given.
        place: usize,
        /// Reason why it cannot be selected.
        reason: String,
    },
}

/// Parser of a framework's standard output. Its memory is bounded by the names of the tests plus a constant,
/// whatever the input.
pub trait TranscriptParser {
    /// Parses the next chunk of output, and appends the recognized events.
    fn on_stdout(&mut self, chunk: &[u8], events: &mut Vec<TranscriptEvent>);

    /// Handles the end of the output. A test that is running then has no [`TranscriptEvent::Ended`].
    fn on_output_end(&mut self, events: &mut Vec<TranscriptEvent>);

    /// Returns whether the framework printed its final line.
    fn is_complete(&self) -> bool;

    /// Returns whether the reported results explain this exit code. A failure that the framework reports
    /// outside of any test is in no result, so the exit code that it causes is not explained; see
    /// [`TranscriptParser::outside_failure`].
    fn explains_exit(&self, code: i32) -> bool;

    /// Returns whether the running test already wrote its end marker, which is confirmed only when the
    /// framework continues after it. A process that dies then died in the test, or in the tear-down of its
    /// suite.
    fn is_after_end_marker(&self) -> bool;

    /// Returns the failure that the framework reported outside of any test: in set-up or tear-down of suites
    /// or of the environment.
    fn outside_failure(&self) -> Option<&str>;
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
    /// A test has ended, as reported by the framework.
    Ended {
        /// Index in the tests given.
        place: usize,
        /// Result that the framework reported.
        verdict: FrameworkVerdict,
    },
}

/// The end of a test, as reported by the framework.
#[derive(Debug, Clone, PartialEq)]
pub struct FrameworkVerdict {
    /// One of passed, failed and skipped.
    pub state: ExecutionState,
    /// Duration measured by the framework.
    pub duration: Option<Duration>,
    /// The failure message, or the reason of a skip.
    pub message: Option<String>,
    /// The stack at the failure.
    pub stacktrace: Option<String>,
    /// The actual value of a failed comparison.
    pub actual: Option<String>,
    /// The expected value of a failed comparison.
    pub expected: Option<String>,
    /// Source file of the failure.
    pub file: Option<String>,
    /// Line of the failure in its file, from 1.
    pub line: Option<u32>,
    /// Output that the framework itself captured.
    pub stdout: Option<String>,
}

impl FrameworkVerdict {
    /// Returns a verdict with only a state and a duration.
    #[must_use]
    pub fn new(state: ExecutionState, duration: Option<Duration>) -> Self {
        Self {
            state,
            duration,
            message: None,
            stacktrace: None,
            actual: None,
            expected: None,
            file: None,
            line: None,
            stdout: None,
        }
    }
}
