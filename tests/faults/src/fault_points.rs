//! Heeler's named fault points: which process passes each, and which actions are possible there.

use std::collections::BTreeMap;

use crate::{planned_faults::FaultTarget, support::process::ProcessRole};

/// A named point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct FaultPoint {
    pub(crate) name: &'static str,
    /// The process that passes the point.
    pub(crate) role: FaultTarget,
    /// The possible loss from a system error here; `None` if no error can be injected.
    pub(crate) error: Option<PossibleLoss>,
}

/// Losses that a system error at a point may cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PossibleLoss {
    /// Nothing: clients only get a log message.
    Nothing,
    /// A worker's journal: results not proven delivered are lost if the worker also dies or the client
    /// disconnects.
    Journal,
    /// The tests of one lease, which are reported as lost.
    Tests,
    /// The whole request, which is completed and then answered with an error.
    Request,
}

const fn point(name: &'static str, who: FaultTarget) -> FaultPoint {
    FaultPoint { name, role: who, error: None }
}

const fn fallible(name: &'static str, who: FaultTarget, cost: PossibleLoss) -> FaultPoint {
    FaultPoint { name, role: who, error: Some(cost) }
}

const COORDINATOR: FaultTarget = FaultTarget::Coordinator;
const WATCHDOG: FaultTarget = FaultTarget::ProcessRole(ProcessRole::Watchdog);
const WORKER: FaultTarget = FaultTarget::ProcessRole(ProcessRole::Worker);
const FORK_SERVER: FaultTarget = FaultTarget::ProcessRole(ProcessRole::ForkServer);
const GUARD: FaultTarget = FaultTarget::ProcessRole(ProcessRole::Guard);

/// All named points.
pub(crate) const POINTS: &[FaultPoint] = &[
    point("worker.join", WORKER),
    point("worker.lease", WORKER),
    fallible("worker.journal.before", WORKER, PossibleLoss::Journal),
    point("worker.journal.after", WORKER),
    point("worker.sent", WORKER),
    point("worker.reported", WORKER),
    point("worker.drain", WORKER),
    point("worker.proven", WORKER),
    point("worker.drained", WORKER),
    fallible("worker.fork-server", WORKER, PossibleLoss::Tests),
    point("watchdog.join", WATCHDOG),
    point("watchdog.joined", WATCHDOG),
    fallible("watchdog.worker", WATCHDOG, PossibleLoss::Nothing),
    point("watchdog.finish", WATCHDOG),
    point("watchdog.due", WATCHDOG),
    point("watchdog.announced", WATCHDOG),
    point("watchdog.completed", WATCHDOG),
    point("watchdog.confirmed", WATCHDOG),
    point("watchdog.leave", WATCHDOG),
    fallible("fork-server.fork", FORK_SERVER, PossibleLoss::Tests),
    fallible("guard.fork", GUARD, PossibleLoss::Tests),
    point("guard.started", GUARD),
    fallible("guard.seize", GUARD, PossibleLoss::Nothing),
    point("guard.capture", GUARD),
    fallible("guard.dump", GUARD, PossibleLoss::Nothing),
    point("guard.ended", GUARD),
    fallible("run.dir", COORDINATOR, PossibleLoss::Nothing),
    fallible("run.manifest", COORDINATOR, PossibleLoss::Nothing),
    point("run.begun", COORDINATOR),
    point("run.drain", COORDINATOR),
    point("run.finish", COORDINATOR),
    point("run.relayed", COORDINATOR),
    point("run.completed", COORDINATOR),
    fallible("run.history", COORDINATOR, PossibleLoss::Nothing),
    fallible("pool.watchdog", COORDINATOR, PossibleLoss::Request),
];

/// Panics if this list differs from the points in the program.
pub(crate) fn compare() {
    let of_program: BTreeMap<_, _> = heeler_sys::fail::POINTS.into_iter().collect();
    let here: BTreeMap<_, _> = POINTS.iter().map(|point| (point.name, point.error.is_some())).collect();
    assert_eq!(here, of_program, "the harness and the program name different points");
}
