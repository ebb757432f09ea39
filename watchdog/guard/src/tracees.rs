//! Traced threads and processes ("tracees") and their stops. Waits here are for single threads and have time
//! limits. Other events that arrive meanwhile are deferred until the tracer asks for the next event.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    io,
    time::{Duration, Instant},
};

use heeler_sys::{
    process::{self, Pid, Signal},
    trace::{self, SignalInfo, TraceOptions, TraceStop, WaitEvent},
};

use super::{
    thread_state::{self, FirstChance},
    trace_scope::TraceScope,
};

/// Time limit for threads to stop. A thread waiting for its `vfork` child does not stop at all.
const STOP_LIMIT: Duration = Duration::from_millis(500);

/// Threads of a process that were stopped, and threads that did not stop in time.
#[derive(Default)]
pub(super) struct StoppedThreads {
    pub(super) threads: Vec<(Pid, TraceStop)>,
    pub(super) stuck: Vec<Pid>,
}

/// Traced threads, their processes, and events that were received but not handled yet.
pub(super) struct Tracees {
    root: Pid,
    /// Stop when the root's first thread exits, because this may be in the middle of the tests.
    stops_at_root_exit: bool,
    threads: HashMap<Pid, TracedThread>,
    processes: HashMap<Pid, TracedProcess>,
    /// Stops and exits received while waiting for another event.
    deferred: VecDeque<(Pid, WaitEvent)>,
    /// Threads that did not stop in time to be released, and are released once they stop.
    releasing: HashSet<Pid>,
}

struct TracedThread {
    process: Pid,
    first_chance: Option<FirstChance>,
    /// The thread is in a group-stop.
    is_stopped: bool,
}

impl TracedThread {
    fn of_process(process: Pid) -> Self {
        Self { process, first_chance: None, is_stopped: false }
    }
}

struct TracedProcess {
    options: TraceOptions,
    /// The process has executed a program, so it is not a plain fork of its parent.
    is_executed: bool,
    is_crash_expected: bool,
    has_crashed: bool,
}

impl TracedProcess {
    /// Creates the state of a process that has executed no program yet.
    fn new(options: TraceOptions) -> Self {
        Self { options, is_executed: false, is_crash_expected: false, has_crashed: false }
    }

    /// Creates the state of a process that has executed its program.
    fn executed(options: TraceOptions) -> Self {
        Self { is_executed: true, ..Self::new(options) }
    }
}

impl Tracees {
    /// Creates the state for a root that is not traced yet.
    pub(super) fn new(root: Pid, stops_at_root_exit: bool) -> Self {
        Self {
            root,
            stops_at_root_exit,
            threads: HashMap::new(),
            processes: HashMap::new(),
            deferred: VecDeque::new(),
            releasing: HashSet::new(),
        }
    }

    /// Seizes a root that has not executed its program yet.
    pub(super) fn seize_root(&mut self, scope: TraceScope) -> io::Result<()> {
        self.seize_root_as(TracedProcess::new(self.with_root_exit(self.root, scope.options())))
    }

    /// Seizes a root that has not executed its program yet, only to stop it there.
    pub(super) fn seize_root_until_exec(&mut self) -> io::Result<()> {
        self.seize_root_as(TracedProcess::new(TraceOptions::PROCESS))
    }

    /// Seizes a root that is stopped in its program, and unblocks SIGCONT.
    pub(super) fn seize_stopped_root(&mut self, scope: TraceScope, deadline: Instant) -> io::Result<()> {
        let root = self.root;
        self.seize_root_as(TracedProcess::executed(self.with_root_exit(root, scope.options())))?;
        if let Some(waited) = trace::wait_for(root, deadline)? {
            if matches!(waited, WaitEvent::Stopped(_)) {
                trace::unblock_signal(root, Signal::CONT)?;
            }
            self.deferred.push_back((root, waited));
        }
        Ok(())
    }

    fn seize_root_as(&mut self, process: TracedProcess) -> io::Result<()> {
        trace::seize(self.root, process.options)?;
        self.threads.insert(self.root, TracedThread::of_process(self.root));
        self.processes.insert(self.root, process);
        Ok(())
    }

    fn with_root_exit(&self, process: Pid, options: TraceOptions) -> TraceOptions {
        if process == self.root && self.stops_at_root_exit { options.with_exits() } else { options }
    }

    /// Returns the next received stop or exit, if any. Deferred ones come first.
    pub(super) fn next_event(&mut self) -> io::Result<Option<(Pid, WaitEvent)>> {
        match self.deferred.pop_front() {
            Some(deferred) => Ok(Some(deferred)),
            None => trace::next_event(),
        }
    }

    pub(super) fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    /// Records a thread that the kernel traces automatically because its creator is traced. Returns whether
    /// to follow it. The thread's first stop and the event of its creation arrive in any order, but both
    /// before its first instruction.
    pub(super) fn track_thread(&mut self, tid: Pid, scope: TraceScope) -> bool {
        if self.threads.contains_key(&tid) {
            return true;
        }
        let Some(process) = self.followed_process(tid, scope) else { return false };
        self.threads.insert(tid, TracedThread::of_process(process));
        self.processes.entry(process).or_insert_with(|| TracedProcess::new(scope.options()));
        true
    }

    /// Returns the process of a new thread, or `None` if the thread is not followed. Like a new thread, the
    /// kernel also traces a new process whose exit raises a signal other than SIGCHLD.
    fn followed_process(&self, tid: Pid, scope: TraceScope) -> Option<Pid> {
        if scope == TraceScope::Root {
            return trace::is_thread_of(self.root, tid).then_some(self.root);
        }
        let process = trace::process_of_thread(tid).unwrap_or(tid);
        let parent = process::stat(process).and_then(|stat| self.processes.get(&stat.parent));
        let is_followed = self.processes.contains_key(&process)
            || parent.is_none_or(|parent| parent.options.has_new_processes());
        is_followed.then_some(process)
    }

    /// Handles a process that has called exec. Its other threads are gone, and the calling thread now has the
    /// id of the first thread.
    pub(super) fn on_exec(&mut self, process: Pid) {
        self.threads.retain(|_, thread| thread.process != process);
        self.threads.insert(process, TracedThread::of_process(process));
    }

    /// Records that a process has executed its program, and whether that program is expected to crash.
    pub(super) fn record_program(&mut self, process: Pid, is_crash_expected: bool) {
        if let Some(traced) = self.processes.get_mut(&process) {
            traced.is_executed = true;
            traced.is_crash_expected = is_crash_expected;
        }
    }

    /// Stops following processes that a stopped process starts from now on.
    pub(super) fn narrow(&mut self, process: Pid) {
        let options = self.with_root_exit(process, TraceOptions::PROCESS);
        if let Some(traced) = self.processes.get_mut(&process)
            && trace::set_options(process, options).is_ok()
        {
            traced.options = options;
        }
    }

    /// Removes an exited thread, and its process if it was the first thread.
    pub(super) fn remove_thread(&mut self, tid: Pid) {
        self.threads.remove(&tid);
        self.processes.remove(&tid);
        self.releasing.remove(&tid);
    }

    /// Removes a process that is no longer traced.
    pub(super) fn remove_process(&mut self, process: Pid) {
        self.threads.retain(|_, thread| thread.process != process);
        self.processes.remove(&process);
    }

    /// Returns the process of a traced thread.
    pub(super) fn process_of(&self, tid: Pid) -> Option<Pid> {
        let process = self.threads.get(&tid)?.process;
        self.processes.contains_key(&process).then_some(process)
    }

    /// Returns the tracing options of a process, or `None` if this guard does not trace it.
    pub(super) fn options_of(&self, process: Pid) -> Option<TraceOptions> {
        Some(self.processes.get(&process)?.options)
    }

    /// Returns whether a traced process is stopped by a stop signal, or `None` if this guard does not trace
    /// it.
    pub(super) fn is_stopped(&self, process: Pid) -> Option<bool> {
        self.threads.get(&process).map(|thread| thread.is_stopped)
    }

    /// Records whether a thread is in a group-stop.
    pub(super) fn set_stopped(&mut self, tid: Pid, is_stopped: bool) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.is_stopped = is_stopped;
        }
    }

    /// Lets a thread exit without a stop, unless it is the root's first thread. New threads inherit the
    /// options of their creator.
    pub(super) fn ignore_exit(&self, tid: Pid) {
        let Some(thread) = self.threads.get(&tid) else { return };
        if tid == self.root || thread.first_chance.is_some() || !self.stops_at_root_exit {
            return;
        }
        if let Some(options) = self.options_of(thread.process) {
            // Ignore errors: a thread that is gone has no exit to stop at.
            drop(trace::set_options(tid, options.without_exits()));
        }
    }

    /// Records the first chance of a signal. The program's handler runs first; whether it ends the process
    /// shows later.
    pub(super) fn record_first_chance(&mut self, tid: Pid, info: SignalInfo) {
        let Ok(registers) = thread_state::read_registers(tid) else { return };
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        let Some(process) = self.processes.get(&thread.process) else { return };
        // From now on, stop when the thread exits, because its handler may be the cause.
        drop(trace::set_options(tid, process.options.with_exits()));
        thread.first_chance = Some(FirstChance { info, registers });
    }

    pub(super) fn take_first_chance(&mut self, tid: Pid) -> Option<FirstChance> {
        self.threads.get_mut(&tid)?.first_chance.take()
    }

    /// Returns whether a process runs its own program that is not expected to crash.
    pub(super) fn is_crash_unexpected(&self, process: Pid) -> bool {
        self.processes.get(&process).is_some_and(|traced| traced.is_executed && !traced.is_crash_expected)
    }

    pub(super) fn has_crashed(&self, process: Pid) -> bool {
        self.processes.get(&process).is_some_and(|traced| traced.has_crashed)
    }

    pub(super) fn mark_crashed(&mut self, process: Pid) {
        if let Some(traced) = self.processes.get_mut(&process) {
            traced.has_crashed = true;
        }
    }

    /// Stops the threads of a process traced by this guard, except one that is already stopped.
    pub(super) fn stop_threads(&mut self, process: Pid, except: Option<Pid>) -> StoppedThreads {
        let deadline = Instant::now() + STOP_LIMIT;
        let mut halted = StoppedThreads::default();
        let mut asked: HashSet<Pid> = except.into_iter().collect();
        loop {
            // Interrupt all threads before waiting for any. Threads created meanwhile are interrupted in the
            // next round.
            let mut threads = trace::threads(process);
            threads.retain(|tid| asked.insert(*tid) && !trace::has_ended(*tid));
            if threads.is_empty() {
                return halted;
            }
            threads
                .retain(|tid| self.take_deferred_stop(*tid, &mut halted) || trace::interrupt(*tid).is_ok());
            for tid in threads {
                if !halted.threads.iter().any(|(standing, _)| *standing == tid) {
                    self.await_stop(tid, deadline, &mut halted);
                }
            }
        }
    }

    /// Returns whether the thread's stop was received before but not handled yet.
    fn take_deferred_stop(&mut self, tid: Pid, halted: &mut StoppedThreads) -> bool {
        let known = self
            .deferred
            .iter()
            .position(|(one, waited)| *one == tid && matches!(waited, WaitEvent::Stopped(_)));
        if let Some((_, WaitEvent::Stopped(stop))) = known.and_then(|index| self.deferred.remove(index)) {
            halted.threads.push((tid, stop));
        }
        known.is_some()
    }

    fn await_stop(&mut self, tid: Pid, deadline: Instant, halted: &mut StoppedThreads) {
        match trace::wait_for(tid, deadline) {
            Ok(Some(WaitEvent::Stopped(stop))) => halted.threads.push((tid, stop)),
            Ok(Some(ended)) => self.deferred.push_back((tid, ended)),
            Ok(None) => halted.stuck.push(tid),
            // Not traced by this guard.
            Err(_) => {}
        }
    }

    /// Resumes stopped threads as if nothing had happened. Their stops are deferred, and handled as usual.
    pub(super) fn resume_threads(&mut self, halted: StoppedThreads) {
        self.deferred.extend(halted.threads.into_iter().map(|(tid, stop)| (tid, WaitEvent::Stopped(stop))));
    }

    /// Releases a process for good. Threads that do not stop in time are released once they stop.
    pub(super) fn release_process(&mut self, process: Pid, halted: &StoppedThreads) {
        for (tid, stop) in &halted.threads {
            detach(*tid, *stop);
        }
        self.releasing.extend(&halted.stuck);
        self.remove_process(process);
    }

    /// Releases all processes for good, because `tracer`, which has just executed its program, may trace the
    /// others.
    pub(super) fn release_all(&mut self, tracer: Pid) {
        let processes: Vec<Pid> =
            self.processes.keys().copied().filter(|process| *process != tracer).collect();
        for process in processes {
            let halted = self.stop_threads(process, None);
            self.release_process(process, &halted);
        }
        self.release_at_exec(tracer);
    }

    /// Releases a process for good after it has executed its program.
    pub(super) fn release_at_exec(&mut self, process: Pid) {
        self.remove_process(process);
        detach(process, TraceStop::Exec);
    }

    /// Releases a process that did not get the privileges of the program it has just executed, and makes it
    /// execute the program again. If that fails, the process continues without the privileges.
    pub(super) fn release_privileged(&mut self, process: Pid) -> io::Result<()> {
        self.remove_process(process);
        trace::repeat_exec_untraced(process).inspect_err(|_| detach(process, TraceStop::Exec))
    }

    /// Returns whether a stopped thread was waiting to be released, and clears this state.
    pub(super) fn take_late_release(&mut self, tid: Pid) -> bool {
        self.releasing.remove(&tid)
    }

    /// Seizes a process again after it was released for a while.
    pub(super) fn reseize(&mut self, process: Pid, options: TraceOptions) {
        for tid in trace::threads(process) {
            if trace::seize(tid, options).is_ok() {
                self.threads.insert(tid, TracedThread::of_process(process));
            }
        }
        self.processes.insert(process, TracedProcess::executed(options));
    }
}

/// Resumes a thread. If the thread was killed meanwhile, its exit is received later.
pub(super) fn resume(tid: Pid, signal: Option<Signal>) {
    drop(trace::cont(tid, signal));
}

/// Releases a thread for good, with its pending signal.
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
    // Ignore errors: if the thread was killed meanwhile, its exit is received later.
    drop(trace::detach(tid, signal));
}

/// Returns a message suffix that names the process already tracing this one, if any.
pub(super) fn traced_by(process: Pid) -> String {
    trace::tracer_of(process).map_or(String::new(), |tracer| format!(" (already traced by process {tracer})"))
}
