//! A test program built by cargo.

use std::{ffi::OsString, path::PathBuf};

use heeler_protocol::control::{OsText, ReproductionHints, TestProgram};

/// Variable that names the directories of shared libraries.
pub(crate) const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";

/// A test program built by cargo, and how to start it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CargoProgram {
    /// First part of the tests' uids, the same on every machine: the package name for a library's own tests,
    /// `package::name` for integration tests, `package::bin/name` and similar for others.
    pub suite: String,
    /// Absolute path of the executable.
    pub path: PathBuf,
    /// Arguments before all others.
    pub args: Vec<OsString>,
    /// Directory of the program's package.
    pub cwd: PathBuf,
    /// Variables that cargo sets in addition to its own environment.
    pub env: Vec<(OsString, OsString)>,
    /// Name of the framework, if known.
    pub framework: Option<&'static str>,
    /// How the loader finds the program's libraries.
    pub libraries: LibrarySearch,
}

/// How the loader finds the shared libraries of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LibrarySearch {
    /// As for any program.
    #[default]
    System,
    /// Only with the `LD_LIBRARY_PATH` that cargo sets.
    Variable,
}

impl CargoProgram {
    /// Converts the program to a test program that a run can start.
    pub fn into_test_program(self) -> TestProgram {
        let variable = |(name, value): &(OsString, OsString)| {
            (OsText::from(name.as_os_str()), OsText::from(value.as_os_str()))
        };
        let variables = match self.libraries {
            LibrarySearch::System => Vec::new(),
            LibrarySearch::Variable => vec![LIBRARY_PATH.into()],
        };
        TestProgram {
            reproduction: ReproductionHints { variables, options: Vec::new() },
            tool_env: self.env.iter().map(variable).collect(),
            args: self.args.iter().map(|word| OsText::from(word.as_os_str())).collect(),
            framework: self.framework.map(str::to_owned),
            ..TestProgram::new(self.suite, &self.path, &self.cwd)
        }
    }
}
