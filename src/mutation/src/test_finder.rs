//! Finds tests as `heeler run` does. What knows the sources of tests is the command line.

use std::{
    error::Error,
    path::{Path, PathBuf},
};

use heeler_core::SourceRequest;
use heeler_protocol::control::TestProgram;

/// Why tests are not found. The text reads after "failed to".
pub type TestSearchError = Box<dyn Error + Send + Sync>;

/// Finds tests as `heeler run` does. Blocks.
pub trait TestFinder: Sync {
    /// Returns the programs of a source of tests, in a directory.
    ///
    /// # Errors
    /// They can't be found.
    fn find(&self, directory: &Path, request: SourceRequest) -> Result<Vec<TestProgram>, TestSearchError>;

    /// Returns the interpreter of Python that is named, relative to a directory, or that of the environment.
    ///
    /// # Errors
    /// There is no such program.
    fn find_python(&self, named: Option<&str>, directory: &Path) -> Result<PathBuf, TestSearchError>;

    /// Returns whether a test framework is found in a program.
    fn has_framework(&self, program: &Path) -> bool;
}
