//! Dumps and stacks of a whole live process tree, traced or not. Each process is stopped for some
//! milliseconds.

use host::{
    process::{self, Pid, Signal},
    trace::{self, Options, Stop},
};
use wire::control::{HangReport, HungProcess, OsBytes};

use crate::{
    dump::Subject,
    errors::chain,
    stacks::{self, RawStacks, Stacks},
};

use super::{
    crash::{MOST_FRAMES, write, write_text},
    halt::Halted,
    look, sample,
    tracer::{Tracer, release},
};

/// Number of processes symbolized together: each keeps the files of its modules open until then.
const TOGETHER: usize = 16;

/// A process that was examined.
struct Visited {
    hung: HungProcess,
    /// The suffix of its file names.
    what: String,
    /// Its stacks, if they could be unwound, until they are symbolized.
    raw: Option<RawStacks>,
}

/// The state of a process before it is examined.
struct Before {
    /// It was stopped, by itself or by a pause, and is to be stopped again.
    is_stopped: bool,
    /// Its tracing options; `None` if this guard does not trace it.
    options: Option<Options>,
}

impl Tracer {
    /// Dumps and unwinds all descendants of the guard, and symbolizes the stacks when the processes run
    /// again. `round` is the number of the request, so that each request has files of its own.
    pub(super) fn dump_family(&mut self, round: u32) -> HangReport {
        let mut report = HangReport::default();
        for pids in sample::family(self.root).chunks(TOGETHER) {
            let mut visited: Vec<Visited> =
                pids.iter().map(|pid| self.dump_process(*pid, round, &mut report.soft_errors)).collect();
            let unwound = visited.iter_mut().filter_map(|one| one.raw.take().map(|raw| (one, raw)));
            let (named, raws): (Vec<_>, Vec<_>) = unwound.unzip();
            for (one, stacks) in named.into_iter().zip(stacks::name_all(raws)) {
                self.tell(one, &stacks, &mut report.soft_errors);
            }
            report.processes.extend(visited.into_iter().map(|one| one.hung));
        }
        report
    }

    fn dump_process(&mut self, pid: Pid, round: u32, errors: &mut Vec<String>) -> Visited {
        let mut hung = HungProcess {
            pid: pid.as_u32(),
            command: process::command_line(pid),
            state: sample::state_now(pid),
            ..HungProcess::default()
        };
        let before = Before { is_stopped: hung.state == "STOPPED", options: self.options_of(pid) };
        let what = if round == 0 { format!("hang-{pid}") } else { format!("hang-{pid}-{}", round + 1) };
        let Some((halted, raw)) = self.visit(pid, before.options, errors) else {
            return Visited { hung, what, raw: None };
        };
        if self.plan.dumps.hang && halted.stuck.is_empty() {
            self.forget(pid);
            let sent = let_stand(&halted);
            let subject = Subject { pid, blamed: pid, crash: None };
            match write(pid, &subject, &self.dump_plan(&what)) {
                Ok((path, soft_errors)) => {
                    hung.dump = Some(OsBytes::from(path.as_path()));
                    errors.extend(soft_errors);
                }
                Err(error) => errors.push(error),
            }
            self.restore(pid, &before, &sent);
            self.miss(pid);
        } else {
            self.leave(halted, &before, pid);
        }
        Visited { hung, what, raw }
    }

    /// Stops a process, seizes it before if necessary, and unwinds its threads.
    fn visit(
        &mut self,
        pid: Pid,
        options: Option<Options>,
        errors: &mut Vec<String>,
    ) -> Option<(Halted, Option<RawStacks>)> {
        if options.is_none()
            && let Err(error) = seize_all(pid)
        {
            let by =
                trace::tracer_of(pid).map_or(String::new(), |tracer| format!(", traced by process {tracer}"));
            errors.push(format!("look at process {pid}: {error}{by}"));
            return None;
        }
        let halted = self.halt(pid, None);
        let threads: Vec<_> = halted.threads.iter().filter_map(|(tid, _)| look::thread(*tid)).collect();
        for tid in &halted.stuck {
            let call =
                trace::doing(*tid).and_then(|doing| doing.call).unwrap_or_else(|| "the kernel".to_owned());
            errors
                .push(format!("stop thread {tid} of process {pid}, which is in {call}; so there is no dump"));
        }
        // A process whose first thread has exited keeps its memory in the others.
        let handle = threads.first().filter(|_| trace::has_ended(pid)).map_or(pid, |thread| thread.tid);
        match stacks::unwind(handle, &first_first(pid, threads)) {
            Ok(raw) => Some((halted, Some(raw))),
            Err(error) => {
                errors.push(chain(&error));
                Some((halted, None))
            }
        }
    }

    /// Resumes a process that is not dumped.
    fn leave(&mut self, halted: Halted, before: &Before, pid: Pid) {
        if before.options.is_some() {
            return self.resume(halted);
        }
        for (tid, stop) in &halted.threads {
            release(*tid, *stop);
        }
        self.leave_later(&halted.stuck);
        self.forget(pid);
    }

    /// Restores the state of a dumped process: the writer has continued it, whatever its state was before.
    fn restore(&mut self, pid: Pid, before: &Before, sent: &[(Pid, Signal)]) {
        if before.is_stopped {
            // For a process that is gone nothing needs to be restored.
            drop(trace::signal_thread(pid, pid, Signal::STOP));
        }
        for (tid, signal) in sent {
            drop(trace::signal_thread(pid, *tid, *signal));
        }
        if let Some(options) = before.options {
            self.seize_again(pid, options);
        }
    }

    /// Writes the symbolized stacks of a process to its file.
    fn tell(&self, Visited { hung, what, .. }: &mut Visited, named: &Stacks, errors: &mut Vec<String>) {
        hung.stack = named.crash_text(MOST_FRAMES);
        if self.plan.dir.as_bytes().is_empty() {
            return;
        }
        let path = self.file(what, "txt");
        let text = format!("Process {} ({}): {}\n\n{}", hung.pid, hung.command, hung.state, named.text());
        match write_text(&path, &text) {
            Ok(()) => hung.stacks_file = Some(OsBytes::from(path.as_path())),
            Err(error) => errors.push(format!("write {}: {error}", path.display())),
        }
    }
}

/// Seizes all threads of a process; returns the first error if no thread could be seized.
fn seize_all(pid: Pid) -> std::io::Result<()> {
    let outcomes: Vec<_> =
        trace::threads(pid).into_iter().map(|tid| trace::seize(tid, Options::VISIT)).collect();
    if outcomes.iter().any(Result::is_ok) { Ok(()) } else { outcomes.into_iter().collect() }
}

/// Releases the threads of a process, and returns the signals that they were stopped at, which must be sent
/// later.
fn let_stand(halted: &Halted) -> Vec<(Pid, Signal)> {
    let mut sent = Vec::new();
    for (tid, stop) in &halted.threads {
        if let Stop::Signal(signal) = stop {
            sent.push((*tid, *signal));
        }
        // The exit of one that was killed meanwhile is received later.
        drop(trace::detach(*tid, None));
    }
    sent
}

/// Sorts the first thread of the process to the front, as the blamed one.
fn first_first(pid: Pid, mut threads: Vec<stacks::ThreadRegisters>) -> Vec<stacks::ThreadRegisters> {
    threads.sort_by_key(|thread| (thread.tid != pid, thread.tid));
    threads
}
