//! What each test framework is asked and how it answers. No process is started here and nothing is sent.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use wire::{
    control::{ListedTest, OsBytes, Program},
    mtp::ExecutionState,
};

/// Returns the adapter of that name.
pub fn by_name(name: &str) -> Option<&'static dyn Adapter> {
    all().iter().copied().find(|adapter| adapter.name() == name)
}

/// Returns all adapters.
pub fn all() -> &'static [&'static dyn Adapter] {
    &[]
}

/// One framework.
pub trait Adapter: Sync {
    /// Its name.
    fn name(&self) -> &'static str;
    /// Whether the program's bytes speak for this framework.
    fn hint(&self, image: &[u8]) -> bool;
    /// The commands that list.
    fn listing(&self, program: &Program, scratch: &Path) -> Vec<Invocation>;
    /// Reads what they said.
    fn read_listing(
        &self,
        program: &Program,
        outputs: &[ListingOutput],
    ) -> Result<Vec<ListedTest>, ListingError>;
    /// The command that runs tests.
    fn command(
        &self,
        program: &Program,
        tests: &[&ListedTest],
        scratch: &Path,
    ) -> Result<Invocation, CommandError>;
    /// The reader of its output.
    fn transcript(&self, tests: &[&ListedTest]) -> Box<dyn Transcript + Send>;
    /// Runs this test alone.
    fn reproduce(&self, program: &Program, test: &ListedTest) -> String;
}

/// Why.
#[derive(Debug, thiserror::Error)]
#[error("listing")]
pub struct ListingError;

/// Why.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// Cannot be selected.
    #[error("test {place}: {reason}")]
    Unselectable {
        /// Which.
        place: usize,
        /// Why.
        reason: String,
    },
}

/// A command.
#[derive(Debug, Clone, Default)]
pub struct Invocation {
    /// Arguments.
    pub args: Vec<OsBytes>,
    /// Environment.
    pub env: Vec<(OsBytes, Option<OsBytes>)>,
    /// Files.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// File that a listing writes.
    pub reads: Option<PathBuf>,
}

/// What a listing command said.
#[derive(Debug, Clone, Default)]
pub struct ListingOutput {
    /// Output.
    pub stdout: Vec<u8>,
    /// Errors.
    pub stderr: Vec<u8>,
    /// File.
    pub file: Option<Vec<u8>>,
    /// Exit code.
    pub code: Option<i32>,
    /// Signal.
    pub signal: Option<i32>,
}

/// Reads a framework's output.
pub trait Transcript {
    /// More output.
    fn stdout(&mut self, chunk: &[u8], events: &mut Vec<Event>);
    /// End of the output.
    fn end(&mut self, events: &mut Vec<Event>);
    /// The framework said its own last word.
    fn is_complete(&self) -> bool;
    /// The exit code fits what the transcript saw.
    fn explains(&self, code: i32) -> bool;
}

/// What a transcript tells.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A test begins.
    Begun {
        /// Which.
        place: usize,
    },
    /// Bytes.
    Output(Vec<u8>),
    /// A test has ended.
    Ended {
        /// Which.
        place: usize,
        /// How.
        verdict: Verdict,
    },
}

/// A test's own end.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// Passed, failed or skipped.
    pub state: ExecutionState,
    /// As the framework tells.
    pub duration: Option<Duration>,
    /// Why.
    pub message: Option<String>,
    /// Where.
    pub stacktrace: Option<String>,
    /// Seen.
    pub actual: Option<String>,
    /// Wanted.
    pub expected: Option<String>,
    /// File.
    pub file: Option<String>,
    /// Line.
    pub line: Option<u32>,
    /// Output that the framework captured.
    pub stdout: Option<String>,
}
