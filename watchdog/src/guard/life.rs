//! The guard's supervisor: one command, one process, one exit report.
//!
//! ```text
//! waiting ──Exec──► running ──root exits──► lingering ──tree gone, or killed──► Crashed, Ended
//!    │                 │ Terminate: TERM, and KILL after the grace      (100 ms at most)
//!    └──EOF──► exit    └──EOF──► kill all, exit
//! ```

use std::{
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use host::{
    cgroup::{Leaf, Place},
    io::{silence_output, standard_input, wait_readable},
    process::{self, ChildEnds, Pid, RawExit, Signal},
    spawn::{Spawn, SpawnError, Stream, spawn},
    trace::{self, Released},
};
use wire::control::{Command, FromGuard, OsBytes, RawEnd, ToGuard, TraceMode};

use crate::errors::chain;

use super::{
    control::{Control, Gone},
    debug::{self, Debugged},
    end::raw_end,
    family::{self, Stopped},
    sample::Sampling,
    sanitizer,
    tracer::{Reach, Tracer},
};

/// Time for helpers of a test to exit by themselves: they often notice its exit by the end of a pipe.
const LINGER: Duration = Duration::from_millis(100);
/// Limit for killing the process tree. A fork bomb must not occupy its guard forever; the remaining processes
/// are left to the watchdog.
const CLEAR_LIMIT: Duration = Duration::from_secs(5);
/// The same when the worker is gone, and everything must be gone within a second.
const LEAVE_LIMIT: Duration = Duration::from_millis(900);

/// Runs as a guard, from the first command to the test's exit. Returns failure when it could not serve.
#[must_use]
pub fn main() -> ExitCode {
    process::ignore_terminal_signals();
    match standard_input().map(serve) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(Gone)) | Err(_) => ExitCode::FAILURE,
    }
}

/// Serves the worker at the other end of the connection.
pub(crate) fn serve(socket: OwnedFd) -> Result<(), Gone> {
    process::set_name(c"heeler-guard");
    let mut control = Control::new(socket);
    let command = first_command(&mut control)?;
    match prepare() {
        Ok(ends) => guard(control, ends, &command),
        Err(source) => control.send(&FromGuard::Failed { error: format!("prepare the guard: {source}") }),
    }
}

fn prepare() -> std::io::Result<ChildEnds> {
    // The death of a process above is noticed by the end of the connection. If all of them die at once, no
    // other process is left to kill processes that have escaped the test.
    process::wake_with_parent()?;
    process::become_subreaper()?;
    ChildEnds::watch()
}

fn first_command(control: &mut Control) -> Result<Command, Gone> {
    loop {
        match control.next()? {
            Some(ToGuard::Exec(command)) => return Ok(command),
            // Nothing runs yet, so there is nothing to stop or to kill.
            Some(
                ToGuard::Terminate { .. }
                | ToGuard::Kill
                | ToGuard::Pause
                | ToGuard::Resume
                | ToGuard::Sample
                | ToGuard::Dump
                | ToGuard::LetGo
                | ToGuard::HandOver
                | ToGuard::TakeBack,
            ) => return Err(Gone),
            None => control.fill()?,
        }
    }
}

fn guard(mut control: Control, ends: ChildEnds, command: &Command) -> Result<(), Gone> {
    let started = Instant::now();
    let leaf = command.memory_bytes.and_then(leaf);
    let (Started { tracer, debugged, reach }, leaf) = match start(command, &ends, leaf) {
        Ok(started) => started,
        Err(error) => return control.send(&FromGuard::Failed { error: chain(&error) }),
    };
    host::fail::pass("guard.started");
    // From here on only the test holds its outputs. If the null device is missing, their end-of-file comes
    // with the guard's own exit.
    let _silenced = silence_output();
    let mut guard = Guard {
        control,
        ends,
        root: tracer.root,
        tracer,
        is_over: false,
        kill_at: None,
        is_killed: false,
        stopped: Stopped::default(),
        sampling: None,
        dump_rounds: 0,
        debugged,
        reach,
        leaf,
        cwd: command.cwd.as_path().to_owned(),
    };
    match guard.run() {
        Ok(exit) => guard.leave(exit, started),
        Err(Gone) => {
            guard.kill();
            let _leaked = family::clear(&guard.ends, &mut guard.tracer, Instant::now() + LEAVE_LIMIT);
            Err(Gone)
        }
    }
}

/// Creates a control group for the test's process tree, if this machine allows it. Without one the worker
/// measures the memory itself.
fn leaf(limit_bytes: u64) -> Option<Leaf> {
    let place = Place::find().ok()?;
    Leaf::make(&place, Some(limit_bytes)).ok()
}

/// Starts the test process, in its control group if there is one. Its exit is received like all others, by
/// the one module that waits.
fn start(
    command: &Command,
    ends: &ChildEnds,
    leaf: Option<Leaf>,
) -> Result<(Started, Option<Leaf>), SpawnError> {
    let string = |bytes: &OsBytes| bytes.as_os_str().to_owned();
    let start = Spawn {
        args: command.args.iter().map(string).collect(),
        env: Some(command.env.iter().map(|(name, value)| (string(name), string(value))).collect()),
        cwd: Some(command.cwd.as_path().to_owned()),
        stdout: Stream::Inherit,
        stderr: Stream::Inherit,
        ..Spawn::new(command.program.as_path())
    };
    let plan = command.trace.clone().unwrap_or_default();
    let reach = match plan.mode {
        _ if command.trace.is_none() => None,
        TraceMode::Off => None,
        TraceMode::Root => Some(Reach::of_program(&program_of(command))),
        TraceMode::Tree => Some(Reach::Tree),
    };
    let reason = reach.as_ref().and_then(|_| suffers(command));
    let reach = reach.filter(|_| reason.is_none());
    if command.is_held {
        let may_trace = !trace::takes_privileges(&program_of(command));
        let (mut tracer, debugged) = debug::start(start, plan, (may_trace, ends))?;
        reason.into_iter().for_each(|reason| tracer.say_untraced(reason.to_owned()));
        return Ok((Started { tracer, debugged: Some(debugged), reach }, leaf));
    }
    if reach.is_none() && leaf.is_none() {
        let mut tracer = Tracer::off(spawn(start)?.pid(), plan);
        reason.into_iter().for_each(|reason| tracer.say_untraced(reason.to_owned()));
        return Ok((Started::watched(tracer), None));
    }
    let held = trace::hold(start)?;
    // The process is moved before it executes its program: memory used before the move stays charged to the
    // old group.
    let leaf = leaf.filter(|leaf| leaf.admit(held.pid()).is_ok());
    let mut tracer = match reach {
        Some(reach) => Tracer::seize(held.pid(), plan, reach),
        None => Tracer::off(held.pid(), plan),
    };
    reason.into_iter().for_each(|reason| tracer.say_untraced(reason.to_owned()));
    let released = held.release();
    // A signal before the program is executed stops the process, and only the guard can resume it.
    while let Ok([false, is_told]) = wait_readable([Some(released.as_fd()), Some(ends.as_fd())], None) {
        if is_told {
            ends.clear();
            // If the wait fails, the exit is noticed by the end of the pipe from the child.
            drop(tracer.pump());
        }
    }
    released.finish()?;
    Ok((Started::watched(tracer), leaf))
}

/// A started test process, and how it is traced.
struct Started {
    tracer: Tracer,
    /// Set if it is stopped for a debugger.
    debugged: Option<Debugged>,
    /// The tracing scope if no debugger takes the process.
    reach: Option<Reach>,
}

impl Started {
    fn watched(tracer: Tracer) -> Self {
        Self { tracer, debugged: None, reach: None }
    }
}

/// Returns the reason why a program would behave differently when traced.
fn suffers(command: &Command) -> Option<&'static str> {
    let is_preload = |name: &OsBytes, value: &OsBytes| {
        name.as_bytes() == b"LD_PRELOAD" && sanitizer::is_preloaded(value.as_bytes())
    };
    if command.env.iter().any(|(name, value)| is_preload(name, value)) {
        return Some("its environment preloads a leak sanitizer, which fails when traced");
    }
    trace::takes_privileges(&program_of(command))
        .then_some("its file gives it privileges, which tracing would take away")
}

fn program_of(command: &Command) -> PathBuf {
    command.cwd.as_path().join(command.program.as_path())
}

struct Guard {
    control: Control,
    ends: ChildEnds,
    tracer: Tracer,
    root: Pid,
    /// The root is reaped: its id may be reused.
    is_over: bool,
    /// When the grace period of a `Terminate` ends.
    kill_at: Option<Instant>,
    /// The worker ordered the whole tree killed: survivors are no leak.
    is_killed: bool,
    stopped: Stopped,
    /// A requested sample.
    sampling: Option<Sampling>,
    /// The number of dump requests.
    dump_rounds: u32,
    /// Set if it was started for a debugger.
    debugged: Option<Debugged>,
    /// The tracing scope if no debugger takes the process.
    reach: Option<Reach>,
    /// The control group of the test's tree. It is removed when the guard ends, after everything in it is
    /// reaped.
    leaf: Option<Leaf>,
    /// The directory in which the root was started, and in which its core file is, if it has one.
    cwd: PathBuf,
}

impl Guard {
    /// Serves commands until the root has exited.
    fn run(&mut self) -> Result<RawExit, Gone> {
        let is_limited = self.leaf.as_ref().is_some_and(Leaf::has_limit);
        self.control.send(&FromGuard::Started { pid: self.root.as_u32(), is_limited })?;
        if let Some(debugged) = &self.debugged {
            self.control.send(&FromGuard::Standing { is_program: debugged.is_program() })?;
        }
        self.obey()?;
        loop {
            let sample_at = self.sampling.as_ref().map(|sampling| sampling.due);
            let look_at = self.debugged.as_ref().and_then(Debugged::next_look);
            self.wait([self.kill_at, sample_at, look_at].into_iter().flatten().min())?;
            if let Some(exit) = self.tracer.root_exit() {
                return Ok(exit);
            }
            let is_over = |at: Option<Instant>| at.is_some_and(|at| Instant::now() >= at);
            if is_over(sample_at) {
                self.tell_sample()?;
            }
            if is_over(self.kill_at) {
                self.kill();
            }
            if is_over(look_at)
                && let Some(debugged) = &mut self.debugged
                && debugged.look(self.root, self.stopped.is_paused())
            {
                self.control.send(&FromGuard::Deserted)?;
            }
        }
    }

    /// Waits for the next event, and handles it.
    fn wait(&mut self, deadline: Option<Instant>) -> Result<(), Gone> {
        let unborn = self.debugged.as_ref().and_then(|debugged| debugged.unborn.as_ref());
        let fds = [Some(self.control.as_fd()), Some(self.ends.as_fd()), unborn.map(AsFd::as_fd)];
        // Deferred stops must not wait for the next event.
        let deadline = if self.tracer.has_more() { Some(Instant::now()) } else { deadline };
        let [is_told, is_ended, is_born] = wait_readable(fds, deadline).map_err(|_| Gone)?;
        if is_ended {
            self.ends.clear();
        }
        if is_ended || self.tracer.has_more() {
            self.tracer.pump().map_err(|_| Gone)?;
            if let Some(reason) = self.tracer.take_untraced() {
                self.control.send(&FromGuard::Untraced { reason })?;
            }
        }
        if is_born {
            self.born()?;
        }
        if is_told {
            // A root's exit that came together with the worker's is of no use.
            self.control.fill()?;
            self.obey()?;
        }
        Ok(())
    }

    /// Handles the result of the exec of a process that was stopped before it: success, or the error.
    fn born(&mut self) -> Result<(), Gone> {
        let unborn = self.debugged.as_mut().and_then(|debugged| debugged.unborn.take());
        match unborn.map(Released::finish) {
            None | Some(Ok(_)) => Ok(()),
            Some(Err(error)) => {
                self.control.send(&FromGuard::Failed { error: chain(&error) })?;
                Err(Gone)
            }
        }
    }

    fn tell_sample(&mut self) -> Result<(), Gone> {
        match self.sampling.take() {
            Some(sampling) => {
                let sample = sampling.finish(self.root, self.stopped.time());
                self.control.send(&FromGuard::Sampled(sample))
            }
            None => Ok(()),
        }
    }

    fn obey(&mut self) -> Result<(), Gone> {
        while let Some(command) = self.control.next()? {
            match command {
                ToGuard::Terminate { grace_ms } => self.terminate(Duration::from_millis(grace_ms)),
                ToGuard::Kill => self.kill(),
                ToGuard::Pause => {
                    self.stopped.stop(&self.ends, &mut self.tracer);
                    self.control.send(&FromGuard::Paused)?;
                }
                ToGuard::Resume => self.stopped.resume(),
                // A second request before the first response is the same request.
                ToGuard::Sample => {
                    self.sampling.get_or_insert_with(|| Sampling::begin(self.root));
                }
                ToGuard::Dump => {
                    let report = self.tracer.dump_family(self.dump_rounds);
                    self.dump_rounds += 1;
                    self.control.send(&FromGuard::Dumped(report))?;
                }
                ToGuard::LetGo => {
                    self.tracer.let_go();
                    self.control.send(&FromGuard::LetGone)?;
                }
                ToGuard::HandOver => {
                    if let Some(debugged) = &mut self.debugged {
                        debugged.hand_over(self.root);
                    }
                }
                ToGuard::TakeBack => {
                    if let Some(debugged) = &mut self.debugged {
                        debugged.take_back(&mut self.tracer, self.reach);
                    }
                }
                ToGuard::Exec(_) => return Err(Gone),
            }
        }
        Ok(())
    }

    fn terminate(&mut self, grace: Duration) {
        self.tracer.is_asked = true;
        if !self.is_over {
            // A process of another user may refuse the signal; the KILL after the grace period reaches all.
            let _refused = process::kill_group(self.root, Signal::TERM);
        }
        // A stopped process would receive the signal only after the grace period.
        self.stopped.resume();
        if let Some(debugged) = &mut self.debugged {
            debugged.hand_over(self.root);
        }
        self.kill_at = Some(Instant::now() + grace);
    }

    fn kill(&mut self) {
        self.kill_at = None;
        self.is_killed = true;
        // The kill of the tree reaches processes outside of the group, and all of them where groups cannot be
        // killed.
        self.leaf.iter().for_each(|leaf| drop(leaf.kill()));
        family::strike();
    }

    /// Clears the remaining process tree, and reports crashes and the exit.
    fn leave(&mut self, exit: RawExit, started: Instant) -> Result<(), Gone> {
        let wall = started.elapsed();
        self.is_over = true;
        if let Some(reason) = self.tracer.take_untraced() {
            self.control.send(&FromGuard::Untraced { reason })?;
        }
        let linger_until = Instant::now() + LINGER;
        let mut limit = CLEAR_LIMIT;
        while process::has_children() && !self.is_killed {
            let until = self.kill_at.map_or(linger_until, |at| at.min(linger_until));
            if Instant::now() >= until {
                break;
            }
            if self.wait(Some(until)).is_err() {
                limit = LEAVE_LIMIT;
                break;
            }
        }
        let limit_peak = self.leaf.as_ref().and_then(Leaf::peak_at_limit);
        let survivors = family::clear(&self.ends, &mut self.tracer, Instant::now() + limit);
        let leaked = if self.is_killed { Vec::new() } else { survivors };
        for report in self.tracer.take_reports() {
            self.control.send(&FromGuard::Crashed(report))?;
        }
        self.leaf = None;
        let core = exit.has_core.then(|| process::core_file(self.root, &self.cwd)).flatten();
        let core = core.as_deref().map(OsBytes::from);
        let end = RawEnd { core, ..raw_end(exit, wall, (leaked, limit_peak)) };
        host::fail::pass("guard.ended");
        self.control.send(&FromGuard::Ended(end))
    }
}
