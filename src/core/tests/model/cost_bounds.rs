//! Upper bounds on the processes and workers of a run whose programs behave in one stated way.

use std::collections::VecDeque;

use heeler_core::{
    LeaseId, LeaseOutcome, NotRunReason, Outcome, ProvisionalReason, Slots, SynthesizedResult, TestId,
    WorkerId,
    batching::ProgramCosts,
    ledger::LedgerEntry,
    run::{
        BatchLease, CancelMode, DueResults, FailureLimit, FinisherTask, LostStream, RunAction, RunEvent,
        RunState, ScheduledTest, SchedulingPlan,
    },
};

use crate::{scenario::plan, world::SHORT};

/// How a process treats its batch.
enum ProcessAction {
    Pass(TestId),
    /// The process dies during this test.
    Die(TestId),
}

/// Totals of a run.
#[derive(Debug, Default)]
struct RunTally {
    run: Option<RunState>,
    leases: Vec<BatchLease>,
    /// Total number of tests in all leases, that is, of test names passed to processes.
    named: usize,
}

impl RunTally {
    fn entry(&self, test: u32) -> LedgerEntry {
        self.run.as_ref().expect("the run has ended").ledger().entry(TestId(test))
    }

    fn passed(&self) -> usize {
        let entries = self.run.as_ref().expect("the run has ended").ledger().entries();
        entries
            .iter()
            .filter(|entry| matches!(entry, LedgerEntry::Settled { outcome: Outcome::Passed, .. }))
            .count()
    }

    fn note(&mut self, lease: &BatchLease) {
        self.named += lease.batch.tests.len();
        self.leases.push(lease.clone());
    }
}

/// Grants workers to a run; returns the run's actions.
fn grant(run: &mut RunState, workers: &[WorkerId]) -> Vec<RunAction> {
    workers.iter().flat_map(|worker| run.handle(RunEvent::WorkerGranted(*worker))).collect()
}

/// Grants requested workers immediately from enough idle workers for all slots; returns the other actions.
fn grant_requested(run: &mut RunState, idle: &mut Vec<WorkerId>, actions: Vec<RunAction>) -> Vec<RunAction> {
    let (mut actions, mut others) = (VecDeque::from(actions), Vec::new());
    while let Some(action) = actions.pop_front() {
        match action {
            RunAction::StartWorker => {
                let worker = idle.pop().expect("at most one for each slot is requested");
                actions.extend(run.handle(RunEvent::WorkerGranted(worker)));
            }
            RunAction::ReleaseWorker(worker) => idle.push(worker),
            other => others.push(other),
        }
    }
    others
}

/// Runs a plan with workers that never die.
fn run(
    plan: SchedulingPlan,
    mut behave: impl FnMut(&BatchLease, &mut Vec<ProcessAction>) -> LeaseOutcome,
) -> RunTally {
    let mut tally = RunTally::default();
    let mut idle: Vec<_> = (0..u32::try_from(plan.slots).expect("a small number")).map(WorkerId).collect();
    let mut positions = vec![0; idle.len()];
    let most_leases = 100 + 3 * plan.tests.len();
    let mut run = RunState::new(plan);
    let begun = run.begin();
    let mut actions = VecDeque::from(grant_requested(&mut run, &mut idle, begun));
    while let Some(action) = actions.pop_front() {
        match action {
            // The run receives the events of the process, then the end of the lease.
            RunAction::Lease(lease) => {
                tally.note(&lease);
                assert!(tally.leases.len() <= most_leases, "the run does not end");
                let mut deeds = Vec::new();
                let end = behave(&lease, &mut deeds);
                let position = &mut positions[lease.worker.index()];
                for event in deeds.into_iter().flat_map(|deed| told(&lease, deed, position)) {
                    let due = run.handle(event);
                    actions.extend(grant_requested(&mut run, &mut idle, due));
                }
                let (worker, lease) = (lease.worker, lease.lease);
                let due = run.handle(RunEvent::LeaseEnded { worker, lease, end, start: None });
                actions.extend(grant_requested(&mut run, &mut idle, due));
            }
            RunAction::Drain(worker) => {
                actions.extend(run.handle(RunEvent::Drained { worker, proven: u64::MAX }))
            }
            // Reject actions that no process of these tests causes.
            RunAction::KillFinisher => panic!("no finisher is late"),
            RunAction::Finish(_) => actions.extend(run.handle(RunEvent::Finished)),
            RunAction::Complete => return RunTally { run: Some(run), ..tally },
            RunAction::StartWorker | RunAction::ReleaseWorker(_) => panic!("these are carried out at once"),
            RunAction::CancelLease { .. } => panic!("nothing is cancelled"),
            RunAction::ExtendLease(_) | RunAction::EndLease { .. } => panic!("no process is idle"),
            RunAction::DelayRetry { .. } | RunAction::DelayStarts { .. } => panic!("nothing is delayed"),
            RunAction::LimitSetUp { .. } | RunAction::ReturnTests { .. } => panic!("no fixture is set up"),
        }
    }
    panic!("the run stops in {:?}", run.stage());
}

fn told(lease: &BatchLease, deed: ProcessAction, position: &mut u64) -> [RunEvent; 2] {
    let (ProcessAction::Pass(test) | ProcessAction::Die(test)) = deed;
    let started = RunEvent::Started { lease: lease.lease, test };
    let is_dead = matches!(deed, ProcessAction::Die(_));
    if is_dead && !lease.batch.is_isolated {
        return [
            started,
            RunEvent::Provisional { lease: lease.lease, test, by: ProvisionalReason::AwaitsIsolatedRun },
        ];
    }
    *position += 1;
    let outcome = if is_dead { Outcome::Crashed } else { Outcome::Passed };
    let settled =
        RunEvent::Settled { worker: lease.worker, test, outcome, duration: SHORT / 100, position: *position };
    [started, settled]
}

/// Processes that pass all tests except these, which kill their process.
fn dying(
    is_dying: impl Fn(TestId) -> bool,
) -> impl FnMut(&BatchLease, &mut Vec<ProcessAction>) -> LeaseOutcome {
    move |lease, deeds| {
        for test in &lease.batch.tests {
            if is_dying(*test) {
                deeds.push(ProcessAction::Die(*test));
                return LeaseOutcome::DiedInTest;
            }
            deeds.push(ProcessAction::Pass(*test));
        }
        LeaseOutcome::Complete
    }
}

fn many(tests: usize, slots: usize) -> SchedulingPlan {
    SchedulingPlan { slots, ..plan(&vec![0; tests], |_, _| {}) }
}

#[test]
fn a_crash_in_the_middle_of_a_batch_costs_two_processes() {
    let costs = ProgramCosts { start: Some(60 * SHORT), ..ProgramCosts::default() };
    let plan = || SchedulingPlan { programs: vec![costs.clone()], ..many(500, 2) };
    let sizes =
        |tally: &RunTally| tally.leases.iter().map(|lease| lease.batch.tests.len()).collect::<Vec<_>>();
    let calm = run(plan(), dying(|_| false));
    let tally = run(plan(), dying(|test| test == TestId(136)));
    assert_eq!(sizes(&calm), [12, 12, 119, 89, 268]);
    let expected = [12, 12, 119, 89, 268];
    assert_eq!(sizes(&tally)[..3], expected[..3]);
    assert_eq!(tally.leases.len(), calm.leases.len() + 2, "the rest of the one that died, the check");
    assert_eq!(tally.passed(), 499);
}

#[test]
fn a_hundred_thousand_tests_take_few_processes_and_no_test_is_named_twice() {
    let tally = run(many(100_000, 4), dying(|_| false));
    assert_eq!((tally.passed(), tally.named), (100_000, 100_000));
    assert!(tally.leases.len() < 100, "{} processes", tally.leases.len());
}

#[test]
fn twenty_thousand_isolated_tests_take_a_process_each() {
    let plan = SchedulingPlan { slots: 8, ..plan(&vec![0; 20_000], |_, test| test.is_isolated = true) };
    let tally = run(plan, dying(|test| test.0.is_multiple_of(100)));
    assert_eq!((tally.passed(), tally.leases.len()), (19_800, 20_000));
}

#[test]
fn a_thousand_programs_of_a_hundred_tests_take_a_process_or_two_each() {
    let programs: Vec<_> = (0..100_000).map(|test| test % 1000).collect();
    let tally = run(SchedulingPlan { slots: 8, ..plan(&programs, |_, _| {}) }, dying(|_| false));
    assert_eq!(tally.passed(), 100_000);
    assert!(tally.leases.len() <= 2000, "{} processes", tally.leases.len());
}

#[test]
fn a_program_whose_every_test_crashes_is_not_told_all_its_names_each_time() {
    let tally = run(many(20_000, 2), dying(|_| true));
    assert_eq!(tally.passed(), 0);
    assert!(tally.named < 300_000, "{} names", tally.named);
    assert!(tally.leases.len() < 30_000, "{} processes", tally.leases.len());
}

#[test]
fn a_program_whose_every_second_test_crashes_is_not_told_all_its_names_each_time() {
    let tally = run(many(20_000, 2), dying(|test| test.0.is_multiple_of(2)));
    assert_eq!(tally.passed(), 10_000);
    assert!(tally.named < 400_000, "{} names", tally.named);
    assert!(tally.leases.len() < 30_000, "{} processes", tally.leases.len());
}

#[test]
fn a_large_program_that_dies_at_once_is_given_up_after_a_handful_of_processes() {
    let tally = run(many(20_000, 4), |_, _| LeaseOutcome::DiedOutside);
    assert!(tally.leases.len() < 20, "{} processes", tally.leases.len());
    assert!(matches!(
        tally.entry(19_999),
        LedgerEntry::Synthesized(SynthesizedResult::NotRun(NotRunReason::ProgramGivenUp { deaths: 3.. }))
    ));
}

#[test]
fn a_large_program_that_runs_nothing_is_given_up_after_a_handful_of_processes() {
    let tally = run(many(20_000, 4), |_, _| LeaseOutcome::Complete);
    assert!(tally.leases.len() < 20, "{} processes", tally.leases.len());
    assert_eq!(
        tally.entry(0),
        LedgerEntry::Synthesized(SynthesizedResult::NotRun(NotRunReason::NeverStarted))
    );
}

#[test]
fn a_program_that_starts_too_slowly_is_started_again_as_it_is() {
    let plan = || SchedulingPlan { slots: 1, ..plan(&[0; 40], |_, _| {}) };
    let tally = run(plan(), |_, _| LeaseOutcome::StartTimedOut);
    let sizes: Vec<_> =
        tally.leases.iter().map(|lease| (lease.batch.tests.len(), lease.start_timeouts)).collect();
    assert_eq!(sizes, [(40, 0), (40, 1), (40, 2)]);
    assert_eq!(
        tally.entry(7),
        LedgerEntry::Synthesized(SynthesizedResult::NotRun(NotRunReason::StartTimedOut { attempts: 3 }))
    );
    let tally = run(plan(), |lease, deeds| {
        if lease.start_timeouts < 2 {
            return LeaseOutcome::StartTimedOut;
        }
        deeds.extend(lease.batch.tests.iter().map(|test| ProcessAction::Pass(*test)));
        LeaseOutcome::Complete
    });
    assert_eq!((tally.passed(), tally.leases.len()), (40, 3));
}

#[test]
fn a_test_that_cannot_begin_does_not_have_its_program_given_up() {
    let plan = SchedulingPlan { slots: 1, ..plan(&[0; 40], |place, test| test.is_isolated = place == 7) };
    let tally = run(plan, |lease, deeds| {
        if lease.batch.tests.contains(&TestId(7)) {
            return LeaseOutcome::DiedOutside;
        }
        deeds.extend(lease.batch.tests.iter().map(|test| ProcessAction::Pass(*test)));
        LeaseOutcome::Complete
    });
    assert_eq!(tally.passed(), 39);
    assert_eq!(
        tally.entry(7),
        LedgerEntry::Synthesized(SynthesizedResult::NotRun(NotRunReason::ProgramGivenUp { deaths: 3 }))
    );
}

#[test]
fn a_program_that_recovers_gets_large_batches_again() {
    let mut starts = 0;
    let tally = run(many(20_000, 1), |lease, deeds| {
        starts += 1;
        if starts <= 5 {
            return LeaseOutcome::NotStarted;
        }
        deeds.extend(lease.batch.tests.iter().map(|test| ProcessAction::Pass(*test)));
        LeaseOutcome::Complete
    });
    assert_eq!(tally.passed(), 20_000);
    assert!(tally.leases.len() < 100, "{} processes", tally.leases.len());
}

#[test]
fn workers_that_do_not_start_do_not_end_a_run_that_another_worker_carries() {
    let mut run = RunState::new(SchedulingPlan { slots: 2, ..plan(&[0, 1, 2], |_, _| {}) });
    let actions = grant(&mut run, &[WorkerId(1)]);
    assert!(matches!(&actions[..], [RunAction::Lease(_), RunAction::StartWorker]), "{actions:?}");
    for _ in 0..7 {
        assert_eq!(run.handle(RunEvent::WorkerNotStarted), [RunAction::StartWorker]);
    }
    assert_eq!(run.handle(RunEvent::WorkerNotStarted), [], "four in a row for each slot are enough");
    assert_eq!(run.stop_reason(), None);
    let _stops = run.handle(RunEvent::WorkerLost { worker: WorkerId(1), proven: 0, settled: Vec::new() });
    assert_eq!(run.stop_reason(), Some(NotRunReason::NoWorker));
}

#[test]
fn a_test_that_kills_worker_after_worker_without_a_word_costs_only_itself() {
    let mut run = RunState::new(many(3, 1));
    let mut actions: VecDeque<_> = run.begin().into();
    let mut workers = 0;
    while let Some(action) = actions.pop_front() {
        match action {
            RunAction::StartWorker => {
                workers += 1;
                actions.extend(run.handle(RunEvent::WorkerGranted(WorkerId(workers))));
            }
            RunAction::Lease(lease) => {
                let worker = lease.worker;
                let before = lease.batch.tests.iter().take_while(|test| **test != TestId(1));
                let settled: Vec<_> = before.map(|test| (*test, Outcome::Passed, SHORT)).collect();
                if settled.len() < lease.batch.tests.len() {
                    actions.extend(run.handle(RunEvent::WorkerLost { worker, proven: 0, settled }));
                    continue;
                }
                for (test, position) in lease.batch.tests.iter().zip(1..) {
                    let (test, outcome) = (*test, Outcome::Passed);
                    let settled = RunEvent::Settled { worker, test, outcome, duration: SHORT, position };
                    actions.extend(run.handle(settled));
                }
                let end = LeaseOutcome::Complete;
                actions.extend(run.handle(RunEvent::LeaseEnded {
                    worker,
                    lease: lease.lease,
                    end,
                    start: None,
                }));
            }
            RunAction::Drain(worker) => actions.extend(run.handle(RunEvent::Drained { worker, proven: 9 })),
            RunAction::KillFinisher => panic!("no finisher is late"),
            RunAction::Finish(_) => actions.extend(run.handle(RunEvent::Finished)),
            RunAction::DelayRetry { .. } | RunAction::DelayStarts { .. } => panic!("nothing is delayed"),
            RunAction::LimitSetUp { .. } | RunAction::ReturnTests { .. } => panic!("no fixture is set up"),
            RunAction::ExtendLease(_) | RunAction::EndLease { .. } => panic!("no process is idle"),
            RunAction::ReleaseWorker(_) | RunAction::CancelLease { .. } | RunAction::Complete => {}
        }
    }
    let entry = |test| run.ledger().entry(TestId(test));
    assert_eq!(entry(1), LedgerEntry::Synthesized(SynthesizedResult::NotRun(NotRunReason::WorkerDied)));
    assert!(matches!(entry(0), LedgerEntry::Settled { outcome: Outcome::Passed, .. }));
    assert!(matches!(entry(2), LedgerEntry::Settled { outcome: Outcome::Passed, .. }));
    assert_eq!(workers, 2);
}

#[test]
fn the_death_of_all_workers_at_once_is_not_the_end_of_the_run() {
    let plan = SchedulingPlan { slots: 8, ..plan(&[0; 100], |_, test| test.is_isolated = true) };
    let workers: Vec<_> = (0..8).map(WorkerId).collect();
    let mut run = RunState::new(plan);
    let _leases = grant(&mut run, &workers);
    for worker in workers {
        let actions = run.handle(RunEvent::WorkerLost { worker, proven: 0, settled: Vec::new() });
        assert_eq!(actions, [RunAction::StartWorker]);
    }
    for _ in 0..8 {
        assert_eq!(run.handle(RunEvent::WorkerNotStarted), [RunAction::StartWorker]);
    }
    let actions = run.handle(RunEvent::WorkerGranted(WorkerId(8)));
    assert!(matches!(&actions[..], [RunAction::Lease(_)]), "{actions:?}");
}

#[test]
fn a_cancel_and_then_the_loss_of_all_awaited_workers_leave_no_test_open() {
    let plan = SchedulingPlan { slots: 3, ..plan(&[0; 9], |_, test| test.is_isolated = true) };
    let mut run = RunState::new(plan);
    let _leases = grant(&mut run, &[WorkerId(0), WorkerId(1), WorkerId(2), WorkerId(3)]);
    let actions = run.handle(RunEvent::Cancel);
    assert_eq!(actions.len(), 3, "{actions:?}");
    for worker in run.awaited_workers() {
        let settled =
            if worker == WorkerId(1) { vec![(TestId(1), Outcome::Passed, SHORT)] } else { Vec::new() };
        let _ended = run.handle(RunEvent::WorkerLost { worker, proven: 0, settled });
    }
    let ledger = run.ledger();
    assert_eq!(
        (ledger.open_count(), ledger.synthesized_results().len(), ledger.unproven_streams().len()),
        (0, 8, 1)
    );
}

#[test]
fn a_result_that_comes_after_all_is_not_asked_for_again() {
    let mut run = RunState::new(SchedulingPlan { slots: 1, ..plan(&[0], |_, test| test.retries.count = 1) });
    let actions = grant(&mut run, &[WorkerId(1)]);
    let [RunAction::Lease(lease)] = &actions[..] else { panic!("{actions:?}") };
    let (worker, lease, test) = (lease.worker, lease.lease, TestId(0));
    assert_eq!(run.handle(RunEvent::Provisional { lease, test, by: ProvisionalReason::AwaitsRetry }), []);
    let settled = RunEvent::Settled { worker, test, outcome: Outcome::Failed, duration: SHORT, position: 1 };
    assert_eq!(run.handle(settled), []);
    let actions =
        run.handle(RunEvent::LeaseEnded { worker, lease, end: LeaseOutcome::Complete, start: None });
    assert_eq!(actions, [RunAction::ReleaseWorker(worker), RunAction::Drain(worker)]);
}

#[test]
fn a_result_held_back_that_nobody_asked_for_is_the_result() {
    let mut run = RunState::new(many(2, 1));
    let actions = grant(&mut run, &[WorkerId(1)]);
    let [RunAction::Lease(lease)] = &actions[..] else { panic!("{actions:?}") };
    let (worker, lease) = (lease.worker, lease.lease);
    let held = |lease, test, by| RunEvent::Provisional { lease, test: TestId(test), by };
    assert_eq!(run.handle(held(lease, 0, ProvisionalReason::AwaitsRetry)), []);
    assert_eq!(
        run.ledger().entry(TestId(0)),
        LedgerEntry::Synthesized(SynthesizedResult::Provisional(ProvisionalReason::AwaitsRetry))
    );
    assert_eq!(run.handle(held(lease, 1, ProvisionalReason::AwaitsIsolatedRun)), []);
    let actions =
        run.handle(RunEvent::LeaseEnded { worker, lease, end: LeaseOutcome::DiedInTest, start: None });
    let [RunAction::Lease(check)] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!(run.handle(held(check.lease, 1, ProvisionalReason::AwaitsIsolatedRun)), []);
    assert_eq!(
        run.ledger().entry(TestId(1)),
        LedgerEntry::Synthesized(SynthesizedResult::Provisional(ProvisionalReason::AwaitsIsolatedRun))
    );
}

#[test]
fn a_worker_that_only_told_of_a_start_is_drained_too() {
    let mut run = RunState::new(many(1, 1));
    let actions = grant(&mut run, &[WorkerId(1)]);
    let [RunAction::Lease(lease)] = &actions[..] else { panic!("{actions:?}") };
    let (worker, lease) = (lease.worker, lease.lease);
    let _none = run.handle(RunEvent::Started { lease, test: TestId(0) });
    let _cancels = run.handle(RunEvent::Cancel);
    let actions =
        run.handle(RunEvent::LeaseEnded { worker, lease, end: LeaseOutcome::Cancelled, start: None });
    assert_eq!(actions, [RunAction::ReleaseWorker(worker), RunAction::Drain(worker)]);
}

#[test]
fn failures_that_no_worker_told_count_towards_the_allowed_ones() {
    let change = |place, test: &mut ScheduledTest| test.is_unrunnable = place == 0;
    let mut run = RunState::new(SchedulingPlan {
        failure_limit: Some(FailureLimit { failures: 1, cancel_mode: CancelMode::AfterRunningTests }),
        ..plan(&[0, 1], change)
    });
    let actions = run.begin();
    assert!(matches!(&actions[..], [RunAction::Finish(due)] if due.synthesized.len() == 2), "{actions:?}");
    assert_eq!(run.stop_reason(), Some(NotRunReason::TooManyFailures));
}

/// Returns a run whose single test has its result, just before the finish.
fn finishing() -> RunState {
    let worker = WorkerId(0);
    let mut run = RunState::new(plan(&[0], |_, _| {}));
    let _lease = grant(&mut run, &[worker]);
    let (test, outcome) = (TestId(0), Outcome::Passed);
    let _settled = run.handle(RunEvent::Settled { worker, test, outcome, duration: SHORT, position: 1 });
    let (lease, end) = (LeaseId(0), LeaseOutcome::Complete);
    let _drain = run.handle(RunEvent::LeaseEnded { worker, lease, end, start: None });
    let actions = run.handle(RunEvent::Drained { worker, proven: 0 });
    let due = DueResults { resend: vec![(worker, 0)], synthesized: Vec::new() };
    assert_eq!(actions, [RunAction::Finish(due)]);
    run
}

#[test]
fn a_finisher_that_dies_behind_its_last_proof_is_followed_by_the_completion_alone() {
    let mut run = finishing();
    assert!(matches!(run.finisher_task(), FinisherTask::Finish(due) if due.resend.len() == 1));
    assert_eq!(run.handle(RunEvent::Completing), []);
    assert_eq!(run.finisher_task(), FinisherTask::Complete);
    assert_eq!(run.handle(RunEvent::Finished), [RunAction::Complete]);
    assert_eq!(run.finisher_task(), FinisherTask::None);
}

#[test]
fn a_finisher_that_is_late_is_killed_before_the_coordinator_takes_its_place() {
    let mut run = finishing();
    assert_eq!(run.handle(RunEvent::FinisherLate), [RunAction::KillFinisher]);
    assert_eq!(run.handle(RunEvent::FinisherLate), []);
    assert_eq!(run.finisher_task(), FinisherTask::CoordinatorCompletes);
    assert!(
        matches!(run.complete_without_finisher(|_| LostStream::default()), FinisherTask::Finish(due) if due.resend.len() == 1)
    );
    assert_eq!(run.complete_without_finisher(|_| LostStream::default()), FinisherTask::None);
}

#[test]
fn a_run_that_is_ended_without_a_finisher_takes_what_journals_hold() {
    let mut run = RunState::new(plan(&[0, 0], |_, _| {}));
    let _lease = grant(&mut run, &[WorkerId(0)]);
    let succession = run.complete_without_finisher(|_| LostStream {
        settled: vec![(TestId(0), Outcome::Passed, SHORT)],
        proven: 0,
    });
    let told = vec![(TestId(1), SynthesizedResult::NotRun(NotRunReason::NoWorker))];
    assert_eq!(
        succession,
        FinisherTask::Finish(DueResults { resend: vec![(WorkerId(0), 0)], synthesized: told })
    );
    assert_eq!(run.ledger().open_count(), 0);
    assert_eq!(run.stop_reason(), Some(NotRunReason::NoWorker), "nobody has cancelled it");
}

#[test]
fn run_that_awaits_no_worker_and_loses_its_finisher_accounts_for_its_tests() {
    let mut run = RunState::new(plan(&[0, 0], |_, _| {}));
    let _none = run.handle(RunEvent::SlotShare(Slots::NONE));
    assert_eq!(run.begin(), []);
    let FinisherTask::Finish(due) = run.complete_without_finisher(|_| LostStream::default()) else {
        panic!()
    };
    let not_run = |test| (TestId(test), SynthesizedResult::NotRun(NotRunReason::NoWorker));
    assert_eq!(due.synthesized, [not_run(0), not_run(1)]);
}

#[test]
fn a_run_that_was_cancelled_and_loses_its_finisher_was_cancelled() {
    let mut run = RunState::new(plan(&[0], |_, _| {}));
    let _lease = grant(&mut run, &[WorkerId(0)]);
    let _cancels = run.handle(RunEvent::Cancel);
    let FinisherTask::Finish(due) = run.complete_without_finisher(|_| LostStream::default()) else {
        panic!()
    };
    assert_eq!(due.synthesized, [(TestId(0), SynthesizedResult::NotRun(NotRunReason::Cancelled))]);
    assert_eq!(run.stop_reason(), Some(NotRunReason::Cancelled));
}
