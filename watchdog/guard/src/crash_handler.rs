//! Handles a crashing process: records its stack traces, writes a dump, and lets the process die of its own
//! signal.
//!
//! The dump writer attaches to each thread itself. The process must therefore be detached before, and yet
//! stay stopped, so the fatal signal is replaced by a stop signal. A fault repeats by itself when the process
//! continues. A signal that was sent is sent again while the process is stopped, so that not one instruction
//! runs before it.

use std::time::{Duration, Instant};

use heeler_protocol::control::{CrashReport, CrashedThread};
use heeler_sys::{
    process::{self, Pid, Signal, pidfd_open},
    trace::{self, TraceStop},
};

use heeler_core::error_chain;
use heeler_crash::dump::{CrashFacts, DumpTarget};
use heeler_crash::stacks::{self, RawStacks, StackTexts, ThreadRegisters};

use super::{
    evidence::{EvidenceFiles, STOP_LIMIT},
    rescued_output::rescue_output,
    symbolizer::{self, SymbolDetail},
    thread_state::{self, FirstChance},
    tracees::{StoppedThreads, Tracees, resume},
};

/// Maximum number of recorded crashes of processes below the root. If all processes of a tree crash, more
/// reports add no information.
const MAX_CRASHES: usize = 8;
/// Time limit for reading debug information of crashed programs. The largest take a few seconds.
pub(super) const SYMBOLIZE_TIME_LIMIT: Duration = Duration::from_secs(30);

/// A crash whose stack traces are symbolized after the process is gone, because symbolizing is slow.
struct PendingCrash {
    report: CrashReport,
    raw_stacks: Option<RawStacks>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct CrashSite {
    pub(super) process: Pid,
    pub(super) tid: Pid,
    /// The crashed process is the test process itself.
    pub(super) is_root: bool,
    /// The test process had been ordered to exit before the crash.
    pub(super) is_termination_requested: bool,
}

impl CrashSite {
    /// Returns a thread id that still gives access to the process's memory. The first thread may have exited
    /// before the others.
    fn handle(&self) -> Pid {
        if trace::has_ended(self.process) { self.tid } else { self.process }
    }
}

#[derive(Default)]
pub(super) struct TestCrashes {
    crashes: Vec<PendingCrash>,
}

impl TestCrashes {
    /// Returns whether no more crashes are recorded, except for the root.
    pub(super) fn is_full(&self) -> bool {
        self.crashes.len() >= MAX_CRASHES
    }

    /// Handles a thread stopped at the fatal signal `now`. If a handler raised that signal, `chance` is the
    /// signal being handled. Returns whether the process was dumped.
    pub(super) fn on_crash(
        &mut self,
        site: CrashSite,
        now: FirstChance,
        chance: Option<FirstChance>,
        tracees: &mut Tracees,
        evidence: &EvidenceFiles,
    ) -> bool {
        let CrashSite { process, tid, .. } = site;
        let signal = now.info.signal;
        let is_sent = now.info.code <= 0 || [Signal::TRAP, Signal::SYS, Signal::ABRT].contains(&signal);
        let (first, cause) = match chance {
            // The handler raised its own signal again, so the first occurrence is of interest.
            Some(chance) if chance.info.signal == signal => (chance, None),
            chance => (now, chance),
        };
        // Record the stack traces, and rescue buffered output.
        let mut crash = PendingCrash::new(site, &first, cause.as_ref());
        let handle = site.handle();
        let halted = tracees.stop_threads(process, Some(tid));
        crash.unwind(handle, crashed_thread_first(tid, &first, &halted));
        if site.is_root {
            rescue_output(handle).into_iter().for_each(|error| crash.add_soft_error(error));
        }
        if !halted.stuck.is_empty() {
            crash.add_soft_error(format!("no minidump: {} threads did not stop", halted.stuck.len()));
        }
        // Dump the process, or let it die at once.
        let is_dumped = evidence.dumps().crash && halted.stuck.is_empty();
        if !is_dumped {
            tracees.resume_threads(halted);
            resume(tid, Some(signal));
        } else {
            let again = is_sent.then_some(signal);
            tracees.remove_process(process);
            let facts = CrashFacts {
                signal: first.info.signal,
                code: first.info.code,
                address: first.info.address.unwrap_or(0),
                tid,
                registers: first.registers,
            };
            let subject = DumpTarget { pid: handle, blamed: tid, crash: Some(facts) };
            crash.dump(site, again, &halted, &subject, evidence);
        }
        self.crashes.push(crash);
        is_dumped
    }

    /// Handles a signal handler that exits. Nothing is left to dump, but the stack still exists.
    pub(super) fn on_handler_exit(&mut self, site: CrashSite, chance: &FirstChance) {
        let mut crash = PendingCrash::new(site, chance, None);
        crash.report.is_handled = true;
        crash.unwind(site.handle(), crashed_thread_first(site.tid, chance, &StoppedThreads::default()));
        self.crashes.push(crash);
    }

    /// Symbolizes the stack traces of all crashes that belong to the root's failure, and writes them to
    /// files. Drops expected crashes: a test that passes does not report a crashed child.
    pub(super) fn take_reports(&mut self, has_succeeded: bool, evidence: &EvidenceFiles) -> Vec<CrashReport> {
        let mut reported = Vec::new();
        for crash in std::mem::take(&mut self.crashes) {
            if has_succeeded && !crash.report.is_root {
                crash.discard();
            } else {
                reported.push(crash);
            }
        }
        let raws = reported
            .iter_mut()
            .enumerate()
            .filter_map(|(place, crash)| Some((place, crash.raw_stacks.take()?)));
        let (places, raws): (Vec<usize>, Vec<RawStacks>) = raws.unzip();
        let named = symbolizer::symbolize(&raws, SymbolDetail::SourceLines(SYMBOLIZE_TIME_LIMIT));
        for (place, texts) in places.into_iter().zip(named.texts) {
            reported[place].add_stacks(texts, evidence);
            named.problem.iter().for_each(|problem| reported[place].add_soft_error(problem.clone()));
        }
        reported.into_iter().map(|crash| crash.report).collect()
    }
}

impl PendingCrash {
    fn new(site: CrashSite, at: &FirstChance, cause: Option<&FirstChance>) -> Self {
        let CrashSite { process, tid, is_root, is_termination_requested } = site;
        let report = CrashReport {
            pid: process.as_u32(),
            command: process::command_line(process),
            is_root,
            signal: at.info.signal.0,
            code: at.info.code,
            address: at.info.address,
            thread: CrashedThread { id: tid.as_u32(), name: trace::thread_name(tid) },
            cause: cause.map(FirstChance::fault),
            is_termination_requested,
            ..CrashReport::default()
        };
        Self { report, raw_stacks: None }
    }

    fn add_soft_error(&mut self, error: String) {
        self.report.soft_errors.push(error);
    }

    fn unwind(&mut self, handle: Pid, threads: Vec<ThreadRegisters>) {
        match stacks::unwind(handle, &threads) {
            Ok(raw) => self.raw_stacks = Some(raw),
            Err(error) => self.add_soft_error(error_chain(&error)),
        }
    }

    /// Dumps the process. `again`: the signal that must be sent again. `None` if the faulting instruction
    /// raises it again.
    fn dump(
        &mut self,
        site: CrashSite,
        again: Option<Signal>,
        halted: &StoppedThreads,
        subject: &DumpTarget,
        evidence: &EvidenceFiles,
    ) {
        let pidfd = match pidfd_open(site.process) {
            Ok(pidfd) => Some(pidfd),
            Err(error) => {
                self.add_soft_error(format!("cannot open process {}: {error}", site.process));
                None
            }
        };
        if trace::detach(site.tid, Some(Signal::STOP)).is_err() {
            return self.add_soft_error("no minidump: the process was killed first".to_owned());
        }
        // Once this thread has stopped, the others stop without another step.
        await_stopped(&[site.tid]);
        for (tid, _) in &halted.threads {
            // Ignore errors: a thread that is gone need not be detached. If it was stopped at a signal, the
            // signal is lost, and so is the process.
            drop(trace::detach(*tid, None));
        }
        await_stopped(&trace::threads(subject.pid));
        if let Some(again) = again {
            // The signal stays pending until the process continues. Ignore errors: a process that is gone has
            // received its signal.
            drop(trace::signal_thread(site.process, site.tid, again));
        }
        let what = format!("crash-{}", site.process);
        self.report.dump = evidence.write_dump(&what, site.process, subject, &mut self.report.soft_errors);
        // The writer sends SIGCONT too, unless it failed early.
        match pidfd {
            Some(pidfd) => drop(trace::signal_process(&pidfd, Signal::CONT)),
            // Without a free descriptor, this is the only way to let the process end.
            None => drop(trace::signal_thread(site.process, site.tid, Signal::CONT)),
        }
    }

    /// Adds the symbolized stack traces to the report, and writes them to a file.
    fn add_stacks(&mut self, named: StackTexts, evidence: &EvidenceFiles) {
        // With a cause, the handler ended the process with a signal other than its own.
        let is_by_handler = self.report.cause.is_some();
        self.report.stack = if is_by_handler { named.interrupted } else { named.crash };
        let what = format!("crash-{}", self.report.pid);
        let text = || format!("{}\n\n{}", self.heading(), named.all);
        match evidence.write_stacks(&what, text) {
            Ok(path) => self.report.stacks_file = path,
            Err(error) => self.add_soft_error(error),
        }
    }

    fn heading(&self) -> String {
        let CrashReport { pid, command, signal, address, thread, .. } = &self.report;
        let at = address.map_or(String::new(), |address| format!(" at address {address:#x}"));
        let CrashedThread { id, name } = thread;
        format!("Process {pid} ({command}): {}{at} in thread {id} {name:?}", Signal(*signal))
    }

    /// Drops an unreported crash and removes its dump.
    fn discard(self) {
        if let Some(dump) = self.report.dump {
            // Ignore errors: the dump still counts towards the limit for all dumps.
            drop(std::fs::remove_file(dump.as_path()));
        }
    }
}

/// Returns all threads: first the faulting thread with its registers at the fault, then the others with their
/// current registers.
fn crashed_thread_first(tid: Pid, at: &FirstChance, halted: &StoppedThreads) -> Vec<ThreadRegisters> {
    let name = trace::thread_name(tid);
    let mut threads = vec![ThreadRegisters { tid, registers: at.registers.clone(), name }];
    threads.extend(
        halted
            .threads
            .iter()
            .filter(|(_, stop)| *stop != TraceStop::Exit)
            .filter_map(|(tid, _)| thread_state::read_thread(*tid)),
    );
    threads
}

/// Waits until threads that are no longer traced have stopped, or the limit passes.
fn await_stopped(threads: &[Pid]) {
    let deadline = Instant::now() + STOP_LIMIT;
    let is_moving =
        |tid: &Pid| process::stat(*tid).is_some_and(|stat| !matches!(stat.state, 'T' | 'Z' | 'X'));
    while threads.iter().any(is_moving) && Instant::now() < deadline {
        std::thread::yield_now();
    }
}
