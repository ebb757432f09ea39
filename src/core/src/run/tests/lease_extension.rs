//! Extended leases and open runs.

use super::*;

const WORKER: WorkerId = WorkerId(1);

fn tests(count: usize) -> Vec<ScheduledTest> {
    let test = ScheduledTest { weight: Some(Duration::from_millis(10)), ..plain_test() };
    vec![test; count]
}

/// Returns a run with one slot whose processes take these tests in several batches.
fn run_of(tests: Vec<ScheduledTest>, is_open: bool) -> RunState {
    let process = ProcessTraits { takes_more_tests: true, ..ProcessTraits::default() };
    RunState::new(SchedulingPlan {
        programs: vec![ProgramCosts { process, ..ProgramCosts::default() }],
        batch_limit: Some(Duration::from_millis(20)),
        is_open,
        ..plan_of(tests)
    })
}

fn lease_in(actions: &[RunAction]) -> BatchLease {
    match actions {
        [RunAction::Lease(lease) | RunAction::ExtendLease(lease)] => (**lease).clone(),
        other => panic!("{other:?}"),
    }
}

/// Passes all tests of a batch; returns the actions for the process that then waits.
fn pass(run: &mut RunState, lease: &BatchLease, position: &mut u64) -> Vec<RunAction> {
    for test in &lease.batch.tests {
        *position += 1;
        let (duration, outcome) = (Duration::from_millis(10), Outcome::Passed);
        let settled =
            RunEvent::Settled { worker: WORKER, test: *test, outcome, duration, position: *position };
        assert_eq!(run.handle(settled), []);
    }
    run.handle(RunEvent::LeaseIdle { worker: WORKER, lease: lease.lease })
}

#[test]
fn one_process_runs_all_batches_and_is_ended_after_the_last() {
    let mut run = run_of(tests(9), false);
    assert_eq!(run.begin(), [RunAction::StartWorker]);
    let mut lease = lease_in(&run.handle(RunEvent::WorkerGranted(WORKER)));
    let (first, mut batches, mut position) = (lease.lease, 1, 0);
    let end = loop {
        match &pass(&mut run, &lease, &mut position)[..] {
            [RunAction::ExtendLease(extended)] => lease = (**extended).clone(),
            other => break other.to_vec(),
        }
        assert_eq!(lease.lease, first);
        batches += 1;
    };
    assert_eq!((end, position), (vec![RunAction::EndLease { worker: WORKER, lease: first }], 9));
    assert!(batches > 2, "{batches}");
    let end = LeaseOutcome::Complete;
    let actions = run.handle(RunEvent::LeaseEnded { worker: WORKER, lease: first, end, start: None });
    assert_eq!(actions, [RunAction::ReleaseWorker(WORKER), RunAction::Drain(WORKER)]);
}

#[test]
fn death_after_an_extension_is_no_failed_start() {
    let mut run = run_of(tests(4), false);
    let _start = run.begin();
    let first = lease_in(&run.handle(RunEvent::WorkerGranted(WORKER)));
    let extended = lease_in(&pass(&mut run, &first, &mut 0));
    let end = LeaseOutcome::DiedOutside;
    let lease = first.lease;
    let actions = run.handle(RunEvent::LeaseEnded { worker: WORKER, lease, end, start: None });
    let next = lease_in(&actions);
    assert_eq!(next.batch.tests, extended.batch.tests, "the rest continues as it was");
    assert_ne!(next.lease, lease);
}

#[test]
fn processes_of_an_open_run_wait_for_tests() {
    let mut run = run_of(Vec::new(), true);
    assert_eq!(run.begin(), []);
    assert_eq!(run.handle(RunEvent::TestsAdded(tests(1))), [RunAction::StartWorker]);
    let first = lease_in(&run.handle(RunEvent::WorkerGranted(WORKER)));
    let mut position = 0;
    assert_eq!(pass(&mut run, &first, &mut position), []);
    let extended = lease_in(&run.handle(RunEvent::TestsAdded(tests(1))));
    assert_eq!((extended.lease, &extended.batch.tests[..]), (first.lease, &[TestId(1)][..]));
    assert_eq!(pass(&mut run, &extended, &mut position), []);
    let end = RunAction::EndLease { worker: WORKER, lease: first.lease };
    assert_eq!(run.handle(RunEvent::NoMoreTests), [end]);
    assert_eq!(run.handle(RunEvent::TestsAdded(tests(1))), []);
    assert_eq!(run.ledger().entries().len(), 2, "a run that is not open takes no tests");
}

#[test]
fn open_run_ends_with_a_result_that_the_client_may_lack() {
    for (proven, is_open) in [(1, true), (0, false)] {
        let mut run = run_of(tests(2), true);
        let _start = run.begin();
        let _lease = run.handle(RunEvent::WorkerGranted(WORKER));
        let settled = vec![(TestId(0), Outcome::Passed, Duration::ZERO)];
        let _rest = run.handle(RunEvent::WorkerLost { worker: WORKER, proven, settled });
        assert_eq!(run.is_open(), is_open, "{proven} results are handled");
    }
}

#[test]
fn open_run_ends_with_a_synthesized_result() {
    let mut run = run_of(tests(1), true);
    let _start = run.begin();
    let _lease = run.handle(RunEvent::WorkerGranted(WORKER));
    assert!(run.is_open());
    let unrunnable = ScheduledTest { is_unrunnable: true, ..tests(1).remove(0) };
    let _none = run.handle(RunEvent::TestsAdded(vec![unrunnable]));
    assert!(!run.is_open(), "its result is sent at the end");
}
