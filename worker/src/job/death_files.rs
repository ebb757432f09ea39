//! Files that a process leaves about its own death or hang.

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

/// How long a runtime may take to write its report of a process that hangs. It takes a third of a second.
const REPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often it is looked for.
const REPORT_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Size of a report. A usual one has 250 KB.
const REPORT_LIMIT_BYTES: u64 = 64 << 20;
/// Size of a journal: 2 KB for each update.
const JOURNAL_LIMIT_BYTES: u64 = 256 << 20;
/// Bytes of standard error that are kept for the stacks in it. The stack of an overflow has 40 KB.
const STDERR_BYTES: usize = 256 << 10;
/// Bytes that are kept of the stacks of a process that hangs.
const STACKS_BYTES: usize = 4 << 20;
/// What the runtime writes to standard output when it begins to write a report.
const REPORT_BEGUN: &[u8] = b"[createdump] ";
/// Number of files in a directory that are looked at.
const MAX_FILES: usize = 64;

/// Reads what a process leaves about its death.
pub(super) struct DeathFileReader {
    adapter: &'static dyn Adapter,
    program: TestProgram,
    files: Option<DeathFiles>,
    stderr: Vec<u8>,
    /// The process has begun to write the report of its own crash.
    is_dying: bool,
    /// The process was sent the signal on which it reports its stacks.
    is_report_begun: bool,
    /// Until when the report of a hanging process is awaited.
    report_deadline: Option<Instant>,
    next_look: Option<Instant>,
}

/// What is done with a process that is at its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReportStep {
    /// It is sent this signal, and its report awaited.
    Ask(Signal),
    /// It has crashed and writes its report: its end is awaited.
    Await,
    /// It is ended at once.
    End,
}

/// What a process has left about its death.
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

    /// Returns the program.
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

    /// Notices that the process writes the report of its crash: it is stopped meanwhile, and dies afterwards.
    pub(super) fn on_stdout(&mut self, bytes: &[u8]) {
        let is_report = || memchr::memmem::find(bytes, REPORT_BEGUN).is_some();
        self.is_dying |= self.files.is_some() && !self.is_report_begun && is_report();
    }

    /// Begins to await the report of a process that is at its limit; returns what is to be done.
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
        // What it has written before is no report.
        self.stderr.clear();
        ReportStep::Ask(signal)
    }

    /// Returns whether the process was asked for its stacks.
    pub(super) fn is_report_begun(&self) -> bool {
        self.is_report_begun
    }

    /// Returns when to look for the report.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.next_look
    }

    /// Looks for the report in a file; returns whether it is there, or no longer awaited. A process that
    /// reports on standard error exits after that.
    pub(super) fn look(&mut self, root: Option<Pid>, now: Instant) -> bool {
        // A process that dies by itself ends after its report.
        let is_there = self.is_report_begun
            && self
                .crash_report(root)
                .is_some_and(|report| self.adapter.read_crash_report(&report, None).is_some());
        let is_over = is_there || self.report_deadline.is_none_or(|deadline| deadline <= now);
        self.next_look = (!is_over).then_some(now + REPORT_POLL_INTERVAL);
        is_over
    }

    /// Returns the stacks of the report, and the report if it was a file. On standard error there is one only
    /// if the process `has_died` or was asked for it: tests write stacks, too.
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

    /// Returns what is there; `None` for a framework whose processes leave nothing.
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

    /// Returns the report of the process itself, otherwise that of one below it.
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

/// Returns the files in a directory, by name.
fn files_of(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().take(MAX_FILES);
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.sort();
    files
}
