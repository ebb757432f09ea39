//! The one place of a guard that waits for processes. It hears of all ends and all stops, lets what is harmless go on,
//! and hands crashes to `crash`.
//!
//! ```text
//! signal ──harmless, or ignored──► goes on with it
//!        ──handled──► kept as first chance, goes on ──the handler ends the process──► crash
//!        ──fatal──► crash: stacks, dump; the process dies of its own signal
//! exec   ──leak sanitizer──► let go for good
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

/// Signals that end a program and say that it is at fault.
const FATAL: [Signal; 7] =
    [Signal::SEGV, Signal::BUS, Signal::ILL, Signal::FPE, Signal::ABRT, Signal::TRAP, Signal::SYS];
/// So many stops are handled before the guard listens to its worker again.
const BURST: u32 = 256;
/// A tree of programs that all crash needs no more than this to be understood.
pub(super) const CRASH_LIMIT: usize = 8;
/// What runs scripts: the programs that it starts are what people mean.
const SHELLS: [&str; 9] = ["sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "busybox", "fish"];

/// How far tracing reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// The test process alone.
    Root,
    /// Through shells and scripts to the programs that they start, and no further.
    Programs,
    /// All that the test process starts.
    Tree,
}

impl Reach {
    /// Returns how far to go for a program when only the test process was asked for.
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
    /// Stops and ends that were met while something else was waited for.
    pub(super) deferred: VecDeque<(Pid, Waited)>,
    /// Threads that did not stop when they were to be let go, and are let go when they do.
    pub(super) leaving: HashSet<Pid>,
    root_exit: Option<RawExit>,
    /// There may be more to hear of than was handled in one go.
    has_more: bool,
    /// The test process was told to end.
    pub(super) is_asked: bool,
    /// All are to end: nothing is looked at any more.
    is_closing: bool,
    /// The root is to be let go at the first instruction of its program, and to stand there.
    is_holding: bool,
    /// Why something runs untraced, until it is told.
    untraced: Option<String>,
    was_untraced_told: bool,
    pub(super) crashes: Vec<Crash>,
}

pub(super) struct Thread {
    pub(super) process: Pid,
    chance: Option<Chance>,
    /// It stands as its stop signal wants it.
    is_stopped: bool,
}

impl Thread {
    pub(super) fn of(process: Pid) -> Self {
        Self { process, chance: None, is_stopped: false }
    }
}

pub(super) struct Process {
    pub(super) options: Options,
    /// It is a program of its own, not a copy of its parent.
    is_executed: bool,
    is_doomed: bool,
    has_crashed: bool,
}

impl Process {
    fn new(options: Options) -> Self {
        Self { options, is_executed: false, is_doomed: false, has_crashed: false }
    }

    /// One that is its own program by now.
    pub(super) fn executed(options: Options) -> Self {
        Self { is_executed: true, ..Self::new(options) }
    }
}

impl Tracer {
    /// Waits for processes without tracing any.
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

    /// Seizes a process that has not become its program yet. Where that is refused, it goes untraced.
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

    /// Seizes a process that has not become its program yet, to have it stand when it has.
    pub(super) fn hold(root: Pid, plan: TracePlan) -> io::Result<Self> {
        let mut tracer = Self::off(root, plan);
        tracer.is_holding = true;
        trace::seize(root, Options::PROCESS)?;
        tracer.threads.insert(root, Thread::of(root));
        tracer.processes.insert(root, Process::new(Options::PROCESS));
        Ok(tracer)
    }

    /// Returns whether the root has not come to its program yet.
    pub(super) fn is_holding(&self) -> bool {
        self.is_holding
    }

    /// Lets the root stand at the first instruction of its program, traced by nobody.
    fn stand(&mut self, root: Pid) {
        self.is_holding = false;
        // Whoever traces it later would be told of the signal that continues it.
        drop(trace::block(root, Signal::CONT));
        // It takes effect when it is let go, before the program runs. One that was killed meanwhile tells its end.
        drop(trace::signal_thread(root, root, Signal::STOP));
        self.forget(root);
        release(root, Stop::Exec);
    }

    /// Traces a root that stands, and lets it hear again what continues it.
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

    /// Notes why something runs untraced; the first reason is the one that is told.
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

    /// Whether [`Self::pump`] has work although no child has told anything since.
    pub(super) fn has_more(&self) -> bool {
        self.has_more || !self.deferred.is_empty()
    }

    /// From now on nothing is looked at: all are to end.
    pub(super) fn close(&mut self) {
        self.is_closing = true;
    }

    /// Whether a traced process stands still because of a stop signal; `None` if it is not traced here.
    pub(super) fn is_stopped(&self, process: Pid) -> Option<bool> {
        self.threads.get(&process).map(|thread| thread.is_stopped)
    }

    /// Handles what has happened. It may take a while when that was a crash.
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

    /// Notices that a process has ended of which nobody will hear any more: the writer of dumps waits for each thread that
    /// it attaches to, and so takes the end of one that was killed meanwhile, with all that it told.
    pub(super) fn miss(&mut self, process: Pid) {
        if process == self.root && self.root_exit.is_none() && process::stat(process).is_none() {
            // One that stands still ends in no other way.
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
            // What the worker wants dead dies; what only hears of it on the way must not stand in the way.
            return if stop == Stop::Exit { go_on(tid, None) } else { release(tid, stop) };
        }
        self.adopt(tid);
        match stop {
            Stop::Signal(signal) => self.on_signal(tid, signal),
            Stop::Group(_) => {
                self.set_stopped(tid, true);
                // A thread that was killed meanwhile tells its end.
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

    /// Notes a thread that the kernel traces for us because its maker is traced. Its own first stop and the news of
    /// its birth come in any order.
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
        // The other threads are gone; the one that called it has the number of the first now.
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
        // The root's own image is what runs the script, whatever its name.
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
        // A second thread that crashes while the process dies is no news.
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

    /// The program's own handler comes first; whether that is the end is seen later.
    fn keep_chance(&mut self, tid: Pid, info: SignalInfo) {
        let Ok(registers) = look::registers(tid) else { return };
        let Some(options) = self.process_of(tid).map(|(_, process)| process.options) else { return };
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        // From now on, and not before, its end is worth a stop.
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
        // A signal that a handler sends again may have to wait until the handler is over, and comes at the same place.
        let chance = chance.filter(|chance| {
            chance.is_where(&registers) || chance.is_being_handled(tid, registers.general.rsp)
        });
        self.crash(Site { process, tid }, Chance { info, registers }, chance);
    }

    /// A thread that is about to end, in a process of which a signal was handled.
    fn on_exit(&mut self, tid: Pid) {
        let status = trace::event_message(tid).unwrap_or(0);
        // Killed by a signal, or ended well.
        if status & 0x7f != 0 || status >> 8 == 0 || !self.is_told(tid) {
            return;
        }
        let Some(chance) = self.threads.get_mut(&tid).and_then(|thread| thread.chance.take()) else { return };
        let Ok(registers) = trace::general_registers(tid) else { return };
        // Long handled, and no part of this end.
        if !chance.is_being_handled(tid, registers.rsp) {
            return;
        }
        let Some((process, of)) = self.process_of(tid) else { return };
        if !of.has_crashed {
            of.has_crashed = true;
            self.end_by_handler(Site { process, tid }, &chance);
        }
    }

    /// Copies of a test process die on purpose, such as death tests; so do programs that are told to.
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

/// Lets a thread run on; one that was killed meanwhile tells its end.
pub(super) fn go_on(tid: Pid, signal: Option<Signal>) {
    drop(trace::cont(tid, signal));
}

/// Lets a thread go for good, with what it was stopped at.
pub(super) fn release(tid: Pid, stop: Stop) {
    let signal = match stop {
        Stop::Signal(signal) => Some(signal),
        Stop::Group(_) | Stop::Trap | Stop::Birth | Stop::Exec | Stop::Exit | Stop::Other(_) => None,
    };
    // One that was killed meanwhile tells its end.
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
        // As the writer of dumps does with what dies when it has attached to it.
        reap_child(root.pid()).unwrap();
        tracer.miss(Pid::own());
        assert_eq!(tracer.root_exit(), None);
        tracer.miss(root.pid());
        assert_eq!(tracer.root_exit().and_then(|exit| exit.signal), Some(Signal::KILL.0));
    }
}
