//! Tests with prerequisites.

use super::*;

const WORKER: WorkerId = WorkerId(1);

/// Returns a run with one slot and one isolated test for each list of prerequisites.
fn run_of(prerequisites: &[&[(u32, bool)]]) -> RunState {
    let test = |of: &&[(u32, bool)]| ScheduledTest {
        is_isolated: true,
        prerequisites: of
            .iter()
            .map(|(test, must_succeed)| Prerequisite { test: TestId(*test), must_succeed: *must_succeed })
            .collect(),
        ..plain_test()
    };
    RunState::new(plan_of(prerequisites.iter().map(test).collect()))
}

/// Runs all tests and lets `failing` fail; returns the tests that ran, in order.
fn run_all(run: &mut RunState, failing: &[u32]) -> Vec<u32> {
    let mut order = Vec::new();
    let _actions = run.begin();
    let mut actions = run.handle(RunEvent::WorkerGranted(WORKER));
    while run.stage() == RunStage::Running {
        let lease = actions.iter().find_map(|action| match action {
            RunAction::Lease(lease) => Some(lease.clone()),
            _ => None,
        });
        let Some(lease) = lease else { panic!("nothing runs of {run:#?}") };
        for test in lease.batch.tests {
            order.push(test.0);
            let outcome = if failing.contains(&test.0) { Outcome::Failed } else { Outcome::Passed };
            let position = order.len() as u64;
            let settled =
                RunEvent::Settled { worker: WORKER, test, outcome, duration: Duration::ZERO, position };
            let _actions = run.handle(settled);
        }
        let end = LeaseOutcome::Complete;
        actions = run.handle(RunEvent::LeaseEnded { worker: WORKER, lease: lease.lease, end, start: None });
    }
    order
}

fn not_run(run: &RunState) -> Vec<(u32, u32)> {
    let failed_before = |(test, result): (TestId, SynthesizedResult)| match result {
        SynthesizedResult::NotRun(NotRunReason::PrerequisiteFailed { test: failed }) => {
            Some((test.0, failed.0))
        }
        _ => None,
    };
    run.ledger().synthesized_results().into_iter().filter_map(failed_before).collect()
}

#[test]
fn test_follows_its_prerequisites() {
    // Clean-up, user, set-up.
    let mut run = run_of(&[&[(1, false), (2, false)], &[(2, true)], &[]]);
    assert_eq!(run_all(&mut run, &[]), [2, 1, 0]);
    assert_eq!(not_run(&run), []);
}

#[test]
fn failed_prerequisite_stops_those_after_it_and_no_others() {
    // Clean-up, user, user of the user, set-up, and an independent test.
    let mut run = run_of(&[&[(1, false), (2, false), (3, false)], &[(3, true)], &[(1, true)], &[], &[]]);
    assert_eq!(run_all(&mut run, &[3]), [3, 0, 4]);
    assert_eq!(not_run(&run), [(1, 3), (2, 3)]);
}

#[test]
fn tests_that_wait_for_each_other_run() {
    let mut run = run_of(&[&[(1, true)], &[(0, true)], &[(1, false)], &[]]);
    assert_eq!(run_all(&mut run, &[]), [3, 0, 1, 2]);
    assert_eq!(not_run(&run), []);
}
