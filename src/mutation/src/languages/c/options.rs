//! What a user says about a build by a command.

use std::path::PathBuf;

/// How a project in C or C++ is built and tested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandProject {
    /// For the shell.
    pub build: String,
    pub tests: BuiltTests,
}

/// The tests that a build makes, with paths relative to the project's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BuiltTests {
    /// Those that CTest knows in a directory.
    Ctest(PathBuf),
    /// Programs: paths and globs. Those without a test framework are tests, whose exit code decides.
    Programs(Vec<String>),
}
