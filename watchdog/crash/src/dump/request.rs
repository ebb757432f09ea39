//! A dump as it is requested, and its outcome.

use std::{io, path::PathBuf, time::Duration};

use heeler_sys::process::{Pid, Signal};

use crate::stacks::RegisterSet;

/// The process to dump.
///
/// No process may trace it while it is dumped: the writer attaches to each thread itself. It may be stopped
/// (then it is **continued** afterwards, by a SIGCONT that the writer sends) or running (then it is stopped
/// meanwhile).
#[derive(Debug, Clone)]
pub struct DumpTarget {
    pub pid: Pid,
    /// The blamed thread: the crashed one, or the first one of the process.
    pub blamed: Pid,
    /// The crash, if there was one.
    pub crash: Option<CrashFacts>,
}

/// A fatal signal and the state of the thread when it arrived.
#[derive(Debug, Clone)]
pub struct CrashFacts {
    pub signal: Signal,
    /// Its `si_code`: above 0 for a fault found by the kernel, otherwise the signal was sent.
    pub code: i32,
    /// Its `si_addr`: the address whose access failed; 0 if there is none.
    pub address: u64,
    pub tid: Pid,
    /// Its registers when the signal arrived.
    pub registers: RegisterSet,
}

/// How a dump is written.
#[derive(Debug, Clone)]
pub struct DumpPlan {
    /// The path of the dump. The directory exists, the file does not.
    pub path: PathBuf,
    /// Maximum size of the dump. Stacks are shortened from half of it on; a larger dump is not written.
    pub limit_bytes: u64,
    /// Whether environment variables are kept. They often contain secrets.
    pub keeps_environment: bool,
    /// How long a running process may take to stop.
    pub stop_timeout: Duration,
}

/// A dump that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DumpFile {
    pub path: PathBuf,
    pub bytes: u64,
    /// The number of threads in it.
    pub threads: usize,
    /// The soft errors, in the writer's words.
    pub soft_errors: Vec<String>,
}

/// The error that prevented a dump.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// This build has no writer.
    #[cfg(not(feature = "minidump"))]
    #[error(
        "write a minidump of process {pid}: this build was made without the feature \"minidump\"; its stacks \
         are kept"
    )]
    LeftOut { pid: Pid },
    /// The writer failed.
    #[error("capture process {pid}")]
    Capture { pid: Pid, source: Box<dyn std::error::Error + Send + Sync> },
    /// The writer did not see a single thread, which it does not report as an error.
    #[error("attach to a thread of process {pid}: {soft_errors:?}")]
    NoThreads {
        pid: Pid,
        /// The writer's soft errors.
        soft_errors: Vec<String>,
    },
    /// The dump is larger than allowed.
    #[error("keep a dump of {bytes} bytes within {limit_bytes}")]
    TooLarge { bytes: u64, limit_bytes: u64 },
    /// A minidump names files as text.
    #[error(
        "write a minidump of process {pid}: it has mapped a file whose path is not UTF-8; its stacks are kept"
    )]
    UnnameableFile { pid: Pid },
    #[error("write {path}")]
    Write { path: PathBuf, source: io::Error },
}
