//! Request for a dump, and its outcome.

use std::{io, path::PathBuf, time::Duration};

use heeler_sys::process::{Pid, Signal};

use crate::stacks::RegisterSet;

/// The process to dump.
///
/// The process must not be traced, because the writer attaches to each thread itself. A stopped process is
/// **continued** afterwards, because the writer sends SIGCONT. A running process is stopped while the dump is
/// written.
#[derive(Debug, Clone)]
pub struct DumpTarget {
    pub pid: Pid,
    /// The blamed thread: the crashed thread, or else the first thread of the process.
    pub blamed: Pid,
    /// The crash, if any.
    pub crash: Option<CrashFacts>,
}

/// A fatal signal and the state of the thread when it arrived.
#[derive(Debug, Clone)]
pub struct CrashFacts {
    pub signal: Signal,
    /// The signal's `si_code`: above 0 for a fault detected by the kernel, otherwise the signal was sent.
    pub code: i32,
    /// The signal's `si_addr`: the address of the failed access, or 0.
    pub address: u64,
    pub tid: Pid,
    /// Registers of the thread when the signal arrived.
    pub registers: RegisterSet,
}

/// How to write a dump.
#[derive(Debug, Clone)]
pub struct DumpPlan {
    /// Path of the dump. The directory exists, the file does not.
    pub path: PathBuf,
    /// Maximum size of the dump. Stacks are shortened if the dump exceeds half of it. A dump that exceeds it
    /// is not written.
    pub limit_bytes: u64,
    /// Keep environment variables, which often contain secrets.
    pub keeps_environment: bool,
    /// Time limit for a running process to stop.
    pub stop_timeout: Duration,
}

/// A dump that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DumpFile {
    pub path: PathBuf,
    pub bytes: u64,
    /// Number of threads in the dump.
    pub threads: usize,
    /// Soft errors, as worded by the writer.
    pub soft_errors: Vec<String>,
}

/// Why no dump was written.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// This build has no writer.
    #[cfg(not(feature = "minidump"))]
    #[error("no minidump of process {pid}, only stacks: Heeler was built without the feature \"minidump\"")]
    LeftOut { pid: Pid },
    /// The writer failed.
    #[error("cannot dump process {pid}")]
    Capture { pid: Pid, source: Box<dyn std::error::Error + Send + Sync> },
    /// The writer saw no thread, which it does not report as an error.
    #[error("no minidump: cannot attach to a thread of process {pid}: {soft_errors:?}")]
    NoThreads {
        pid: Pid,
        /// The writer's soft errors.
        soft_errors: Vec<String>,
    },
    /// The dump is larger than allowed.
    #[error("no minidump: its {bytes} bytes exceed the limit of {limit_bytes} bytes")]
    TooLarge { bytes: u64, limit_bytes: u64 },
    /// A minidump can only name files in UTF-8.
    #[error(
        "no minidump of process {pid}: it has mapped a file whose path is not UTF-8; its stacks are kept"
    )]
    UnnameableFile { pid: Pid },
    #[error("cannot write {path}")]
    Write { path: PathBuf, source: io::Error },
}
