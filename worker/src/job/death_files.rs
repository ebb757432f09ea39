//! Files that a process writes about its own death or hang.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use heeler_adapters::{Adapter, DeathFiles, StackReports};
use heeler_protocol::control::{ListedTest, TestProgram};
use heeler_sys::process::{Pid, Signal};
use tokio::time::Instant;

use crate::process::regular_file::read_regular_file;

/// Time limit for a runtime to write its report about a hung process. Usually takes a third of a second.
const REPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval for checking whether the report exists.
const REPORT_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum size of a report. Typical: 250 KB.
const REPORT_LIMIT_BYTES: u64 = 64 << 20;
/// Maximum size of a journal, which has 2 KB per update.
const JOURNAL_LIMIT_BYTES: u64 = 256 << 20;
/// Number of bytes of standard error kept to find stack traces. The trace of a stack overflow has 40 KB.
const STDERR_BYTES: usize = 256 << 10;
/// Number of bytes kept from the stack traces of a hung process.
const STACKS_BYTES: usize = 4 << 20;
/// Printed to standard output by the runtime when it begins to write a report.
const REPORT_BEGUN: &[u8] = b"[createdump] ";
/// Maximum number of files examined per directory.
const MAX_FILES: usize = 64;

/// Reads the files that a process writes about its death.
pub(super) struct DeathFileReader {
    adapter: &'static dyn Adapter,
    program: TestProgram,
    files: Option<DeathFiles>,
    stderr: Vec<u8>,
    /// The process has begun to write a report of its own crash.
    is_dying: bool,
    /// The process was sent the signal that makes it report its stacks.
    is_report_begun: bool,
    /// Deadline for the report of a hung process.
    report_deadline: Option<Instant>,
    next_look: Option<Instant>,
}

/// Next step for a process at its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReportStep {
    /// Send this signal and wait for the report.
    Ask(Signal),
    /// The process has crashed and is writing its report: wait for it to end.
    Await,
    /// End the process at once.
    End,
}

/// Contents of the files that a process wrote about its death.
pub(super) struct ReadDeathFiles {
    pub(super) stderr: String,
    pub(super) crash_report: Vec<u8>,
    pub(super) journal: Vec<u8>,
}

impl DeathFileReader {
    pub(super) fn new(
        adapter: &'static dyn Adapter,
        program: TestProgram,
        files: Option<DeathFiles>,
    ) -> Self {
        Self {
            adapter,
            program,
            files,
            stderr: Vec::new(),
            is_dying: false,
            is_report_begun: false,
            report_deadline: None,
            next_look: None,
        }
    }

    pub(super) fn program(&self) -> &TestProgram {
        &self.program
    }

    /// Keeps the end of standard error.
    pub(super) fn on_stderr(&mut self, bytes: &[u8]) {
        if self.files.is_none() || bytes.is_empty() {
            return;
        }
        if self.is_report_begun {
            let room = STACKS_BYTES.saturating_sub(self.stderr.len());
            self.stderr.extend_from_slice(&bytes[..bytes.len().min(room)]);
            return;
        }
        self.stderr.extend_from_slice(bytes);
        let excess = self.stderr.len().saturating_sub(STDERR_BYTES);
        if excess > STDERR_BYTES {
            self.stderr.drain(..excess);
        }
    }

    /// Detects that the process is writing a crash report. The process is stopped meanwhile and dies
    /// afterwards.
    pub(super) fn on_stdout(&mut self, bytes: &[u8]) {
        let is_report = || memchr::memmem::find(bytes, REPORT_BEGUN).is_some();
        self.is_dying |= self.files.is_some() && !self.is_report_begun && is_report();
    }

    /// Starts waiting for the report of a process at its limit, and returns the next step.
    pub(super) fn begin_report(&mut self, now: Instant) -> ReportStep {
        let Some(files) = self.files.as_ref().filter(|_| self.report_deadline.is_none()) else {
            return ReportStep::End;
        };
        let signal = match files.reports {
            StackReports::Directory(_) => Signal::ABRT,
            StackReports::StandardError => Signal::QUIT,
        };
        self.report_deadline = Some(now + REPORT_TIMEOUT);
        self.next_look = Some(now + REPORT_POLL_INTERVAL);
        self.is_report_begun = !self.is_dying;
        if self.is_dying {
            return ReportStep::Await;
        }
        // Earlier output is not part of the report.
        self.stderr.clear();
        ReportStep::Ask(signal)
    }

    /// Returns whether the process was asked for its stacks.
    pub(super) fn is_report_begun(&self) -> bool {
        self.is_report_begun
    }

    pub(super) fn next_look(&self) -> Option<Instant> {
        self.next_look
    }

    /// Checks for the report file. Returns whether it exists or is no longer awaited. A process that reports
    /// on standard error exits afterwards.
    pub(super) fn look(&mut self, root: Option<Pid>, now: Instant) -> bool {
        // A process that dies by itself ends after writing its report.
        let is_there = self.is_report_begun
            && self
                .crash_report(root)
                .is_some_and(|report| self.adapter.read_crash_report(&report, None).is_some());
        let is_over = is_there || self.report_deadline.is_none_or(|deadline| deadline <= now);
        self.next_look = (!is_over).then_some(now + REPORT_POLL_INTERVAL);
        is_over
    }

    /// Returns the stack traces of the report, and the report itself if it is a file. Standard error counts
    /// as a report only if the process `has_died` or was asked for one, because tests print stack traces too.
    pub(super) fn stacks(
        &self,
        root: Option<Pid>,
        test: Option<&ListedTest>,
        has_died: bool,
    ) -> Option<(String, Option<Vec<u8>>)> {
        match self.files.as_ref()?.reports {
            StackReports::Directory(_) => {
                let report = self.crash_report(root)?;
                Some((self.adapter.read_crash_report(&report, test)?, Some(report)))
            }
            StackReports::StandardError => {
                let is_report = has_died || self.is_report_begun;
                let report = Some(&self.stderr).filter(|_| is_report)?;
                Some((self.adapter.read_crash_report(report, test)?, None))
            }
        }
    }

    /// Returns the existing files, or `None` if the framework's processes write none.
    pub(super) fn read(&self, root: Option<Pid>) -> Option<ReadDeathFiles> {
        let files = self.files.as_ref()?;
        let journals = files.journal.as_deref().map(files_of).unwrap_or_default();
        let journal = journals.iter().filter_map(|path| read_regular_file(path, JOURNAL_LIMIT_BYTES));
        Some(ReadDeathFiles {
            stderr: String::from_utf8_lossy(&self.stderr).into_owned(),
            crash_report: self.crash_report(root).unwrap_or_default(),
            journal: journal.flatten().collect(),
        })
    }

    /// Returns the report of the process itself, or else of a descendant.
    fn crash_report(&self, root: Option<Pid>) -> Option<Vec<u8>> {
        let StackReports::Directory(directory) = &self.files.as_ref()?.reports else { return None };
        let all = files_of(directory);
        let own = root.map(|root| format!("{}.", root.0));
        let is_own = |path: &&PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            own.as_deref().zip(name).is_some_and(|(own, name)| name.starts_with(own))
        };
        let is_report = |path: &&PathBuf| path.extension().is_some_and(|extension| extension == "json");
        let mut reports = all.iter().filter(is_report);
        let found = all.iter().filter(is_report).find(is_own).or_else(|| reports.next())?;
        read_regular_file(found, REPORT_LIMIT_BYTES)
    }
}

/// Returns the files in a directory, sorted by name.
fn files_of(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().take(MAX_FILES);
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.sort();
    files
}
