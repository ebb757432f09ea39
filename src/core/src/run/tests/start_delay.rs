//! Processes that wait for tests, and delayed starts.

use super::*;

const FIRST: WorkerId = WorkerId(1);
const SECOND: WorkerId = WorkerId(2);
const PROGRAM: ProgramId = ProgramId(0);
const START: Duration = Duration::from_millis(400);

/// Returns a run of 1000 tests on two slots. A process of their program waits at the first worker.
fn run_of(weight: Option<Duration>) -> (RunState, Vec<RunAction>) {
    let process = ProcessTraits { takes_more_tests: true, has_costly_batches: true, ..ProcessTraits::NONE };
    let program = ProgramCosts { process, listing: Some(START), ..ProgramCosts::default() };
    let mut run = RunState::new(two_slots_of(program, 1000, weight));
    assert_eq!(run.begin(), [RunAction::StartWorker, RunAction::StartWorker]);
    assert_eq!(run.handle(RunEvent::ProcessWaiting { worker: FIRST, program: PROGRAM }), []);
    let actions = run.handle(RunEvent::WorkerGranted(FIRST));
    (run, actions)
}

fn delayed(actions: &[RunAction]) -> (BatchLease, Duration) {
    match actions {
        [
            RunAction::Lease(lease) | RunAction::ExtendLease(lease),
            RunAction::DelayStarts { program: PROGRAM, delay },
        ] => ((**lease).clone(), *delay),
        other => panic!("{other:?}"),
    }
}

/// Passes all tests of a batch; returns the actions for the process that then waits.
fn pass(run: &mut RunState, lease: &BatchLease, duration: Duration) -> Vec<RunAction> {
    for test in &lease.batch.tests {
        let (worker, outcome, position) = (lease.worker, Outcome::Passed, u64::from(test.0) + 1);
        let settled = RunEvent::Settled { worker, test: *test, outcome, duration, position };
        assert_eq!(run.handle(settled), []);
    }
    run.handle(RunEvent::LeaseIdle { worker: lease.worker, lease: lease.lease })
}

#[test]
fn quick_tests_need_no_second_process() {
    let (mut run, actions) = run_of(None);
    let (mut lease, _) = delayed(&actions);
    assert!(lease.batch.tests.len() < 100, "{}", lease.batch.tests.len());
    let mut batches = 1;
    loop {
        assert_eq!(run.wanted_slots(), Slots(1), "after {batches} batches");
        let actions = pass(&mut run, &lease, Duration::from_micros(20));
        match &actions[..] {
            [RunAction::ExtendLease(extended), ..] => lease = (**extended).clone(),
            other => break assert!(matches!(other, [RunAction::EndLease { .. }]), "{other:?}"),
        }
        batches += 1;
    }
    assert_eq!(run.ledger().open_count(), 0);
}

#[test]
fn warm_up_of_the_first_tests_is_not_taken_for_their_duration() {
    let (mut run, actions) = run_of(None);
    let (lease, _) = delayed(&actions);
    for (place, test) in lease.batch.tests.iter().enumerate() {
        let duration = Duration::from_micros(if place == 0 { 12_000 } else { 20 });
        let (worker, outcome, position) = (FIRST, Outcome::Passed, place as u64 + 1);
        let settled = RunEvent::Settled { worker, test: *test, outcome, duration, position };
        assert_eq!(run.handle(settled), []);
    }
    let actions = run.handle(RunEvent::LeaseIdle { worker: FIRST, lease: lease.lease });
    assert!(matches!(actions[0], RunAction::ExtendLease(_)), "{actions:?}");
    assert_eq!(run.wanted_slots(), Slots(1));
}

#[test]
fn second_process_starts_when_the_first_results_are_late() {
    let (mut run, actions) = run_of(None);
    let (_, delay) = delayed(&actions);
    assert_eq!(delay, START / 2);
    assert_eq!(run.handle(RunEvent::WorkerGranted(SECOND)), [RunAction::ReleaseWorker(SECOND)]);
    let actions = run.handle(RunEvent::StartsDue(PROGRAM));
    assert!(actions.len() <= 1 && run.wanted_slots() == Slots(2), "{actions:?}");
    let actions = run.handle(RunEvent::WorkerGranted(SECOND));
    assert!(matches!(&actions[..], [RunAction::Lease(lease)] if lease.worker == SECOND), "{actions:?}");
}

#[test]
fn second_process_starts_when_enough_work_is_left() {
    let (run, actions) = run_of(Some(Duration::from_millis(10)));
    assert!(matches!(actions[..], [RunAction::Lease(_)]), "{actions:?}");
    assert_eq!(run.wanted_slots(), Slots(2));
    let (mut run, actions) = run_of(None);
    let (lease, _) = delayed(&actions);
    let actions = pass(&mut run, &lease, Duration::from_millis(10));
    assert!(matches!(actions[0], RunAction::ExtendLease(_)), "{actions:?}");
    assert!(!actions.iter().any(|action| matches!(action, RunAction::DelayStarts { .. })), "{actions:?}");
    assert_eq!(run.wanted_slots(), Slots(2));
}

#[test]
fn death_of_the_only_process_lets_others_start() {
    let (mut run, actions) = run_of(None);
    let (lease, _) = delayed(&actions);
    let end = LeaseOutcome::DiedOutside;
    let actions = run.handle(RunEvent::LeaseEnded { worker: FIRST, lease: lease.lease, end, start: None });
    assert!(matches!(actions[0], RunAction::Lease(_)), "{actions:?}");
    assert_eq!(run.wanted_slots(), Slots(2), "{actions:?}");
}

#[test]
fn process_at_a_worker_that_gets_no_lease_is_forgotten() {
    let [mut run, mut other] = [(); 2].map(|()| run_of(Some(Duration::from_millis(10))).0);
    let granted = RunEvent::WorkerGranted(SECOND);
    for event in [RunEvent::SlotShare(Slots(1)), granted.clone()] {
        let _none = run.handle(RunEvent::ProcessWaiting { worker: SECOND, program: PROGRAM });
        assert_eq!(run.handle(event.clone()), other.handle(event));
    }
    for event in [RunEvent::SlotShare(Slots(2)), granted] {
        assert_eq!(run.handle(event.clone()), other.handle(event));
    }
    assert_eq!(run.active_leases(), 2);
    assert_eq!(run, other);
}
