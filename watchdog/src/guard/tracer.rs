//! The only module of a guard that waits for processes. It receives all exits and all stops, resumes harmless
//! ones, and passes crashes to `crash`.
//!
//! ```text
//! signal ──harmless, or ignored──► resumed with it
//!        ──handled──► kept as first chance, resumed ──the handler ends the process──► crash
//!        ──fatal──► crash: stacks, dump; the process dies of its own signal
//! exec   ──leak sanitizer──► released for good
//! ```

use std::{
    collections::{HashMap, HashSet, VecDeque},
    io,
    path::{Path, PathBuf},
    time::Instant,
};

use host::{
    process::{self, Pid, RawExit, Signal},
    trace::{self, Disposition, Options, SignalInfo, Stop, Waited},
};
use wire::control::TracePlan;

use super::{
    crash::{Crash, Site},
    look,
    look::Chance,
    sanitizer,
};

/// Signals that end a program because of a fault of its own.
const FATAL: [Signal; 7] =
    [Signal::SEGV, Signal::BUS, Signal::ILL, Signal::FPE, Signal::ABRT, Signal::TRAP, Signal::SYS];
/// Maximum number of stops handled before the guard reads from its worker again.
const BURST: u32 = 256;
/// Maximum number of crashes reported; a tree of programs that all crash needs no more to be understood.
pub(super) const CRASH_LIMIT: usize = 8;
/// Interpreters of scripts: the programs that they start are the ones of interest.
const SHELLS: [&str; 9] = ["sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "busybox", "fish"];

/// The scope of tracing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Only the test process.
    Root,
    /// Through shells and scripts to the programs that they start, and no further.
    Programs,
    /// All processes that the test process starts.
    Tree,
}

impl Reach {
    /// Returns the scope for a program when only the test process was requested.
    pub(super) fn of_program(program: &Path) -> Self {
        if is_shell(program) || is_script(program) { Self::Programs } else { Self::Root }
    }

    fn options(self) -> Options {
        match self {
            Self::Root => Options::PROCESS,
            Self::Programs | Self::Tree => Options::TREE,
        }
    }
}

fn is_shell(program: &Path) -> bool {
    let name = program.file_name().unwrap_or_default();
    SHELLS.iter().any(|shell| name == *shell)
}

fn is_script(program: &Path) -> bool {
    let mut mark = [0; 2];
    std::fs::File::open(program).and_then(|mut file| io::Read::read_exact(&mut file, &mut mark)).is_ok()
        && &mark == b"#!"
}

pub(super) struct Tracer {
    pub(super) plan: TracePlan,
    pub(super) root: Pid,
    reach: Reach,
    pub(super) threads: HashMap<Pid, Thread>,
    pub(super) processes: HashMap<Pid, Process>,
    /// Stops and exits received while another event was waited for.
    pub(super) deferred: VecDeque<(Pid, Waited)>,
    /// Threads that did not stop when they were to be released, and are released when they do.
    pub(super) leaving: HashSet<Pid>,
    root_exit: Option<RawExit>,
    /// More events may be pending than were handled in one call.
    has_more: bool,
    /// The test process was ordered to exit.
    pub(super) is_asked: bool,
    /// All processes are to exit: no stop is examined any more.
    is_closing: bool,
    /// The root is to be released, stopped, at the first instruction of its program.
    is_holding: bool,
    /// The reason why a process runs untraced, until it is reported.
    untraced: Option<String>,
    was_untraced_told: bool,
    pub(super) crashes: Vec<Crash>,
}

pub(super) struct Thread {
    pub(super) process: Pid,
    chance: Option<Chance>,
    /// It is in a group-stop.
    is_stopped: bool,
}

impl Thread {
    pub(super) fn of(process: Pid) -> Self {
        Self { process, chance: None, is_stopped: false }
    }
}

pub(super) struct Process {
    pub(super) options: Options,
    /// It has executed a program of its own, and is not a fork of its parent.
    is_executed: bool,
    is_doomed: bool,
    has_crashed: bool,
}

impl Process {
    fn new(options: Options) -> Self {
        Self { options, is_executed: false, is_doomed: false, has_crashed: false }
    }

    /// Returns the state of a process that has executed its program.
    pub(super) fn executed(options: Options) -> Self {
        Self { is_executed: true, ..Self::new(options) }
    }
}

impl Tracer {
    /// Creates a tracer that waits for processes without tracing any.
    pub(super) fn off(root: Pid, plan: TracePlan) -> Self {
        Self {
            plan,
            root,
            reach: Reach::Root,
            threads: HashMap::new(),
            processes: HashMap::new(),
            deferred: VecDeque::new(),
            leaving: HashSet::new(),
            root_exit: None,
            has_more: false,
            is_asked: false,
            is_closing: false,
            is_holding: false,
            untraced: None,
            was_untraced_told: false,
            crashes: Vec::new(),
        }
    }

    /// Seizes a process that has not executed its program yet. If that is refused, it runs untraced.
    pub(super) fn seize(root: Pid, plan: TracePlan, reach: Reach) -> Self {
        let mut tracer = Self::off(root, plan);
        tracer.reach = reach;
        match host::fail::at("guard.seize").and_then(|()| trace::seize(root, reach.options())) {
            Ok(()) => {
                tracer.threads.insert(root, Thread::of(root));
                tracer.processes.insert(root, Process::new(reach.options()));
            }
            Err(error) => {
                let by = trace::tracer_of(root).map(|tracer| format!(", traced by process {tracer}"));
                tracer.say_untraced(format!(
                    "the system refuses to trace it: {error}{}",
                    by.unwrap_or_default()
                ));
            }
        }
        tracer
    }

    /// Seizes a process that has not executed its program yet, to stop it as soon as it has.
    pub(super) fn hold(root: Pid, plan: TracePlan) -> io::Result<Self> {
        let mut tracer = Self::off(root, plan);
        tracer.is_holding = true;
        trace::seize(root, Options::PROCESS)?;
        tracer.threads.insert(root, Thread::of(root));
        tracer.processes.insert(root, Process::new(Options::PROCESS));
        Ok(tracer)
    }

    /// Returns whether the root has not reached its program yet.
    pub(super) fn is_holding(&self) -> bool {
        self.is_holding
    }

    /// Releases the root, stopped at the first instruction of its program and traced by no process.
    fn stand(&mut self, root: Pid) {
        self.is_holding = false;
        // A later tracer would otherwise receive the signal that continues it.
        drop(trace::block(root, Signal::CONT));
        // The stop takes effect when the process is released, before the program runs. If it was killed
        // meanwhile, its exit is received.
        drop(trace::signal_thread(root, root, Signal::STOP));
        self.forget(root);
        release(root, Stop::Exec);
    }

    /// Traces a stopped root, and unblocks the signal that continues it.
    pub(super) fn take_back(&mut self, reach: Reach, deadline: Instant) -> io::Result<()> {
        self.reach = reach;
        trace::seize(self.root, reach.options())?;
        self.threads.insert(self.root, Thread::of(self.root));
        self.processes.insert(self.root, Process::executed(reach.options()));
        if let Some(waited) = trace::wait_for(self.root, deadline)? {
            if matches!(waited, Waited::Stopped(_)) {
                trace::unblock(self.root, Signal::CONT)?;
            }
            self.deferred.push_back((self.root, waited));
        }
        Ok(())
    }

    /// Records the reason why a process runs untraced; only the first reason is reported.
    pub(super) fn say_untraced(&mut self, reason: String) {
        if !self.was_untraced_told {
            self.was_untraced_told = true;
            self.untraced = Some(reason);
        }
    }

    pub(super) fn take_untraced(&mut self) -> Option<String> {
        self.untraced.take()
    }

    pub(super) fn root_exit(&self) -> Option<RawExit> {
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
    pub(super) fn pump(&mut self) -> io::Result<()> {
        self.has_more = false;
        for _ in 0..BURST {
            let happened = match self.deferred.pop_front() {
                Some(happened) => Some(happened),
                None => trace::next()?,
            };
            match happened {
                None => return Ok(()),
                Some((tid, Waited::Ended(exit))) => self.on_end(tid, exit),
                Some((tid, Waited::Stopped(stop))) => self.on_stop(tid, stop),
            }
        }
        self.has_more = true;
        Ok(())
    }

    /// Records the exit of a process that can no longer be received: the dump writer waits for each thread
    /// that it attaches to, and so consumes the exit of one that was killed meanwhile, with its status.
    pub(super) fn miss(&mut self, process: Pid) {
        if process == self.root && self.root_exit.is_none() && process::stat(process).is_none() {
            // A stopped process exits in no other way.
            self.root_exit = Some(RawExit { signal: Some(Signal::KILL.0), ..RawExit::default() });
        }
    }

    fn on_end(&mut self, tid: Pid, exit: RawExit) {
        self.threads.remove(&tid);
        self.processes.remove(&tid);
        self.leaving.remove(&tid);
        if tid == self.root {
            self.root_exit = Some(exit);
        }
    }

    fn on_stop(&mut self, tid: Pid, stop: Stop) {
        if self.leaving.remove(&tid) {
            return release(tid, stop);
        }
        if self.is_closing {
            // Processes that the worker wants killed die; a process that only receives the signal on the way
            // must not be held up.
            return if stop == Stop::Exit { go_on(tid, None) } else { release(tid, stop) };
        }
        self.adopt(tid);
        match stop {
            Stop::Signal(signal) => self.on_signal(tid, signal),
            Stop::Group(_) => {
                self.set_stopped(tid, true);
                // The exit of a thread that was killed meanwhile is received later.
                drop(trace::listen(tid));
            }
            Stop::Trap => {
                self.set_stopped(tid, false);
                go_on(tid, None);
            }
            Stop::Birth => {
                if let Ok(child) = trace::event_message(tid) {
                    self.adopt(Pid(i32::try_from(child).expect("a process id fits")));
                }
                go_on(tid, None);
            }
            Stop::Exec => self.on_exec(tid),
            Stop::Exit => {
                self.on_exit(tid);
                go_on(tid, None);
            }
            Stop::Other(_) => go_on(tid, None),
        }
    }

    fn set_stopped(&mut self, tid: Pid, is_stopped: bool) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.is_stopped = is_stopped;
        }
    }

    /// Records a thread that the kernel traces automatically because its creator is traced. Its own first
    /// stop and the event of its creation arrive in any order.
    pub(super) fn adopt(&mut self, tid: Pid) {
        if self.threads.contains_key(&tid) {
            return;
        }
        let process = match self.reach {
            // Only threads are followed.
            Reach::Root => self.root,
            Reach::Programs | Reach::Tree => trace::group_of(tid).unwrap_or(tid),
        };
        self.threads.insert(tid, Thread::of(process));
        self.processes.entry(process).or_insert(Process::new(self.reach.options()));
    }

    fn on_exec(&mut self, tid: Pid) {
        // The other threads are gone; the thread that called exec has the id of the first one now.
        self.threads.retain(|other, thread| thread.process != tid || *other == tid);
        if self.is_holding && tid == self.root {
            return self.stand(tid);
        }
        if let Some(thread) = self.threads.get_mut(&tid) {
            *thread = Thread::of(tid);
        }
        let image = PathBuf::from(format!("/proc/{tid}/exe"));
        if sanitizer::has_leak_sanitizer(&image) {
            let whose = if tid == self.root { "it" } else { "a program that it starts" };
            self.say_untraced(format!("{whose} has a leak sanitizer, which fails when traced"));
            self.forget(tid);
            return release(tid, Stop::Exec);
        }
        // The root's own image is the interpreter of the script, whatever its name.
        let narrows = self.reach == Reach::Programs
            && tid != self.root
            && !std::fs::read_link(&image).is_ok_and(|image| is_shell(&image));
        let is_tree = self.reach == Reach::Tree;
        if let Some(process) = self.processes.get_mut(&tid) {
            process.is_executed = true;
            let command = process::command_line(tid);
            process.is_doomed = is_tree && self.plan.doomed_words.iter().any(|word| command.contains(word));
            if narrows && trace::set_options(tid, Options::PROCESS).is_ok() {
                process.options = Options::PROCESS;
            }
        }
        go_on(tid, None);
    }

    fn on_signal(&mut self, tid: Pid, signal: Signal) {
        let has_crashed = self.process_of(tid).is_none_or(|(_, process)| process.has_crashed);
        // A second thread that crashes while the process dies adds nothing.
        if !FATAL.contains(&signal) || has_crashed {
            return go_on(tid, Some(signal));
        }
        let Ok(info) = trace::signal_info(tid) else { return go_on(tid, Some(signal)) };
        match trace::disposition(tid, signal) {
            Disposition::Ignored => go_on(tid, Some(signal)),
            Disposition::Caught => {
                self.keep_chance(tid, info);
                go_on(tid, Some(signal));
            }
            Disposition::Default => self.on_fatal(tid, info),
        }
    }

    /// Records the first chance of a signal. The program's own handler runs first; whether it ends the
    /// process is seen later.
    fn keep_chance(&mut self, tid: Pid, info: SignalInfo) {
        let Ok(registers) = look::registers(tid) else { return };
        let Some(options) = self.process_of(tid).map(|(_, process)| process.options) else { return };
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        // Only from now on is the exit of the thread worth a stop.
        drop(trace::set_options(tid, options.with_exits()));
        thread.chance = Some(Chance { info, registers });
    }

    fn on_fatal(&mut self, tid: Pid, info: SignalInfo) {
        let is_told = self.is_told(tid);
        let (Some((process, of)), true) = (self.process_of(tid), is_told) else {
            return go_on(tid, Some(info.signal));
        };
        of.has_crashed = true;
        let Ok(registers) = look::registers(tid) else { return go_on(tid, Some(info.signal)) };
        let chance = self.threads.get_mut(&tid).and_then(|thread| thread.chance.take());
        // A signal that a handler raises again may be pending until the handler returns, and then arrives at
        // the same place.
        let chance = chance.filter(|chance| {
            chance.is_where(&registers) || chance.is_being_handled(tid, registers.general.rsp)
        });
        self.crash(Site { process, tid }, Chance { info, registers }, chance);
    }

    /// Handles a thread that is about to exit, in a process that has handled a signal.
    fn on_exit(&mut self, tid: Pid) {
        let status = trace::event_message(tid).unwrap_or(0);
        // Killed by a signal, or exited with success.
        if status & 0x7f != 0 || status >> 8 == 0 || !self.is_told(tid) {
            return;
        }
        let Some(chance) = self.threads.get_mut(&tid).and_then(|thread| thread.chance.take()) else { return };
        let Ok(registers) = trace::general_registers(tid) else { return };
        // The signal was handled long ago, and did not cause this exit.
        if !chance.is_being_handled(tid, registers.rsp) {
            return;
        }
        let Some((process, of)) = self.process_of(tid) else { return };
        if !of.has_crashed {
            of.has_crashed = true;
            self.end_by_handler(Site { process, tid }, &chance);
        }
    }

    /// Returns whether a crash is reported. Forks of a test process die on purpose, such as death tests, and
    /// so do programs with crash markers on their command line.
    fn is_told(&mut self, tid: Pid) -> bool {
        let (root, count) = (self.root, self.crashes.len());
        self.process_of(tid).is_some_and(|(process, of)| {
            process == root || (of.is_executed && !of.is_doomed && count < CRASH_LIMIT)
        })
    }

    fn process_of(&mut self, tid: Pid) -> Option<(Pid, &mut Process)> {
        let process = self.threads.get(&tid)?.process;
        Some((process, self.processes.get_mut(&process)?))
    }
}

/// Resumes a thread; the exit of one that was killed meanwhile is received later.
pub(super) fn go_on(tid: Pid, signal: Option<Signal>) {
    drop(trace::cont(tid, signal));
}

/// Releases a thread for good, with the signal that it was stopped at.
pub(super) fn release(tid: Pid, stop: Stop) {
    let signal = match stop {
        Stop::Signal(signal) => Some(signal),
        Stop::Group(_) | Stop::Trap | Stop::Birth | Stop::Exec | Stop::Exit | Stop::Other(_) => None,
    };
    // The exit of one that was killed meanwhile is received later.
    drop(trace::detach(tid, signal));
}

#[cfg(test)]
mod tests {
    use host::{
        process::reap_child,
        spawn::{Spawn, spawn},
    };

    use super::*;

    #[test]
    fn an_end_that_another_wait_was_told_is_noticed_and_no_other_is() {
        let args = vec!["-c".into(), "kill -STOP $$".into()];
        let root = spawn(Spawn { args, ..Spawn::new("/bin/sh") }).unwrap();
        let mut tracer = Tracer::off(root.pid(), TracePlan::default());
        tracer.miss(root.pid());
        assert_eq!(tracer.root_exit(), None);
        root.signal(Signal::KILL).unwrap();
        // The dump writer does the same with a thread that dies while attached.
        reap_child(root.pid()).unwrap();
        tracer.miss(Pid::own());
        assert_eq!(tracer.root_exit(), None);
        tracer.miss(root.pid());
        assert_eq!(tracer.root_exit().and_then(|exit| exit.signal), Some(Signal::KILL.0));
    }
}
