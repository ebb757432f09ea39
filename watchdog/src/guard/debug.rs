//! A test process held for a debugger: stopped before its first instruction, traced by no process, until the
//! worker decides.
//!
//! ```text
//! started ──Exec (traced)──► stopped at the first instruction ──HandOver──► continues; its debugger's
//!   └──untraced─────────► stopped just before Exec ──────────┘└─TakeBack──► continues, traced
//! ```

use std::{
    os::fd::AsFd,
    time::{Duration, Instant},
};

use host::{
    io::wait_readable,
    process::{self, ChildEnds, Pid, Signal},
    spawn::{Spawn, SpawnError},
    trace::{self, Released},
};
use wire::control::TracePlan;

use super::tracer::{Reach, Tracer};

/// How long a released process may take to stop; usually an instant.
const STAND: Duration = Duration::from_secs(5);
/// Interval between checks of a stopped process, or of one handed over to its debugger.
const LOOK: Duration = Duration::from_millis(100);
/// How long a process may stay stopped without a tracer. A debugger that detaches may leave its process
/// stopped for the next one; no other process may.
const DESERTION: Duration = Duration::from_secs(2);

/// A process held for a debugger.
pub(super) struct Debugged {
    stage: Stage,
    /// A process that has not executed its program yet: it reports whether the exec succeeds.
    pub(super) unborn: Option<Released>,
}

enum Stage {
    Standing,
    /// It was handed over to a debugger.
    HandedOver(Watch),
    /// It is traced like any other process.
    TakenBack,
}

/// The observed state of a process and its debugger.
struct Watch {
    next_look: Instant,
    /// A process has traced it.
    was_traced: bool,
    /// Since when it has been stopped without a tracer.
    deserted: Option<Instant>,
}

/// Starts a process that is stopped before its first instruction.
pub(super) fn start(
    start: Spawn,
    plan: TracePlan,
    (may_trace, ends): (bool, &ChildEnds),
) -> Result<(Tracer, Debugged), SpawnError> {
    let held = trace::hold(start)?;
    let root = held.pid();
    let deadline = Instant::now() + STAND;
    let tracer = if may_trace { Tracer::hold(root, plan.clone()).ok() } else { None };
    let Some(mut tracer) = tracer else {
        let unborn = held.release_stopped();
        await_standing(root, deadline);
        return Ok((Tracer::off(root, plan), Debugged { stage: Stage::Standing, unborn: Some(unborn) }));
    };
    let released = held.release();
    // A signal before the program is executed stops the process, and only the guard can resume it.
    while tracer.is_holding() && tracer.root_exit().is_none() {
        match wait_readable([Some(ends.as_fd()), Some(released.as_fd())], Some(deadline)) {
            Ok([true, _]) => {
                ends.clear();
                // If the wait fails, the exit is noticed by the end of the pipe from the child.
                drop(tracer.pump());
            }
            Ok([false, true]) => break,
            Ok([false, false]) | Err(_) => break,
        }
    }
    released.finish()?;
    // The pipe from the child closes at the same moment at which the program stops after its exec.
    while tracer.is_holding() && tracer.root_exit().is_none() && Instant::now() < deadline {
        drop(wait_readable([Some(ends.as_fd())], Some(Instant::now() + Duration::from_millis(1))));
        ends.clear();
        drop(tracer.pump());
    }
    await_standing(root, deadline);
    Ok((tracer, Debugged { stage: Stage::Standing, unborn: None }))
}

/// Waits until a process is stopped, or gone.
fn await_standing(root: Pid, deadline: Instant) {
    let stands = || process::stat(root).is_none_or(|stat| matches!(stat.state, 'T' | 'Z' | 'X'));
    while !stands() && Instant::now() < deadline {
        drop(wait_readable([], Some(Instant::now() + Duration::from_millis(1))));
    }
}

impl Debugged {
    pub(super) fn is_program(&self) -> bool {
        self.unborn.is_none()
    }

    pub(super) fn is_standing(&self) -> bool {
        matches!(self.stage, Stage::Standing)
    }

    /// Resumes it for its debugger. Whether the debugger has attached, or has resumed it itself, makes no
    /// difference: the signal is blocked, so that it ends the stop and is delivered to no process.
    pub(super) fn hand_over(&mut self, root: Pid) {
        if self.is_standing() {
            let watch = Watch { next_look: Instant::now() + LOOK, was_traced: false, deserted: None };
            self.stage = Stage::HandedOver(watch);
            go_on(root);
        }
    }

    /// Resumes it for the guard. `reach` is the tracing scope, if it is traced.
    pub(super) fn take_back(&mut self, tracer: &mut Tracer, reach: Option<Reach>) {
        if !self.is_standing() {
            return;
        }
        self.stage = Stage::TakenBack;
        if let Some(reach) = reach
            && let Err(error) = tracer.take_back(reach, Instant::now() + STAND)
        {
            let by = trace::tracer_of(tracer.root).map(|tracer| format!(", traced by process {tracer}"));
            tracer.say_untraced(format!(
                "it was held for a debugger, and then the system refuses to trace it: {error}{}",
                by.unwrap_or_default()
            ));
        }
        go_on(tracer.root);
    }

    /// Returns when to check next whether its debugger has abandoned it.
    pub(super) fn next_look(&self) -> Option<Instant> {
        match &self.stage {
            Stage::HandedOver(watch) => Some(watch.next_look),
            Stage::Standing | Stage::TakenBack => None,
        }
    }

    /// Resumes a process that is stopped although its debugger is gone; returns whether that was so.
    pub(super) fn look(&mut self, root: Pid, is_paused: bool) -> bool {
        let Stage::HandedOver(watch) = &mut self.stage else { return false };
        let now = Instant::now();
        watch.next_look = now + LOOK;
        let is_traced = trace::tracer_of(root).is_some();
        watch.was_traced |= is_traced;
        let stands = process::stat(root).is_some_and(|stat| stat.state == 'T');
        if is_traced || is_paused || !stands || !watch.was_traced {
            watch.deserted = None;
            return false;
        }
        if now < *watch.deserted.get_or_insert(now) + DESERTION {
            return false;
        }
        watch.deserted = None;
        go_on(root);
        true
    }
}

fn go_on(root: Pid) {
    // The root is not reaped, so its id is valid. It may have changed its user, and then cannot be signalled.
    drop(trace::signal_thread(root, root, Signal::CONT));
}
