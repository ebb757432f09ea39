//! A guard's life: one command, one process, one end.
//!
//! ```text
//! waiting ──Exec──► running ──root ends──► lingering ──family gone, or killed──► Crashed, Ended
//!    │                 │ Terminate: TERM, and KILL after the grace      (100 ms at most)
//!    └──EOF──► leave   └──EOF──► kill all, leave
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

/// Helpers of a test often see its end as the end of a pipe, and leave by themselves.
const LINGER: Duration = Duration::from_millis(100);
/// A fork bomb must not hold its guard for ever; what is left then is the watchdog's.
const CLEAR_LIMIT: Duration = Duration::from_secs(5);
/// The same when nobody waits for the answer, and all must be gone within a second.
const LEAVE_LIMIT: Duration = Duration::from_millis(900);

/// Runs as a guard, from the first command to the test's end. Exits with failure when it could not serve.
#[must_use]
pub fn main() -> ExitCode {
    process::ignore_terminal_signals();
    match standard_input().map(serve) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(Gone)) | Err(_) => ExitCode::FAILURE,
    }
}

/// Is the guard of the worker at the other end of a connection.
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
    // The death of those above is seen as the end of the connection. Should all of them die at once, nobody else is left
    // who could end what has escaped the test.
    process::wake_with_parent()?;
    process::become_subreaper()?;
    ChildEnds::watch()
}

fn first_command(control: &mut Control) -> Result<Command, Gone> {
    loop {
        match control.next()? {
            Some(ToGuard::Exec(command)) => return Ok(command),
            // Nothing runs yet, so there is nothing to stop or to end.
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
    // The test alone holds its outputs now. If the null device is gone, its end-of-file comes with the guard's own end.
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

/// Makes a group for the test's family, where this machine lets us. Without one the worker looks at its memory itself.
fn leaf(limit_bytes: u64) -> Option<Leaf> {
    let place = Place::find().ok()?;
    Leaf::make(&place, Some(limit_bytes)).ok()
}

/// Starts the test process, in its group if there is one. Its end comes with all others', from the one place that waits.
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
    // Before it is its program: what a process has used before it moves stays charged to where it was.
    let leaf = leaf.filter(|leaf| leaf.admit(held.pid()).is_ok());
    let mut tracer = match reach {
        Some(reach) => Tracer::seize(held.pid(), plan, reach),
        None => Tracer::off(held.pid(), plan),
    };
    reason.into_iter().for_each(|reason| tracer.say_untraced(reason.to_owned()));
    let released = held.release();
    // A signal on the way to its program stops it, and it needs us to go on.
    while let Ok([false, is_told]) = wait_readable([Some(released.as_fd()), Some(ends.as_fd())], None) {
        if is_told {
            ends.clear();
            // If nothing can be heard of it, its end comes as the end of its last words.
            drop(tracer.pump());
        }
    }
    released.finish()?;
    Ok((Started::watched(tracer), leaf))
}

/// A test process that was born, and how it is watched.
struct Started {
    tracer: Tracer,
    /// It stands, for a debugger.
    debugged: Option<Debugged>,
    /// How far it is traced if no debugger takes it.
    reach: Option<Reach>,
}

impl Started {
    fn watched(tracer: Tracer) -> Self {
        Self { tracer, debugged: None, reach: None }
    }
}

/// Says why a program would not be the same when it is traced.
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
    /// The root is reaped: its number may be another's.
    is_over: bool,
    /// When the grace of a Terminate ends.
    kill_at: Option<Instant>,
    /// The worker wished the whole family dead: survivors are no leak.
    is_killed: bool,
    stopped: Stopped,
    /// A sample that was asked for.
    sampling: Option<Sampling>,
    /// How often dumps were asked for.
    dump_rounds: u32,
    /// It was started for a debugger.
    debugged: Option<Debugged>,
    /// How far it is traced if no debugger takes it.
    reach: Option<Reach>,
    /// The group of the test's family. It is removed with the guard's end, when all in it are reaped.
    leaf: Option<Leaf>,
    /// Where the root was started, and its core file is if it has one.
    cwd: PathBuf,
}

impl Guard {
    /// Serves commands until the root has ended.
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

    /// Waits for the next thing to happen, and handles it.
    fn wait(&mut self, deadline: Option<Instant>) -> Result<(), Gone> {
        let unborn = self.debugged.as_ref().and_then(|debugged| debugged.unborn.as_ref());
        let fds = [Some(self.control.as_fd()), Some(self.ends.as_fd()), unborn.map(AsFd::as_fd)];
        // What was left over must not wait for the next thing to happen.
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
            // A root's end that came together with the worker's is of no use to anyone.
            self.control.fill()?;
            self.obey()?;
        }
        Ok(())
    }

    /// A process that stood before it became its program has become it, or tells why not.
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
                // A second question before the answer to the first is the same question.
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
            // It may be refused by a program of another user; the KILL after the grace is the answer to all.
            let _refused = process::kill_group(self.root, Signal::TERM);
        }
        // A stopped process would hear it only after the grace.
        self.stopped.resume();
        if let Some(debugged) = &mut self.debugged {
            debugged.hand_over(self.root);
        }
        self.kill_at = Some(Instant::now() + grace);
    }

    fn kill(&mut self) {
        self.kill_at = None;
        self.is_killed = true;
        // The strike finds whoever is not in the group, and all where groups can't be killed.
        self.leaf.iter().for_each(|leaf| drop(leaf.kill()));
        family::strike();
    }

    /// Sees the rest of the family off, and tells crashes and the end.
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
