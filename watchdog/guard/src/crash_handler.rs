//! Handles a process that crashes: its stacks are recorded, a dump is written, and it dies of its own signal.
//!
//! The dump writer attaches to each thread by itself, so the process must be released before, and yet stay
//! stopped: the fatal signal is replaced by a stop signal. A fault then repeats by itself when the process
//! continues; a signal that was sent is sent again while the process is stopped, so that not one instruction
//! runs before it.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use heeler_protocol::control::{CrashReport, CrashedThread, OsText};
use heeler_sys::{
    process::{self, Pid, Signal, pidfd_open},
    trace::{self, KillTimer, TraceStop},
};

use heeler_core::error_chain;
use heeler_crash::dump::{self, CrashFacts, DumpPlan, DumpTarget};
use heeler_crash::stacks::{self, RawStacks, StackTexts, ThreadRegisters};

use super::{
    rescued_output::rescue_output,
    stop_threads::StoppedThreads,
    symbolizer::{self, SymbolDetail},
    thread_state::{self, FirstChance},
    tracer::{ProcessTracer, resume},
};

/// Time limit of a dump, which takes milliseconds. After it the process is killed, which ends every wait of
/// the writer.
pub(super) const DUMP_TIME_LIMIT: Duration = Duration::from_secs(5);
/// How long a process may take to stop.
const STOP_LIMIT: Duration = Duration::from_millis(500);
/// Time limit for the debug information of programs that have crashed; the largest takes some seconds.
pub(super) const SYMBOLIZE_TIME_LIMIT: Duration = Duration::from_secs(30);

/// A crash whose stacks are not symbolized yet: that is slow, and done when the process is gone.
pub(super) struct PendingCrash {
    report: CrashReport,
    raw_stacks: Option<RawStacks>,
}

/// The process and the thread of a crash.
#[derive(Debug, Clone, Copy)]
pub(super) struct CrashSite {
    pub(super) process: Pid,
    pub(super) tid: Pid,
}

impl ProcessTracer {
    /// Handles a thread stopped at the signal `now`, which has no handler; or which a handler raised, for the
    /// signal in `chance`.
    pub(super) fn on_crash(&mut self, site: CrashSite, now: FirstChance, chance: Option<FirstChance>) {
        let CrashSite { process, tid } = site;
        let signal = now.info.signal;
        let is_sent = now.info.code <= 0 || [Signal::TRAP, Signal::SYS, Signal::ABRT].contains(&signal);
        let (first, cause) = match chance {
            // The handler raises its own signal again: the first occurrence is of interest.
            Some(chance) if chance.info.signal == signal => (chance, None),
            chance => (now, chance),
        };
        let mut crash = self.new_crash(site, &first, cause.as_ref());
        // The first thread may have exited before the others, and then has no memory.
        let handle = if trace::has_ended(process) { tid } else { process };
        let halted = self.stop_threads(process, Some(tid));
        crash.unwind(handle, crashed_thread_first(tid, &first, &halted));
        if crash.report.is_root {
            rescue_output(handle).into_iter().for_each(|error| crash.add_soft_error(error));
        }
        if !halted.stuck.is_empty() {
            crash.add_soft_error(format!("{} threads do not stop, so there is no dump", halted.stuck.len()));
        }
        if !self.plan.dumps.crash || !halted.stuck.is_empty() {
            self.resume_threads(halted);
            resume(tid, Some(signal));
        } else {
            let again = is_sent.then_some(signal);
            self.remove_process(process);
            let facts = CrashFacts {
                signal: first.info.signal,
                code: first.info.code,
                address: first.info.address.unwrap_or(0),
                tid,
                registers: first.registers,
            };
            let subject = DumpTarget { pid: handle, blamed: tid, crash: Some(facts) };
            let plan = self.dump_plan(&format!("crash-{process}"));
            crash.dump(site, again, &halted, &subject, &plan);
            self.record_missed_exit(process);
        }
        self.crashes.push(crash);
    }

    /// Handles a signal handler that exits: there is nothing left to dump, but the stack still exists.
    pub(super) fn on_handler_exit(&mut self, site: CrashSite, chance: &FirstChance) {
        let CrashSite { process, tid } = site;
        let mut crash = self.new_crash(site, chance, None);
        crash.report.is_handled = true;
        let handle = if trace::has_ended(process) { tid } else { process };
        crash.unwind(handle, crashed_thread_first(tid, chance, &StoppedThreads::default()));
        self.crashes.push(crash);
    }

    fn new_crash(
        &self,
        CrashSite { process, tid }: CrashSite,
        at: &FirstChance,
        cause: Option<&FirstChance>,
    ) -> PendingCrash {
        let report = CrashReport {
            pid: process.as_u32(),
            command: process::command_line(process),
            is_root: process == self.root,
            signal: at.info.signal.0,
            code: at.info.code,
            address: at.info.address,
            thread: CrashedThread { id: tid.as_u32(), name: trace::thread_name(tid) },
            cause: cause.map(FirstChance::fault),
            is_termination_requested: self.is_exit_requested,
            ..CrashReport::default()
        };
        PendingCrash { report, raw_stacks: None }
    }

    /// Returns the plan of a dump; `what` is the suffix of its file name.
    pub(super) fn dump_plan(&self, what: &str) -> DumpPlan {
        let limit = self.plan.limit_bytes;
        DumpPlan {
            path: self.evidence_path(what, "dmp"),
            limit_bytes: if limit == 0 { u64::MAX } else { limit },
            keeps_environment: self.plan.keeps_environment,
            stop_timeout: STOP_LIMIT,
        }
    }

    pub(super) fn evidence_path(&self, what: &str, extension: &str) -> PathBuf {
        self.plan.dir.as_path().join(format!("{}-{what}.{extension}", self.plan.name))
    }

    /// Symbolizes the stacks of all crashes that belong to the root's failure, and writes them to files.
    /// Other crashes were expected: a test that passes does not report a crashed child.
    pub(super) fn take_reports(&mut self) -> Vec<CrashReport> {
        let is_well = self.root_exit().is_some_and(|exit| exit.code == Some(0));
        let mut reported = Vec::new();
        for crash in std::mem::take(&mut self.crashes) {
            if is_well && !crash.report.is_root {
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
            let path = self.evidence_path(&format!("crash-{}", reported[place].report.pid), "txt");
            let has_directory = !self.plan.dir.as_bytes().is_empty();
            reported[place].add_stacks(texts, has_directory.then_some(path.as_path()));
            named.problem.iter().for_each(|problem| reported[place].add_soft_error(problem.clone()));
        }
        reported.into_iter().map(|crash| crash.report).collect()
    }
}

impl PendingCrash {
    fn add_soft_error(&mut self, error: String) {
        self.report.soft_errors.push(error);
    }

    fn unwind(&mut self, handle: Pid, threads: Vec<ThreadRegisters>) {
        match stacks::unwind(handle, &threads) {
            Ok(raw) => self.raw_stacks = Some(raw),
            Err(error) => self.add_soft_error(error_chain(&error)),
        }
    }

    /// Dumps the process. `again` is the signal that must be sent again; without it, the faulting instruction
    /// raises it.
    fn dump(
        &mut self,
        site: CrashSite,
        again: Option<Signal>,
        halted: &StoppedThreads,
        subject: &DumpTarget,
        plan: &DumpPlan,
    ) {
        let pidfd = match pidfd_open(site.process) {
            Ok(pidfd) => Some(pidfd),
            Err(error) => {
                self.add_soft_error(format!("open the process {}: {error}", site.process));
                None
            }
        };
        if trace::detach(site.tid, Some(Signal::STOP)).is_err() {
            return self.add_soft_error("it was killed before it could be dumped".to_owned());
        }
        // Once this thread is stopped, the others will stop without another step.
        await_stopped(&[site.tid]);
        for (tid, _) in &halted.threads {
            // A thread that is gone needs nothing. A signal that it was stopped at is lost, as is the
            // process.
            drop(trace::detach(*tid, None));
        }
        await_stopped(&trace::threads(subject.pid));
        if let Some(again) = again {
            // The signal is pending until the process continues. A process that is gone has received its
            // signal.
            drop(trace::signal_thread(site.process, site.tid, again));
        }
        match write_dump(site.process, subject, plan) {
            Ok((path, soft_errors)) => {
                self.report.dump = Some(OsText::from(path.as_path()));
                self.report.soft_errors.extend(soft_errors);
            }
            Err(error) => self.add_soft_error(error),
        }
        // The writer sends it too, unless it failed early.
        match pidfd {
            Some(pidfd) => drop(trace::signal_process(&pidfd, Signal::CONT)),
            // Without a free descriptor: nothing else would let the process end.
            None => drop(trace::signal_thread(site.process, site.tid, Signal::CONT)),
        }
    }

    /// Adds the symbolized stacks to the report, and writes them to the file at `path`.
    fn add_stacks(&mut self, named: StackTexts, path: Option<&Path>) {
        // The handler ended the process by another signal than its own.
        let is_by_handler = self.report.cause.is_some();
        self.report.stack = if is_by_handler { named.interrupted } else { named.crash };
        if let Some(path) = path {
            let text = format!("{}\n\n{}", self.heading(), named.all);
            match write_private_file(path, &text) {
                Ok(()) => self.report.stacks_file = Some(OsText::from(path)),
                Err(error) => self.add_soft_error(format!("write {}: {error}", path.display())),
            }
        }
    }

    fn heading(&self) -> String {
        let CrashReport { pid, command, signal, address, thread, .. } = &self.report;
        let at = address.map_or(String::new(), |address| format!(" at address {address:#x}"));
        let CrashedThread { id, name } = thread;
        format!("Process {pid} ({command}): {}{at} in thread {id} {name:?}", Signal(*signal))
    }

    /// Discards an unreported crash, and removes its dump.
    fn discard(self) {
        if let Some(dump) = self.report.dump {
            // A dump that cannot be removed is within the limits of all dumps.
            drop(std::fs::remove_file(dump.as_path()));
        }
    }
}

/// Returns the faulting thread first, as it was at the fault; the others as they are now.
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

/// Waits until threads that are no longer traced are stopped, or the limit passes.
fn await_stopped(threads: &[Pid]) {
    let deadline = Instant::now() + STOP_LIMIT;
    let is_moving =
        |tid: &Pid| process::stat(*tid).is_some_and(|stat| !matches!(stat.state, 'T' | 'Z' | 'X'));
    while threads.iter().any(is_moving) && Instant::now() < deadline {
        std::thread::yield_now();
    }
}

/// Writes a dump within the time limit; returns its path and the writer's soft errors.
pub(super) fn write_dump(
    process: Pid,
    subject: &DumpTarget,
    plan: &DumpPlan,
) -> Result<(PathBuf, Vec<String>), String> {
    let _fuse = KillTimer::arm(process, DUMP_TIME_LIMIT)
        .map_err(|error| format!("bound the time of a dump: {error}"))?;
    let file = dump::write(subject, plan).map_err(|error| error_chain(&error))?;
    Ok((file.path, file.soft_errors))
}

/// Writes a text file that only its owner may read.
pub(super) fn write_private_file(path: &Path, text: &str) -> std::io::Result<()> {
    use std::{fs::OpenOptions, io::Write, os::unix::fs::OpenOptionsExt};
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    // A truncated text is worse than none.
    file.write_all(text.as_bytes()).inspect_err(|_| drop(std::fs::remove_file(path)))
}
