//! Crash diagnostics of a test process: collects the dumps, stacks and process states that the guard captures
//! when it crashes or hangs, and stores them in the run's directory under the test's name.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
    time::Duration,
};

use host::process::Signal;
use tokio::time::Instant;
use wire::{
    control::{
        Attempt, CrashReport, Evidence, EvidenceFile, HangReport, Lease, LeasedTest, LogLine, OsBytes,
        RawEnd, TraceMode, TracePlan, TreeSample, WatchPlan, WorkerId,
    },
    mtp::LogLevel,
};

use crate::{conclusion::Outputs, death::signal_name};

/// How long capturing a hung tree may take: two samples, then stacks and dumps of every process.
const PATIENCE: Duration = Duration::from_secs(15);
/// The number of characters of a test's name used in the names of its files.
const NAME_BYTES: usize = 80;

/// Shells add this to the number of the signal that ended a child.
const SHELL_CODE: i32 = 128;
/// Signals that count as crashes.
const CRASHES: [Signal; 7] =
    [Signal::SEGV, Signal::BUS, Signal::ILL, Signal::FPE, Signal::ABRT, Signal::TRAP, Signal::SYS];

/// Collects the crash diagnostics of one test process.
pub(super) struct Witness {
    watch: WatchPlan,
    dir: PathBuf,
    /// Prefix of the guard's own file names.
    stem: String,
    /// This is the isolated rerun of an earlier crash, which has files of its own.
    is_check: bool,
    doomed_words: Vec<String>,
    crash: Option<CrashReport>,
    hang: Option<HangReport>,
    /// States of the processes of a hung tree, from two samples.
    states: Vec<String>,
    /// Deadline of the guard's capture of a hung tree, while one is running.
    patience: Option<Instant>,
    has_begun: bool,
    waiting_us: u64,
}

impl Witness {
    /// Returns the diagnostics for a lease. `doomed_words` mark processes that their framework expects to
    /// crash.
    pub(super) fn new(lease: &Lease, worker: WorkerId, doomed_words: &[&str]) -> Self {
        Self {
            watch: WatchPlan { mode: mode(lease), ..lease.watch },
            dir: lease.run_dir.as_path().join("evidence"),
            stem: format!("worker-{worker}-lease-{}", lease.lease.0),
            is_check: lease.tests.iter().any(|test| test.death.is_some()),
            doomed_words: doomed_words.iter().map(ToString::to_string).collect(),
            crash: None,
            hang: None,
            states: Vec::new(),
            patience: None,
            has_begun: false,
            waiting_us: 0,
        }
    }

    /// Returns how the guard is to trace the process. Without a directory nothing can be stored, and the run
    /// continues without diagnostics.
    pub(super) fn plan(&self, logs: &mut Vec<LogLine>) -> Option<TracePlan> {
        let mode = self.watch.mode?;
        if let Err(error) = host::dirs::private_dir(&self.dir) {
            let message = format!("crashes will leave no files: {error}");
            logs.push(LogLine { test: None, level: LogLevel::Warning, message });
            return None;
        }
        Some(TracePlan {
            mode,
            dumps: self.watch.dumps,
            dir: OsBytes::from(self.dir.as_path()),
            name: self.stem.clone(),
            limit_bytes: self.watch.limit_bytes,
            keeps_environment: self.watch.keeps_environment,
            doomed_words: self.doomed_words.clone(),
        })
    }

    /// Starts capturing a hung tree; returns whether capturing is enabled and was not started before.
    pub(super) fn begin(&mut self) -> bool {
        if self.watch.mode.is_none() || self.has_begun {
            return false;
        }
        self.has_begun = true;
        self.patience = Some(Instant::now() + PATIENCE);
        true
    }

    /// Returns the deadline of a running capture.
    pub(super) fn patience(&self) -> Option<Instant> {
        self.patience
    }

    pub(super) fn give_up(&mut self) {
        self.patience = None;
    }

    pub(super) fn crashed(&mut self, report: CrashReport) {
        // A crash of the test's own process takes precedence over crashes of processes that it started.
        if report.is_root || self.crash.is_none() {
            self.crash = Some(report);
        }
    }

    pub(super) fn hung(&mut self, report: HangReport) {
        self.hang = Some(report);
    }

    pub(super) fn sampled(&mut self, sample: &TreeSample) {
        let state = |process: &wire::control::ProcessSample| {
            format!("process {} ({}): {}", process.pid, process.command, process.state)
        };
        self.states = sample.processes.iter().map(state).collect();
    }

    /// Returns how long the tree was runnable but not scheduled since the last call.
    pub(super) fn starved(&mut self, sample: &TreeSample) -> Duration {
        let since = sample.waiting_us.saturating_sub(self.waiting_us);
        self.waiting_us = sample.waiting_us;
        Duration::from_micros(since)
    }

    /// Returns whether the process died by itself. `was_told`: it had been ordered to end when its end was
    /// reported, which may be long after the end.
    pub(super) fn is_own_death(&self, end: &RawEnd, was_told: bool) -> bool {
        match &self.crash {
            Some(crash) if crash.is_root => !crash.is_asked,
            Some(crash) => !crash.is_asked && !was_told,
            None => end.signal.is_some() && !was_told,
        }
    }

    /// Removes partial files of a guard that was lost.
    pub(super) fn sweep(&self) {
        let beginning = format!("{}-", self.stem);
        let Ok(entries) = fs::read_dir(&self.dir) else { return };
        for entry in entries.flatten() {
            if entry.file_name().to_str().is_some_and(|name| name.starts_with(&beginning)) {
                // A file that can't be removed is in the run's directory, and is deleted with it.
                drop(fs::remove_file(entry.path()));
            }
        }
    }

    /// Stores everything under the name of the running test; returns the evidence, and where and by which
    /// signal the process crashed.
    pub(super) fn conclude(
        &mut self,
        in_flight: Option<(&LeasedTest, Outputs)>,
        core: Option<&OsBytes>,
    ) -> (Option<Box<Evidence>>, Option<String>) {
        let (crash, hang) = (self.crash.take(), self.hang.take());
        // The system's core file is better than no dump; a user who enables core files knows where they are.
        let core = core.filter(|_| crash.is_none() && self.watch.mode.is_some() && self.watch.dumps.crash);
        if crash.is_none() && hang.is_none() && core.is_none() {
            return (None, None);
        }
        let mut evidence = Evidence::default();
        evidence.files.extend(core.map(|core| entry(core, "core file")));
        let name = in_flight.as_ref().map_or("outside any test", |(test, _)| test.uid.as_str());
        let files = Files { dir: self.dir.clone(), base: file_name(name, self.is_check) };
        let detail = crash.as_ref().map(|crash| detail(crash, name)).filter(|words| !words.is_empty());
        if let Some(crash) = crash {
            evidence.stack = crash.stack;
            evidence.notes.extend(crash.soft_errors);
            files.keep(&mut evidence, crash.dump, ("dmp", "minidump"));
            files.keep(&mut evidence, crash.stacks_file, ("stacks.txt", "stacks of all threads"));
        }
        if let Some(hang) = hang {
            self.tell_hang(&mut evidence, hang, &files);
        }
        if let Some((_, outputs)) = in_flight {
            files.write(&mut evidence, &outputs.stdout, ("stdout.txt", "standard output"));
            files.write(&mut evidence, &outputs.stderr, ("stderr.txt", "standard error"));
        }
        (Some(Box::new(evidence)), detail)
    }

    fn tell_hang(&mut self, evidence: &mut Evidence, hang: HangReport, files: &Files) {
        let mut stack = std::mem::take(&mut self.states).join("\n");
        evidence.notes.extend(hang.soft_errors);
        for (number, process) in hang.processes.into_iter().enumerate() {
            if !process.stack.is_empty() {
                stack.push_str(&format!("\nstack of process {}:\n{}", process.pid, process.stack.trim_end()));
            }
            let tag = if number == 0 { String::new() } else { format!("{}.", process.pid) };
            files.keep(evidence, process.dump, (&format!("{tag}dmp"), "minidump of the hung process"));
            let description = "stacks of all threads of the hung process";
            files.keep(evidence, process.stacks_file, (&format!("{tag}stacks.txt"), description));
        }
        if evidence.stack.is_empty() {
            evidence.stack = stack.trim_start().to_owned();
        }
    }
}

/// Returns how far tracing reaches. A process that exited like a shell whose child died of a signal has
/// hidden a crash behind itself: its isolated rerun traces the whole tree.
fn mode(lease: &Lease) -> Option<TraceMode> {
    let is_hidden = |first: &Attempt| {
        let signal = first.death.as_ref().and_then(|death| death.code).map(|code| Signal(code - SHELL_CODE));
        first.evidence.is_none() && signal.is_some_and(|signal| CRASHES.contains(&signal))
    };
    match lease.watch.mode {
        Some(TraceMode::Root) if lease.tests.iter().filter_map(|test| test.death.as_ref()).any(is_hidden) => {
            Some(TraceMode::Tree)
        }
        mode => mode,
    }
}

/// Describes where and by which signal a process crashed.
fn detail(crash: &CrashReport, test: &str) -> String {
    let at =
        |address: Option<u64>| address.map(|address| format!(" at address {address:#x}")).unwrap_or_default();
    let mut words = Vec::new();
    // The exit of the test process does not name this signal.
    let signal = if crash.is_root && !crash.is_handled { String::new() } else { signal_name(crash.signal) };
    if let Some(cause) = &crash.cause {
        words.push(format!("{signal} after {}{}", signal_name(cause.signal), at(cause.address)));
    } else {
        words.push(format!("{signal}{}", at(crash.address)));
    }
    // The name of the first thread is the program's, and libtest names threads after their tests: neither
    // adds information.
    let thread = crash.thread.name.as_str();
    if crash.thread.id != crash.pid && !thread.is_empty() && !test.contains(thread) {
        words.push(format!("thread {thread}"));
    }
    if !crash.is_root {
        words.push(format!("in its child {}", crash.command));
    }
    if crash.is_handled {
        words.push("handled by the program itself".to_owned());
    }
    words.retain_mut(|word| {
        *word = word.trim().to_owned();
        !word.is_empty()
    });
    words.join(", ")
}

/// The files of one test.
struct Files {
    dir: PathBuf,
    base: String,
}

impl Files {
    /// Renames a file of the guard to the test's name.
    fn keep(&self, evidence: &mut Evidence, path: Option<OsBytes>, (ending, description): (&str, &str)) {
        let Some(path) = path else { return };
        let (target, file) = match self.free_place(ending) {
            Some(found) => found,
            None => return evidence.files.push(entry(&path, description)),
        };
        drop(file);
        match fs::rename(path.as_path(), &target) {
            Ok(()) => evidence.files.push(entry(&OsBytes::from(target.as_path()), description)),
            Err(error) => {
                evidence.notes.push(format!("{} keeps its first name: {error}", path.to_text()));
                evidence.files.push(entry(&path, description));
            }
        }
    }

    fn write(&self, evidence: &mut Evidence, text: &str, (ending, description): (&str, &str)) {
        if text.is_empty() {
            return;
        }
        let Some((path, mut file)) = self.free_place(ending) else { return };
        match file.write_all(text.as_bytes()) {
            Ok(()) => evidence.files.push(entry(&OsBytes::from(path.as_path()), description)),
            Err(error) => {
                evidence.notes.push(format!("write {}: {error}", path.display()));
                // A partial output is worse than none; the result has all of it.
                drop(fs::remove_file(&path));
            }
        }
    }

    /// Creates a new file that only the owner may read. A test may crash several times in one run, so names
    /// are numbered.
    fn free_place(&self, ending: &str) -> Option<(PathBuf, fs::File)> {
        (1..100).find_map(|number| {
            let tag = if number == 1 { String::new() } else { format!("-{number}") };
            let path = self.dir.join(format!("{}{tag}.{ending}", self.base));
            let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).ok()?;
            Some((path, file))
        })
    }
}

fn entry(path: &OsBytes, description: &str) -> EvidenceFile {
    EvidenceFile { path: path.clone(), description: description.to_owned() }
}

/// Returns a file name that every file system accepts and that users recognise.
fn file_name(uid: &str, is_check: bool) -> String {
    let plain = |character: char| {
        if character.is_ascii_alphanumeric() || "._-".contains(character) { character } else { '_' }
    };
    let mut name: String = uid.replace("::", ".").chars().map(plain).take(NAME_BYTES).collect();
    if name.starts_with('.') {
        name.insert(0, '_');
    }
    if is_check {
        name.push_str("-alone");
    }
    name
}
