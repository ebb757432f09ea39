//! What a user says about builds.

use super::{
    c::{BuiltTests, CommandProject},
    python::PytestProject,
    rust::CargoOptions,
};
use crate::error::MutateError;

/// How the user says that a project is built and tested. Without a word, its files decide.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BuildOptions {
    /// A command builds it.
    pub command: Option<CommandProject>,
    /// Nothing is built, and pytest runs the tests.
    pub pytest: Option<PytestProject>,
    /// For builds by Cargo.
    pub cargo: CargoOptions,
}

impl BuildOptions {
    /// Checks that a project with a build command has tests.
    ///
    /// # Errors
    /// It names none.
    pub fn check_tests(&self) -> Result<(), MutateError> {
        match &self.command {
            Some(project) if project.tests == BuiltTests::Programs(Vec::new()) => Err(MutateError::NoTests),
            Some(_) | None => Ok(()),
        }
    }
}
