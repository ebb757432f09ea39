//! The user's options for a build by a command.

use std::path::PathBuf;

/// How to build and test a C or C++ project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandProject {
    /// A shell command.
    pub build: String,
    pub tests: BuiltTests,
}

/// The tests that a build produces. Paths are relative to the project's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BuiltTests {
    /// The tests that CTest lists in a directory.
    Ctest(PathBuf),
    /// Programs, by paths and globs. A program without a test framework is one test, and its exit code
    /// decides.
    Programs(Vec<String>),
}
