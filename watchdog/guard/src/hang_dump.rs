//! Dumps and stacks of a whole live process tree, traced or not. Each process is stopped for some
//! milliseconds.

use std::time::Duration;

use heeler_protocol::control::{HangReport, HungProcess, OsText};
use heeler_sys::{
    process::{Pid, Signal},
    trace::{self, TraceOptions, TraceStop},
};

use heeler_core::{describe::process_text, error_chain};
use heeler_crash::dump::DumpTarget;
use heeler_crash::stacks::{self, RawStacks, StackTexts};

use super::{
    activity,
    crash_handler::{write_dump, write_private_file},
    description::{DescribedProcess, ProcessDescriber, machine_load},
    stop_threads::StoppedThreads,
    symbolizer::{self, SymbolDetail},
    thread_state,
    tracer::{ProcessTracer, detach},
};

/// Number of processes symbolized together: each keeps the files of its modules open until then.
const SYMBOLIZE_BATCH: usize = 16;
/// Time limit for the debug information of a hung tree: a worker waits for its capture no longer than 15 s.
const SYMBOLIZE_TIME_LIMIT: Duration = Duration::from_secs(8);

/// A process that was examined.
struct ExaminedProcess {
    hung: HungProcess,
    /// The suffix of its file names.
    file_suffix: String,
    /// Its stacks, if they could be unwound, until they are symbolized.
    raw_stacks: Option<RawStacks>,
}

/// The state of a process before it is examined.
struct PriorTraceState {
    /// It was stopped, by itself or by a pause, and is to be stopped again.
    is_stopped: bool,
    /// Its tracing options; `None` if this guard does not trace it.
    options: Option<TraceOptions>,
}

impl ProcessTracer {
    /// Dumps and unwinds all descendants of the guard, and symbolizes the stacks when the processes run
    /// again. `round` is the number of the request, so that each request has files of its own.
    pub(super) fn dump_tree(&mut self, round: u32) -> HangReport {
        // Read before the dumps, which need memory and time themselves.
        let mut report = HangReport { machine: machine_load(), ..HangReport::default() };
        let mut describer = ProcessDescriber::default();
        for pids in activity::live_processes(self.root).chunks(SYMBOLIZE_BATCH) {
            let mut visited: Vec<ExaminedProcess> = pids
                .iter()
                .map(|pid| self.dump_process(*pid, describer.describe(*pid), round, &mut report.soft_errors))
                .collect();
            let unwound = visited.iter_mut().filter_map(|one| one.raw_stacks.take().map(|raw| (one, raw)));
            let (named, raws): (Vec<_>, Vec<_>) = unwound.unzip();
            let symbolized = symbolizer::symbolize(&raws, SymbolDetail::SourceLines(SYMBOLIZE_TIME_LIMIT));
            report.soft_errors.extend(symbolized.problem);
            for (one, texts) in named.into_iter().zip(symbolized.texts) {
                self.write_stacks(one, texts, &mut report.soft_errors);
            }
            report.processes.extend(visited.into_iter().map(|one| one.hung));
        }
        report
    }

    fn dump_process(
        &mut self,
        pid: Pid,
        DescribedProcess { command, facts }: DescribedProcess,
        round: u32,
        errors: &mut Vec<String>,
    ) -> ExaminedProcess {
        let mut hung = HungProcess {
            pid: pid.as_u32(),
            command,
            facts,
            state: activity::state_now(pid),
            ..HungProcess::default()
        };
        let before = PriorTraceState { is_stopped: hung.state == "STOPPED", options: self.options_of(pid) };
        let what = if round == 0 { format!("hang-{pid}") } else { format!("hang-{pid}-{}", round + 1) };
        let Some((halted, raw)) = self.stop_and_unwind(pid, before.options, errors) else {
            return ExaminedProcess { hung, file_suffix: what, raw_stacks: None };
        };
        if self.plan.dumps.hang && halted.stuck.is_empty() {
            self.remove_process(pid);
            let sent = release_threads(&halted);
            let subject = DumpTarget { pid, blamed: pid, crash: None };
            match write_dump(pid, &subject, &self.dump_plan(&what)) {
                Ok((path, soft_errors)) => {
                    hung.dump = Some(OsText::from(path.as_path()));
                    errors.extend(soft_errors);
                }
                Err(error) => errors.push(error),
            }
            self.restore(pid, &before, &sent);
            self.record_missed_exit(pid);
        } else {
            self.resume_undumped(halted, &before, pid);
        }
        ExaminedProcess { hung, file_suffix: what, raw_stacks: raw }
    }

    /// Stops a process, seizes it before if necessary, and unwinds its threads.
    fn stop_and_unwind(
        &mut self,
        pid: Pid,
        options: Option<TraceOptions>,
        errors: &mut Vec<String>,
    ) -> Option<(StoppedThreads, Option<RawStacks>)> {
        if options.is_none()
            && let Err(error) = seize_all(pid)
        {
            let by =
                trace::tracer_of(pid).map_or(String::new(), |tracer| format!(", traced by process {tracer}"));
            errors.push(format!("inspect process {pid}: {error}{by}"));
            return None;
        }
        let halted = self.stop_threads(pid, None);
        let threads: Vec<_> =
            halted.threads.iter().filter_map(|(tid, _)| thread_state::read_thread(*tid)).collect();
        for tid in &halted.stuck {
            let call = trace::read_syscall_state(*tid)
                .and_then(|doing| doing.syscall)
                .unwrap_or_else(|| "the kernel".to_owned());
            errors
                .push(format!("stop thread {tid} of process {pid}, which is in {call}; so there is no dump"));
        }
        // A process whose first thread has exited keeps its memory in the others.
        let handle = threads.first().filter(|_| trace::has_ended(pid)).map_or(pid, |thread| thread.tid);
        match stacks::unwind(handle, &main_thread_first(pid, threads)) {
            Ok(raw) => Some((halted, Some(raw))),
            Err(error) => {
                errors.push(error_chain(&error));
                Some((halted, None))
            }
        }
    }

    /// Resumes a process that is not dumped.
    fn resume_undumped(&mut self, halted: StoppedThreads, before: &PriorTraceState, pid: Pid) {
        if before.options.is_some() {
            return self.resume_threads(halted);
        }
        for (tid, stop) in &halted.threads {
            detach(*tid, *stop);
        }
        self.release_later(&halted.stuck);
        self.remove_process(pid);
    }

    /// Restores the state of a dumped process: the writer has continued it, whatever its state was before.
    fn restore(&mut self, pid: Pid, before: &PriorTraceState, sent: &[(Pid, Signal)]) {
        if before.is_stopped {
            // For a process that is gone nothing needs to be restored.
            drop(trace::signal_thread(pid, pid, Signal::STOP));
        }
        for (tid, signal) in sent {
            drop(trace::signal_thread(pid, *tid, *signal));
        }
        if let Some(options) = before.options {
            self.reseize(pid, options);
        }
    }

    /// Writes the symbolized stacks of a process to its file.
    fn write_stacks(
        &self,
        ExaminedProcess { hung, file_suffix: what, .. }: &mut ExaminedProcess,
        named: StackTexts,
        errors: &mut Vec<String>,
    ) {
        hung.stack = named.crash;
        if self.plan.dir.as_bytes().is_empty() {
            return;
        }
        let path = self.evidence_path(what, "txt");
        let what = process_text(hung.pid, &hung.command, hung.facts.as_ref());
        let text = format!("{} ({what}): {}\n\n{}", hung.command, hung.state, named.all);
        match write_private_file(&path, &text) {
            Ok(()) => hung.stacks_file = Some(OsText::from(path.as_path())),
            Err(error) => errors.push(format!("write {}: {error}", path.display())),
        }
    }
}

/// Seizes all threads of a process; returns the first error if no thread could be seized.
fn seize_all(pid: Pid) -> std::io::Result<()> {
    let outcomes: Vec<_> =
        trace::threads(pid).into_iter().map(|tid| trace::seize(tid, TraceOptions::VISIT)).collect();
    if outcomes.iter().any(Result::is_ok) { Ok(()) } else { outcomes.into_iter().collect() }
}

/// Releases the threads of a process, and returns the signals that they were stopped at, which must be sent
/// later.
fn release_threads(halted: &StoppedThreads) -> Vec<(Pid, Signal)> {
    let mut sent = Vec::new();
    for (tid, stop) in &halted.threads {
        if let TraceStop::Signal(signal) = stop {
            sent.push((*tid, *signal));
        }
        // The exit of one that was killed meanwhile is received later.
        drop(trace::detach(*tid, None));
    }
    sent
}

/// Sorts the first thread of the process to the front, as the blamed one.
fn main_thread_first(pid: Pid, mut threads: Vec<stacks::ThreadRegisters>) -> Vec<stacks::ThreadRegisters> {
    threads.sort_by_key(|thread| (thread.tid != pid, thread.tid));
    threads
}
