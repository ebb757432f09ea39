//! Crash diagnostics of a test process: collects the dumps, stack traces and process states that the guard
//! captures on a crash or hang, and stores them in the run's directory under the test's name.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use heeler_core::{
    Iteration, LogLine, RecordSink, RunRecord,
    describe::{process_text, program_name},
    error_chain,
};
use heeler_protocol::control::{
    Attempt, CrashCapturePlan, CrashReport, DiagnosticsFile, HangReport, LeasedTest, OsText, ProcessExit,
    ProcessSample, TestDiagnostics, TraceMode, TracePlan, TreeSample, WorkerId, WorkerLease,
};
use heeler_sys::process::Signal;
use tokio::time::Instant;

use heeler_adapters::AdapterTraits;

use crate::{
    batch::{exit_reason::signal_name, verdict::TestOutputs},
    process::evidence_files::{plain_file_name, remove_partial_files},
};

/// Time limit for capturing a hung process tree: two samples, then stack traces and dumps of every process.
const HANG_CAPTURE_TIMEOUT: Duration = Duration::from_secs(15);

/// A shell exits with this value plus the signal number if a signal ended its child.
const SHELL_SIGNAL_EXIT_BASE: i32 = 128;

/// Where in its run a process exited, according to its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExitKind {
    /// The process exited after an unconfirmed end marker of its last test, in that test's or its suite's
    /// tear-down.
    AfterEndMarker,
    /// The process exited in any other way.
    Other,
}

/// Collects the crash diagnostics of one test process.
pub(super) struct CrashDiagnostics {
    watch: CrashCapturePlan,
    dir: PathBuf,
    /// Prefix of the guard's file names.
    file_prefix: String,
    /// The process is the isolated rerun of an earlier crash, which has its own files.
    is_isolated_rerun: bool,
    /// Process descriptions include arguments.
    are_arguments_shown: bool,
    expected_crash_markers: Vec<String>,
    /// The process reports its own crashes, so it is not traced for crashes.
    reports_own_crashes: bool,
    /// The framework checks whether the program is being traced, so the program may do so too.
    is_tracer_read_by_framework: bool,
    /// Capture the stack at an exit in the middle of the run, although no file marks that state.
    is_exit_placed_by_stack: bool,
    /// Why the process, or a process it started, is not traced.
    untraced_reason: Option<String>,
    crash: Option<CrashReport>,
    /// Stack trace at the process's own exit in the middle of its tests.
    exit_stack: Option<String>,
    hang: Option<HangReport>,
    /// Stack traces from the process's own runtime, and the report file if there is one.
    runtime_report: Option<(String, Option<Vec<u8>>)>,
    /// Process states of a hung tree, from two samples.
    states: Vec<ProcessSample>,
    /// Deadline of a running capture of a hung tree.
    capture_deadline: Option<Instant>,
    has_started_capture: bool,
    waiting_us: u64,
}

impl CrashDiagnostics {
    /// Creates the diagnostics for a lease.
    pub(super) fn new(
        lease: &WorkerLease,
        iteration: Iteration,
        worker: WorkerId,
        framework: &AdapterTraits,
    ) -> Self {
        let process =
            if iteration.is_first() { String::new() } else { format!("-iteration-{}", iteration.number()) };
        Self {
            watch: CrashCapturePlan {
                mode: trace_mode(lease).filter(|_| !framework.reports_own_crashes),
                ..lease.crash_capture
            },
            dir: lease.run_dir.as_path().join("evidence"),
            file_prefix: format!("worker-{worker}-lease-{}{process}", lease.lease.0),
            is_isolated_rerun: lease.tests.iter().any(|test| test.crashed_attempt.is_some()),
            are_arguments_shown: lease.is_environment_shown,
            expected_crash_markers: framework
                .expected_crash_markers
                .iter()
                .map(ToString::to_string)
                .collect(),
            reports_own_crashes: framework.reports_own_crashes,
            is_tracer_read_by_framework: framework.reads_tracer,
            is_exit_placed_by_stack: framework.is_exit_placed_by_stack,
            untraced_reason: None,
            crash: None,
            exit_stack: None,
            hang: None,
            runtime_report: None,
            states: Vec::new(),
            capture_deadline: None,
            has_started_capture: false,
            waiting_us: 0,
        }
    }

    pub(super) fn is_tracing(&self) -> bool {
        self.watch.mode.is_some()
    }

    /// Returns how the guard must trace the process. Without a directory nothing can be stored, and the run
    /// continues without diagnostics. `run_mark`: the file that exists while the framework runs tests.
    pub(super) fn trace_plan(
        &self,
        run_mark: Option<&Path>,
        records: &mut dyn RecordSink,
    ) -> Option<TracePlan> {
        let mode = self.watch.mode?;
        if let Err(error) = heeler_sys::dirs::private_dir(&self.dir) {
            let message = format!("no crash dumps: cannot {}", error_chain(&error));
            records.record(RunRecord::Log(LogLine::warning(None, message)));
            return None;
        }
        // This directory exists as long as the process runs.
        let run_mark = run_mark.or(self.is_exit_placed_by_stack.then_some(self.dir.as_path()));
        Some(TracePlan {
            mode,
            dumps: self.watch.dumps,
            dir: OsText::from(self.dir.as_path()),
            name: self.file_prefix.clone(),
            limit_bytes: self.watch.limit_bytes,
            keeps_environment: self.watch.keeps_environment,
            expected_crash_markers: self.expected_crash_markers.clone(),
            is_tracer_read_by_framework: self.is_tracer_read_by_framework,
            run_mark: run_mark.map(OsText::from),
        })
    }

    /// Starts capturing a hung tree. Returns `false` if capturing is disabled or was started before.
    pub(super) fn start_hang_capture(&mut self) -> bool {
        if self.watch.mode.is_none() || self.has_started_capture {
            return false;
        }
        self.has_started_capture = true;
        self.capture_deadline = Some(Instant::now() + HANG_CAPTURE_TIMEOUT);
        true
    }

    pub(super) fn capture_deadline(&self) -> Option<Instant> {
        self.capture_deadline
    }

    pub(super) fn stop_hang_capture(&mut self) {
        self.capture_deadline = None;
    }

    pub(super) fn record_crash(&mut self, mut report: CrashReport) {
        if !self.are_arguments_shown {
            report.command = program_name(&report.command, None);
        }
        // A crash of the test process itself takes precedence over crashes of its children.
        if report.is_root || self.crash.is_none() {
            self.crash = Some(report);
        }
    }

    pub(super) fn record_exit_stack(&mut self, stack: String) {
        self.exit_stack = Some(stack);
    }

    /// Takes the stack trace at the process's own exit in the middle of its tests.
    pub(super) fn take_exit_stack(&mut self) -> Option<String> {
        self.exit_stack.take()
    }

    pub(super) fn record_untraced(&mut self, reason: String) {
        self.untraced_reason = Some(reason);
    }

    /// Returns why a crash, or an exit that only a stack trace would explain, has no stack trace. `None` if
    /// there is one, or if no process was left untraced.
    pub(super) fn missing_stack_reason(&self, exit: &ProcessExit, exit_kind: ExitKind) -> Option<String> {
        if self.crash.is_some() || self.exit_stack.is_some() {
            return None;
        }
        let is_crash = exit.signal.is_some_and(|signal| Signal::CRASHES.contains(&Signal(signal)))
            || exit.code.is_some_and(is_crash_of_child);
        let is_unclear = exit.code.is_some() && exit_kind == ExitKind::AfterEndMarker;
        let is_off = self.watch.mode.is_none() && !self.reports_own_crashes;
        let off = (is_unclear && is_off).then_some("crash capture is off");
        let reason = self.untraced_reason.as_deref().or(off)?;
        (is_crash || is_unclear).then(|| format!("no stack trace: {reason}"))
    }

    /// Records the report of the process's own runtime: its stack traces, and the report file if there is
    /// one.
    pub(super) fn record_runtime_report(&mut self, stacks: String, report: Option<Vec<u8>>) {
        self.runtime_report = Some((stacks, report));
    }

    /// Creates the evidence directory if necessary and returns its path.
    fn evidence_directory(&self) -> Result<&Path, heeler_sys::dirs::DirError> {
        heeler_sys::dirs::private_dir(&self.dir)?;
        Ok(&self.dir)
    }

    pub(super) fn record_hang(&mut self, report: HangReport) {
        self.hang = Some(report);
    }

    pub(super) fn record_sample(&mut self, sample: TreeSample) {
        self.states = sample.processes;
        if !self.are_arguments_shown {
            for process in &mut self.states {
                process.command = program_name(&process.command, None);
            }
        }
    }

    /// Returns how long the tree was runnable but not scheduled since the last call.
    pub(super) fn starved_since_last_sample(&mut self, sample: &TreeSample) -> Duration {
        let since = sample.waiting_us.saturating_sub(self.waiting_us);
        self.waiting_us = sample.waiting_us;
        Duration::from_micros(since)
    }

    /// Returns whether the process died by itself. `was_end_ordered`: the process had been asked to end
    /// before its end was reported, possibly long after it had died.
    pub(super) fn is_own_death(&self, end: &ProcessExit, was_end_ordered: bool) -> bool {
        match &self.crash {
            Some(crash) if crash.is_root => !crash.is_termination_requested,
            Some(crash) => !crash.is_termination_requested && !was_end_ordered,
            None => end.signal.is_some() && !was_end_ordered,
        }
    }

    pub(super) fn evidence_path(&self) -> &Path {
        &self.dir
    }

    /// Returns the directory for files kept from the process's temporary directory.
    pub(super) fn kept_directory(&self) -> PathBuf {
        self.dir.join(format!("{}.tmp", self.file_prefix))
    }

    /// Removes partial files of a lost guard.
    pub(super) fn remove_partial_files(&self) {
        remove_partial_files(&self.dir, &self.file_prefix);
    }

    /// Stores all evidence under the name of the running test. Returns the evidence, and the crash location
    /// and signal.
    pub(super) fn store_evidence(
        &mut self,
        in_flight: Option<(&LeasedTest, TestOutputs)>,
        core: Option<&OsText>,
    ) -> (Option<Box<TestDiagnostics>>, Option<String>) {
        let (crash, hang, runtime_report) = (self.crash.take(), self.hang.take(), self.runtime_report.take());
        // Without a dump of ours, report the system's core file. Users who enable core files know where to
        // find them.
        let core = core.filter(|_| crash.is_none() && self.watch.mode.is_some() && self.watch.dumps.crash);
        if crash.is_none() && hang.is_none() && core.is_none() && runtime_report.is_none() {
            return (None, None);
        }
        let mut evidence = TestDiagnostics::default();
        evidence.files.extend(core.map(|core| evidence_file(core, "core file")));
        let name = in_flight.as_ref().map_or("outside any test", |(test, _)| test.uid.as_str());
        let files = TestEvidenceFiles {
            dir: self.dir.clone(),
            base: evidence_file_name(name, self.is_isolated_rerun),
        };
        let detail = crash.as_ref().map(|crash| crash_detail(crash, name)).filter(|words| !words.is_empty());
        // Dump and stack traces of a crash, then of a hang.
        if let Some(crash) = crash {
            evidence.stack = crash.stack;
            evidence.notes.extend(crash.soft_errors);
            files.rename_for_test(
                &mut evidence,
                crash.dump,
                EvidenceKind { extension: "dmp", description: "minidump" },
            );
            files.rename_for_test(
                &mut evidence,
                crash.stacks_file,
                EvidenceKind { extension: "stacks.txt", description: "stacks of all threads" },
            );
        }
        if let Some(hang) = hang {
            self.add_hang_evidence(&mut evidence, hang, &files);
        }
        // Report of the runtime.
        if let Some((stacks, report)) = runtime_report
            && self.evidence_directory().is_ok()
        {
            evidence.stack = stacks;
            let kind =
                EvidenceKind { extension: "crashreport.json", description: "crash report of the runtime" };
            if let Some(report) = report {
                files.write(&mut evidence, &String::from_utf8_lossy(&report), kind);
            }
        }
        // Output of the running test.
        if let Some((_, outputs)) = in_flight {
            files.write(
                &mut evidence,
                &outputs.stdout,
                EvidenceKind { extension: "stdout.txt", description: "standard output" },
            );
            files.write(
                &mut evidence,
                &outputs.stderr,
                EvidenceKind { extension: "stderr.txt", description: "standard error" },
            );
        }
        (Some(Box::new(evidence)), detail)
    }

    fn add_hang_evidence(
        &mut self,
        evidence: &mut TestDiagnostics,
        hang: HangReport,
        files: &TestEvidenceFiles,
    ) {
        let mut stack = hang_summary(&std::mem::take(&mut self.states), &hang);
        evidence.notes.extend(hang.soft_errors);
        for (number, process) in hang.processes.into_iter().enumerate() {
            if !process.stack.is_empty() {
                stack.push_str(&format!("\nstack of process {}:\n{}", process.pid, process.stack.trim_end()));
            }
            let tag = if number == 0 { String::new() } else { format!("{}.", process.pid) };
            files.rename_for_test(
                evidence,
                process.dump,
                EvidenceKind { extension: &format!("{tag}dmp"), description: "minidump of the hung process" },
            );
            let kind = EvidenceKind {
                extension: &format!("{tag}stacks.txt"),
                description: "stacks of all threads of the hung process",
            };
            files.rename_for_test(evidence, process.stacks_file, kind);
        }
        if evidence.stack.is_empty() {
            evidence.stack = stack.trim_start().to_owned();
        }
    }
}

/// Returns one line for each process of a hung tree, and one for the machine.
fn hang_summary(states: &[ProcessSample], hang: &HangReport) -> String {
    let line = |ProcessSample { pid, command, state, .. }: &ProcessSample| {
        let process = hang.processes.iter().find(|process| process.pid == *pid);
        let what = process_text(*pid, command, process.and_then(|process| process.facts.as_ref()));
        format!("{what} ({command}): {state}")
    };
    let machine = hang.machine.iter().map(|machine| format!("machine: {}", machine.describe()));
    states.iter().map(line).chain(machine).collect::<Vec<_>>().join("\n")
}

/// Returns which processes to trace. The isolated rerun of a crash without diagnostics traces the whole tree:
/// either the process was a shell-like parent whose child crashed, or it was not traced because tracing might
/// have changed its behaviour.
fn trace_mode(lease: &WorkerLease) -> Option<TraceMode> {
    let is_hidden = |first: &Attempt| {
        let Some(death) = first.exit_reason.as_ref().filter(|_| first.diagnostics.is_none()) else {
            return false;
        };
        death.code.is_some_and(is_crash_of_child)
            || death
                .signal
                .as_ref()
                .is_some_and(|name| Signal::CRASHES.iter().any(|signal| signal.name() == *name))
    };
    match lease.crash_capture.mode {
        Some(TraceMode::Root)
            if lease.tests.iter().filter_map(|test| test.crashed_attempt.as_ref()).any(is_hidden) =>
        {
            Some(TraceMode::Tree)
        }
        mode => mode,
    }
}

/// Returns whether a shell exits with this code after its child has crashed.
fn is_crash_of_child(code: i32) -> bool {
    Signal::CRASHES.contains(&Signal(code - SHELL_SIGNAL_EXIT_BASE))
}

/// Returns the crash location and signal.
fn crash_detail(crash: &CrashReport, test: &str) -> String {
    let at =
        |address: Option<u64>| address.map(|address| format!(" at address {address:#x}")).unwrap_or_default();
    let mut words = Vec::new();
    // Name the signal only if the exit status of the test process does not show it.
    let signal = if crash.is_root && !crash.is_handled { String::new() } else { signal_name(crash.signal) };
    if let Some(cause) = &crash.cause {
        words.push(format!("{signal} after {}{}", signal_name(cause.signal), at(cause.address)));
    } else {
        words.push(format!("{signal}{}", at(crash.address)));
    }
    // Skip thread names that add no information: the first thread has the program's name, and libtest names
    // threads after their tests.
    let thread = crash.thread.name.as_str();
    if crash.thread.id != crash.pid && !thread.is_empty() && !test.contains(thread) {
        words.push(format!("thread {thread}"));
    }
    if !crash.is_root {
        words.push(format!("in child process {}", crash.command));
    }
    if crash.is_handled {
        words.push("caught by a signal handler of the program".to_owned());
    }
    words.retain_mut(|word| {
        *word = word.trim().to_owned();
        !word.is_empty()
    });
    words.join(", ")
}

struct TestEvidenceFiles {
    dir: PathBuf,
    base: String,
}

#[derive(Debug, Clone, Copy)]
struct EvidenceKind<'a> {
    extension: &'a str,
    description: &'a str,
}

impl TestEvidenceFiles {
    /// Renames a file written by the guard to the test's name.
    fn rename_for_test(&self, evidence: &mut TestDiagnostics, path: Option<OsText>, kind: EvidenceKind<'_>) {
        let EvidenceKind { extension, description } = kind;
        let Some(path) = path else { return };
        let (target, file) = match self.create_unique(extension) {
            Some(found) => found,
            None => return evidence.files.push(evidence_file(&path, description)),
        };
        drop(file);
        match fs::rename(path.as_path(), &target) {
            Ok(()) => evidence.files.push(evidence_file(&OsText::from(target.as_path()), description)),
            Err(error) => {
                evidence.notes.push(format!("rename {}: {error}", path.to_text()));
                evidence.files.push(evidence_file(&path, description));
            }
        }
    }

    fn write(&self, evidence: &mut TestDiagnostics, text: &str, kind: EvidenceKind<'_>) {
        let EvidenceKind { extension, description } = kind;
        if text.is_empty() {
            return;
        }
        let Some((path, mut file)) = self.create_unique(extension) else { return };
        match file.write_all(text.as_bytes()) {
            Ok(()) => evidence.files.push(evidence_file(&OsText::from(path.as_path()), description)),
            Err(error) => {
                evidence.notes.push(format!("write {}: {error}", path.display()));
                // A partial output would mislead; the result has the full text.
                drop(fs::remove_file(&path));
            }
        }
    }

    /// Creates a new file that only the owner can read. Names are numbered because a test may crash several
    /// times in one run.
    fn create_unique(&self, extension: &str) -> Option<(PathBuf, fs::File)> {
        (1..100).find_map(|number| {
            let tag = if number == 1 { String::new() } else { format!("-{number}") };
            let path = self.dir.join(format!("{}{tag}.{extension}", self.base));
            let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).ok()?;
            Some((path, file))
        })
    }
}

fn evidence_file(path: &OsText, description: &str) -> DiagnosticsFile {
    DiagnosticsFile { path: path.clone(), description: description.to_owned() }
}

/// Returns a recognizable file name that every file system accepts.
pub(super) fn evidence_file_name(uid: &str, is_check: bool) -> String {
    let mut name = plain_file_name(&uid.replace("::", "."));
    if name.starts_with('.') {
        name.insert(0, '_');
    }
    if is_check {
        name.push_str("-isolated");
    }
    name
}
