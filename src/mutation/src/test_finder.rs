//! Finds tests like `heeler run`. Implemented by the command line, which knows the test sources.

use std::{
    error::Error,
    path::{Path, PathBuf},
};

use heeler_core::SourceRequest;
use heeler_protocol::control::TestProgram;

/// Error while finding tests, worded to follow "failed to".
pub type TestSearchError = Box<dyn Error + Send + Sync>;

/// Finds tests like `heeler run`. Blocks.
pub trait TestFinder: Sync {
    /// Returns the test programs of a source in a directory.
    ///
    /// # Errors
    /// The tests can't be found.
    fn find(&self, directory: &Path, request: SourceRequest) -> Result<Vec<TestProgram>, TestSearchError>;

    /// Returns the named Python interpreter, relative to a directory, or the environment's interpreter.
    ///
    /// # Errors
    /// There is no such program.
    fn find_python(&self, named: Option<&str>, directory: &Path) -> Result<PathBuf, TestSearchError>;

    /// Returns whether a program contains a test framework.
    fn has_framework(&self, program: &Path) -> bool;
}
