//! Interface to rebuild or find an open session's programs again. The command line implements it, because it
//! knows where programs come from.

use std::{fmt::Debug, os::fd::OwnedFd, path::PathBuf};

use super::ProgramSource;

/// Rebuilds or finds the programs of a session. Methods block: they read directories and run build commands.
pub trait ProgramFinder: Debug + Send + Sync {
    /// Runs the build commands and returns the programs. Stops early, leaving no process behind, when
    /// `cancelled` becomes readable.
    ///
    /// # Errors
    /// Returns why no programs were found, including the end of a failed build's output.
    fn build(&self, cancelled: OwnedFd) -> Result<Vec<ProgramSource>, String>;

    /// Returns the current programs in the file system without building anything.
    fn current_programs(&self) -> CurrentPrograms;
}

/// The files of a session's programs, and the directories where more may appear.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CurrentPrograms {
    /// Programs by absolute path, existing or not.
    pub programs: Vec<CurrentProgram>,
    /// Absolute paths of directories searched by globs.
    pub directories: Vec<PathBuf>,
}

/// A program's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CurrentProgram {
    pub path: PathBuf,
    /// Suite of the program's tests; `None` for a program that the session does not contain yet.
    pub suite: Option<String>,
}
