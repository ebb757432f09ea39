//! The only module of a guard that waits for processes. It receives all exits and all stops, resumes harmless
//! ones, and passes crashes to `crash`.
//!
//! ```text
//! signal ──harmless, or ignored──► resumed with it
//!        ──handled──► kept as first chance, resumed ──the handler ends the process──► crash
//!        ──fatal──► crash: stacks, dump; the process dies of its own signal
//! exec   ──conflict, such as a leak sanitizer──► released for good
//! exit   ──of the root, in the middle of the tests──► its stack is kept
//! ```

use std::{
    collections::{HashMap, HashSet, VecDeque},
    io,
    time::Instant,
};

use heeler_protocol::control::TracePlan;
use heeler_sys::{
    process::{self, ExitStatus, Pid, Signal},
    trace::{self, SignalDisposition, SignalInfo, TraceOptions, TraceStop, WaitEvent},
};

use super::{
    crash_handler::{CrashSite, PendingCrash},
    exit_stack::ExitStack,
    thread_state,
    thread_state::FirstChance,
    trace_scope::TraceScope,
};

/// Maximum number of stops handled before the guard reads from its worker again.
const MAX_EVENTS_PER_CALL: u32 = 256;
/// Maximum number of crashes reported; a tree of programs that all crash needs no more to be understood.
pub(super) const MAX_CRASHES: usize = 8;
pub(super) struct ProcessTracer {
    pub(super) plan: TracePlan,
    pub(super) root: Pid,
    pub(super) scope: TraceScope,
    /// The next program of the root is the interpreter of a script, whatever its name.
    pub(super) awaits_interpreter: bool,
    pub(super) threads: HashMap<Pid, TracedThread>,
    pub(super) processes: HashMap<Pid, TracedProcess>,
    /// Stops and exits received while another event was waited for.
    pub(super) deferred: VecDeque<(Pid, WaitEvent)>,
    /// Threads that did not stop when they were to be released, and are released when they do.
    pub(super) releasing: HashSet<Pid>,
    root_exit: Option<ExitStatus>,
    /// More events may be pending than were handled in one call.
    has_more: bool,
    /// The test process was ordered to exit.
    pub(super) is_exit_requested: bool,
    /// All processes are to exit: no stop is examined any more.
    is_closing: bool,
    /// All processes were released for good: one of them traces others.
    pub(super) is_released: bool,
    /// The root is to be released, stopped, at the first instruction of its program.
    stops_at_exec: bool,
    /// The reason why a process runs untraced, until it is reported.
    untraced_reason: Option<String>,
    is_untraced_reported: bool,
    pub(super) crashes: Vec<PendingCrash>,
    /// Stack of the root's exit in the middle of the tests.
    pub(super) exit_stack: Option<ExitStack>,
}

pub(super) struct TracedThread {
    pub(super) process: Pid,
    first_chance: Option<FirstChance>,
    /// It is in a group-stop.
    is_stopped: bool,
}

impl TracedThread {
    pub(super) fn of_process(process: Pid) -> Self {
        Self { process, first_chance: None, is_stopped: false }
    }
}

pub(super) struct TracedProcess {
    pub(super) options: TraceOptions,
    /// It has executed a program of its own, and is not a fork of its parent.
    pub(super) is_executed: bool,
    pub(super) is_crash_expected: bool,
    has_crashed: bool,
}

impl TracedProcess {
    /// Returns the state of a process that has executed no program yet.
    pub(super) fn new(options: TraceOptions) -> Self {
        Self { options, is_executed: false, is_crash_expected: false, has_crashed: false }
    }

    /// Returns the state of a process that has executed its program.
    pub(super) fn executed(options: TraceOptions) -> Self {
        Self { is_executed: true, ..Self::new(options) }
    }
}

impl ProcessTracer {
    /// Creates a tracer that waits for processes without tracing any.
    pub(super) fn untraced(root: Pid, plan: TracePlan) -> Self {
        Self {
            plan,
            root,
            scope: TraceScope::Root,
            awaits_interpreter: true,
            threads: HashMap::new(),
            processes: HashMap::new(),
            deferred: VecDeque::new(),
            releasing: HashSet::new(),
            root_exit: None,
            has_more: false,
            is_exit_requested: false,
            is_closing: false,
            is_released: false,
            stops_at_exec: false,
            untraced_reason: None,
            is_untraced_reported: false,
            crashes: Vec::new(),
            exit_stack: None,
        }
    }

    /// Creates an untraced tracer for a root that was there before exits were watched: its exit may be missed
    /// otherwise.
    pub(super) fn adopted(root: Pid) -> Self {
        Self { has_more: true, ..Self::untraced(root, TracePlan::default()) }
    }

    /// Seizes a process that has not executed its program yet. If that is refused, it runs untraced.
    pub(super) fn seize(root: Pid, plan: TracePlan, reach: TraceScope) -> Self {
        let mut tracer = Self::untraced(root, plan);
        tracer.scope = reach;
        let options = tracer.with_root_exits(root, reach.options());
        match heeler_sys::fail::at("guard.seize").and_then(|()| trace::seize(root, options)) {
            Ok(()) => {
                tracer.threads.insert(root, TracedThread::of_process(root));
                tracer.processes.insert(root, TracedProcess::new(options));
            }
            Err(error) => {
                let by = trace::tracer_of(root).map(|tracer| format!(", traced by process {tracer}"));
                tracer.record_untraced(format!(
                    "the system refuses to trace it: {error}{}",
                    by.unwrap_or_default()
                ));
            }
        }
        tracer
    }

    /// Seizes a process that has not executed its program yet, to stop it as soon as it has.
    pub(super) fn seize_until_exec(root: Pid, plan: TracePlan) -> io::Result<Self> {
        let mut tracer = Self::untraced(root, plan);
        tracer.stops_at_exec = true;
        trace::seize(root, TraceOptions::PROCESS)?;
        tracer.threads.insert(root, TracedThread::of_process(root));
        tracer.processes.insert(root, TracedProcess::new(TraceOptions::PROCESS));
        Ok(tracer)
    }

    /// Returns the options of a process: the exit of the root may be one in the middle of the tests.
    pub(super) fn with_root_exits(&self, process: Pid, options: TraceOptions) -> TraceOptions {
        if process == self.root && self.plan.run_mark.is_some() { options.with_exits() } else { options }
    }

    /// Returns whether the root has not reached its program yet.
    pub(super) fn stops_at_exec(&self) -> bool {
        self.stops_at_exec
    }

    /// Releases the root, stopped at the first instruction of its program and traced by no process.
    fn release_stopped(&mut self, root: Pid) {
        self.stops_at_exec = false;
        // A later tracer would otherwise receive the signal that continues it.
        drop(trace::block_signal(root, Signal::CONT));
        // The stop takes effect when the process is released, before the program runs. If it was killed
        // meanwhile, its exit is received.
        drop(trace::signal_thread(root, root, Signal::STOP));
        self.remove_process(root);
        detach(root, TraceStop::Exec);
    }

    /// Traces a stopped root, and unblocks the signal that continues it.
    pub(super) fn seize_stopped(&mut self, reach: TraceScope, deadline: Instant) -> io::Result<()> {
        self.scope = reach;
        self.note_interpreter(self.root);
        let options = self.with_root_exits(self.root, reach.options());
        trace::seize(self.root, options)?;
        self.threads.insert(self.root, TracedThread::of_process(self.root));
        self.processes.insert(self.root, TracedProcess::executed(options));
        if let Some(waited) = trace::wait_for(self.root, deadline)? {
            if matches!(waited, WaitEvent::Stopped(_)) {
                trace::unblock_signal(self.root, Signal::CONT)?;
            }
            self.deferred.push_back((self.root, waited));
        }
        Ok(())
    }

    /// Records the reason why a process runs untraced; only the first reason is reported.
    pub(super) fn record_untraced(&mut self, reason: String) {
        if !self.is_untraced_reported {
            self.is_untraced_reported = true;
            self.untraced_reason = Some(reason);
        }
    }

    pub(super) fn take_untraced(&mut self) -> Option<String> {
        self.untraced_reason.take()
    }

    pub(super) fn root_exit(&self) -> Option<ExitStatus> {
        self.root_exit
    }

    /// Returns whether [`Self::pump`] has work although no child has changed state since.
    pub(super) fn has_more(&self) -> bool {
        self.has_more || !self.deferred.is_empty()
    }

    /// Stops examining events: all processes are to exit.
    pub(super) fn close(&mut self) {
        self.is_closing = true;
    }

    /// Returns whether a traced process is stopped by a stop signal; `None` if it is not traced here.
    pub(super) fn is_stopped(&self, process: Pid) -> Option<bool> {
        self.threads.get(&process).map(|thread| thread.is_stopped)
    }

    /// Handles pending events. A crash among them may take a while.
    pub(super) fn handle_pending_events(&mut self) -> io::Result<()> {
        self.has_more = false;
        for _ in 0..MAX_EVENTS_PER_CALL {
            let happened = match self.deferred.pop_front() {
                Some(happened) => Some(happened),
                None => trace::next_event()?,
            };
            match happened {
                None => return Ok(()),
                Some((tid, WaitEvent::Exited(exit))) => self.on_thread_exited(tid, exit),
                Some((tid, WaitEvent::Stopped(stop))) => self.on_stop(tid, stop),
            }
        }
        self.has_more = true;
        Ok(())
    }

    /// Records the exit of a process that can no longer be received: the dump writer waits for each thread
    /// that it attaches to, and so consumes the exit of one that was killed meanwhile, with its status.
    pub(super) fn record_missed_exit(&mut self, process: Pid) {
        if process == self.root && self.root_exit.is_none() && process::stat(process).is_none() {
            // A stopped process exits in no other way.
            self.root_exit = Some(ExitStatus { signal: Some(Signal::KILL.0), ..ExitStatus::default() });
        }
    }

    fn on_thread_exited(&mut self, tid: Pid, exit: ExitStatus) {
        self.threads.remove(&tid);
        self.processes.remove(&tid);
        self.releasing.remove(&tid);
        if tid == self.root {
            self.root_exit = Some(exit);
        }
    }

    fn on_stop(&mut self, tid: Pid, stop: TraceStop) {
        if self.releasing.remove(&tid) || self.is_released {
            return detach(tid, stop);
        }
        if self.is_closing {
            // Processes that the worker wants killed die; a process that only receives the signal on the way
            // must not be held up.
            return if stop == TraceStop::Exit { resume(tid, None) } else { detach(tid, stop) };
        }
        if !self.track_thread(tid) {
            return detach(tid, stop);
        }
        match stop {
            TraceStop::Signal(signal) => self.on_signal(tid, signal),
            TraceStop::Group(_) => {
                self.set_stopped(tid, true);
                // The exit of a thread that was killed meanwhile is received later.
                drop(trace::listen(tid));
            }
            TraceStop::Interrupt => {
                self.set_stopped(tid, false);
                self.ignore_exit(tid);
                resume(tid, None);
            }
            TraceStop::Clone => {
                if let Ok(child) = trace::event_message(tid) {
                    let child = Pid(i32::try_from(child).expect("a process id fits"));
                    // One that is not followed is released at its own first stop.
                    let _is_followed = self.track_thread(child);
                }
                resume(tid, None);
            }
            TraceStop::Exec => self.on_exec(tid),
            TraceStop::Exit => {
                self.on_thread_exiting(tid);
                resume(tid, None);
            }
            TraceStop::Other(_) => resume(tid, None),
        }
    }

    /// Lets a thread exit without a stop, except the root's first one: new threads have the options of the
    /// one that created them.
    fn ignore_exit(&mut self, tid: Pid) {
        let has_chance = self.threads.get(&tid).is_none_or(|thread| thread.first_chance.is_some());
        if tid == self.root || has_chance || self.plan.run_mark.is_none() {
            return;
        }
        if let Some((_, process)) = self.process_of(tid) {
            // A thread that is gone has no exit to stop at.
            drop(trace::set_options(tid, process.options.without_exits()));
        }
    }

    fn set_stopped(&mut self, tid: Pid, is_stopped: bool) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.is_stopped = is_stopped;
        }
    }

    fn on_exec(&mut self, tid: Pid) {
        // The other threads are gone; the thread that called exec has the id of the first one now.
        self.threads.retain(|other, thread| thread.process != tid || *other == tid);
        if self.stops_at_exec && tid == self.root {
            return self.release_stopped(tid);
        }
        if let Some(thread) = self.threads.get_mut(&tid) {
            *thread = TracedThread::of_process(tid);
        }
        self.follow_program(tid);
    }

    fn on_signal(&mut self, tid: Pid, signal: Signal) {
        let has_crashed = self.process_of(tid).is_none_or(|(_, process)| process.has_crashed);
        // A second thread that crashes while the process dies adds nothing.
        if !Signal::CRASHES.contains(&signal) || has_crashed {
            return resume(tid, Some(signal));
        }
        let Ok(info) = trace::signal_info(tid) else { return resume(tid, Some(signal)) };
        match trace::signal_disposition(tid, signal) {
            SignalDisposition::Ignored => resume(tid, Some(signal)),
            SignalDisposition::Caught => {
                self.record_first_chance(tid, info);
                resume(tid, Some(signal));
            }
            SignalDisposition::Default => self.on_fatal(tid, info),
        }
    }

    /// Records the first chance of a signal. The program's own handler runs first; whether it ends the
    /// process is seen later.
    fn record_first_chance(&mut self, tid: Pid, info: SignalInfo) {
        let Ok(registers) = thread_state::read_registers(tid) else { return };
        let Some(options) = self.process_of(tid).map(|(_, process)| process.options) else { return };
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        // Only from now on is the exit of the thread worth a stop.
        drop(trace::set_options(tid, options.with_exits()));
        thread.first_chance = Some(FirstChance { info, registers });
    }

    fn on_fatal(&mut self, tid: Pid, info: SignalInfo) {
        let is_reported = self.is_crash_reported(tid);
        let (Some((process, of)), true) = (self.process_of(tid), is_reported) else {
            return resume(tid, Some(info.signal));
        };
        of.has_crashed = true;
        let Ok(registers) = thread_state::read_registers(tid) else { return resume(tid, Some(info.signal)) };
        let chance = self.threads.get_mut(&tid).and_then(|thread| thread.first_chance.take());
        // A signal that a handler raises again may be pending until the handler returns, and then arrives at
        // the same place.
        let chance = chance.filter(|chance| {
            chance.is_at_same_place(&registers)
                || chance.is_being_handled(tid, registers.general.stack_pointer())
        });
        self.on_crash(CrashSite { process, tid }, FirstChance { info, registers }, chance);
    }

    /// Handles a thread that is about to exit: the root's, or one in a process that has handled a signal.
    fn on_thread_exiting(&mut self, tid: Pid) {
        let status = trace::event_message(tid).unwrap_or(0);
        // Killed by a signal.
        if status & 0x7f != 0 {
            return;
        }
        if tid == self.root {
            self.record_exit_stack();
        }
        // A child that ends well has not failed; the test process itself has left its tests.
        let root = self.root;
        let is_root = self.process_of(tid).is_some_and(|(process, _)| process == root);
        if status >> 8 == 0 && !is_root || !self.is_crash_reported(tid) {
            return;
        }
        let Some(chance) = self.threads.get_mut(&tid).and_then(|thread| thread.first_chance.take()) else {
            return;
        };
        let Ok(registers) = thread_state::read_registers(tid) else { return };
        // The signal was handled long ago, and did not cause this exit.
        if !chance.is_being_handled(tid, registers.general.stack_pointer()) {
            return;
        }
        let Some((process, of)) = self.process_of(tid) else { return };
        if !of.has_crashed {
            of.has_crashed = true;
            self.on_handler_exit(CrashSite { process, tid }, &chance);
        }
    }

    /// Returns whether a crash is reported. Forks of a test process die on purpose, such as death tests, and
    /// so do programs with crash markers on their command line.
    fn is_crash_reported(&mut self, tid: Pid) -> bool {
        let (root, count) = (self.root, self.crashes.len());
        self.process_of(tid).is_some_and(|(process, of)| {
            process == root || (of.is_executed && !of.is_crash_expected && count < MAX_CRASHES)
        })
    }

    fn process_of(&mut self, tid: Pid) -> Option<(Pid, &mut TracedProcess)> {
        let process = self.threads.get(&tid)?.process;
        Some((process, self.processes.get_mut(&process)?))
    }
}

/// Resumes a thread; the exit of one that was killed meanwhile is received later.
pub(super) fn resume(tid: Pid, signal: Option<Signal>) {
    drop(trace::cont(tid, signal));
}

/// Releases a thread for good, with the signal that it was stopped at.
pub(super) fn detach(tid: Pid, stop: TraceStop) {
    let signal = match stop {
        TraceStop::Signal(signal) => Some(signal),
        TraceStop::Group(_)
        | TraceStop::Interrupt
        | TraceStop::Clone
        | TraceStop::Exec
        | TraceStop::Exit
        | TraceStop::Other(_) => None,
    };
    // The exit of one that was killed meanwhile is received later.
    drop(trace::detach(tid, signal));
}

#[cfg(test)]
mod tests {
    use heeler_sys::{
        process::reap_child,
        spawn::{SpawnOptions, spawn},
    };

    use super::*;

    #[test]
    fn exit_consumed_by_another_wait_is_recorded() {
        let args = vec!["-c".into(), "kill -STOP $$".into()];
        let root = spawn(SpawnOptions { args, ..SpawnOptions::new("/bin/sh") }).unwrap();
        let mut tracer = ProcessTracer::untraced(root.pid(), TracePlan::default());
        tracer.record_missed_exit(root.pid());
        assert_eq!(tracer.root_exit(), None);
        root.signal(Signal::KILL).unwrap();
        // The dump writer does the same with a thread that dies while attached.
        reap_child(root.pid()).unwrap();
        tracer.record_missed_exit(Pid::own());
        assert_eq!(tracer.root_exit(), None);
        tracer.record_missed_exit(root.pid());
        assert_eq!(tracer.root_exit().and_then(|exit| exit.signal), Some(Signal::KILL.0));
    }
}
