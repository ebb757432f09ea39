//! Why a build tool gives no result.

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
    /// The command was ended, because nothing needs its result any more.
    #[error("finish {command}, which was cancelled")]
    Cancelled { command: String },
    /// A message of cargo about a test program can't be read.
    #[error("read a message about a test program from {command}; is this version of cargo supported?")]
    Message { command: String, source: serde_json::Error },
    /// The command failed; its own error messages have already been printed to standard error.
    #[error("run {command} in {}, which ended with {end}", dir.display())]
    Failed {
        command: String,
        /// Working directory of the command.
        dir: PathBuf,
        /// Exit code or signal, as text.
        end: String,
    },
}
