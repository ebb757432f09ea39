//! Dumps and stack traces of a whole live process tree, traced or not. Each process is stopped for a few
//! milliseconds.

use std::time::Duration;

use heeler_protocol::control::{HangReport, HungProcess};
use heeler_sys::{
    process::{Pid, Signal},
    trace::{self, TraceOptions, TraceStop},
};

use heeler_core::{describe::process_text, error_chain};
use heeler_crash::dump::DumpTarget;
use heeler_crash::stacks::{self, RawStacks, StackTexts};

use super::{
    activity,
    description::{DescribedProcess, ProcessDescriber, machine_load},
    evidence::EvidenceFiles,
    root_exit::RootExit,
    symbolizer::{self, SymbolDetail},
    thread_state,
    tracees::{StoppedThreads, Tracees, traced_by},
};

/// Number of processes symbolized together. Each keeps the files of its modules open until then.
const SYMBOLIZE_BATCH: usize = 16;
/// Time limit for reading debug information of a hung tree. A worker waits at most 15 s for the whole
/// capture.
const SYMBOLIZE_TIME_LIMIT: Duration = Duration::from_secs(8);

struct ExaminedProcess {
    hung: HungProcess,
    file_suffix: String,
    /// Stack traces that are not symbolized yet, if the stacks could be unwound.
    raw_stacks: Option<RawStacks>,
}

/// State of a process before it was examined.
struct PriorTraceState {
    /// The process was stopped, by itself or by a pause, and must be stopped again.
    is_stopped: bool,
    /// Tracing options. `None` if this guard does not trace the process.
    options: Option<TraceOptions>,
}

pub(super) struct HangDump<'a> {
    tracees: &'a mut Tracees,
    root_exit: &'a mut RootExit,
    evidence: &'a EvidenceFiles,
    /// Number of the request, so that each request has its own files.
    round: u32,
    soft_errors: Vec<String>,
}

impl<'a> HangDump<'a> {
    pub(super) fn new(
        tracees: &'a mut Tracees,
        root_exit: &'a mut RootExit,
        evidence: &'a EvidenceFiles,
        round: u32,
    ) -> Self {
        Self { tracees, root_exit, evidence, round, soft_errors: Vec::new() }
    }

    /// Dumps and unwinds all descendants of the guard. The stack traces are symbolized after the processes
    /// run again.
    pub(super) fn dump_tree(mut self, root: Pid) -> HangReport {
        // Read the load before the dumps, which need memory and time themselves.
        let mut report = HangReport { machine: machine_load(), ..HangReport::default() };
        let mut describer = ProcessDescriber::default();
        for pids in activity::live_processes(root).chunks(SYMBOLIZE_BATCH) {
            let mut visited: Vec<ExaminedProcess> =
                pids.iter().map(|pid| self.dump_process(*pid, describer.describe(*pid))).collect();
            let unwound = visited.iter_mut().filter_map(|one| one.raw_stacks.take().map(|raw| (one, raw)));
            let (named, raws): (Vec<_>, Vec<_>) = unwound.unzip();
            let symbolized = symbolizer::symbolize(&raws, SymbolDetail::SourceLines(SYMBOLIZE_TIME_LIMIT));
            self.soft_errors.extend(symbolized.problem);
            for (one, texts) in named.into_iter().zip(symbolized.texts) {
                self.write_stacks(one, texts);
            }
            report.processes.extend(visited.into_iter().map(|one| one.hung));
        }
        report.soft_errors = self.soft_errors;
        report
    }

    fn dump_process(
        &mut self,
        pid: Pid,
        DescribedProcess { command, facts }: DescribedProcess,
    ) -> ExaminedProcess {
        let mut hung = HungProcess {
            pid: pid.as_u32(),
            command,
            facts,
            state: activity::state_now(pid),
            ..HungProcess::default()
        };
        let options = self.tracees.options_of(pid);
        let before = PriorTraceState { is_stopped: hung.state == "STOPPED", options };
        let file_suffix = match self.round {
            0 => format!("hang-{pid}"),
            round => format!("hang-{pid}-{}", round + 1),
        };
        let Some((halted, raw_stacks)) = self.stop_and_unwind(pid, before.options) else {
            return ExaminedProcess { hung, file_suffix, raw_stacks: None };
        };
        if self.evidence.dumps().hang && halted.stuck.is_empty() {
            self.tracees.remove_process(pid);
            let sent = release_threads(&halted);
            let target = DumpTarget { pid, blamed: pid, crash: None };
            hung.dump = self.evidence.write_dump(&file_suffix, pid, &target, &mut self.soft_errors);
            self.restore(pid, &before, &sent);
            self.root_exit.record_missed(pid);
        } else if before.options.is_some() {
            self.tracees.resume_threads(halted);
        } else {
            self.tracees.release_process(pid, &halted);
        }
        ExaminedProcess { hung, file_suffix, raw_stacks }
    }

    /// Stops a process, after seizing it if necessary, and unwinds its threads.
    fn stop_and_unwind(
        &mut self,
        pid: Pid,
        options: Option<TraceOptions>,
    ) -> Option<(StoppedThreads, Option<RawStacks>)> {
        if options.is_none()
            && let Err(error) = seize_all(pid)
        {
            self.soft_errors.push(format!("cannot inspect process {pid}: {error}{}", traced_by(pid)));
            return None;
        }
        let halted = self.tracees.stop_threads(pid, None);
        let threads: Vec<_> =
            halted.threads.iter().filter_map(|(tid, _)| thread_state::read_thread(*tid)).collect();
        for tid in &halted.stuck {
            let call = trace::read_syscall_state(*tid)
                .and_then(|doing| doing.syscall)
                .unwrap_or_else(|| "the kernel".to_owned());
            self.soft_errors
                .push(format!("no minidump: thread {tid} of process {pid} did not stop (it is in {call})"));
        }
        // If the first thread has exited, the memory is accessible only through another thread.
        let handle = threads.first().filter(|_| trace::has_ended(pid)).map_or(pid, |thread| thread.tid);
        match stacks::unwind(handle, &main_thread_first(pid, threads)) {
            Ok(raw) => Some((halted, Some(raw))),
            Err(error) => {
                self.soft_errors.push(error_chain(&error));
                Some((halted, None))
            }
        }
    }

    /// Restores the earlier state of a dumped process. The dump writer has continued it, regardless of its
    /// earlier state.
    fn restore(&mut self, pid: Pid, before: &PriorTraceState, sent: &[(Pid, Signal)]) {
        if before.is_stopped {
            // Ignore errors: if the process is gone, nothing needs restoring.
            drop(trace::signal_thread(pid, pid, Signal::STOP));
        }
        for (tid, signal) in sent {
            drop(trace::signal_thread(pid, *tid, *signal));
        }
        if let Some(options) = before.options {
            self.tracees.reseize(pid, options);
        }
    }

    /// Writes the symbolized stack traces of a process to its file.
    fn write_stacks(&mut self, examined: &mut ExaminedProcess, named: StackTexts) {
        let ExaminedProcess { hung, file_suffix, .. } = examined;
        hung.stack = named.crash;
        let text = || {
            let what = process_text(hung.pid, &hung.command, hung.facts.as_ref());
            format!("{} ({what}): {}\n\n{}", hung.command, hung.state, named.all)
        };
        match self.evidence.write_stacks(file_suffix, text) {
            Ok(path) => hung.stacks_file = path,
            Err(error) => self.soft_errors.push(error),
        }
    }
}

/// Seizes all threads of a process. Returns the first error if none could be seized.
fn seize_all(pid: Pid) -> std::io::Result<()> {
    let outcomes: Vec<_> =
        trace::threads(pid).into_iter().map(|tid| trace::seize(tid, TraceOptions::VISIT)).collect();
    if outcomes.iter().any(Result::is_ok) { Ok(()) } else { outcomes.into_iter().collect() }
}

/// Releases the threads of a process. Returns their pending signals, which must be sent again later.
fn release_threads(halted: &StoppedThreads) -> Vec<(Pid, Signal)> {
    let mut sent = Vec::new();
    for (tid, stop) in &halted.threads {
        if let TraceStop::Signal(signal) = stop {
            sent.push((*tid, *signal));
        }
        // Ignore errors: if the thread was killed meanwhile, its exit is received later.
        drop(trace::detach(*tid, None));
    }
    sent
}

/// Moves the first thread of the process to the front, as the blamed thread.
fn main_thread_first(pid: Pid, mut threads: Vec<stacks::ThreadRegisters>) -> Vec<stacks::ThreadRegisters> {
    threads.sort_by_key(|thread| (thread.tid != pid, thread.tid));
    threads
}
