//! What a user says about tests by pytest.

use std::path::PathBuf;

/// How a project in Python is tested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PytestProject {
    /// What pytest collects, relative to the directory.
    pub path: PathBuf,
    /// The interpreter, if it is named.
    pub python: Option<String>,
}
