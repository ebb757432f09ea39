//! Set-ups that are blocked while another process has the same fixture.

use super::*;

const FIRST: WorkerId = WorkerId(1);
const SECOND: WorkerId = WorkerId(2);
const PROGRAM: ProgramId = ProgramId(0);

/// Returns a run of 40 tests with two workers, each with a lease.
fn run_of_two() -> (RunState, BatchLease, BatchLease) {
    let process = ProcessTraits { takes_more_tests: true, ..ProcessTraits::NONE };
    let program = ProgramCosts { process, ..ProgramCosts::default() };
    let mut run = RunState::new(two_slots_of(program, 40, Some(Duration::from_millis(100))));
    let _requests = run.begin();
    let [first, second] =
        [FIRST, SECOND].map(|worker| match &run.handle(RunEvent::WorkerGranted(worker))[..] {
            [RunAction::Lease(lease), ..] => (**lease).clone(),
            other => panic!("{other:?}"),
        });
    (run, first, second)
}

fn set_up(lease: &BatchLease, progress: SetUpProgress) -> RunEvent {
    let (worker, lease) = (lease.worker, lease.lease);
    RunEvent::SetUp { worker, lease, fixture: "server".to_owned(), progress }
}

#[test]
fn set_up_that_stands_while_another_process_has_it_returns_its_tests() {
    let (mut run, first, second) = run_of_two();
    assert_eq!(run.handle(set_up(&first, SetUpProgress::Begun)), []);
    assert_eq!(run.handle(set_up(&second, SetUpProgress::Begun)), []);
    let limit = RunAction::LimitSetUp { lease: second.lease, program: PROGRAM };
    assert_eq!(run.handle(set_up(&first, SetUpProgress::Done)), [limit]);
    let _started = run.handle(RunEvent::Started { lease: second.lease, test: second.batch.tests[0] });
    let due = RunEvent::SetUpDue { lease: second.lease };
    let fixture = "server".to_owned();
    assert_eq!(
        run.handle(due.clone()),
        [RunAction::ReturnTests { worker: SECOND, program: PROGRAM, fixture }]
    );
    assert_eq!(run.handle(due), [], "it is due once");
    let (worker, lease, end) = (SECOND, second.lease, LeaseOutcome::Cancelled);
    let actions = run.handle(RunEvent::LeaseEnded { worker, lease, end, start: None });
    assert_eq!(actions, [RunAction::ReleaseWorker(SECOND)], "one process runs all");
    // The process that has the fixture is given every test.
    let mut tests = first.batch.tests.clone();
    let mut position = 0;
    loop {
        for test in std::mem::take(&mut tests) {
            position += 1;
            let (worker, outcome, duration) = (FIRST, Outcome::Passed, Duration::from_millis(100));
            let _settled = run.handle(RunEvent::Settled { worker, test, outcome, duration, position });
        }
        match &run.handle(RunEvent::LeaseIdle { worker: FIRST, lease: first.lease })[..] {
            [RunAction::ExtendLease(extended), ..] => tests.clone_from(&extended.batch.tests),
            other => break assert!(matches!(other, [RunAction::EndLease { .. }]), "{other:?}"),
        }
    }
    assert_eq!(run.ledger().open_count(), 0);
}

#[test]
fn set_up_that_ends_or_that_no_other_process_has_is_not_limited() {
    let (mut run, first, second) = run_of_two();
    let _begun = run.handle(set_up(&first, SetUpProgress::Begun));
    let _done = run.handle(set_up(&first, SetUpProgress::Done));
    let limit = RunAction::LimitSetUp { lease: second.lease, program: PROGRAM };
    assert_eq!(run.handle(set_up(&second, SetUpProgress::Begun)), [limit]);
    assert_eq!(run.handle(set_up(&second, SetUpProgress::Done)), []);
    assert_eq!(run.handle(RunEvent::SetUpDue { lease: second.lease }), [], "it has ended in time");
    let (mut run, first, second) = run_of_two();
    let _failed = run.handle(set_up(&first, SetUpProgress::Begun));
    let _failed = run.handle(set_up(&first, SetUpProgress::Failed));
    assert_eq!(run.handle(set_up(&second, SetUpProgress::Begun)), []);
    let (worker, lease, end) = (FIRST, first.lease, LeaseOutcome::DiedOutside);
    let _ended = run.handle(RunEvent::LeaseEnded { worker, lease, end, start: None });
    assert_eq!(run.handle(RunEvent::SetUpDue { lease: second.lease }), [], "it stands alone");
}

#[test]
fn set_up_that_goes_on_standing_after_the_end_of_the_other_process_is_ended() {
    let (mut run, first, second) = run_of_two();
    let _done = run.handle(set_up(&first, SetUpProgress::Done));
    let limit = RunAction::LimitSetUp { lease: second.lease, program: PROGRAM };
    assert_eq!(run.handle(set_up(&second, SetUpProgress::Begun)), [limit]);
    let (worker, lease, end) = (FIRST, first.lease, LeaseOutcome::DiedOutside);
    let _ended = run.handle(RunEvent::LeaseEnded { worker, lease, end, start: None });
    let actions = run.handle(RunEvent::SetUpDue { lease: second.lease });
    assert!(matches!(actions[..], [RunAction::ReturnTests { worker: SECOND, .. }]), "{actions:?}");
}
