//! The faults of a round: action, target process and moment, all drawn at random.

use std::{path::Path, time::Duration};

use crate::{
    fault_points::{FaultPoint, POINTS},
    random::SeededRandom,
    support::process::ProcessRole,
};

/// Expected duration of a round; faults are drawn within it.
pub(crate) const SPAN: Duration = Duration::from_millis(400);

/// Clock jumps: an hour ahead, a day back, back and forth, to the epoch, and far ahead.
pub(crate) const JUMPS: [&[i64]; 5] =
    [&[3600], &[-86_400], &[0, 3600, -3600], &[0, -1_790_000_000, 1], &[0, 4_000_000_000]];

/// A fault and the moment of its injection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlannedFault {
    pub(crate) action: InjectedAction,
    pub(crate) when: FaultMoment,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum InjectedAction {
    Kill(FaultTarget),
    /// Stop the process and resume it after this time.
    Stop(FaultTarget, Duration),
    /// Stop the process for good: Heeler must resume or replace it.
    StopForGood(FaultTarget),
    /// The client cancels its run.
    Cancel,
    /// The client stops reading the main connection for this time.
    StopReadingMain(Duration),
    /// The client stops reading its callback connections for this time.
    StopReadingCallbacks(Duration),
    /// The client disconnects without `exit`.
    Disconnect,
    /// The process that the client reported as its own dies.
    KillClient,
    /// Limit a process to this number of file descriptors more than it has open.
    LimitFiles(FaultTarget, usize),
    /// Limit a process and its descendants to this many KiB more than are currently mapped.
    LimitMemory(FaultTarget, usize),
    /// For this time, limit the round to this number of processes and threads more than exist.
    LimitProcesses(usize, Duration),
    /// At the nth time that the program passes a named point.
    At(&'static FaultPoint, usize, PointAction),
}

/// The action at a named point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PointAction {
    Kill,
    Stop(Duration),
    Sleep(Duration),
    /// A system error, by name.
    Error(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultTarget {
    Coordinator,
    ProcessRole(ProcessRole),
    /// A test process or one of its descendants.
    Test,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultMoment {
    /// At this time after the program's start.
    Launched(Duration),
    /// At this time after the run request.
    Requested(Duration),
    /// After this number of updates.
    Updates(usize),
    /// After the client has received a run's completion.
    Completed,
    /// At this time after the client began to end the session.
    Leaving(Duration),
}

impl InjectedAction {
    /// Returns whether the fault may kill its target. For example, a process that runs out of memory aborts.
    pub(crate) fn may_kill(self, target: FaultTarget) -> bool {
        self.equivalent() == Self::Kill(target)
            || matches!(self, Self::LimitMemory(of, _) if of == target)
            // A stopped process is killed and replaced, except the coordinator.
            || (self == Self::StopForGood(target) && target != FaultTarget::Coordinator)
    }

    /// Returns the equivalent fault without a named point.
    pub(crate) fn equivalent(self) -> Self {
        match self {
            Self::At(point, _, PointAction::Kill) => Self::Kill(point.role),
            Self::At(point, _, PointAction::Stop(pause) | PointAction::Sleep(pause)) => {
                Self::Stop(point.role, pause)
            }
            other => other,
        }
    }
}

impl PointAction {
    fn name(self) -> String {
        match self {
            Self::Kill => "kill".to_owned(),
            Self::Stop(_) => "stop".to_owned(),
            Self::Sleep(pause) => format!("sleep={}", pause.as_millis()),
            Self::Error(name) => name.to_owned(),
        }
    }
}

/// Returns the environment variables that enable the round's fault points.
pub(crate) fn environment_of(
    faults: &[PlannedFault],
    clock: &[i64],
    dir: &Path,
) -> Vec<(&'static str, String)> {
    let arm = |fault: &PlannedFault| match fault.action {
        InjectedAction::At(point, nth, doing) => Some(format!("{}:{nth}:{}", point.name, doing.name())),
        _ => None,
    };
    let armed: Vec<_> = faults.iter().filter_map(arm).collect();
    let jumps: Vec<_> = clock.iter().map(i64::to_string).collect();
    let once = dir.join("points").to_string_lossy().into_owned();
    let all = [
        ("HEELER_FAIL", armed.join(",")),
        ("HEELER_FAIL_CLOCK", jumps.join(",")),
        ("HEELER_FAIL_ONCE", once),
    ];
    all.into_iter().filter(|(_, value)| !value.is_empty()).collect()
}

/// Draws a fault at a named point.
pub(crate) fn draw_point_fault(draws: &mut SeededRandom) -> PlannedFault {
    let point = &POINTS[draws.below(POINTS.len())];
    let pause = Duration::from_millis(draws.between(1, 900) as u64);
    let mut doings =
        vec![(60, PointAction::Kill), (15, PointAction::Stop(pause)), (15, PointAction::Sleep(pause))];
    if point.error.is_some() {
        let error = draws.pick(&["ENOSPC", "EROFS", "EMFILE", "ENOMEM", "EAGAIN"]);
        doings.push((60, PointAction::Error(error)));
    }
    let nth = draws.pick_weighted(&[(60, 1), (20, 2), (10, 3), (10, 5)]);
    let doing = draws.pick_weighted(&doings);
    PlannedFault {
        action: InjectedAction::At(point, nth, doing),
        when: FaultMoment::Launched(Duration::ZERO),
    }
}

/// Draws a kill or a temporary stop of a process, at any moment or at a named point. System errors and limits
/// are excluded.
pub(crate) fn draw_process_fault(draws: &mut SeededRandom) -> PlannedFault {
    let pause = Duration::from_millis(draws.between(1, 1500) as u64);
    if draws.with_probability(30) {
        let point = &POINTS[draws.below(POINTS.len())];
        let nth = draws.pick_weighted(&[(60, 1), (20, 2), (10, 3), (10, 5)]);
        let doing = draws.pick_weighted(&[
            (70, PointAction::Kill),
            (15, PointAction::Stop(pause)),
            (15, PointAction::Sleep(pause)),
        ]);
        return PlannedFault {
            action: InjectedAction::At(point, nth, doing),
            when: FaultMoment::Launched(Duration::ZERO),
        };
    }
    let target = draws.pick_weighted(&[
        (20, FaultTarget::Coordinator),
        (20, FaultTarget::ProcessRole(ProcessRole::Watchdog)),
        (25, FaultTarget::ProcessRole(ProcessRole::Worker)),
        (8, FaultTarget::ProcessRole(ProcessRole::ForkServer)),
        (12, FaultTarget::ProcessRole(ProcessRole::Guard)),
        (15, FaultTarget::Test),
    ]);
    let action =
        draws.pick_weighted(&[(70, InjectedAction::Kill(target)), (30, InjectedAction::Stop(target, pause))]);
    let when = match draws.below(100) {
        0..10 => FaultMoment::Launched(draws.duration_below(SPAN)),
        10..50 => FaultMoment::Requested(draws.duration_below(SPAN * 2)),
        50..88 => FaultMoment::Updates(draws.between(1, 60)),
        88..94 => FaultMoment::Completed,
        _ => FaultMoment::Leaving(draws.duration_below(SPAN / 4)),
    };
    PlannedFault { action, when }
}
