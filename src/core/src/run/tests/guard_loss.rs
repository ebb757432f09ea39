//! Processes that end with their guards.

use super::*;

const KILLED: GuardLoss = GuardLoss::Killed { signal: 9 };

/// Life of a process: how many tests pass, whether it starts the next one, and its end.
struct ProcessLife {
    passed: usize,
    has_begun_next: bool,
    end: LeaseOutcome,
}

impl ProcessLife {
    fn complete(lease: &BatchLease) -> Self {
        let passed = lease.batch.tests.len();
        Self { passed, has_begun_next: false, end: LeaseOutcome::Complete }
    }

    fn lost(passed: usize, has_begun_next: bool) -> Self {
        Self { passed, has_begun_next, end: LeaseOutcome::GuardLost(KILLED) }
    }

    /// The guard is lost when this test is next.
    fn lost_at(lease: &BatchLease, is_lost: impl Fn(TestId) -> bool, has_begun_next: bool) -> Self {
        match lease.batch.tests.iter().position(|test| is_lost(*test)) {
            Some(place) => Self::lost(place, has_begun_next),
            None => Self::complete(lease),
        }
    }
}

fn plan(tests: usize, slots: usize) -> SchedulingPlan {
    let test = ScheduledTest { retries: RetryPolicy::immediate(2), ..plain_test() };
    SchedulingPlan { slots, ..plan_of(vec![test; tests]) }
}

/// Runs a plan on workers whose processes behave this way. Returns the finished run and its leases.
fn run(
    plan: SchedulingPlan,
    mut live: impl FnMut(&BatchLease) -> ProcessLife,
) -> (RunState, Vec<BatchLease>) {
    let most_leases = 100 + 4 * plan.tests.len();
    let mut run = RunState::new(plan);
    let mut actions = VecDeque::from(run.begin());
    let (mut leases, mut workers, mut position) = (Vec::new(), 0, 0);
    while let Some(action) = actions.pop_front() {
        match action {
            RunAction::StartWorker => {
                workers += 1;
                actions.extend(run.handle(RunEvent::WorkerGranted(WorkerId(workers))));
            }
            RunAction::Lease(lease) => {
                assert!(leases.len() < most_leases, "the run does not end");
                let ProcessLife { passed, has_begun_next, end } = live(&lease);
                let (worker, id) = (lease.worker, lease.lease);
                for (place, test) in lease.batch.tests.iter().enumerate() {
                    let test = *test;
                    if place < passed || (place == passed && has_begun_next) {
                        actions.extend(run.handle(RunEvent::Started { lease: id, test }));
                    }
                    if place < passed {
                        position += 1;
                        let (outcome, duration) = (Outcome::Passed, Duration::from_millis(1));
                        let settled = RunEvent::Settled { worker, test, outcome, duration, position };
                        actions.extend(run.handle(settled));
                    }
                }
                actions.extend(run.handle(RunEvent::LeaseEnded { worker, lease: id, end, start: None }));
                leases.push(*lease);
            }
            RunAction::Drain(worker) => {
                actions.extend(run.handle(RunEvent::Drained { worker, proven: u64::MAX }))
            }
            RunAction::Finish(_) => actions.extend(run.handle(RunEvent::Finished)),
            RunAction::ReleaseWorker(_) | RunAction::Complete => {}
            RunAction::DelayRetry { .. }
            | RunAction::LimitSetUp { .. }
            | RunAction::ReturnTests { .. }
            | RunAction::DelayStarts { .. }
            | RunAction::CancelLease { .. }
            | RunAction::ExtendLease(_)
            | RunAction::EndLease { .. }
            | RunAction::KillFinisher => panic!("{action:?}"),
        }
    }
    assert_eq!(run.stage(), RunStage::Completed);
    (run, leases)
}

fn passed(run: &RunState) -> usize {
    let is_passed =
        |entry: &&LedgerEntry| matches!(entry, LedgerEntry::Settled { outcome: Outcome::Passed, .. });
    run.ledger().entries().iter().filter(is_passed).count()
}

#[test]
fn lost_guard_costs_no_test_wherever_it_is_lost() {
    for place in 0..=5 {
        for has_begun_next in [false, true] {
            for lost in 1..=2 {
                let mut count = 0;
                let (run, leases) = run(plan(5, 1), |lease| {
                    count += 1;
                    let passed = place.min(lease.batch.tests.len());
                    let has_next = has_begun_next && passed < lease.batch.tests.len();
                    if count <= lost {
                        ProcessLife::lost(passed, has_next)
                    } else {
                        ProcessLife::complete(lease)
                    }
                });
                assert_eq!(passed(&run), 5, "{place} {has_begun_next} {lost}");
                assert!(leases.len() <= 2 + 2 * lost, "{leases:#?}");
                assert!(leases.iter().all(|lease| lease.is_failure_provisional.iter().all(|held| *held)));
            }
        }
    }
}

#[test]
fn test_that_kills_its_guard_is_given_up_alone() {
    for has_begun in [true, false] {
        let (run, leases) =
            run(plan(200, 2), |lease| ProcessLife::lost_at(lease, |test| test == TestId(77), has_begun));
        assert_eq!(passed(&run), 199);
        let expected = NotRunReason::GuardLost { losses: 3, loss: KILLED, has_begun };
        assert_eq!(
            run.ledger().entry(TestId(77)),
            LedgerEntry::Synthesized(SynthesizedResult::NotRun(expected))
        );
        assert!(leases.len() < 25, "{} processes", leases.len());
    }
}

#[test]
fn program_whose_every_test_kills_its_guard_ends() {
    let (run, leases) = run(plan(500, 2), |_| ProcessLife::lost(0, true));
    assert_eq!(passed(&run), 0);
    assert!(leases.len() <= 1500, "{} processes", leases.len());
}

#[test]
fn program_that_kills_its_guard_before_any_test_is_given_up() {
    for (slots, limit) in [(1, 12), (8, 32)] {
        let (run, leases) = run(plan(20_000, slots), |_| ProcessLife::lost(0, false));
        assert_eq!(passed(&run), 0);
        let LedgerEntry::Synthesized(SynthesizedResult::NotRun(reason)) = run.ledger().entry(TestId(19_999))
        else {
            panic!("{:?}", run.ledger().entry(TestId(19_999)))
        };
        assert_eq!(reason, NotRunReason::ProgramGuardsLost { losses: limit, loss: KILLED });
        assert!(leases.len() <= limit as usize + slots, "{} processes", leases.len());
    }
}

#[test]
fn guards_of_all_slots_killed_at_once_cost_nothing() {
    let mut run = RunState::new(plan(400, 16));
    let mut actions = VecDeque::from(run.begin());
    let (mut workers, mut lost, mut leases) = (0, 0, VecDeque::new());
    let mut position = 0;
    loop {
        while let Some(action) = actions.pop_front() {
            match action {
                RunAction::StartWorker => {
                    workers += 1;
                    actions.extend(run.handle(RunEvent::WorkerGranted(WorkerId(workers))));
                }
                RunAction::Lease(lease) => leases.push_back(lease),
                RunAction::Drain(worker) => {
                    actions.extend(run.handle(RunEvent::Drained { worker, proven: u64::MAX }))
                }
                RunAction::Finish(_) => actions.extend(run.handle(RunEvent::Finished)),
                _ => {}
            }
        }
        let Some(lease) = leases.pop_front() else { break };
        let (worker, id) = (lease.worker, lease.lease);
        lost += 1;
        // All guards die at once, twice, before any test has started.
        let end = if lost <= 32 { LeaseOutcome::GuardLost(KILLED) } else { LeaseOutcome::Complete };
        for test in lease.batch.tests.iter().filter(|_| lost > 32) {
            position += 1;
            let (test, outcome, duration) = (*test, Outcome::Passed, Duration::ZERO);
            actions.extend(run.handle(RunEvent::Settled { worker, test, outcome, duration, position }));
        }
        actions.extend(run.handle(RunEvent::LeaseEnded { worker, lease: id, end, start: None }));
    }
    assert_eq!((run.stage(), passed(&run)), (RunStage::Completed, 400));
}
