//! A test process for a debugger: made to stand before its first instruction, traced by nobody, until it is known whose
//! it is.
//!
//! ```text
//! born ──Exec (traced)──► standing at the first instruction ──HandOver──► runs on; its debugger's
//!   └──untraced─────────► standing just before Exec ────────┘└─TakeBack──► runs on, watched
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

/// A process that is let go stands within a moment.
const STAND: Duration = Duration::from_secs(5);
/// Between two looks at a process that stands, or at one that is its debugger's.
const LOOK: Duration = Duration::from_millis(100);
/// A debugger that lets go may leave its process standing for the next one; nobody else may.
const DESERTION: Duration = Duration::from_secs(2);

/// A process for a debugger.
pub(super) struct Debugged {
    stage: Stage,
    /// One that is not its program yet: it tells whether it becomes it.
    pub(super) unborn: Option<Released>,
}

enum Stage {
    Standing,
    /// It is a debugger's.
    HandedOver(Watch),
    /// It is watched as any other.
    TakenBack,
}

/// What is seen of a process and its debugger.
struct Watch {
    next_look: Instant,
    /// Somebody has traced it.
    was_traced: bool,
    /// Since when it stands and nobody traces it.
    deserted: Option<Instant>,
}

/// Starts a process that stands before its first instruction.
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
    // A signal on the way to its program stops it, and it needs us to go on.
    while tracer.is_holding() && tracer.root_exit().is_none() {
        match wait_readable([Some(ends.as_fd()), Some(released.as_fd())], Some(deadline)) {
            Ok([true, _]) => {
                ends.clear();
                // If nothing can be heard of it, its end comes as the end of its last words.
                drop(tracer.pump());
            }
            Ok([false, true]) => break,
            Ok([false, false]) | Err(_) => break,
        }
    }
    released.finish()?;
    // Its last words end at the same moment at which it stops as its program.
    while tracer.is_holding() && tracer.root_exit().is_none() && Instant::now() < deadline {
        drop(wait_readable([Some(ends.as_fd())], Some(Instant::now() + Duration::from_millis(1))));
        ends.clear();
        drop(tracer.pump());
    }
    await_standing(root, deadline);
    Ok((tracer, Debugged { stage: Stage::Standing, unborn: None }))
}

/// Waits until a process stands, or is gone.
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

    /// Lets it go on for its debugger. Whether that has attached, or has let it go on itself, makes no difference: the
    /// signal is blocked, so that it ends the stop and is told to nobody.
    pub(super) fn hand_over(&mut self, root: Pid) {
        if self.is_standing() {
            let watch = Watch { next_look: Instant::now() + LOOK, was_traced: false, deserted: None };
            self.stage = Stage::HandedOver(watch);
            go_on(root);
        }
    }

    /// Lets it go on for the guard. `reach` is how it is watched, if it is.
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

    /// When to look next whether its debugger has left it.
    pub(super) fn next_look(&self) -> Option<Instant> {
        match &self.stage {
            Stage::HandedOver(watch) => Some(watch.next_look),
            Stage::Standing | Stage::TakenBack => None,
        }
    }

    /// Looks. A process that stands although its debugger is gone goes on; returns whether that was so.
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
    // The root is not reaped, so the number is its own. It may have taken another user's rights, and then is lost to us.
    drop(trace::signal_thread(root, root, Signal::CONT));
}
