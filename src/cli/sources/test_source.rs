//! The trait that every source of test programs implements, and the error of all sources.

use std::path::{Path, PathBuf};

use heeler_config::{Config, FindProgramsError, SuiteConfig};
use heeler_core::SourceRequest;
use heeler_protocol::{
    control::{OsText, TestProgram},
    ctest::{CtestListingError, ResourceSpecError},
    mcp::http::LocalUrlError,
};

use super::detect::{Sighting, Site};
use crate::cli::arguments::ProgramArguments;
use heeler_cargo::{BuildSupervision, CargoError};

/// A source of test programs, such as paths or a build tool.
pub(super) trait TestSource: Sync {
    /// Returns the source's name in manifests, which is also its key in `[[suite]]`.
    fn name(&self) -> &'static str;

    /// Returns the source's arguments from the command line, with absolute paths; `None` if the source is
    /// not named.
    fn command_line_arguments(&self, command_line: &ProgramArguments) -> Option<Vec<OsText>>;

    /// Checks whether a command-line argument names tests of this source, such as `tests/test_io.py`, and if
    /// so adds it to the source's arguments.
    fn take_word(&self, _word: &Path, _arguments: &mut ProgramArguments) -> WordUse {
        WordUse::Other
    }

    /// Returns what this source finds in a directory; `None` if the directory is none of its projects.
    fn project_in(&self, _site: Site<'_>) -> Option<Sighting> {
        None
    }

    /// Returns the test programs, built where needed.
    ///
    /// # Errors
    /// The programs can't be found or built.
    fn resolve(
        &self,
        arguments: &[OsText],
        context: &SourceContext<'_>,
        display: PhaseDisplay<'_>,
    ) -> Result<Vec<TestProgram>, SourcesError>;
}

/// How a source uses a command-line argument.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WordUse {
    /// The argument does not name tests of this source.
    Other,
    /// The source has added the argument to its own.
    Taken,
    /// The argument names tests that need a separate request.
    Request(SourceRequest),
}

/// Receives a label and a text about the current build step, for the display.
pub(super) type PhaseDisplay<'a> = &'a mut dyn FnMut(&str, &str);

/// Settings and helpers for a source that resolves a request.
pub(super) struct SourceContext<'a> {
    pub(super) config: &'a Config,
    /// The suite; `None` for a request from the command line.
    pub(super) suite: Option<&'a SuiteConfig>,
    /// Framework named on the command line.
    pub(super) framework: Option<&'a str>,
    pub(super) debug_data: DebugData,
    pub(super) supervision: BuildSupervision<'a>,
}

/// Debug data in test programs, for sources that can choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum DebugData {
    Kept,
    Omitted,
}

/// Error while finding the test programs. The messages are whole sentences.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum SourcesError {
    /// An earlier run's manifest names a source that this build lacks.
    #[error("the earlier run used the test source \"{name}\", which this version of Heeler does not support")]
    UnknownSource { name: String },
    /// A path can't be made absolute.
    #[error("failed to find {}", path.display())]
    Path {
        /// The path, unchanged.
        path: PathBuf,
        source: std::io::Error,
    },
    /// A directory contains no test program.
    #[error("no test programs in {}: no executable there contains a known test framework", path.display())]
    NoProgramBelow {
        /// The directory.
        path: PathBuf,
    },
    /// No test program matches a glob on the command line.
    #[error("no test programs match {glob}: no matching executable contains a known test framework")]
    NoMatch {
        /// The glob, absolute.
        glob: String,
    },
    /// A program on the command line does not exist.
    #[error("{}: no such file; {hint}", path.display())]
    NoProgram {
        /// The path, unchanged.
        path: PathBuf,
        /// Suggestion for a likely typo.
        hint: String,
    },
    /// The command line names a framework, but no program.
    #[error(
        "--framework {name} has no effect: the command line names no test program; name one, as in heeler run \
         --framework {name} PROGRAM, or write framework = \"{name}\" into its [[suite]]"
    )]
    FrameworkWithoutPrograms { name: String },
    /// The arguments after `--` reach no program.
    #[error(
        "the arguments after -- reach no test program ({words}): documentation tests take none; to select tests, \
         use -E"
    )]
    ArgumentsWithoutPrograms { words: String },
    /// A directory has too many entries to search.
    #[error("{} has more than {limit} files: name the test programs or a subdirectory", path.display())]
    TooManyFiles {
        /// The directory.
        path: PathBuf,
        limit: usize,
    },
    /// The command of a server, an application or a test is empty, or has an open quote.
    #[error("failed to start the {what} {command:?}: the command is empty or has an unclosed quote")]
    Command { what: &'static str, command: String },
    /// The address of a server is not on this machine.
    #[error("invalid MCP server address {address}")]
    ServerAddress { address: String, source: LocalUrlError },
    /// The program of a command does not exist.
    #[error("failed to start the {what} {command:?}: {program} not found")]
    NoCommand { what: &'static str, command: String, program: String },
    /// A directory is not a CTest build folder.
    #[error("no CTestTestfile.cmake in {}: configure the CMake project, with enable_testing()", path.display())]
    NoCtestFolder { path: PathBuf },
    /// CTest can't be run.
    #[error("failed to list the CTest tests of {}", path.display())]
    Ctest { path: PathBuf, source: CargoError },
    /// The output of CTest is not a list of tests.
    #[error("failed to list the CTest tests of {}", path.display())]
    CtestListing { path: PathBuf, source: CtestListingError },
    /// The resource spec file of CTest can't be read.
    #[error("failed to read the resource spec file {}", path.display())]
    ResourceSpecFile { path: PathBuf, source: std::io::Error },
    /// The resource spec file of CTest is malformed.
    #[error("failed to read the resource spec file {}", path.display())]
    ResourceSpec { path: PathBuf, source: ResourceSpecError },
    /// There is no Python interpreter.
    #[error("Python interpreter not found: {python}; name one with --python")]
    NoPython { python: String },
    /// Go can't list or build packages.
    #[error("failed to build the Go tests of {packages}")]
    Go { packages: String, source: CargoError },
    /// No matching package has tests.
    #[error("no Go tests in {packages}: no matching package has tests")]
    NoGoTests { packages: String },
    /// The build command of a suite failed.
    #[error("failed to build the suite \"{suite}\"")]
    Build { suite: String, source: CargoError },
    /// The cargo build failed.
    #[error("failed to build tests with cargo")]
    Cargo(#[source] CargoError),
    /// The paths or globs of a suite can't be resolved.
    #[error(transparent)]
    Programs(#[from] FindProgramsError),
}

/// Returns the absolute path, or the path unchanged if the working directory is unknown.
pub(super) fn absolute_text(path: &Path) -> OsText {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    OsText::from(absolute.as_path())
}
