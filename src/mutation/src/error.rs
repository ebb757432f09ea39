//! Errors that end a mutation run.

use std::path::PathBuf;

use heeler_cargo::CargoError;
use heeler_mutate::{CargoProjectError, OutsideDependency, ReadSourceError, SelectionError, TreeCopyError};
use heeler_report::ReportError;

use crate::test_finder::TestSearchError;

/// Error while finding or testing mutants. The texts follow "failed to test mutants: ".
#[derive(Debug, thiserror::Error)]
pub enum MutateError {
    #[error("cannot find the current directory")]
    Directory(#[source] std::io::Error),
    #[error(transparent)]
    Cargo(CargoError),
    #[error(transparent)]
    Project(CargoProjectError),
    #[error(transparent)]
    Selection(SelectionError),
    #[error(transparent)]
    Source(ReadSourceError),
    /// A selection that matches nothing is probably a typo.
    #[error("no source of the project matches \"{word}\"")]
    Unmatched { word: String },
    #[error("cannot compare with \"{reference}\"")]
    Diff { reference: String, source: CargoError },
    #[error("cannot write the mutants as JSON")]
    Json(#[source] ReportError),
    #[error(
        "the package {} depends on {} in {}, outside the workspace; only the workspace is copied for mutation \
         testing, so path dependencies must be inside it",
        _0.package, _0.dependency, _0.path.display()
    )]
    OutsideDependency(OutsideDependency),
    #[error("cannot create a pipe for the build")]
    Pipe(#[source] std::io::Error),
    #[error("cannot create the directory {}", path.display())]
    MakeDirectory { path: PathBuf, source: std::io::Error },
    #[error("another heeler mutate is running in {}", path.display())]
    Busy { path: PathBuf },
    #[error(transparent)]
    Copy(TreeCopyError),
    #[error("cannot prepare the mutation runtime in {}", path.display())]
    Runtime { path: PathBuf, source: std::io::Error },
    #[error("cannot compile the mutation runtime")]
    CompileRuntime(#[source] CargoError),
    /// The errors are in the original code, or can't be blamed on a mutant.
    #[error("the tests do not compile:\n{}", errors.join("\n"))]
    NotCompiled { errors: Vec<String> },
    #[error("cargo failed to build the tests:\n{output}")]
    Build { output: String },
    /// The build failed without any compiler error, so no mutant caused it.
    #[error("the build command {command:?} failed without a compiler error:\n{output}")]
    BuildCommand { command: String, output: String },
    /// A mutated source was compiled without the guard runtime.
    #[error(
        "the build command {command:?} does not compile the mutated sources with cc, gcc, c99, c11, c++ or g++ from \
         PATH; configure one of these by name, without a directory:\n{output}"
    )]
    OtherCompiler { command: String, output: String },
    #[error(transparent)]
    Sources(TestSearchError),
    #[error(
        "found {file}, but no Cargo or Python package; name the command that builds the tests, and the tests, for \
         example:\n  heeler mutate {example}"
    )]
    NoBuild { file: &'static str, example: &'static str },
    #[error("--build also needs --ctest DIR or --test PROGRAM, to find the tests")]
    NoTests,
    #[error("{reason}")]
    MissingServer { reason: String },
    /// `text` includes the end of the server's output.
    #[error("{text}")]
    MutationServer { text: String, is_red: bool },
    #[error("internal error: the scheduler has stopped")]
    SchedulerGone,
    #[error("cannot list the tests: {0}")]
    Listing(String),
    #[error("the filter \"{filter}\" needs the history of earlier runs, which mutation testing does not use")]
    HistoryFilter { filter: String },
    #[error("no test matches -E ({tests} tests found)")]
    NoTestSelected { tests: usize },
    #[error("cannot create a directory for the run")]
    RunDirectory(#[source] heeler_sys::dirs::DirError),
    #[error("cannot save documentation tests in {}", path.display())]
    Doctests { path: PathBuf, source: std::io::Error },
    #[error("cannot read the coverage of the tests from {}", path.display())]
    Coverage { path: PathBuf, source: std::io::Error },
    /// A test that fails without a mutant can't show anything about mutants.
    #[error("tests fail without a mutant; fix them, or exclude them with -E:\n{}", tests.join("\n"))]
    RedTests { tests: Vec<String> },
    #[error("cannot find the tests in {}", path.display())]
    Tests { path: PathBuf, source: std::io::Error },
    #[error("the tests in {} are outside the project {}", path.display(), root.display())]
    TestsOutside { path: PathBuf, root: PathBuf },
    /// Importing the original would test unmutated code.
    #[error(
        "the tests import {name} from {}, not from the copy of {source_path} that has the mutants and is first in \
         PYTHONPATH; remove code that changes sys.path from conftest.py, pytest's configuration and the tests",
        path.display()
    )]
    ForeignImport { name: String, path: PathBuf, source_path: String },
    #[error("{} printed unexpected output while compiling the sources:\n{output}", python.display())]
    PythonAnswer { python: PathBuf, output: String },
    #[error("cannot write {}", path.display())]
    WriteFile { path: PathBuf, source: std::io::Error },
    #[error("cannot write the report {}", path.display())]
    WriteReport { path: PathBuf, source: ReportError },
}
