//! Tests that are taken back for idle slots.

use super::*;

const FIRST: WorkerId = WorkerId(1);
const SECOND: WorkerId = WorkerId(2);
const SECOND_LONG: Duration = Duration::from_secs(1);

fn run_of(tests: usize, ends_between_tests: bool, max_processes: Option<u32>) -> RunState {
    let test = plain_test();
    let max_processes = max_processes.and_then(NonZeroU32::new);
    let process = ProcessTraits { ends_between_tests, ..ProcessTraits::default() };
    RunState::new(SchedulingPlan {
        programs: vec![ProgramCosts { process, max_processes, ..ProgramCosts::default() }],
        slots: 2,
        ..plan_of(vec![test; tests])
    })
}

fn lease_in(actions: &[RunAction]) -> BatchLease {
    let lease = actions.iter().find_map(|action| match action {
        RunAction::Lease(lease) => Some((**lease).clone()),
        _ => None,
    });
    lease.unwrap_or_else(|| panic!("{actions:?}"))
}

fn cancelled_in(actions: &[RunAction]) -> Vec<WorkerId> {
    let cancelled = |action: &RunAction| match action {
        RunAction::CancelLease { worker, mode: CancelMode::AfterRunningTests } => Some(*worker),
        _ => None,
    };
    actions.iter().filter_map(cancelled).collect()
}

fn settle(run: &mut RunState, lease: &BatchLease, place: usize, duration: Duration) -> Vec<RunAction> {
    let (worker, test) = (lease.worker, lease.batch.tests[place]);
    let _none = run.handle(RunEvent::Started { lease: lease.lease, test });
    let position = run
        .ledger()
        .entries()
        .iter()
        .filter(|entry| matches!(entry, LedgerEntry::Settled { worker: by, .. } if *by == worker))
        .count();
    let position = u64::try_from(position).unwrap() + 1;
    run.handle(RunEvent::Settled { worker, test, outcome: Outcome::Passed, duration, position })
}

fn end(run: &mut RunState, lease: &BatchLease, end: LeaseOutcome) -> Vec<RunAction> {
    run.handle(RunEvent::LeaseEnded { worker: lease.worker, lease: lease.lease, end, start: None })
}

/// Leases all tests of a run to two workers. The second ends its own at once, and the first ends its first
/// test after `duration`. Returns the first lease and the actions of that end.
fn late_run(run: &mut RunState, duration: Duration) -> (BatchLease, Vec<RunAction>) {
    let _start = run.begin();
    let first = lease_in(&run.handle(RunEvent::WorkerGranted(FIRST)));
    let mut actions = run.handle(RunEvent::WorkerGranted(SECOND));
    while actions.iter().any(|action| matches!(action, RunAction::Lease(_))) {
        let lease = lease_in(&actions);
        for place in 0..lease.batch.tests.len() {
            let none = settle(run, &lease, place, Duration::ZERO);
            assert_eq!(cancelled_in(&none), [], "nothing is known of the first lease");
        }
        actions = end(run, &lease, LeaseOutcome::Complete);
    }
    let actions = settle(run, &first, 0, duration);
    (first, actions)
}

#[test]
fn tests_behind_slow_ones_are_shared_with_an_idle_slot() {
    let mut run = run_of(40, true, None);
    let (first, actions) = late_run(&mut run, SECOND_LONG);
    assert!(first.batch.tests.len() >= 4, "{first:?}");
    assert_eq!(cancelled_in(&actions), [FIRST]);
    // The running test may finish.
    let begun = settle(&mut run, &first, 1, SECOND_LONG);
    assert_eq!(cancelled_in(&begun), [], "once is enough");
    let rest = &first.batch.tests[2..];
    let next = lease_in(&end(&mut run, &first, LeaseOutcome::Cancelled));
    let other = lease_in(&run.handle(RunEvent::WorkerGranted(SECOND)));
    let parts = [next.batch.tests, other.batch.tests].concat();
    assert_eq!(parts, rest[..parts.len()], "both slots continue with them");
}

#[test]
fn nothing_is_taken_back_without_gain() {
    let cancelled = |mut run: RunState, duration| cancelled_in(&late_run(&mut run, duration).1);
    assert_eq!(cancelled(run_of(40, false, None), SECOND_LONG), [], "the framework does not allow it");
    assert_eq!(cancelled(run_of(40, true, None), Duration::from_micros(20)), [], "they end soon");
    assert_eq!(cancelled(run_of(2, true, None), SECOND_LONG), [], "none waits");
}

#[test]
fn limited_programs_keep_their_tests() {
    let mut run = run_of(40, true, Some(1));
    let _start = run.begin();
    let only = lease_in(&run.handle(RunEvent::WorkerGranted(FIRST)));
    let actions = settle(&mut run, &only, 0, SECOND_LONG);
    assert_eq!(cancelled_in(&actions), [], "no other process may run them");
}
