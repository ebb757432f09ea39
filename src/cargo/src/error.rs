//! Error of a build tool.

use std::{io, path::PathBuf};

use heeler_sys::spawn::SpawnError;

/// Error while building test programs.
#[derive(Debug, thiserror::Error)]
pub enum CargoError {
    /// The program is not in any directory of `PATH`.
    #[error("{program} not found in PATH; is it installed?")]
    Missing { program: String },
    /// The command could not be started.
    #[error("can't start `{command}`")]
    Start { command: String, source: SpawnError },
    /// The command's output or exit status could not be read.
    #[error("can't read the output of `{command}`")]
    Read { command: String, source: io::Error },
    /// The command was cancelled, because its result is no longer needed.
    #[error("`{command}` was cancelled")]
    Cancelled { command: String },
    /// The command was ended at its time limit.
    #[error("`{command}` did not end in time")]
    TimedOut { command: String },
    /// A cargo message about a test program can't be parsed.
    #[error("unexpected message about a test program from `{command}`; is this version of cargo supported?")]
    Message { command: String, source: serde_json::Error },
    /// The command failed; its error messages have already been printed to standard error.
    #[error("`{command}` failed in {} ({end})", dir.display())]
    Failed {
        command: String,
        /// Working directory of the command.
        dir: PathBuf,
        /// Exit code or signal, as text.
        end: String,
    },
}
