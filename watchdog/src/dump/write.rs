//! Writes a minidump: built in memory, checked, without the environment, then on disk whole or not at all.

use std::{
    fs::{File, OpenOptions},
    io::{self, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use host::process::{Pid, Signal};
use minidump_writer::minidump_writer::MinidumpWriterConfig;

use super::{
    context, layout,
    scrub::{self, Environment},
};
use crate::stacks::Registers;

/// The process that is to be dumped.
///
/// Nobody may trace it while it is dumped: the writer attaches to each thread itself. It may be stopped (then it is
/// **continued** afterwards, by a SIGCONT that the writer sends) or run (then it is stopped meanwhile).
#[derive(Debug, Clone)]
pub struct Subject {
    /// The process.
    pub pid: Pid,
    /// The thread that people ask about: the crashed one, or the process's first.
    pub blamed: Pid,
    /// What happened, if it was a crash.
    pub crash: Option<CrashFacts>,
}

/// A fatal signal and what the thread was doing when it came.
#[derive(Debug, Clone)]
pub struct CrashFacts {
    /// The signal.
    pub signal: Signal,
    /// Its `si_code`: above 0 the kernel found a fault, else somebody sent it.
    pub code: i32,
    /// Its `si_addr`: which address could not be accessed; 0 if there is none.
    pub address: u64,
    /// The thread.
    pub tid: Pid,
    /// Its registers when the signal came.
    pub registers: Registers,
}

/// How a dump is written.
#[derive(Debug, Clone)]
pub struct DumpPlan {
    /// Where. The directory is there; the file is not.
    pub path: PathBuf,
    /// The most that a dump may have. Stacks are shortened from half of it on; a dump above it is not written.
    pub limit_bytes: u64,
    /// Whether environment variables stay in it. They often hold secrets.
    pub keeps_environment: bool,
    /// How long a running process may take to stop.
    pub stop_timeout: Duration,
}

/// A dump that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DumpFile {
    /// Where.
    pub path: PathBuf,
    /// How large.
    pub bytes: u64,
    /// Threads in it.
    pub threads: usize,
    /// What could not be found out, in the writer's words.
    pub soft_errors: Vec<String>,
}

/// Why there is no dump.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// The writer gave up.
    #[error("capture process {pid}")]
    Capture {
        /// The process.
        pid: Pid,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The writer did not see a single thread, which it does not call an error.
    #[error("attach to a thread of process {pid}: {soft_errors:?}")]
    NoThreads {
        /// The process.
        pid: Pid,
        /// What the writer says.
        soft_errors: Vec<String>,
    },
    /// It is larger than allowed.
    #[error("keep a dump of {bytes} bytes within {limit_bytes}")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The limit.
        limit_bytes: u64,
    },
    /// The disk.
    #[error("write {path}")]
    Write {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Dumps a process. Its threads stand still for some milliseconds.
///
/// # Errors
///
/// When it is gone or traced, the dump would be too large, or cannot be stored. Then nothing is left on disk.
pub fn write(subject: &Subject, plan: &DumpPlan) -> Result<DumpFile, DumpError> {
    let pid = subject.pid;
    // Asked before the process goes on, and may end.
    let environment = Environment::of(pid, subject.blamed);
    let mut dump = capture(subject, plan)?;
    let soft_errors = layout::soft_errors(&dump);
    let threads = layout::thread_count(&dump);
    if threads == 0 {
        return Err(DumpError::NoThreads { pid, soft_errors });
    }
    let bytes = dump.len() as u64;
    if bytes > plan.limit_bytes {
        return Err(DumpError::TooLarge { bytes, limit_bytes: plan.limit_bytes });
    }
    if !plan.keeps_environment {
        scrub::scrub(&mut dump, &environment);
    }
    store(&plan.path, &dump)?;
    Ok(DumpFile { path: plan.path.clone(), bytes, threads, soft_errors })
}

fn capture(subject: &Subject, plan: &DumpPlan) -> Result<Vec<u8>, DumpError> {
    let mut config = MinidumpWriterConfig::new(subject.pid.0, subject.blamed.0);
    config.stop_timeout(plan.stop_timeout);
    config.set_minidump_size_limit(plan.limit_bytes / 2);
    if let Some(facts) = &subject.crash {
        config.set_crash_context(context::crash_context(subject.pid, facts));
    }
    host::fail::pass("guard.capture");
    let written = config.write(&mut Nowhere(0));
    written.map_err(|source| DumpError::Capture { pid: subject.pid, source: Box::new(source) })
}

fn store(path: &Path, dump: &[u8]) -> Result<(), DumpError> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".part");
    let aside = PathBuf::from(aside);
    let failed = |source| DumpError::Write { path: path.to_owned(), source };
    // One that is there already belongs to somebody else, and is left alone.
    let mut file = host::fail::at("guard.dump").and_then(|()| create(&aside)).map_err(failed)?;
    let stored = file.write_all(dump).and_then(|()| std::fs::rename(&aside, path));
    stored.map_err(|source| {
        // What is left of it is of no use; that it cannot be removed changes nothing.
        let _gone = std::fs::remove_file(&aside);
        failed(source)
    })
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// The writer fills a file as it goes, and also returns all of it; only the latter is wanted.
struct Nowhere(u64);

impl Write for Nowhere {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Nowhere {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0 = match to {
            SeekFrom::Start(at) => at,
            SeekFrom::Current(by) | SeekFrom::End(by) => self.0.saturating_add_signed(by),
        };
        Ok(self.0)
    }
}
