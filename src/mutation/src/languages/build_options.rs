//! Build options of the user.

use super::{
    c::{BuiltTests, CommandProject},
    python::PytestProject,
    rust::CargoOptions,
};
use crate::error::MutateError;

/// How to build and test a project. Without options, the project's files decide.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BuildOptions {
    /// Build with a command.
    pub command: Option<CommandProject>,
    /// Build nothing; run the tests with pytest.
    pub pytest: Option<PytestProject>,
    /// Options for Cargo builds.
    pub cargo: CargoOptions,
}

impl BuildOptions {
    /// Checks that tests are named if there is a build command.
    ///
    /// # Errors
    /// No tests are named.
    pub fn check_tests(&self) -> Result<(), MutateError> {
        match &self.command {
            Some(project) if project.tests == BuiltTests::Programs(Vec::new()) => Err(MutateError::NoTests),
            Some(_) | None => Ok(()),
        }
    }
}
