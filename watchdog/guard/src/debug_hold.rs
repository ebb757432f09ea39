//! A test process held for a debugger: stopped before its first instruction, and not traced, until the worker
//! decides.
//!
//! ```text
//! started ──exec (traced)──► stopped at the first instruction ──ContinueUntraced──► runs under its debugger
//!   └──untraced──────────► stopped just before exec ─────────┘└─ContinueTraced────► runs, traced
//! ```
//!
//! Attaching to a stopped process leaves the SIGSTOP of `PTRACE_ATTACH` pending. A debugger that continues
//! the process would see that signal, and then the stop that follows. SIGCONT discards it, but must arrive
//! before the debugger continues the process. The decision may take longer, so SIGCONT is sent as soon as a
//! debugger has attached. From then on the debugger holds the process.

use std::{
    os::fd::AsFd,
    time::{Duration, Instant},
};

use heeler_protocol::control::TracePlan;
use heeler_sys::{
    io::wait_readable,
    process::{self, ChildExits, Pid, ProcessStat, Signal},
    spawn::{SpawnError, SpawnOptions},
    trace::{self, ReleasedProcess},
};

use super::{trace_scope::TraceScope, tracees::traced_by, tracer::ProcessTracer};

/// Time limit for a released process to stop. Usually immediate.
const STOP_LIMIT: Duration = Duration::from_secs(5);
/// Interval for checking whether a debugger has attached to a stopped process. Shorter than the time from a
/// debugger's attach to its first command, because debuggers read the program's symbols in between.
const ATTACH_CHECK_INTERVAL: Duration = Duration::from_millis(1);
/// Interval for checking a process that was released to its debugger.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum time that a process may stay stopped without a tracer. A debugger that detaches may leave its
/// process stopped for the next debugger.
const ABANDONED_AFTER: Duration = Duration::from_secs(2);

pub(super) struct DebugHold {
    stage: DebugStage,
    /// A process that has not executed its program yet. Reports whether `exec` succeeds.
    pub(super) pending_exec: Option<ReleasedProcess>,
}

enum DebugStage {
    /// The client has not decided yet.
    Stopped(AttachWatch),
    /// Released to a debugger.
    HandedOver(DebuggerWatch),
    /// Traced like any other process.
    TakenBack,
}

/// Watches whether a debugger has attached to a stopped process.
struct AttachWatch {
    next_check: Instant,
    /// A debugger has attached, and the guard has resumed the process for it.
    is_held_by_debugger: bool,
}

impl AttachWatch {
    fn new() -> Self {
        Self { next_check: Instant::now(), is_held_by_debugger: false }
    }

    fn check(&mut self, root: Pid) {
        self.next_check = Instant::now() + ATTACH_CHECK_INTERVAL;
        let is_traced = trace::tracer_of(root).is_some();
        if is_traced && !self.is_held_by_debugger {
            resume(root);
        } else if !is_traced && self.is_held_by_debugger {
            // The debugger left before the decision, and the process must not run without it.
            drop(trace::signal_thread(root, root, Signal::STOP));
        }
        self.is_held_by_debugger = is_traced;
    }
}

/// Observed state of a process and its debugger.
struct DebuggerWatch {
    next_check: Instant,
    /// Whether any process has traced this one.
    was_traced: bool,
    /// Since when the process has been stopped without a tracer.
    abandoned_since: Option<Instant>,
}

/// Starts a process that is stopped before its first instruction.
pub(super) fn start_stopped(
    start: SpawnOptions,
    plan: TracePlan,
    may_trace: bool,
    ends: &ChildExits,
) -> Result<(ProcessTracer, DebugHold), SpawnError> {
    let held = trace::spawn_held(start)?;
    let root = held.pid();
    let deadline = Instant::now() + STOP_LIMIT;
    // If tracing is impossible, stop the process just before `exec`.
    let tracer = if may_trace { ProcessTracer::seize_until_exec(root, plan.clone()).ok() } else { None };
    let Some(mut tracer) = tracer else {
        let pending_exec = held.release_stopped();
        await_stopped(root, deadline);
        return Ok((
            ProcessTracer::untraced(root, plan),
            DebugHold { stage: DebugStage::Stopped(AttachWatch::new()), pending_exec: Some(pending_exec) },
        ));
    };
    // Otherwise wait until the process stops after `exec`.
    let released = held.release();
    // A signal before `exec` stops the process, and only the guard can resume it.
    while tracer.stops_at_exec() && tracer.root_exit().is_none() {
        match wait_readable([Some(ends.as_fd()), Some(released.as_fd())], Some(deadline)) {
            Ok([true, _]) => {
                ends.clear();
                // If the wait fails, the end of the pipe from the child shows the exit.
                drop(tracer.handle_pending_events());
            }
            Ok([false, true]) => break,
            Ok([false, false]) | Err(_) => break,
        }
    }
    released.finish()?;
    // The pipe from the child closes at the moment when the program stops after `exec`.
    while tracer.stops_at_exec() && tracer.root_exit().is_none() && Instant::now() < deadline {
        drop(wait_readable([Some(ends.as_fd())], Some(Instant::now() + Duration::from_millis(1))));
        ends.clear();
        drop(tracer.handle_pending_events());
    }
    await_stopped(root, deadline);
    Ok((tracer, DebugHold { stage: DebugStage::Stopped(AttachWatch::new()), pending_exec: None }))
}

/// Waits until a process has stopped or is gone.
fn await_stopped(root: Pid, deadline: Instant) {
    let stands = || process::stat(root).is_none_or(|stat| matches!(stat.state, 'T' | 'Z' | 'X'));
    while !stands() && Instant::now() < deadline {
        drop(wait_readable([], Some(Instant::now() + Duration::from_millis(1))));
    }
}

impl DebugHold {
    pub(super) fn is_program(&self) -> bool {
        self.pending_exec.is_none()
    }

    pub(super) fn is_stopped(&self) -> bool {
        matches!(self.stage, DebugStage::Stopped(_))
    }

    /// Resumes the process for its debugger. This is harmless if the debugger has not attached, or has
    /// already resumed the process: the signal is blocked, so it only ends the stop and is never delivered.
    pub(super) fn hand_over(&mut self, root: Pid) {
        if self.is_stopped() {
            let watch = DebuggerWatch {
                next_check: Instant::now() + CHECK_INTERVAL,
                was_traced: false,
                abandoned_since: None,
            };
            self.stage = DebugStage::HandedOver(watch);
            resume(root);
        }
    }

    /// Resumes the process for the guard. `reach`: which processes to trace, if any.
    pub(super) fn take_back(&mut self, tracer: &mut ProcessTracer, reach: Option<TraceScope>) {
        if !self.is_stopped() {
            return;
        }
        self.stage = DebugStage::TakenBack;
        if let Some(reach) = reach
            && let Err(error) = tracer.seize_stopped(reach, Instant::now() + STOP_LIMIT)
        {
            let by = traced_by(tracer.root());
            tracer.record_untraced(format!(
                "ptrace failed after the process was stopped for a debugger: {error}{by}"
            ));
        }
        resume(tracer.root());
    }

    /// Returns when to check again whether a debugger has attached to or abandoned the process.
    pub(super) fn next_check(&self) -> Option<Instant> {
        match &self.stage {
            DebugStage::Stopped(watch) => Some(watch.next_check),
            DebugStage::HandedOver(watch) => Some(watch.next_check),
            DebugStage::TakenBack => None,
        }
    }

    /// Leaves a stopped process to a debugger that has attached, and resumes a process whose debugger left it
    /// stopped. Returns whether a process was resumed.
    pub(super) fn check_debugger(&mut self, root: Pid, is_paused: bool) -> bool {
        let watch = match &mut self.stage {
            DebugStage::Stopped(watch) => {
                watch.check(root);
                return false;
            }
            DebugStage::HandedOver(watch) => watch,
            DebugStage::TakenBack => return false,
        };
        let now = Instant::now();
        watch.next_check = now + CHECK_INTERVAL;
        let is_traced = trace::tracer_of(root).is_some();
        watch.was_traced |= is_traced;
        let stands = process::stat(root).is_some_and(ProcessStat::is_stopped);
        if is_traced || is_paused || !stands || !watch.was_traced {
            watch.abandoned_since = None;
            return false;
        }
        if now < *watch.abandoned_since.get_or_insert(now) + ABANDONED_AFTER {
            return false;
        }
        watch.abandoned_since = None;
        resume(root);
        true
    }
}

fn resume(root: Pid) {
    // The root is not reaped, so its id is valid. Ignore errors: it may have changed its user and be beyond
    // our signals.
    drop(trace::signal_thread(root, root, Signal::CONT));
}
