//! The records of an observer at the coordinator: received events, returned actions, and the ledger. The
//! observer never looks at the run's internal decisions.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use heeler_core::{
    LeaseOutcome, NotRunReason, Outcome, ProgramId, ProvisionalReason, SynthesizedResult, TestId, WorkerId,
    ledger::LedgerEntry,
    run::{BatchLease, CancelMode, RunAction, RunEvent, RunState, SchedulingPlan},
};

use crate::{
    rules::{CheckResult, FINISHED, LEASED, RESPONSE, check},
    world::SimJournal,
};

/// Location of a test, according to the run's events and actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ObservedPlace {
    Waiting,
    /// The test waits for its retry delay.
    Delayed,
    With(WorkerId),
    Running(WorkerId),
    Settled(Outcome),
    Synthesized(SynthesizedResult),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ObservedTest {
    pub(crate) place: ObservedPlace,
    pub(crate) attempts: u32,
    /// The test died together with others; its isolated rerun is due or in progress.
    pub(crate) is_rerun_due: bool,
    /// Number of processes that ended with their guards and left the test without a result.
    pub(crate) guard_losses: u32,
    pub(crate) has_been_leased: bool,
}

const NEW_TEST: ObservedTest = ObservedTest {
    place: ObservedPlace::Waiting,
    attempts: 0,
    is_rerun_due: false,
    guard_losses: 0,
    has_been_leased: false,
};

/// A worker that the run considers alive.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct ObservedWorker {
    pub(crate) lease: Option<BatchLease>,
    pub(crate) has_had_lease: bool,
    pub(crate) cancel_mode: Option<CancelMode>,
    pub(crate) is_asked_to_drain: bool,
    pub(crate) is_drained: bool,
    /// The worker's process waits for further tests.
    pub(crate) is_idle: bool,
    /// The run has ended the worker's process: no tests follow.
    pub(crate) is_ending: bool,
    /// The worker's process ran tests before the lease's last batch.
    pub(crate) is_extended: bool,
    /// The worker's process was waiting for the lease.
    pub(crate) has_waited: bool,
}

impl ObservedWorker {
    /// Returns whether the worker's process is expected to take further tests of this program.
    pub(crate) fn is_ready(&self, program: ProgramId) -> bool {
        (self.is_extended || self.has_waited)
            && self.lease.as_ref().is_some_and(|lease| lease.batch.program == program)
            && self.cancel_mode.is_none()
            && !self.is_ending
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct RunObserver {
    pub(crate) slots: usize,
    pub(crate) workers: BTreeMap<WorkerId, ObservedWorker>,
    pub(crate) starting: usize,
    /// The worker that was granted or ended its lease and has no action from the run yet.
    pub(crate) unanswered: Option<WorkerId>,
    /// Number of leases allowed at once.
    pub(crate) share: usize,
    /// Number of slots unusable by any run.
    pub(crate) spare_slots: usize,
    /// For each closed stream, the number of results that the client provably has.
    pub(crate) proven: BTreeMap<WorkerId, usize>,
    pub(crate) tests: Vec<ObservedTest>,
    /// The program whose process waits at the next granted worker.
    waiting_process: Option<ProgramId>,
    /// Programs whose further processes are delayed.
    pub(crate) held: BTreeSet<ProgramId>,
    /// Remaining tests of dead batches, each due in one lease.
    pub(crate) rests: Vec<Vec<TestId>>,
    /// By program: consecutive single-test processes that reported nothing.
    pub(crate) unproductive: Vec<u32>,
    /// By program: at three, the remaining tests may be split into smaller batches.
    pub(crate) cuts: Vec<u8>,
    /// Tests may still be added.
    pub(crate) is_open: bool,
    pub(crate) is_stopped: bool,
    pub(crate) is_finishing: bool,
    is_finisher_late: bool,
    pub(crate) is_completed: bool,
    /// Only guards can fail: every test with a result has passed.
    pub(crate) is_blameless: bool,
}

impl ObservedPlace {
    pub(crate) fn is_with(self, worker: WorkerId) -> bool {
        self == Self::With(worker) || self == Self::Running(worker)
    }

    /// Returns the outcome of a test that has a result.
    pub(crate) fn outcome(self) -> Option<Outcome> {
        match self {
            Self::Settled(outcome) => Some(outcome),
            Self::Synthesized(result) => Some(result.outcome()),
            Self::Waiting | Self::Delayed | Self::With(_) | Self::Running(_) => None,
        }
    }
}

impl RunObserver {
    pub(crate) fn new(plan: &SchedulingPlan) -> Self {
        Self {
            slots: plan.slots,
            workers: BTreeMap::new(),
            starting: 0,
            unanswered: None,
            share: plan.slots,
            spare_slots: 0,
            proven: BTreeMap::new(),
            tests: vec![NEW_TEST; plan.tests.len()],
            waiting_process: None,
            held: BTreeSet::new(),
            rests: Vec::new(),
            unproductive: vec![0; plan.programs.len()],
            cuts: vec![0; plan.programs.len()],
            is_open: plan.is_open,
            is_stopped: false,
            is_finishing: false,
            is_finisher_late: false,
            is_completed: false,
            is_blameless: false,
        }
    }

    /// Records an event that the run receives.
    pub(crate) fn on_event(&mut self, plan: &SchedulingPlan, event: &RunEvent) {
        match event {
            RunEvent::WorkerGranted(worker) => {
                self.starting = self.starting.saturating_sub(1);
                self.unanswered = Some(*worker);
                self.workers.entry(*worker).or_default();
            }
            RunEvent::ProcessWaiting { program, .. } => self.waiting_process = Some(*program),
            RunEvent::StartsDue(program) => drop(self.held.remove(program)),
            RunEvent::WorkerNotStarted => self.starting -= 1,
            RunEvent::SlotShare(share) => self.share = share.0,
            RunEvent::SpareSlots(spare) => self.spare_slots = spare.0,
            RunEvent::Settled { test, outcome, .. } => self.settle(plan, *test, *outcome),
            RunEvent::Provisional { test, by, .. } => {
                let observed = &mut self.tests[test.index()];
                observed.place = ObservedPlace::Waiting;
                match by {
                    ProvisionalReason::AwaitsRetry => observed.attempts += 1,
                    ProvisionalReason::AwaitsIsolatedRun => observed.is_rerun_due = true,
                }
                self.unproductive[plan.tests[test.index()].program.index()] = 0;
            }
            RunEvent::LeaseIdle { worker, .. } => {
                let worker = self.worker(*worker);
                worker.is_idle = worker.cancel_mode.is_none();
            }
            RunEvent::TestsAdded(added) => {
                // A stopped run accepts no more tests.
                self.is_open &= !self.is_stopped;
                let count = if self.is_open { added.len() } else { 0 };
                self.tests.extend(std::iter::repeat_n(NEW_TEST, count));
            }
            RunEvent::NoMoreTests => self.is_open = false,
            RunEvent::LeaseEnded { worker, end: LeaseOutcome::GuardLost(_), .. } => {
                self.unanswered = Some(*worker);
                self.lose_guard(*worker);
            }
            RunEvent::LeaseEnded { worker, end: LeaseOutcome::Cancelled, .. }
                if self.is_taken_back(*worker) =>
            {
                self.unanswered = Some(*worker);
                self.put_back(*worker);
                self.worker(*worker).lease = None;
            }
            RunEvent::LeaseEnded { worker, .. } => {
                self.unanswered = Some(*worker);
                self.end_lease(*worker);
            }
            RunEvent::WorkerLost { worker, settled, proven } => {
                self.settle_lost_worker(plan, *worker, settled, *proven);
            }
            RunEvent::Drained { worker, proven } => {
                self.prove(*worker, *proven);
                self.worker(*worker).is_drained = true;
            }
            RunEvent::Started { test, .. } => self.start(*test),
            RunEvent::Cancel | RunEvent::TimeLimitReached => self.is_stopped = true,
            RunEvent::FinisherLate => self.is_finisher_late = true,
            RunEvent::RetryDue(test) => {
                let place = &mut self.tests[test.index()].place;
                if *place == ObservedPlace::Delayed {
                    *place = ObservedPlace::Waiting;
                }
            }
            RunEvent::IterationPassed { test, .. } => {
                self.tests[test.index()].place = ObservedPlace::Waiting;
                self.unproductive[plan.tests[test.index()].program.index()] = 0;
            }
            // No test of the model is held, and its coordinator has the whole machine.
            RunEvent::Held { .. }
            | RunEvent::AvailableSlots(_)
            | RunEvent::BatchLimit(_)
            | RunEvent::WatchdogDied { .. }
            | RunEvent::SetUp { .. }
            | RunEvent::SetUpDue { .. }
            | RunEvent::Completing
            | RunEvent::Finished => {}
        }
    }

    /// Records a lost worker's journal results and the proven part of its stream.
    fn settle_lost_worker(
        &mut self,
        plan: &SchedulingPlan,
        worker: WorkerId,
        settled: &[(TestId, Outcome, Duration)],
        proven: u64,
    ) {
        for (test, outcome, _) in settled {
            if self.tests[test.index()].place.is_with(worker) {
                self.settle(plan, *test, *outcome);
            }
        }
        // The proof of a drained stream is final.
        if !self.workers.get(&worker).is_some_and(|one| one.is_drained) {
            self.prove(worker, proven);
            // Results that the client may lack are sent at the end, so the run must not wait for tests.
            self.is_open &= usize::try_from(proven).is_ok_and(|proven| proven >= settled.len());
        }
        self.lose_worker(worker);
    }

    pub(crate) fn has_lease(&self, worker: WorkerId) -> bool {
        self.workers.get(&worker).is_some_and(|one| one.lease.is_some())
    }

    /// Returns whether the run has taken back the tests that this worker had not started.
    fn is_taken_back(&self, worker: WorkerId) -> bool {
        !self.is_stopped && self.workers.get(&worker).is_some_and(|one| one.cancel_mode.is_some())
    }

    fn worker(&mut self, worker: WorkerId) -> &mut ObservedWorker {
        self.workers.get_mut(&worker).expect("only workers that the run takes for alive send messages")
    }

    fn prove(&mut self, worker: WorkerId, proven: u64) {
        let known = self.proven.entry(worker).or_default();
        *known = (*known).max(usize::try_from(proven).expect("positions are small"));
    }

    fn start(&mut self, test: TestId) {
        let place = &mut self.tests[test.index()].place;
        if let ObservedPlace::With(worker) = *place {
            *place = ObservedPlace::Running(worker);
        }
    }

    fn settle(&mut self, plan: &SchedulingPlan, test: TestId, outcome: Outcome) {
        self.tests[test.index()].place = ObservedPlace::Settled(outcome);
        self.unproductive[plan.tests[test.index()].program.index()] = 0;
    }

    fn lose_worker(&mut self, worker: WorkerId) {
        let is_begun = |test: &ObservedTest| test.place == ObservedPlace::Running(worker);
        let begun: Vec<_> = self.tests.iter().map(is_begun).collect();
        let mut rest = self.put_back(worker);
        let count = rest.len();
        rest.retain(|test| !begun[test.index()]);
        if rest.len() == count && count > 0 {
            rest.remove(0);
        }
        self.rests.extend((!rest.is_empty()).then_some(rest));
        self.workers.remove(&worker);
    }

    /// Records a lost guard: started tests rerun alone, and the remaining tests may be split.
    fn lose_guard(&mut self, worker: WorkerId) {
        for test in self.put_back(worker) {
            self.tests[test.index()].guard_losses += 1;
        }
        let lease = self.worker(worker).lease.take().expect("a process has a lease");
        self.cuts[lease.batch.program.index()] = 3;
    }

    fn end_lease(&mut self, worker: WorkerId) {
        let rest = self.put_back(worker);
        let lease = self.worker(worker).lease.take().expect("a process has a lease");
        let program = lease.batch.program.index();
        let is_extended = self.worker(worker).is_extended;
        let is_unproductive = rest.len() == lease.batch.tests.len() && !is_extended;
        if is_unproductive && rest.len() == 1 {
            self.unproductive[program] += 1;
        }
        // A process that ran no test, or the third early end, permits splitting the remaining tests.
        self.cuts[program] = (self.cuts[program] + if is_unproductive { 3 } else { 1 }).min(3);
        if !rest.is_empty() && !is_unproductive {
            self.rests.push(rest);
        }
    }

    fn put_back(&mut self, worker: WorkerId) -> Vec<TestId> {
        let mut rest = Vec::new();
        let lease = self.workers.get(&worker).and_then(|one| one.lease.as_ref());
        for test in lease.iter().flat_map(|lease| &lease.batch.tests) {
            let place = &mut self.tests[test.index()].place;
            if place.is_with(worker) {
                *place = ObservedPlace::Waiting;
                rest.push(*test);
            }
        }
        rest
    }

    /// Records the tests that the run itself gave up.
    pub(crate) fn learn(&mut self, plan: &SchedulingPlan, run: &RunState) {
        let workers = &self.workers;
        self.held.retain(|program| workers.values().any(|one| one.is_ready(*program)));
        for (observed, entry) in self.tests.iter_mut().zip(run.ledger().entries()) {
            let is_waiting = matches!(observed.place, ObservedPlace::Waiting | ObservedPlace::Delayed);
            if let (true, LedgerEntry::Synthesized(result)) = (is_waiting, entry) {
                observed.place = ObservedPlace::Synthesized(*result);
                // Synthesized results are sent at the end, so the run must not wait for further tests.
                self.is_open = false;
            }
        }
        let failures = self.tests.iter().filter(|observed| match observed.place {
            ObservedPlace::Waiting
            | ObservedPlace::Delayed
            | ObservedPlace::With(_)
            | ObservedPlace::Running(_) => false,
            ObservedPlace::Settled(outcome) => outcome.is_failure(),
            ObservedPlace::Synthesized(result) => result.outcome().is_failure(),
        });
        self.is_stopped |= plan.failure_limit.is_some_and(|limit| failures.count() >= limit.failures);
        self.is_stopped |= run.stop_reason() == Some(NotRunReason::NoWorker);
    }

    /// Checks and records an action of the run.
    pub(crate) fn on_action(
        &mut self,
        plan: &SchedulingPlan,
        stop_reason: Option<NotRunReason>,
        journals: &BTreeMap<WorkerId, SimJournal>,
        action: &RunAction,
    ) -> CheckResult {
        check(RESPONSE, !self.is_completed, || format!("{action:?} after the completion"))?;
        match action {
            RunAction::StartWorker => {
                self.check_start(plan)?;
                self.starting += 1;
            }
            RunAction::Lease(lease) => {
                self.check_lease(plan, lease)?;
                self.begin_lease(lease);
                let waiting = self.waiting_process.take();
                let has_waited = waiting == Some(lease.batch.program) && !lease.batch.is_isolated;
                self.worker(lease.worker).has_waited = has_waited;
                if has_waited {
                    self.held.remove(&lease.batch.program);
                }
                self.unanswered = None;
            }
            RunAction::ExtendLease(lease) => {
                self.check_extension(plan, lease)?;
                self.begin_lease(lease);
                self.worker(lease.worker).is_extended = true;
                // A continuing delay is ordered again.
                self.held.remove(&lease.batch.program);
            }
            RunAction::EndLease { worker, .. } => {
                self.check_end_of_idle(*worker)?;
                self.worker(*worker).is_ending = true;
            }
            RunAction::ReleaseWorker(worker) => {
                self.check_release(*worker)?;
                self.waiting_process = None;
                self.unanswered = None;
            }
            RunAction::LimitSetUp { .. } | RunAction::ReturnTests { .. } => panic!("no fixture is set up"),
            RunAction::DelayStarts { program, .. } => {
                self.check_delayed_starts(plan, *program)?;
                self.held.insert(*program);
            }
            RunAction::DelayRetry { test, .. } => {
                let place = &mut self.tests[test.index()].place;
                check(LEASED, *place == ObservedPlace::Waiting && !self.is_stopped, || {
                    format!("{test:?} is {place:?}")
                })?;
                *place = ObservedPlace::Delayed;
            }
            RunAction::CancelLease { worker, mode } => {
                self.check_cancel(plan, stop_reason, *worker, *mode)?;
                self.worker(*worker).cancel_mode = Some(*mode);
            }
            RunAction::Drain(worker) => {
                self.check_drain(*worker)?;
                self.worker(*worker).is_asked_to_drain = true;
            }
            RunAction::Finish(due) => {
                self.check_finish(journals, due)?;
                self.check_torn_down(plan)?;
                self.is_finishing = true;
            }
            RunAction::KillFinisher => {
                check(FINISHED, self.is_finisher_late, || "a finisher in time is killed".to_owned())?;
            }
            RunAction::Complete => {
                check(RESPONSE, self.is_finishing, || "complete before it is finished".to_owned())?;
                self.is_completed = true;
            }
        }
        Ok(())
    }

    fn begin_lease(&mut self, lease: &BatchLease) {
        self.rests.retain(|rest| *rest != lease.batch.tests);
        for test in &lease.batch.tests {
            let observed = &mut self.tests[test.index()];
            (observed.place, observed.has_been_leased) = (ObservedPlace::With(lease.worker), true);
        }
        let worker = self.worker(lease.worker);
        worker.lease = Some(lease.clone());
        worker.has_had_lease = true;
        worker.cancel_mode = None;
        (worker.is_idle, worker.is_ending, worker.is_extended) = (false, false, false);
    }
}
