//! Errors of starting a process.

use std::{io, path::PathBuf};

/// Why a process could not be started. No process is left behind.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// A string contains a zero byte, which cannot be passed to a program.
    #[error("start {}: an argument, variable or path contains a NUL byte: {text:?}", program.display())]
    NulByte {
        program: PathBuf,
        /// The string in printable form.
        text: String,
    },
    /// The null device is missing or not accessible.
    #[error("open /dev/null")]
    NullDevice { source: io::Error },
    /// The system could not create a process.
    #[error("create a process for {}", program.display())]
    Create { program: PathBuf, source: io::Error },
    /// A step between the creation of the process and the execution of its program failed.
    #[error("{step} for {}", program.display())]
    Prepare {
        /// The step, such as `set the process group`.
        step: &'static str,
        program: PathBuf,
        source: io::Error,
    },
    /// The working directory cannot be entered.
    #[error("enter the directory {} to start {}", cwd.display(), program.display())]
    Directory { cwd: PathBuf, program: PathBuf, source: io::Error },
    /// The program cannot be executed.
    #[error("execute {}", program.display())]
    Execute { program: PathBuf, source: io::Error },
}
