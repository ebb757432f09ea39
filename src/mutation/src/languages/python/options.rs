//! The user's pytest options.

use std::path::PathBuf;

/// How to test a Python project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PytestProject {
    /// Path that pytest collects tests from, relative to the directory.
    pub path: PathBuf,
    /// The interpreter, if the user names one.
    pub python: Option<String>,
}
