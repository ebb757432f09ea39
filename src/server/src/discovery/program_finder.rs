//! What a session's programs are found with again while it is open. The command line implements it: it knows
//! the sources of programs.

use std::{fmt::Debug, os::fd::OwnedFd, path::PathBuf};

use super::ProgramSource;

/// Finds the programs of a session again. Its functions block: they read directories and run build commands.
pub trait ProgramFinder: Debug + Send + Sync {
    /// Runs the build commands and returns the programs. Ends early, without a process left behind, when
    /// `cancelled` becomes readable.
    ///
    /// # Errors
    /// Returns why no programs are found, with the end of the output of a build that failed.
    fn build(&self, cancelled: OwnedFd) -> Result<Vec<ProgramSource>, String>;

    /// Returns the programs as the file system has them now, without building anything.
    fn current_programs(&self) -> CurrentPrograms;
}

/// The files of a session's programs, and the directories in which further ones may appear.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CurrentPrograms {
    /// Absolute paths of the programs, whether they exist or not, each with its suite if it is known.
    pub programs: Vec<CurrentProgram>,
    /// Absolute paths of the directories in which globs find programs.
    pub directories: Vec<PathBuf>,
}

/// A program's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CurrentProgram {
    pub path: PathBuf,
    /// The suite of its tests; `None` for a program that is not one of the session's yet.
    pub suite: Option<String>,
}
