//! The trait that a framework implements and the values that pass between it and the runner. No framework is named
//! here.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use model::path::Nesting;
use wire::{
    control::{ListedTest, OsBytes, Program},
    mtp::ExecutionState,
};

/// One framework: how a program of it is asked, and how its answers are read.
pub trait Adapter: Sync {
    /// Returns the framework's name, as configuration and control messages write it.
    fn name(&self) -> &'static str;

    /// Returns whether the program's bytes speak for this framework. Decides whom to ask first, and keeps a program
    /// that would ignore the arguments and run from being asked; the last word is the program's own answer.
    fn hint(&self, image: &[u8]) -> bool;

    /// Returns the commands that list, to be run one after the other while [`Adapter::needs_more`] says so.
    fn listing(&self, program: &Program, scratch: &Path) -> Vec<Invocation>;

    /// Returns whether the next listing command must run too, after these outputs of the first ones.
    fn needs_more(&self, outputs: &[ListingOutput]) -> bool {
        let _ = outputs;
        true
    }

    /// Reads what the listing commands said.
    ///
    /// # Errors
    /// The program is not of this framework, died while listing, or its listing is damaged.
    fn read_listing(&self, program: &Program, outputs: &[ListingOutput]) -> Result<Listing, ListingError>;

    /// Returns how names of tests nest.
    fn nesting(&self) -> Nesting {
        Nesting::Flat
    }

    /// Returns words of a command line that mark processes which die on purpose, as death tests do.
    fn doomed_words(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns how many bytes of the command line selecting this test takes; 0 where names travel in a file.
    fn selection_cost(&self, test: &ListedTest) -> usize {
        let _ = test;
        0
    }

    /// Returns the most that the selection costs of one batch may sum up to.
    fn selection_budget(&self) -> usize {
        usize::MAX
    }

    /// Returns the command that runs these tests, which stand in the listing's order, in one process.
    ///
    /// # Errors
    /// One of the tests can't be selected; the others still can.
    fn command(
        &self,
        program: &Program,
        tests: &[&ListedTest],
        scratch: &Path,
    ) -> Result<Invocation, CommandError>;

    /// Returns the reader of that process's standard output.
    fn transcript(&self, tests: &[&ListedTest]) -> Box<dyn Transcript + Send>;

    /// Fills in what the framework wrote about a failed test to standard error, where it writes it there.
    fn complete_verdict(&self, verdict: &mut Verdict, stderr: &str) {
        let _ = (verdict, stderr);
    }

    /// Returns a shell command line, quoted, that runs this test alone.
    fn reproduce(&self, program: &Program, test: &ListedTest) -> String;
}

/// A command of an adapter: what stands behind the program's own path, arguments and environment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Invocation {
    /// Come after the program's own arguments, which are not repeated here.
    pub args: Vec<OsBytes>,
    /// Set on top of the program's own environment; `None` unsets.
    pub env: Vec<(OsBytes, Option<OsBytes>)>,
    /// Files to write before the start, all of them in the scratch directory.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// The file that a listing writes; must not exist before.
    pub reads: Option<PathBuf>,
}

/// What one listing command said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListingOutput {
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
    /// The file named by [`Invocation::reads`], if it wrote that.
    pub file: Option<Vec<u8>>,
    /// Its exit code, when it left by itself.
    pub code: Option<i32>,
    /// The number of the signal that killed it.
    pub signal: Option<i32>,
}

/// The tests of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// The name of the adapter that must run them: the one that listed, or a variant of it.
    pub framework: &'static str,
    /// In the order in which the framework runs them. Names may stand twice.
    pub tests: Vec<ListedTest>,
}

/// Why a program could not be listed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListingError {
    /// It left as if all were well, but said something else.
    #[error("list tests as a {framework} program: {reason}")]
    NotThisFramework {
        /// Which framework it was asked as.
        framework: &'static str,
        /// What it said instead.
        reason: String,
    },
    /// It began a listing that can't be read to its end.
    #[error("read the {framework} listing: {reason}")]
    Damaged {
        /// Which framework it was asked as.
        framework: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// It was killed, or left with an exit code other than 0.
    #[error("list tests: the program {}{}", end_in_words(*signal, *code), tail_in_words(stderr))]
    Died {
        /// The signal's number.
        signal: Option<i32>,
        /// The exit code.
        code: Option<i32>,
        /// The tail of its standard error, else of its standard output.
        stderr: String,
    },
}

impl ListingError {
    /// Returns the error of a listing command that did not leave with exit code 0.
    pub(super) fn of_death(output: &ListingOutput) -> Self {
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

fn end_in_words(signal: Option<i32>, code: Option<i32>) -> String {
    match (signal, code) {
        (Some(signal), _) => format!("was killed by signal {signal}"),
        (None, Some(code)) => format!("left with exit code {code}"),
        (None, None) => "ended in an unknown way".to_owned(),
    }
}

fn tail_in_words(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!("; it said:\n{stderr}") }
}

/// Why a batch could not become a command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// One test can't be selected.
    #[error("select test {place} of the batch: {reason}")]
    Unselectable {
        /// Its place in the tests given.
        place: usize,
        /// Why not.
        reason: String,
    },
}

/// Reads a framework's standard output. Memory is bounded by the names of the tests and a constant, whatever comes.
pub trait Transcript {
    /// Takes more output.
    fn stdout(&mut self, chunk: &[u8], events: &mut Vec<Event>);

    /// Takes the end of the output. A test that is in flight then has no [`Event::Ended`].
    fn end(&mut self, events: &mut Vec<Event>);

    /// Returns whether the framework said its own last word.
    fn is_complete(&self) -> bool;

    /// Returns whether the results told explain this exit code. A failure that the framework reports outside of any
    /// test is in no result, so the exit code that it causes is not explained; see [`Transcript::outside_failure`].
    fn explains(&self, code: i32) -> bool;

    /// Returns whether the test in flight already wrote its end marker, which is believed only when the framework
    /// goes on behind it. A process that dies then died in the test, or in the tear-down of its suite.
    fn is_after_end_marker(&self) -> bool;

    /// Returns what the framework reported as failed outside of any test: set-up and tear-down of suites and of the
    /// environment.
    fn outside_failure(&self) -> Option<&str>;
}

/// What a transcript tells.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A test runs.
    Begun {
        /// Its place in the tests given.
        place: usize,
    },
    /// Output of the test in flight, or of nobody when none is.
    Output(Vec<u8>),
    /// A test has ended by the framework's own word.
    Ended {
        /// Its place in the tests given.
        place: usize,
        /// How.
        verdict: Verdict,
    },
}

/// How the framework says that a test ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// Passed, failed or skipped.
    pub state: ExecutionState,
    /// As the framework measured it.
    pub duration: Option<Duration>,
    /// What failed, or why it was skipped.
    pub message: Option<String>,
    /// The stack at the failure.
    pub stacktrace: Option<String>,
    /// The value that the code under test gave.
    pub actual: Option<String>,
    /// The value that the test wanted.
    pub expected: Option<String>,
    /// Source file of the failure.
    pub file: Option<String>,
    /// Its line, from 1.
    pub line: Option<u32>,
    /// Output that the framework itself captured.
    pub stdout: Option<String>,
}

impl Verdict {
    /// Returns a verdict that says no more than how it ended.
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
