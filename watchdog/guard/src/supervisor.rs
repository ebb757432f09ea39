//! The guard's supervisor: one command, one process, one exit report.
//!
//! ```text
//! waiting ──Exec──► running ──root exits──► lingering ──tree gone or killed──► Crashed, Ended
//!    │                 │ Terminate: SIGTERM, then SIGKILL      (100 ms at most)
//!    └──EOF──► exit    └──EOF──► kill all, exit
//! ```

use std::{
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use heeler_protocol::{
    control::{FromGuard, LeakedProcess, OsText, ProcessExit, TestCommand, ToGuard, TraceMode},
    fork_server::CHANNEL_ARGUMENT,
};
use heeler_sys::{
    cgroup::{CgroupParent, LeafCgroup},
    io::{duplicate_standard_input, redirect_output_to_null, take_report_channel, wait_readable},
    process::{self, ChildExits, ExitStatus, Pid, Signal},
    spawn::{ChildStdio, SpawnError, SpawnOptions, spawn},
    trace::{self, ReleasedProcess},
};

use heeler_core::error_chain;

use super::{
    activity::PendingSample,
    adopted_test::AdoptedTest,
    control::{GuardSocket, WorkerGone},
    debug_hold::{self, DebugHold},
    exit_report::exit_report,
    process_tree::{self, PausedTree},
    rescued_output::rescue_output_of_hung,
    trace_conflict,
    trace_scope::TraceScope,
    tracer::ProcessTracer,
};

/// Time for a test's helper processes to exit by themselves. They often notice the test's exit as the end of
/// a pipe.
const LINGER: Duration = Duration::from_millis(100);
/// Time limit for killing the process tree. A fork bomb must not occupy its guard forever; the watchdog
/// handles the remaining processes.
const KILL_LIMIT: Duration = Duration::from_secs(5);
/// Time limit for killing the process tree after the worker is gone. Everything must be gone within a second.
const ORPHANED_KILL_LIMIT: Duration = Duration::from_millis(900);

/// Runs as a guard, from the first command to the test's exit. Returns a failure code if the guard could not
/// serve.
#[must_use]
pub fn main() -> ExitCode {
    process::ignore_terminal_signals();
    let has_channel = std::env::args_os().any(|argument| argument == CHANNEL_ARGUMENT);
    let source = if has_channel {
        take_report_channel().map(|channel| ProcessSource::Command(Some(channel)))
    } else {
        AdoptedTest::from_arguments()
            .map(|test| test.map_or(ProcessSource::Command(None), ProcessSource::Adopted))
    };
    let served = source.and_then(|source| Ok(serve(duplicate_standard_input()?, source)));
    match served {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(WorkerGone)) | Err(_) => ExitCode::FAILURE,
    }
}

pub(crate) enum ProcessSource {
    /// Execute the command. Its processes report on this channel, if there is one.
    Command(Option<OwnedFd>),
    /// Adopt a process that was forked by the process that executed this guard.
    Adopted(AdoptedTest),
}

/// Serves the worker at the other end of the connection.
pub(crate) fn serve(socket: OwnedFd, source: ProcessSource) -> Result<(), WorkerGone> {
    process::set_name(c"heeler-guard");
    let mut control = GuardSocket::new(socket);
    let command = first_command(&mut control)?;
    match prepare() {
        Ok(ends) => supervise(control, ends, &command, source),
        Err(source) => control
            .send(&FromGuard::StartFailed { error: format!("cannot prepare the guard process: {source}") }),
    }
}

fn prepare() -> std::io::Result<ChildExits> {
    // The connection ends when a process above dies. If all of them die at once, only the guard can still
    // kill processes that have escaped the test.
    process::wake_on_parent_exit()?;
    process::become_subreaper()?;
    ChildExits::watch()
}

fn first_command(control: &mut GuardSocket) -> Result<TestCommand, WorkerGone> {
    loop {
        match control.next_command()? {
            Some(ToGuard::Exec(command)) => return Ok(command),
            // No process runs yet, so there is none to stop or kill.
            Some(
                ToGuard::Terminate { .. }
                | ToGuard::Kill
                | ToGuard::Pause
                | ToGuard::Resume
                | ToGuard::Sample
                | ToGuard::Dump
                | ToGuard::ReportStacks { .. }
                | ToGuard::ContinueUntraced
                | ToGuard::ContinueTraced,
            ) => return Err(WorkerGone),
            None => control.fill()?,
        }
    }
}

fn supervise(
    mut control: GuardSocket,
    ends: ChildExits,
    command: &TestCommand,
    source: ProcessSource,
) -> Result<(), WorkerGone> {
    let started = Instant::now();
    let leaf = command.memory_bytes.and_then(create_control_group);
    // Start or adopt the test process.
    let start = match source {
        ProcessSource::Command(channel) => {
            start_test(command, &ends, leaf, channel).map_err(|error| error_chain(&error))
        }
        ProcessSource::Adopted(test) => match test.release(command) {
            Ok(tracer) => Ok((StartedTest::without_debugger(tracer), None)),
            Err(error) => Err(error_chain(&error)),
        },
    };
    let (StartedTest { tracer, debug_hold: debugged, scope: reach }, leaf) = match start {
        Ok(started) => started,
        Err(error) => return control.send(&FromGuard::StartFailed { error }),
    };
    heeler_sys::fail::pass("guard.started");
    // From here on, only the test has its outputs open. If the null device is missing, the outputs end when
    // the guard exits.
    let _silenced = redirect_output_to_null();
    // Supervise the test until the root exits, then clear the tree and report.
    let mut guard = GuardSupervisor {
        control,
        child_exits: ends,
        root: tracer.root(),
        tracer,
        is_root_reaped: false,
        kill_at: None,
        is_killed: false,
        paused: PausedTree::default(),
        pending_sample: None,
        dump_rounds: 0,
        debug_hold: debugged,
        scope: reach,
        control_group: leaf,
        cwd: command.cwd.as_path().to_owned(),
    };
    match guard.run() {
        Ok(exit) => guard.clear_and_report(exit, started),
        Err(WorkerGone) => {
            guard.kill();
            let _leaked = process_tree::kill_and_reap_tree(
                &guard.child_exits,
                &mut guard.tracer,
                Instant::now() + ORPHANED_KILL_LIMIT,
            );
            Err(WorkerGone)
        }
    }
}

/// Creates a control group for the test's process tree, if this machine allows it. Otherwise the worker
/// measures the memory itself.
fn create_control_group(limit_bytes: u64) -> Option<LeafCgroup> {
    let place = CgroupParent::find().ok()?;
    LeafCgroup::create(&place, Some(limit_bytes)).ok()
}

/// Starts the test process, in its control group if there is one. Its exit is received like all others, in
/// the only module that waits for processes.
fn start_test(
    command: &TestCommand,
    ends: &ChildExits,
    leaf: Option<LeafCgroup>,
    channel: Option<OwnedFd>,
) -> Result<(StartedTest, Option<LeafCgroup>), SpawnError> {
    let string = |bytes: &OsText| bytes.as_os_str().to_owned();
    let start = SpawnOptions {
        args: command.args.iter().map(string).collect(),
        env: Some(command.env.iter().map(|(name, value)| (string(name), string(value))).collect()),
        cwd: Some(command.cwd.as_path().to_owned()),
        stdout: ChildStdio::Inherit,
        stderr: ChildStdio::Inherit,
        ..SpawnOptions::new(command.program.as_path())
    }
    .with_channel(channel, command.is_channel_standard_input);
    let plan = command.trace.clone().unwrap_or_default();
    // Decide which processes to trace.
    let reach = match plan.mode {
        _ if command.trace.is_none() => None,
        TraceMode::Off => None,
        TraceMode::Root => Some(TraceScope::for_program(&program_path(command))),
        TraceMode::Tree => Some(TraceScope::Tree),
    };
    let reason = reach.as_ref().and_then(|_| untraceable_reason(command));
    let reach = reach.filter(|_| reason.is_none());
    // For a debugger, stop the process at its start.
    if command.is_stopped_at_start {
        let may_trace = !trace::loses_privileges_when_traced(&program_path(command));
        let (mut tracer, debugged) = debug_hold::start_stopped(start, plan, may_trace, ends)?;
        reason.into_iter().for_each(|reason| tracer.record_untraced(reason.to_owned()));
        return Ok((StartedTest { tracer, debug_hold: Some(debugged), scope: reach }, leaf));
    }
    // Without tracing and control group, spawning is enough.
    if reach.is_none() && leaf.is_none() {
        let mut tracer = ProcessTracer::untraced(spawn(start)?.pid(), plan);
        reason.into_iter().for_each(|reason| tracer.record_untraced(reason.to_owned()));
        return Ok((StartedTest::without_debugger(tracer), None));
    }
    // Otherwise hold the process before `exec`, to set up tracing and the control group.
    let held = trace::spawn_held(start)?;
    // Move the process before it executes its program, because memory used earlier stays charged to the old
    // group.
    let leaf = leaf.filter(|leaf| leaf.add_process(held.pid()).is_ok());
    let mut tracer = match reach {
        Some(reach) => ProcessTracer::seize(held.pid(), plan, reach),
        None => ProcessTracer::untraced(held.pid(), plan),
    };
    reason.into_iter().for_each(|reason| tracer.record_untraced(reason.to_owned()));
    let released = held.release();
    // A signal before `exec` stops the process, and only the guard can resume it.
    while let Ok([false, has_child_event]) = wait_readable([Some(released.as_fd()), Some(ends.as_fd())], None)
    {
        if has_child_event {
            ends.clear();
            // If the wait fails, the end of the pipe from the child shows the exit.
            drop(tracer.handle_pending_events());
        }
    }
    released.finish()?;
    Ok((StartedTest::without_debugger(tracer), leaf))
}

/// A started test process, and how to trace it.
struct StartedTest {
    tracer: ProcessTracer,
    /// Set if the process is stopped for a debugger.
    debug_hold: Option<DebugHold>,
    /// Tracing scope if no debugger attaches to the process.
    scope: Option<TraceScope>,
}

impl StartedTest {
    fn without_debugger(tracer: ProcessTracer) -> Self {
        Self { tracer, debug_hold: None, scope: None }
    }
}

/// Returns why a program would behave differently when traced; `None` if it would not.
fn untraceable_reason(command: &TestCommand) -> Option<&'static str> {
    let is_preload = |name: &OsText, value: &OsText| {
        name.as_bytes() == b"LD_PRELOAD" && trace_conflict::preloads_leak_sanitizer(value.as_bytes())
    };
    if command.env.iter().any(|(name, value)| is_preload(name, value)) {
        return Some("LD_PRELOAD loads LeakSanitizer, which does not work under ptrace");
    }
    trace::loses_privileges_when_traced(&program_path(command))
        .then_some("its file is setuid or has capabilities, which have no effect under ptrace")
}

fn program_path(command: &TestCommand) -> PathBuf {
    command.cwd.as_path().join(command.program.as_path())
}

struct GuardSupervisor {
    control: GuardSocket,
    child_exits: ChildExits,
    tracer: ProcessTracer,
    root: Pid,
    /// The root is reaped, so its id may be reused.
    is_root_reaped: bool,
    /// End of the grace period of a `Terminate`.
    kill_at: Option<Instant>,
    /// The worker ordered the whole tree killed, so survivors do not count as leaked.
    is_killed: bool,
    paused: PausedTree,
    /// A requested sample that is not finished.
    pending_sample: Option<PendingSample>,
    dump_rounds: u32,
    /// Set if the process was started for a debugger.
    debug_hold: Option<DebugHold>,
    /// Tracing scope if no debugger attaches to the process.
    scope: Option<TraceScope>,
    /// Control group of the test's tree. Removed when the guard ends, after everything in the group is
    /// reaped.
    control_group: Option<LeafCgroup>,
    /// Working directory of the root at its start, where its core file would be.
    cwd: PathBuf,
}

impl GuardSupervisor {
    /// Serves commands until the root has exited.
    fn run(&mut self) -> Result<ExitStatus, WorkerGone> {
        let is_limited = self.control_group.as_ref().is_some_and(LeafCgroup::has_limit);
        self.control.send(&FromGuard::Started { pid: self.root.as_u32(), is_limited })?;
        if let Some(debugged) = &self.debug_hold {
            self.control.send(&FromGuard::StoppedAtStart { is_program: debugged.is_program() })?;
        }
        self.handle_commands()?;
        loop {
            let sample_at = self.pending_sample.as_ref().map(|sampling| sampling.due);
            let look_at = self.debug_hold.as_ref().and_then(DebugHold::next_check);
            self.handle_next_event([self.kill_at, sample_at, look_at].into_iter().flatten().min())?;
            if let Some(exit) = self.tracer.root_exit() {
                return Ok(exit);
            }
            let is_over = |at: Option<Instant>| at.is_some_and(|at| Instant::now() >= at);
            if is_over(sample_at) {
                self.send_sample()?;
            }
            if is_over(self.kill_at) {
                self.kill();
            }
            if is_over(look_at)
                && let Some(debugged) = &mut self.debug_hold
                && debugged.check_debugger(self.root, self.paused.is_paused())
            {
                self.control.send(&FromGuard::DebuggerExited)?;
            }
        }
    }

    fn handle_next_event(&mut self, deadline: Option<Instant>) -> Result<(), WorkerGone> {
        let pending_exec = self.debug_hold.as_ref().and_then(|debugged| debugged.pending_exec.as_ref());
        let fds = [Some(self.control.as_fd()), Some(self.child_exits.as_fd()), pending_exec.map(AsFd::as_fd)];
        // Deferred stops must not wait for the next event.
        let deadline = if self.tracer.has_more() { Some(Instant::now()) } else { deadline };
        let [has_command, is_ended, has_exec_result] =
            wait_readable(fds, deadline).map_err(|_| WorkerGone)?;
        if is_ended {
            self.child_exits.clear();
        }
        if is_ended || self.tracer.has_more() {
            self.tracer.handle_pending_events().map_err(|_| WorkerGone)?;
            if let Some(reason) = self.tracer.take_untraced() {
                self.control.send(&FromGuard::Untraced { reason })?;
            }
        }
        if has_exec_result {
            self.on_exec_result()?;
        }
        if has_command {
            // Fails if the worker is gone. A root exit at the same time no longer matters then.
            self.control.fill()?;
            self.handle_commands()?;
        }
        Ok(())
    }

    /// Handles the result of a delayed `exec`: success or an error.
    fn on_exec_result(&mut self) -> Result<(), WorkerGone> {
        let pending_exec = self.debug_hold.as_mut().and_then(|debugged| debugged.pending_exec.take());
        match pending_exec.map(ReleasedProcess::finish) {
            None | Some(Ok(_)) => Ok(()),
            Some(Err(error)) => {
                self.control.send(&FromGuard::StartFailed { error: error_chain(&error) })?;
                Err(WorkerGone)
            }
        }
    }

    fn send_sample(&mut self) -> Result<(), WorkerGone> {
        match self.pending_sample.take() {
            Some(sampling) => {
                let sample = sampling.finish(self.root);
                self.control.send(&FromGuard::Sampled(sample))
            }
            None => Ok(()),
        }
    }

    fn handle_commands(&mut self) -> Result<(), WorkerGone> {
        while let Some(command) = self.control.next_command()? {
            match command {
                ToGuard::Terminate { grace_ms } => self.terminate(Duration::from_millis(grace_ms)),
                ToGuard::Kill => self.kill(),
                ToGuard::Pause => {
                    self.paused.pause(&self.child_exits, &mut self.tracer);
                    self.control.send(&FromGuard::Paused)?;
                }
                ToGuard::Resume => self.paused.resume(),
                // A second request before the first response is the same request.
                ToGuard::Sample => {
                    self.pending_sample.get_or_insert_with(|| PendingSample::begin(self.root));
                }
                ToGuard::Dump => {
                    let report = self.tracer.dump_tree(self.dump_rounds);
                    self.dump_rounds += 1;
                    self.control.send(&FromGuard::Dumped(report))?;
                }
                ToGuard::ReportStacks { signal } => {
                    if !self.is_root_reaped {
                        // Ignore errors: a process of another user may refuse the signal, and is then ended
                        // without its stack traces.
                        let _is_permitted = process::signal_child(self.root, Signal(signal));
                    }
                }
                ToGuard::ContinueUntraced => {
                    if let Some(debugged) = &mut self.debug_hold {
                        debugged.hand_over(self.root);
                    }
                }
                ToGuard::ContinueTraced => {
                    if let Some(debugged) = &mut self.debug_hold {
                        debugged.take_back(&mut self.tracer, self.scope);
                    }
                }
                ToGuard::Exec(_) => return Err(WorkerGone),
            }
        }
        Ok(())
    }

    fn terminate(&mut self, grace: Duration) {
        self.tracer.request_root_exit();
        if !self.is_root_reaped {
            if self.dump_rounds > 0 {
                // Best effort: without it, the result lacks output that the process has not written.
                let _problem = rescue_output_of_hung(self.root);
            }
            // A process of another user may refuse SIGTERM, but the SIGKILL after the grace period reaches
            // it.
            let _refused = process::kill_group(self.root, Signal::TERM);
        }
        // A stopped process would receive the signal only after the grace period.
        self.paused.resume();
        if let Some(debugged) = &mut self.debug_hold {
            debugged.hand_over(self.root);
        }
        self.kill_at = Some(Instant::now() + grace);
    }

    fn kill(&mut self) {
        self.kill_at = None;
        self.is_killed = true;
        // Killing the tree also reaches processes outside the group, and all processes if groups cannot be
        // killed.
        self.control_group.iter().for_each(|leaf| drop(leaf.kill()));
        process_tree::kill_tree();
    }

    /// Removes the remaining process tree, and reports crashes and the exit.
    fn clear_and_report(&mut self, exit: ExitStatus, started: Instant) -> Result<(), WorkerGone> {
        let wall = started.elapsed();
        self.is_root_reaped = true;
        if let Some(reason) = self.tracer.take_untraced() {
            self.control.send(&FromGuard::Untraced { reason })?;
        }
        // Let helper processes exit by themselves.
        let linger_until = Instant::now() + LINGER;
        let mut limit = KILL_LIMIT;
        while process::has_children() && !self.is_killed {
            let until = self.kill_at.map_or(linger_until, |at| at.min(linger_until));
            if Instant::now() >= until {
                break;
            }
            if self.handle_next_event(Some(until)).is_err() {
                limit = ORPHANED_KILL_LIMIT;
                break;
            }
        }
        // Kill the rest.
        let limit_peak = self.control_group.as_ref().and_then(LeafCgroup::peak_at_limit);
        let survivors =
            process_tree::kill_and_reap_tree(&self.child_exits, &mut self.tracer, Instant::now() + limit);
        let is_leaked = |one: &LeakedProcess| !self.is_killed || one.is_running;
        let leaked = survivors.into_iter().filter(is_leaked).collect();
        // Report crashes, then the exit.
        for report in self.tracer.take_crash_reports() {
            self.control.send(&FromGuard::Crashed(report))?;
        }
        if let Some(stack) = self.tracer.take_exit_stack() {
            self.control.send(&FromGuard::ExitedInRun { stack })?;
        }
        self.control_group = None;
        let core = exit.has_core.then(|| process::core_file(self.root, &self.cwd)).flatten();
        let core = core.as_deref().map(OsText::from);
        let end = ProcessExit { core, ..exit_report(exit, wall, leaked, limit_peak) };
        heeler_sys::fail::pass("guard.ended");
        self.control.send(&FromGuard::Ended(end))
    }
}
