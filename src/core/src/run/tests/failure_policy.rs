//! Tests that run while their worker dies.

use super::*;

const WORKER: WorkerId = WorkerId(1);

/// Returns the tests leased after a worker died, and whether they are isolated. Its lease had three tests:
/// `ended` of them had ended, and the next one had started if `is_next_begun`.
fn leased_after_death(ended: u32, is_next_begun: bool) -> (Vec<TestId>, bool) {
    let test = plain_test();
    let plan = plan_of(vec![test; 3]);
    let mut run = RunState::new(plan);
    let _start = run.begin();
    let granted = run.handle(RunEvent::WorkerGranted(WORKER));
    let [RunAction::Lease(first)] = &granted[..] else { panic!("{granted:?}") };
    let lease = first.lease;
    for test in (0..ended).map(TestId) {
        let _none = run.handle(RunEvent::Started { lease, test });
        let _none = run.handle(RunEvent::Held { lease, test });
    }
    if is_next_begun {
        let _none = run.handle(RunEvent::Started { lease, test: TestId(ended) });
    }
    let _start = run.handle(RunEvent::WorkerLost { worker: WORKER, proven: 0, settled: Vec::new() });
    let granted = run.handle(RunEvent::WorkerGranted(WorkerId(2)));
    let [RunAction::Lease(next)] = &granted[..] else { panic!("{granted:?}") };
    (next.batch.tests.clone(), next.batch.is_isolated)
}

#[test]
fn test_that_has_ended_is_no_suspect_of_the_workers_death() {
    // The remaining tests continue first; the suspect follows in isolation.
    assert_eq!(leased_after_death(2, true), (vec![TestId(0), TestId(1)], false));
    assert_eq!(leased_after_death(1, true), (vec![TestId(0), TestId(2)], false));
    assert_eq!(
        leased_after_death(1, false),
        (vec![TestId(0), TestId(2)], false),
        "the next one is suspected"
    );
    assert_eq!(leased_after_death(3, false), (vec![TestId(0)], true), "any of them may do it at its end");
}
