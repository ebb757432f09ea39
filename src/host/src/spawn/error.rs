//! Why a process could not be started.

use std::{io, path::PathBuf};

/// Why a process could not be started. Nothing is left of it.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// A string with a zero byte, which no program can be given.
    #[error("hand a string with a zero byte to {}: {text:?}", program.display())]
    ZeroByte {
        /// Which program.
        program: PathBuf,
        /// The string, made printable.
        text: String,
    },
    /// The null device is missing or closed to us.
    #[error("open /dev/null")]
    NullDevice {
        /// The system's answer.
        source: io::Error,
    },
    /// The system gave no process.
    #[error("create a process for {}", program.display())]
    Create {
        /// Which program.
        program: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A step between the birth of the process and its program.
    #[error("{step} of a process for {}", program.display())]
    Prepare {
        /// Such as `set the process group`.
        step: &'static str,
        /// Which program.
        program: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The working directory cannot be entered.
    #[error("enter the directory {} to start {}", cwd.display(), program.display())]
    Directory {
        /// Which directory.
        cwd: PathBuf,
        /// Which program.
        program: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The program cannot be executed.
    #[error("execute {}", program.display())]
    Execute {
        /// Which program.
        program: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}
