//! Retries and iterations.

use super::*;

const WORKER: WorkerId = WorkerId(1);
const SECOND: Duration = Duration::from_secs(1);

/// Returns a run with one slot and tests that are retried twice, each time after a second.
fn run(tests: usize) -> RunState {
    let delay = RetryDelay { first: SECOND, ..RetryDelay::NONE };
    let test = ScheduledTest { retries: RetryPolicy { count: 2, delay }, ..plain_test() };
    RunState::new(plan_of(vec![test; tests]))
}

fn leased(actions: &[RunAction]) -> &BatchLease {
    let lease = actions.iter().find_map(|action| match action {
        RunAction::Lease(lease) => Some(lease),
        _ => None,
    });
    lease.unwrap_or_else(|| panic!("{actions:?}"))
}

fn end(run: &mut RunState, lease: LeaseId) -> Vec<RunAction> {
    run.handle(RunEvent::LeaseEnded { worker: WORKER, lease, end: LeaseOutcome::Complete, start: None })
}

fn settle(run: &mut RunState, test: TestId, position: u64) -> Vec<RunAction> {
    let (outcome, duration) = (Outcome::Passed, SECOND);
    run.handle(RunEvent::Settled { worker: WORKER, test, outcome, duration, position })
}

/// Begins a run of one test, and fails it; returns the run and its lease.
fn failed_once() -> RunState {
    let mut run = run(1);
    assert_eq!(run.begin(), [RunAction::StartWorker]);
    let granted = run.handle(RunEvent::WorkerGranted(WORKER));
    let lease = leased(&granted).lease;
    let by = ProvisionalReason::AwaitsRetry;
    let told = run.handle(RunEvent::Provisional { lease, test: TestId(0), by });
    assert_eq!(told, [RunAction::DelayRetry { test: TestId(0), delay: SECOND }]);
    // The worker is free for others.
    assert_eq!(end(&mut run, lease), [RunAction::ReleaseWorker(WORKER)]);
    assert_eq!(run.wanted_slots(), Slots(0));
    run
}

#[test]
fn delayed_retry_holds_no_slot_and_runs_when_it_is_due() {
    let mut run = failed_once();
    assert_eq!(run.handle(RunEvent::RetryDue(TestId(0))), [RunAction::StartWorker]);
    assert_eq!(run.handle(RunEvent::RetryDue(TestId(0))), [], "once");
    let granted = run.handle(RunEvent::WorkerGranted(WORKER));
    let next = leased(&granted);
    assert!(next.batch.is_isolated && next.is_failure_provisional == [true]);
    let by = ProvisionalReason::AwaitsRetry;
    let lease = next.lease;
    let told = run.handle(RunEvent::Provisional { lease, test: TestId(0), by });
    assert_eq!(told, [RunAction::DelayRetry { test: TestId(0), delay: SECOND }]);
    let _released = end(&mut run, lease);
    let _start = run.handle(RunEvent::RetryDue(TestId(0)));
    let granted = run.handle(RunEvent::WorkerGranted(WORKER));
    assert_eq!(leased(&granted).is_failure_provisional, [false], "the last");
}

#[test]
fn run_that_stops_does_not_wait_for_delays() {
    for event in [RunEvent::Cancel, RunEvent::TimeLimitReached] {
        let mut run = failed_once();
        assert_eq!(run.handle(event), [RunAction::Drain(WORKER)]);
        let entry = run.ledger().entry(TestId(0));
        let provisional = SynthesizedResult::Provisional(ProvisionalReason::AwaitsRetry);
        assert_eq!(entry, LedgerEntry::Synthesized(provisional), "the failure is the result");
        assert_eq!(run.handle(RunEvent::RetryDue(TestId(0))), []);
    }
    // A failure after the run has stopped waits for no retry.
    let mut run = run(1);
    let _start = run.begin();
    let granted = run.handle(RunEvent::WorkerGranted(WORKER));
    let lease = leased(&granted).lease;
    let _cancel = run.handle(RunEvent::Cancel);
    let by = ProvisionalReason::AwaitsRetry;
    assert_eq!(run.handle(RunEvent::Provisional { lease, test: TestId(0), by }), []);
    assert_eq!(end(&mut run, lease), [RunAction::ReleaseWorker(WORKER), RunAction::Drain(WORKER)]);
}

#[test]
fn iterations_are_rounds_over_all_tests() {
    let mut run = run(3);
    let _start = run.begin();
    let granted = run.handle(RunEvent::WorkerGranted(WORKER));
    let mut lease = leased(&granted).clone();
    for round in 0..4 {
        let mut seen = Vec::new();
        while seen.len() < 3 {
            assert_eq!(lease.passed_iterations, vec![round; lease.batch.tests.len()]);
            for test in lease.batch.tests.clone() {
                let lease = lease.lease;
                let passed = RunEvent::IterationPassed { lease, test, duration: SECOND };
                let _none = run.handle(passed.clone());
                assert_eq!(run.handle(passed), [], "stale");
                seen.push(test);
            }
            lease = leased(&end(&mut run, lease.lease)).clone();
        }
        seen.sort_unstable();
        assert_eq!(seen, [TestId(0), TestId(1), TestId(2)], "each once");
    }
    // The last iteration produces results. Tests that wait for the next round are then not run.
    let first = lease.batch.tests[0];
    let _none = settle(&mut run, first, 1);
    let others: Vec<_> = (0..3).map(TestId).filter(|test| *test != first).collect();
    let _cancel = run.handle(RunEvent::Cancel);
    let _drain = end(&mut run, lease.lease);
    assert_eq!(run.stage(), RunStage::Draining);
    let cancelled = LedgerEntry::Synthesized(SynthesizedResult::NotRun(NotRunReason::Cancelled));
    assert!(others.iter().all(|test| run.ledger().entry(*test) == cancelled));
}
