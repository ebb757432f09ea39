//! Error of a build tool.

use std::{io, path::PathBuf};

use heeler_sys::spawn::SpawnError;

/// Error while building test programs.
#[derive(Debug, thiserror::Error)]
pub enum CargoError {
    /// The program is not in any directory of `PATH`.
    #[error("find {program} in PATH; is it installed?")]
    Missing { program: String },
    /// The command could not be started.
    #[error("start {command}")]
    Start { command: String, source: SpawnError },
    /// The command's output or exit status could not be read.
    #[error("read the output of {command}")]
    Read { command: String, source: io::Error },
    /// The command was cancelled, because its result is no longer needed.
    #[error("finish {command}, which was cancelled")]
    Cancelled { command: String },
    /// A cargo message about a test program can't be parsed.
    #[error("read a message about a test program from {command}; is this version of cargo supported?")]
    Message { command: String, source: serde_json::Error },
    /// The command failed; its error messages have already been printed to standard error.
    #[error("run {command} in {}, which ended with {end}", dir.display())]
    Failed {
        command: String,
        /// Working directory of the command.
        dir: PathBuf,
        /// Exit code or signal, as text.
        end: String,
    },
}
