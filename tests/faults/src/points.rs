//! The named points of the program, the process that passes each, and the possible actions there.

use std::collections::BTreeMap;

use crate::{plan::Target, support::process::Role};

/// A named point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Point {
    pub(crate) name: &'static str,
    /// The process that passes it.
    pub(crate) who: Target,
    /// The possible loss by a system error at this point, if one can be injected.
    pub(crate) error: Option<Cost>,
}

/// The possible loss by a system error at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cost {
    /// Nothing that a client sees except a log message.
    Nothing,
    /// The journal of a worker: its unproven results are lost if it dies as well, or the client breaks its
    /// connection.
    Journal,
    /// The tests of one lease, which are reported so.
    Tests,
    /// The whole request, whose response is an error after its completion.
    Request,
}

const fn point(name: &'static str, who: Target) -> Point {
    Point { name, who, error: None }
}

const fn fallible(name: &'static str, who: Target, cost: Cost) -> Point {
    Point { name, who, error: Some(cost) }
}

const COORDINATOR: Target = Target::Coordinator;
const WATCHDOG: Target = Target::Role(Role::Watchdog);
const WORKER: Target = Target::Role(Role::Worker);
const NURSERY: Target = Target::Role(Role::Nursery);
const GUARD: Target = Target::Role(Role::Guard);

/// All named points.
pub(crate) const POINTS: &[Point] = &[
    point("worker.join", WORKER),
    point("worker.lease", WORKER),
    fallible("worker.journal.before", WORKER, Cost::Journal),
    point("worker.journal.after", WORKER),
    point("worker.sent", WORKER),
    point("worker.reported", WORKER),
    point("worker.drain", WORKER),
    point("worker.proven", WORKER),
    point("worker.drained", WORKER),
    fallible("worker.nursery", WORKER, Cost::Tests),
    point("watchdog.join", WATCHDOG),
    point("watchdog.joined", WATCHDOG),
    fallible("watchdog.worker", WATCHDOG, Cost::Nothing),
    point("watchdog.finish", WATCHDOG),
    point("watchdog.due", WATCHDOG),
    point("watchdog.announced", WATCHDOG),
    point("watchdog.completed", WATCHDOG),
    point("watchdog.leave", WATCHDOG),
    fallible("nursery.fork", NURSERY, Cost::Tests),
    fallible("guard.fork", GUARD, Cost::Tests),
    point("guard.started", GUARD),
    fallible("guard.seize", GUARD, Cost::Nothing),
    point("guard.capture", GUARD),
    fallible("guard.dump", GUARD, Cost::Nothing),
    point("guard.ended", GUARD),
    fallible("run.dir", COORDINATOR, Cost::Nothing),
    fallible("run.manifest", COORDINATOR, Cost::Nothing),
    point("run.begun", COORDINATOR),
    point("run.drain", COORDINATOR),
    point("run.finish", COORDINATOR),
    point("run.completed", COORDINATOR),
    fallible("run.history", COORDINATOR, Cost::Nothing),
    fallible("pool.watchdog", COORDINATOR, Cost::Request),
];

/// Panics if these differ from the program's own points.
pub(crate) fn compare() {
    let of_program: BTreeMap<_, _> = host::fail::POINTS.into_iter().collect();
    let here: BTreeMap<_, _> = POINTS.iter().map(|point| (point.name, point.error.is_some())).collect();
    assert_eq!(here, of_program, "the harness and the program name different points");
}
