//! Errors that end a mutation run.

use std::path::PathBuf;

use heeler_cargo::CargoError;
use heeler_mutate::{CargoProjectError, OutsideDependency, ReadSourceError, SelectionError, TreeCopyError};
use heeler_report::ReportError;

use crate::test_finder::TestSearchError;

/// Error while finding or testing mutants.
#[derive(Debug, thiserror::Error)]
pub enum MutateError {
    #[error("find the directory of this process")]
    Directory(#[source] std::io::Error),
    #[error(transparent)]
    Cargo(CargoError),
    #[error(transparent)]
    Project(CargoProjectError),
    #[error(transparent)]
    Selection(SelectionError),
    #[error(transparent)]
    Source(ReadSourceError),
    /// A selection word that matches nothing is probably a typo.
    #[error("find \"{word}\": no source of the libraries and programs here has this path")]
    Unmatched { word: String },
    #[error("compare with \"{reference}\"")]
    Diff { reference: String, source: CargoError },
    #[error("write the mutants as JSON")]
    Json(#[source] ReportError),
    #[error(
        "copy the workspace: the package {} depends on {} in {}, which is outside of it and would not be \
         copied",
        _0.package, _0.dependency, _0.path.display()
    )]
    OutsideDependency(OutsideDependency),
    #[error("make a pipe for a build")]
    Pipe(#[source] std::io::Error),
    #[error("make the directory {}", path.display())]
    MakeDirectory { path: PathBuf, source: std::io::Error },
    #[error("test mutants in {}: another heeler mutate does", path.display())]
    Busy { path: PathBuf },
    #[error(transparent)]
    Copy(TreeCopyError),
    #[error("prepare the runtime of guarded sources in {}", path.display())]
    Runtime { path: PathBuf, source: std::io::Error },
    #[error("compile the runtime of guarded sources")]
    CompileRuntime(#[source] CargoError),
    /// The errors are in the original code, or can't be blamed on a mutant.
    #[error("build the tests, which do not compile:\n{}", errors.join("\n"))]
    NotCompiled { errors: Vec<String> },
    #[error("build the tests with cargo:\n{output}")]
    Build { output: String },
    /// The build failed without any compiler error, so no mutant caused it.
    #[error("build the tests with {command:?}, without an error of cc or c++:\n{output}")]
    BuildCommand { command: String, output: String },
    /// A mutated source was compiled without the guard runtime.
    #[error(
        "build the tests with {command:?}: expected cc, gcc, c99, c11, c++ or g++, by name and as PATH has them, \
         as the compiler of all sources with mutants; got another one:\n{output}"
    )]
    OtherCompiler { command: String, output: String },
    #[error(transparent)]
    Sources(TestSearchError),
    #[error(
        "find out how the tests are built: there is a {file} and no package of Cargo or Python. Name a command that \
         builds the tests, and where they are then, such as\n  heeler mutate {example}"
    )]
    NoBuild { file: &'static str, example: &'static str },
    #[error("find the tests that --build makes: expected --ctest DIR or --test PROGRAM")]
    NoTests,
    #[error("{reason}")]
    MissingServer { reason: String },
    /// `text` includes the end of the server's output.
    #[error("{text}")]
    MutationServer { text: String, is_red: bool },
    #[error("reach the scheduler, which has failed")]
    SchedulerGone,
    #[error("list the tests: {0}")]
    Listing(String),
    #[error("select tests by \"{filter}\": mutants are tested without the history of earlier runs")]
    HistoryFilter { filter: String },
    #[error("select tests by -E: it selects none of the {tests}")]
    NoTestSelected { tests: usize },
    #[error("make a directory for the run")]
    RunDirectory(#[source] heeler_sys::dirs::DirError),
    #[error("keep documentation tests in {}", path.display())]
    Doctests { path: PathBuf, source: std::io::Error },
    #[error("read what the tests reach from {}", path.display())]
    Coverage { path: PathBuf, source: std::io::Error },
    /// A test that fails without a mutant can't show anything about mutants.
    #[error("test mutants: the tests fail without any\n{}", tests.join("\n"))]
    RedTests { tests: Vec<String> },
    #[error("find the tests in {}", path.display())]
    Tests { path: PathBuf, source: std::io::Error },
    #[error("copy the tests in {}: expected a path below {}", path.display(), root.display())]
    TestsOutside { path: PathBuf, root: PathBuf },
    /// Importing the original would test unmutated code.
    #[error(
        "test mutants of {source_path}: the tests import {name} from {}, and not from the project's copy, which \
         PYTHONPATH names first; expected no other path to it in conftest.py, in pytest's configuration or in the \
         tests",
        path.display()
    )]
    ForeignImport { name: String, path: PathBuf, source_path: String },
    #[error("compile the sources with {}: its answer can't be read:\n{output}", python.display())]
    PythonAnswer { python: PathBuf, output: String },
    #[error("write {}", path.display())]
    WriteFile { path: PathBuf, source: std::io::Error },
    #[error("write the report {}", path.display())]
    WriteReport { path: PathBuf, source: ReportError },
}
