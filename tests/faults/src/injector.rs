//! Injects a round's faults at their planned moments, each on a separate thread.

use std::{
    cell::RefCell,
    path::Path,
    sync::{Condvar, Mutex},
    time::{Duration, Instant},
};

use heeler_sys::process::{Pid, descendants};

use crate::{
    planned_faults::{FaultMoment, FaultTarget, InjectedAction, PlannedFault, PointAction},
    support::process::{ProcessRole, processes_of_role, signal_if_there, state},
    system_limits::{limit_files, limit_memory},
};

/// Polling interval for conditions that do not cause an event.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The stage of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RoundStage {
    Launched,
    Requested,
    Responded,
    Leaving,
    Over,
}

/// The stage of the round, shared with all waiting threads.
pub(crate) struct RoundProgress {
    start: Instant,
    stage: Mutex<(RoundStage, Vec<(RoundStage, Instant)>)>,
    changed: Condvar,
}

/// The outcome of a fault.
#[derive(Debug, Clone)]
pub(crate) struct InjectedFault {
    pub(crate) fault: PlannedFault,
    /// Time since the start of the round, and the target. `None` if there was no target or the moment never
    /// came.
    pub(crate) hit: Option<(Duration, String)>,
    /// The stage at the time of the fault.
    pub(crate) stage: RoundStage,
}

impl RoundProgress {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        let stage = (RoundStage::Launched, vec![(RoundStage::Launched, now)]);
        Self { start: now, stage: Mutex::new(stage), changed: Condvar::new() }
    }

    pub(crate) fn reach(&self, stage: RoundStage) {
        let mut now = self.stage.lock().unwrap();
        now.0 = stage;
        now.1.push((stage, Instant::now()));
        drop(now);
        self.changed.notify_all();
    }

    /// Waits for this duration, but at most until the end of the round.
    pub(crate) fn wait_for(&self, pause: Duration) {
        let until = Instant::now() + pause;
        self.wait(RoundStage::Launched, Duration::ZERO, |_| Instant::now() >= until);
    }

    /// Waits until `delay` after a stage, then until `holds` returns true. Returns false if the round ends
    /// first.
    fn wait(&self, stage: RoundStage, delay: Duration, holds: impl Fn(RoundStage) -> bool) -> bool {
        let mut now = self.stage.lock().unwrap();
        loop {
            let begun = now.1.iter().find(|(one, _)| *one == stage).map(|(_, at)| *at);
            if begun.is_some_and(|at| at.elapsed() >= delay) && holds(now.0) {
                return true;
            }
            if now.0 == RoundStage::Over {
                return false;
            }
            let left = begun.map_or(POLL_INTERVAL * 25, |at| delay.saturating_sub(at.elapsed()));
            now =
                self.changed.wait_timeout(now, left.clamp(POLL_INTERVAL / 4, POLL_INTERVAL * 25)).unwrap().0;
        }
    }
}

/// The operations that faults need from a round's client.
pub(crate) trait RoundClient: Sync {
    /// Returns the process that the client started.
    fn coordinator(&self) -> u32;

    /// Returns the number of run messages received so far.
    fn updates(&self) -> usize;

    /// Returns whether the client has seen a run end.
    fn has_completed_run(&self) -> bool;

    /// Injects a fault of the client itself; returns a description of the target, if any.
    fn act(&self, action: InjectedAction, progress: &RoundProgress) -> Option<String>;
}

/// Waits for the fault's moment and injects it.
pub(crate) fn inject(
    fault: &PlannedFault,
    client: &impl RoundClient,
    dir: &Path,
    progress: &RoundProgress,
) -> InjectedFault {
    if let InjectedAction::At(point, _, doing) = fault.action {
        return wait_for_point(fault, (point.name, doing), dir, progress);
    }
    let missed = |stage| InjectedFault { fault: *fault, hit: None, stage };
    let is_due = match fault.when {
        FaultMoment::Launched(delay) => progress.wait(RoundStage::Launched, delay, |_| true),
        FaultMoment::Requested(delay) => progress.wait(RoundStage::Requested, delay, |_| true),
        FaultMoment::Leaving(delay) => progress.wait(RoundStage::Leaving, delay, |_| true),
        FaultMoment::Updates(count) => progress.wait(RoundStage::Requested, Duration::ZERO, |stage| {
            stage > RoundStage::Requested || client.updates() >= count
        }),
        FaultMoment::Completed => {
            progress.wait(RoundStage::Requested, Duration::ZERO, |_| client.has_completed_run())
        }
    };
    if !is_due {
        return missed(RoundStage::Over);
    }
    // Processes of some roles are short-lived, so the target is the first process that appears.
    let hit = RefCell::new(None);
    progress.wait(RoundStage::Launched, Duration::ZERO, |stage| {
        let at = progress.start.elapsed();
        *hit.borrow_mut() =
            target_process(fault.action, stage, client.coordinator(), dir).map(|victim| (at, victim, stage));
        hit.borrow().is_some()
    });
    let Some((at, victim, stage)) = hit.into_inner() else { return missed(RoundStage::Over) };
    match apply_action(fault.action, victim, client, progress) {
        Some(whom) => InjectedFault { fault: *fault, hit: Some((at, whom)), stage },
        None => missed(stage),
    }
}

/// Waits until the program has noted in a file that it passed the point. If the process stopped itself there,
/// resumes it later.
fn wait_for_point(
    fault: &PlannedFault,
    (name, doing): (&str, PointAction),
    dir: &Path,
    progress: &RoundProgress,
) -> InjectedFault {
    let path = dir.join("points").join(name);
    let pid = || std::fs::read_to_string(&path).ok()?.parse::<u32>().ok();
    let stage = RefCell::new(RoundStage::Over);
    progress.wait(RoundStage::Launched, Duration::ZERO, |now| {
        *stage.borrow_mut() = now;
        pid().is_some()
    });
    let at = progress.start.elapsed();
    if let (Some(pid), PointAction::Stop(pause)) = (pid(), doing) {
        progress.wait_for(pause);
        // The program writes the note before it stops.
        progress.wait(RoundStage::Launched, Duration::ZERO, |_| {
            if state(pid) == Some('T') {
                signal_if_there(pid, "CONT");
            }
            false
        });
    }
    // The process may have passed the point while it exited.
    let hit = pid().map(|pid| (at, format!("process {pid}")));
    let stage = if hit.is_some() && *stage.borrow() == RoundStage::Over {
        RoundStage::Leaving
    } else {
        stage.into_inner()
    };
    InjectedFault { fault: *fault, hit, stage }
}

/// Returns the target process of an action; `Some(0)` if the action has none.
fn target_process(action: InjectedAction, stage: RoundStage, coordinator: u32, dir: &Path) -> Option<u32> {
    match action {
        InjectedAction::Kill(target)
        | InjectedAction::Stop(target, _)
        | InjectedAction::LimitFiles(target, _)
        | InjectedAction::LimitMemory(target, _) => find_process(target, coordinator, dir),
        // Only a watchdog resumes a stopped coordinator, and the watchdog exits first.
        InjectedAction::StopForGood(FaultTarget::Coordinator) if stage >= RoundStage::Leaving => None,
        InjectedAction::StopForGood(FaultTarget::Coordinator) => {
            processes_of_role(coordinator, ProcessRole::Watchdog).first().map(|_| coordinator)
        }
        InjectedAction::StopForGood(target) => find_process(target, coordinator, dir),
        _ => Some(0),
    }
}

fn apply_action(
    action: InjectedAction,
    pid: u32,
    client: &impl RoundClient,
    progress: &RoundProgress,
) -> Option<String> {
    match action {
        InjectedAction::Kill(_) => signal_if_there(pid, "KILL").then(|| format!("process {pid}")),
        InjectedAction::Stop(_, pause) => {
            if !signal_if_there(pid, "STOP") {
                return None;
            }
            progress.wait_for(pause);
            signal_if_there(pid, "CONT");
            Some(format!("process {pid}"))
        }
        InjectedAction::StopForGood(FaultTarget::Coordinator) => {
            let is_stopped = signal_if_there(pid, "STOP");
            // At the end of a session, the watchdog exits first, and nothing else would resume the
            // coordinator.
            let is_left_alone = progress.wait(RoundStage::Launched, Duration::ZERO, |_| {
                state(pid) != Some('T') || processes_of_role(pid, ProcessRole::Watchdog).is_empty()
            });
            if is_left_alone {
                signal_if_there(pid, "CONT");
            }
            is_stopped.then(|| format!("process {pid}"))
        }
        InjectedAction::StopForGood(_) => signal_if_there(pid, "STOP").then(|| format!("process {pid}")),
        InjectedAction::LimitFiles(_, more) => limit_files(pid, more).then(|| format!("process {pid}")),
        InjectedAction::LimitMemory(_, more) => limit_memory(pid, more).then(|| format!("process {pid}")),
        // The program itself injects this fault.
        InjectedAction::At(..) => None,
        InjectedAction::LimitProcesses(..)
        | InjectedAction::Cancel
        | InjectedAction::StopReadingMain(_)
        | InjectedAction::StopReadingCallbacks(_)
        | InjectedAction::Disconnect
        | InjectedAction::KillClient => client.act(action, progress),
    }
}

/// Returns the process with the lowest id in the fault target's role.
fn find_process(target: FaultTarget, coordinator: u32, dir: &Path) -> Option<u32> {
    match target {
        FaultTarget::Coordinator => Some(coordinator),
        FaultTarget::ProcessRole(role) => processes_of_role(coordinator, role).last().copied(),
        FaultTarget::Test => {
            let below = descendants(Pid(i32::try_from(coordinator).unwrap()));
            let is_test = |pid: &&Pid| {
                let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
                let is_built_here = program.starts_with(dir);
                (is_built_here || program.to_string_lossy().contains("fault-fixtures")) && is_of(**pid, dir)
            };
            below.iter().rev().find(is_test).map(|pid| u32::try_from(pid.0).unwrap())
        }
    }
}

fn is_of(pid: Pid, dir: &Path) -> bool {
    std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(dir))
}
