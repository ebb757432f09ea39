//! Injects the faults of a round at their moments, each in its own thread.

use std::{
    cell::RefCell,
    path::Path,
    sync::{Condvar, Mutex},
    time::{Duration, Instant},
};

use host::process::{Pid, descendants};

use crate::{
    client::Client,
    plan::{Action, Doing, Fault, Target, When},
    support::{
        process::{of_role, signal_if_there, state},
        recorder::Event,
    },
    system::{limit_files, limit_memory},
};

const UPDATES: &str = "testing/testUpdates/tests";
/// Polling interval for levels that cause no event.
const LOOK: Duration = Duration::from_millis(2);

/// The stage of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Launched,
    Requested,
    Answered,
    Leaving,
    Over,
}

/// The stage of the round, shared with all threads that wait for it.
pub(crate) struct Progress {
    start: Instant,
    stage: Mutex<(Stage, Vec<(Stage, Instant)>)>,
    changed: Condvar,
}

/// The outcome of a fault.
#[derive(Debug, Clone)]
pub(crate) struct Injected {
    pub(crate) fault: Fault,
    /// Time since the round's start, and the target; `None` if there was no target, or the moment never came.
    pub(crate) hit: Option<(Duration, String)>,
    /// The stage at that time.
    pub(crate) stage: Stage,
}

impl Progress {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        let stage = (Stage::Launched, vec![(Stage::Launched, now)]);
        Self { start: now, stage: Mutex::new(stage), changed: Condvar::new() }
    }

    pub(crate) fn reach(&self, stage: Stage) {
        let mut now = self.stage.lock().unwrap();
        now.0 = stage;
        now.1.push((stage, Instant::now()));
        drop(now);
        self.changed.notify_all();
    }

    /// Waits until `delay` after a stage and until `holds` returns true; returns whether that happened before
    /// the round's end.
    fn wait(&self, stage: Stage, delay: Duration, holds: impl Fn(Stage) -> bool) -> bool {
        let mut now = self.stage.lock().unwrap();
        loop {
            let begun = now.1.iter().find(|(one, _)| *one == stage).map(|(_, at)| *at);
            if begun.is_some_and(|at| at.elapsed() >= delay) && holds(now.0) {
                return true;
            }
            if now.0 == Stage::Over {
                return false;
            }
            let left = begun.map_or(LOOK * 25, |at| delay.saturating_sub(at.elapsed()));
            now = self.changed.wait_timeout(now, left.clamp(LOOK / 4, LOOK * 25)).unwrap().0;
        }
    }
}

/// Waits for the fault's moment and injects it.
pub(crate) fn inject(fault: &Fault, client: &Client, dir: &Path, progress: &Progress) -> Injected {
    if let Action::At(point, _, doing) = fault.action {
        return at_a_point(fault, (point.name, doing), dir, progress);
    }
    let missed = |stage| Injected { fault: *fault, hit: None, stage };
    let is_due = match fault.when {
        When::Launched(delay) => progress.wait(Stage::Launched, delay, |_| true),
        When::Requested(delay) => progress.wait(Stage::Requested, delay, |_| true),
        When::Leaving(delay) => progress.wait(Stage::Leaving, delay, |_| true),
        When::Updates(count) => progress.wait(Stage::Requested, Duration::ZERO, |stage| {
            stage > Stage::Requested || updates(client, |_| true) >= count
        }),
        When::Completed => progress.wait(Stage::Requested, Duration::ZERO, |_| {
            updates(client, |event| event.params(UPDATES).is_some_and(|params| params["changes"].is_null()))
                > 0
        }),
    };
    if !is_due {
        return missed(Stage::Over);
    }
    // Processes of some roles are short-lived: the first one that exists is the target.
    let hit = RefCell::new(None);
    progress.wait(Stage::Launched, Duration::ZERO, |stage| {
        let at = progress.start.elapsed();
        *hit.borrow_mut() = victim(fault.action, client, dir).map(|victim| (at, victim, stage));
        hit.borrow().is_some()
    });
    let Some((at, victim, stage)) = hit.into_inner() else { return missed(Stage::Over) };
    match act(fault.action, victim, client, progress) {
        Some(whom) => Injected { fault: *fault, hit: Some((at, whom)), stage },
        None => missed(stage),
    }
}

fn updates(client: &Client, is_meant: impl Fn(&Event) -> bool) -> usize {
    let count = |events: &[Event]| {
        events.iter().filter(|event| event.params(UPDATES).is_some() && is_meant(event)).count()
    };
    client.recorder.wait("the record", |events| Some(count(events)))
}

/// Waits until the point has been passed, which the program notes in a file; resumes a process that was
/// stopped there.
fn at_a_point(fault: &Fault, (name, doing): (&str, Doing), dir: &Path, progress: &Progress) -> Injected {
    let path = dir.join("points").join(name);
    let pid = || std::fs::read_to_string(&path).ok()?.parse::<u32>().ok();
    let stage = RefCell::new(Stage::Over);
    progress.wait(Stage::Launched, Duration::ZERO, |now| {
        *stage.borrow_mut() = now;
        pid().is_some()
    });
    let at = progress.start.elapsed();
    if let (Some(pid), Doing::Stop(pause)) = (pid(), doing) {
        let until = Instant::now() + pause;
        progress.wait(Stage::Launched, Duration::ZERO, |_| Instant::now() >= until);
        // The program writes the note before it stops, however long that takes.
        progress.wait(Stage::Launched, Duration::ZERO, |_| {
            if state(pid) == Some('T') {
                signal_if_there(pid, "CONT");
            }
            false
        });
    }
    // The process may have reached the point while it exited.
    let hit = pid().map(|pid| (at, format!("process {pid}")));
    let stage =
        if hit.is_some() && *stage.borrow() == Stage::Over { Stage::Leaving } else { stage.into_inner() };
    Injected { fault: *fault, hit, stage }
}

/// Returns the target process of an action; `Some(0)` if the action needs none.
fn victim(action: Action, client: &Client, dir: &Path) -> Option<u32> {
    match action {
        Action::Kill(target)
        | Action::Stop(target, _)
        | Action::FewFiles(target, _)
        | Action::LittleMemory(target, _) => find(target, client.pid, dir),
        _ => Some(0),
    }
}

fn act(action: Action, pid: u32, client: &Client, progress: &Progress) -> Option<String> {
    match action {
        Action::Kill(_) => signal_if_there(pid, "KILL").then(|| format!("process {pid}")),
        Action::Stop(_, pause) => {
            if !signal_if_there(pid, "STOP") {
                return None;
            }
            let until = Instant::now() + pause;
            progress.wait(Stage::Launched, Duration::ZERO, |_| Instant::now() >= until);
            signal_if_there(pid, "CONT");
            Some(format!("process {pid}"))
        }
        Action::FewFiles(_, more) => limit_files(pid, more).then(|| format!("process {pid}")),
        Action::LittleMemory(_, more) => limit_memory(pid, more).then(|| format!("process {pid}")),
        Action::FewProcesses(more, pause) => {
            let group = client.counted.as_ref().filter(|group| group.limit(more))?;
            let until = Instant::now() + pause;
            progress.wait(Stage::Launched, Duration::ZERO, |_| Instant::now() >= until);
            group.unlimit();
            Some("all processes".to_owned())
        }
        Action::Cancel => {
            let run_id = client.runs().first()?.run_id.clone();
            client.notify("testing/cancelTestRun", serde_json::json!({"runId": run_id}));
            Some(format!("run {run_id}"))
        }
        Action::StopReadingMain(pause) => {
            client.recorder.stop_main();
            go_on_after(pause, client, progress)
        }
        Action::StopReadingCallbacks(pause) => {
            client.recorder.stop_callbacks();
            go_on_after(pause, client, progress)
        }
        Action::HangUp => {
            client.hang_up();
            Some("the client".to_owned())
        }
        Action::KillClient => client.kill_named().then(|| "the client's process".to_owned()),
        // The program injects it itself.
        Action::At(..) => None,
    }
}

fn go_on_after(pause: Duration, client: &Client, progress: &Progress) -> Option<String> {
    let until = Instant::now() + pause;
    progress.wait(Stage::Launched, Duration::ZERO, |_| Instant::now() >= until);
    client.recorder.go_on();
    Some("the client".to_owned())
}

/// Returns a process in the role of a fault's target. The lowest number is the oldest; any will do.
fn find(target: Target, coordinator: u32, dir: &Path) -> Option<u32> {
    match target {
        Target::Coordinator => Some(coordinator),
        Target::Role(role) => of_role(coordinator, role).last().copied(),
        Target::Test => {
            let below = descendants(Pid(i32::try_from(coordinator).unwrap()));
            let is_test = |pid: &&Pid| {
                let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
                program.to_string_lossy().contains("fault-fixtures") && is_of(**pid, dir)
            };
            below.iter().rev().find(is_test).map(|pid| u32::try_from(pid.0).unwrap())
        }
    }
}

fn is_of(pid: Pid, dir: &Path) -> bool {
    std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(dir))
}
