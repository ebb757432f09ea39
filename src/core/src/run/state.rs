//! State of a run: its tests, workers and leases, and the transitions between them. The sibling module
//! `failure_policy` decides what happens when a process or a worker dies.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    BatchLease, CancelMode, FinisherTask, LostStream, Prerequisite, RunAction, RunEvent, RunStage,
    ScheduledTest, SchedulingPlan, guard_loss::GuardLosses, lease_extension::LeaseIdleness,
    lifecycle::RunLifecycle, run_slots::RunSlots, set_up::LeaseSetUps, take_back::LeasePace,
    worker_requests::WorkerRequests,
};
use crate::{
    LeaseId, NotRunReason, Outcome, ProgramId, ProvisionalReason, SynthesizedResult, TestId, WorkerId,
    batching::{TestBatch, TestQueue},
    ledger::{Ledger, StreamPosition},
};

/// Location of a test.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) enum TestLocation {
    /// In the queue.
    #[default]
    Waiting,
    /// Leased to a worker.
    Leased(LeaseId),
    /// Leased to a worker, and running.
    InFlight(LeaseId),
    /// Leased to a worker, and ended; its result is not proven yet.
    Held(LeaseId),
    /// In the ledger.
    Settled,
}

impl TestLocation {
    pub(super) fn is_in(self, lease: LeaseId) -> bool {
        [Self::Leased(lease), Self::InFlight(lease), Self::Held(lease)].contains(&self)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct TestState {
    pub(super) location: TestLocation,
    /// Number of failures that were provisional because a retry followed.
    pub(super) failures: u32,
    /// Number of iterations that it has passed.
    pub(super) passed_iterations: u32,
    /// Number of workers that died during the test.
    pub(super) worker_deaths: u8,
    /// Number of deaths of the watchdog while it ran.
    pub(super) watchdog_deaths: u8,
    /// Number of its own processes that exited successfully without running it.
    pub(super) unproductive_exits: u8,
    /// The consecutive losses of the guards of its processes.
    pub(super) guard_losses: GuardLosses,
    /// Its provisional result, which is final if nothing replaces it.
    pub(super) provisional: Option<ProvisionalReason>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct ProgramState {
    /// Number of consecutive processes with a batch of one that reported nothing.
    pub(super) unproductive_processes: u32,
    /// Number of startup limits that its processes have exceeded, each twice the one before.
    pub(super) start_timeouts: u32,
    /// Number of consecutive processes that completed only a small part of their batch.
    pub(super) early_ends: u32,
    /// The consecutive losses of the guards of its processes, before any of its tests had begun.
    pub(super) guard_losses: GuardLosses,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ActiveLease {
    pub(super) lease: LeaseId,
    pub(super) batch: TestBatch,
    /// Number of startup limits that processes of the program had exceeded before.
    pub(super) start_timeouts: u32,
    /// How the lease was cancelled, if it was.
    pub(super) cancel_mode: Option<CancelMode>,
    pub(super) pace: LeasePace,
    /// Whether its process has run tests before those of the batch.
    pub(super) is_extended: bool,
    /// Whether its process had waited for the first batch, which needed no start.
    pub(super) has_waited: bool,
    pub(super) idle: LeaseIdleness,
    /// The watchdog has died, and its worker with it.
    pub(super) is_lost_with_watchdog: bool,
    pub(super) set_ups: LeaseSetUps,
}

/// State of one run.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RunState {
    pub(super) plan: SchedulingPlan,
    pub(super) queue: TestQueue,
    pub(super) ledger: Ledger,
    pub(super) tests: Vec<TestState>,
    /// Tests that wait for the results of others, and those that are open; they are in no other place.
    pub(super) blocked: BTreeMap<TestId, Vec<Prerequisite>>,
    /// Tests that wait for the delay of their retry; they are in no other place.
    pub(super) delayed: BTreeSet<TestId>,
    /// Tests that have passed an iteration, and run again when no other test waits.
    pub(super) next_round: Vec<TestId>,
    pub(super) programs: Vec<ProgramState>,
    pub(super) leases: BTreeMap<WorkerId, ActiveLease>,
    pub(super) next_lease: u32,
    pub(super) workers: WorkerRequests,
    pub(super) slots: RunSlots,
    pub(super) lifecycle: RunLifecycle,
    /// Whether tests may be added.
    pub(super) is_open: bool,
}

impl RunState {
    /// Creates a run from its plan; [`RunState::begin`] starts it.
    #[must_use]
    pub fn new(mut plan: SchedulingPlan) -> Self {
        let tests = std::mem::take(&mut plan.tests);
        let mut run = Self {
            queue: TestQueue::new(plan.programs.iter().cloned()).with_batch_limit(plan.batch_limit),
            tests: Vec::with_capacity(tests.len()),
            blocked: BTreeMap::new(),
            delayed: BTreeSet::new(),
            next_round: Vec::new(),
            programs: vec![ProgramState::default(); plan.programs.len()],
            ledger: Ledger::new(0),
            leases: BTreeMap::new(),
            next_lease: 0,
            workers: WorkerRequests::default(),
            slots: RunSlots::new(plan.slots),
            lifecycle: RunLifecycle::new(),
            is_open: plan.is_open,
            plan,
        };
        run.add_tests(tests);
        run
    }

    /// Adds tests, numbered after those before them.
    pub(super) fn add_tests(&mut self, added: Vec<ScheduledTest>) {
        let first = self.tests.len();
        self.tests.resize(first + added.len(), TestState::default());
        self.ledger.add_tests(added.len());
        let first = u32::try_from(first).unwrap_or(u32::MAX);
        let mut waiting = Vec::with_capacity(added.len());
        for (test, planned) in (first..).map(TestId).zip(&added) {
            if planned.is_unrunnable {
                self.record_synthesized(test, SynthesizedResult::NotRun(NotRunReason::Unrunnable));
            } else if !planned.prerequisites.is_empty() {
                self.blocked.insert(test, planned.prerequisites.clone());
            } else {
                waiting.push(planned.queued(test));
            }
        }
        self.plan.tests.extend(added);
        self.queue.add(waiting);
    }

    /// Starts the run, which has no workers yet.
    #[must_use]
    pub fn begin(&mut self) -> Vec<RunAction> {
        self.advance(None)
    }

    /// Handles one event, and returns the resulting actions. A stale event (from a worker whose death is
    /// known, about a lease that has ended, or repeated) changes nothing.
    #[must_use]
    pub fn handle(&mut self, event: RunEvent) -> Vec<RunAction> {
        let mut free = None;
        let mut delay = None;
        match event {
            RunEvent::WorkerGranted(worker) => free = self.on_worker_granted(worker),
            RunEvent::ProcessWaiting { worker, program } => {
                self.on_process_waiting(worker, program);
                return Vec::new();
            }
            RunEvent::StartsDue(program) => self.queue.release_starts(program),
            RunEvent::WorkerNotStarted => self.workers.on_not_started(),
            RunEvent::SlotShare(share) => self.slots.on_share(share),
            RunEvent::SpareSlots(spare) => self.slots.on_spare(spare),
            RunEvent::Started { lease, test } => self.on_started(lease, test),
            RunEvent::Held { lease, test } => self.on_held(lease, test),
            RunEvent::Settled { worker, test, outcome, duration, position } => {
                if self.leases.contains_key(&worker) {
                    self.on_settled(worker, test, outcome, duration, position);
                }
            }
            RunEvent::Provisional { lease, test, by } => delay = self.on_provisional(lease, test, by),
            RunEvent::RetryDue(test) => self.on_retry_due(test),
            RunEvent::IterationPassed { lease, test, duration } => {
                self.on_iteration_passed(lease, test, duration);
            }
            RunEvent::SetUp { worker, lease, fixture, progress } => {
                return self.on_set_up(worker, lease, fixture, progress);
            }
            RunEvent::SetUpDue { lease } => return self.on_set_up_due(lease),
            RunEvent::LeaseIdle { worker, lease } => self.on_lease_idle(worker, lease),
            RunEvent::TestsAdded(added) => self.on_tests_added(added),
            RunEvent::NoMoreTests => self.is_open = false,
            RunEvent::LeaseEnded { worker, lease, end, start } => {
                free = self.on_lease_ended(worker, lease, end, start);
            }
            RunEvent::WatchdogDied { worker } => self.on_watchdog_died(worker),
            RunEvent::WorkerLost { worker, proven, settled } => self.on_worker_lost(worker, proven, settled),
            RunEvent::Drained { worker, proven } => self.on_drained(worker, proven),
            RunEvent::Completing => self.lifecycle.on_completing(),
            RunEvent::Finished => {
                if let Some(complete) = self.lifecycle.on_finished() {
                    return vec![complete];
                }
            }
            RunEvent::FinisherLate => return self.lifecycle.on_finisher_late().into_iter().collect(),
            RunEvent::Cancel => self.lifecycle.stop(NotRunReason::Cancelled, CancelMode::Now),
            RunEvent::TimeLimitReached => {
                self.lifecycle.stop(NotRunReason::TimeLimitReached, CancelMode::Now);
            }
        }
        let mut actions = self.advance(free);
        self.workers.forget_waiting_process();
        if let Some((test, delay)) = delay.filter(|(test, _)| self.delayed.contains(test)) {
            actions.push(RunAction::DelayRetry { test, delay });
        }
        actions
    }

    /// Returns the stage of the run.
    #[must_use]
    pub fn stage(&self) -> RunStage {
        self.lifecycle.stage()
    }

    /// Returns the ledger.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Returns whether tests may be added.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.is_open && self.lifecycle.is_assigning()
    }

    /// Returns the reason why the run assigns no more work, if it has stopped.
    #[must_use]
    pub fn stop_reason(&self) -> Option<NotRunReason> {
        self.lifecycle.stop_reason()
    }

    /// Returns the workers whose leases are awaited.
    pub fn leasing_workers(&self) -> impl Iterator<Item = WorkerId> + '_ {
        self.leases.keys().copied()
    }

    /// Returns the workers whose leases or drains are awaited.
    #[must_use]
    pub fn awaited_workers(&self) -> Vec<WorkerId> {
        self.leases.keys().copied().chain(self.lifecycle.draining_workers().iter().copied()).collect()
    }

    /// Returns the number of leases that workers hold.
    #[must_use]
    pub fn active_leases(&self) -> usize {
        self.leases.len()
    }

    /// Returns the number of concurrent leases that the run could use now, including those that workers hold.
    #[must_use]
    pub fn wanted_leases(&self) -> usize {
        let waiting = match self.lifecycle.is_assigning() {
            true => self.queue.available_batches(&self.occupied_slots()),
            false => 0,
        };
        (self.leases.len() + waiting).min(self.slots.limit())
    }

    /// Returns whether the death of this worker concerns this run.
    #[must_use]
    pub fn involves(&self, worker: WorkerId) -> bool {
        self.ledger.streams().get(&worker).is_some_and(|stream| !stream.is_closed)
    }

    /// Returns the task of a finisher that replaces a dead one.
    #[must_use]
    pub fn finisher_task(&self) -> FinisherTask {
        self.lifecycle.finisher_task(&self.ledger)
    }

    /// Returns whether the finisher exceeded its time limit, and its death is awaited.
    #[must_use]
    pub fn is_finisher_given_up(&self) -> bool {
        self.lifecycle.is_finisher_given_up()
    }

    /// Completes the run immediately, because there is no finisher and therefore no worker any more: leases
    /// and unproven streams of workers are settled by what is left of them, all other tests are recorded as
    /// not run for lack of workers. Returns what remains to be done in the finisher's place; the run is
    /// complete afterwards.
    pub fn complete_without_finisher(
        &mut self,
        mut stream: impl FnMut(WorkerId) -> LostStream,
    ) -> FinisherTask {
        // The stop comes first: tests that a lost worker returns must not be assigned to the next one. It
        // takes effect even if no worker is awaited, as in a run whose share is 0.
        self.lifecycle.stop(NotRunReason::NoWorker, CancelMode::Now);
        let _not_executed = self.advance(None);
        while let Some(worker) = self.awaited_workers().first().copied() {
            let LostStream { proven, settled } = stream(worker);
            let _not_executed = self.handle(RunEvent::WorkerLost { worker, proven, settled });
        }
        self.lifecycle.complete(&self.ledger)
    }

    /// Returns the worker if the grant is valid.
    fn on_worker_granted(&mut self, worker: WorkerId) -> Option<WorkerId> {
        let is_closed = self.ledger.streams().get(&worker).is_some_and(|stream| stream.is_closed);
        if is_closed || self.leases.contains_key(&worker) {
            return None;
        }
        self.workers.on_granted();
        Some(worker)
    }

    fn on_started(&mut self, lease: LeaseId, test: TestId) {
        let place = &mut self.tests[test.index()].location;
        if *place == TestLocation::Leased(lease) {
            *place = TestLocation::InFlight(lease);
        }
    }

    fn on_held(&mut self, lease: LeaseId, test: TestId) {
        let place = &mut self.tests[test.index()].location;
        if place.is_in(lease) {
            *place = TestLocation::Held(lease);
        }
    }

    pub(super) fn on_settled(
        &mut self,
        worker: WorkerId,
        test: TestId,
        outcome: Outcome,
        duration: Duration,
        position: u64,
    ) {
        if self.ledger.settle(test, outcome, StreamPosition { worker, position }).is_err() {
            return;
        }
        self.tests[test.index()].location = TestLocation::Settled;
        self.workers.on_result();
        let program = self.plan.tests[test.index()].program;
        let includes_start = self.leases.get(&worker).is_some_and(|held| self.includes_start(held, test));
        if outcome != Outcome::Skipped && !includes_start {
            self.record_pace(worker, test, duration);
            self.queue.observe_duration(program, duration);
        }
        self.on_report_of(program);
    }

    /// Records that a process of the program has reported a test's end.
    pub(super) fn on_report_of(&mut self, program: ProgramId) {
        let state = &mut self.programs[program.index()];
        state.unproductive_processes = 0;
        state.guard_losses = GuardLosses::default();
    }

    pub(super) fn requeue_isolated(&mut self, program: ProgramId, test: TestId) {
        self.tests[test.index()].location = TestLocation::Waiting;
        self.queue.add_isolated(program, test, self.plan.tests[test.index()].weight);
    }

    fn on_drained(&mut self, worker: WorkerId, proven: u64) {
        if self.lifecycle.end_drain_of(worker) {
            self.ledger.close_stream(worker, proven);
        }
    }

    /// Records a synthesized result. A provisional result says more than the reason why it cannot be
    /// replaced.
    pub(super) fn synthesize_result(&mut self, test: TestId, why: NotRunReason) {
        let told = match self.tests[test.index()].provisional {
            Some(by) => SynthesizedResult::Provisional(by),
            None => SynthesizedResult::NotRun(why),
        };
        self.record_synthesized(test, told);
    }

    pub(super) fn record_synthesized(&mut self, test: TestId, told: SynthesizedResult) {
        self.tests[test.index()].location = TestLocation::Settled;
        // Synthesized results are sent at the end of the run, which must not wait for further tests.
        self.is_open = false;
        let _earlier_result = self.ledger.record_synthesized(test, told);
    }

    /// Does what is due after an event, which may have left this worker without a lease.
    pub(super) fn advance(&mut self, free: Option<WorkerId>) -> Vec<RunAction> {
        let mut actions = Vec::new();
        self.release_starts();
        if self.lifecycle.stage() == RunStage::Running {
            self.release_blocked();
            self.begin_next_round();
            self.check_limits(free);
        }
        if let Some(worker) = free {
            let lease = self.create_lease(worker).map(|lease| RunAction::Lease(Box::new(lease)));
            actions.push(lease.unwrap_or(RunAction::ReleaseWorker(worker)));
            actions.extend(self.delay_starts(worker));
        }
        if self.lifecycle.stage() == RunStage::Running {
            match self.lifecycle.stop_reason() {
                None => self.serve_idle_leases(&mut actions),
                Some(why) => self.cancel_remaining(why, &mut actions),
            }
            // A process may have been told to end.
            self.release_starts();
            if self.lifecycle.is_assigning() {
                self.request_workers(&mut actions);
                self.take_back(&mut actions);
            }
            if self.ledger.open_count() == 0 && self.leases.is_empty() && !self.is_open() {
                self.lifecycle.begin_drain(self.ledger.open_streams().collect(), &mut actions);
            }
        }
        actions.extend(self.lifecycle.begin_finish(&self.ledger));
        actions
    }

    fn check_limits(&mut self, free: Option<WorkerId>) {
        if let Some(limit) = self.plan.failure_limit
            && self.ledger.failure_count() >= limit.failures.max(1)
        {
            self.lifecycle.stop(NotRunReason::TooManyFailures, limit.cancel_mode);
        }
        // A worker whose stream is open is alive, as far as is known: it has a lease, or may be granted
        // again.
        let has_worker = free.is_some() || self.ledger.open_streams().next().is_some();
        let may_get_worker = has_worker || self.workers.may_be_granted(self.slots.limit());
        if !may_get_worker && self.ledger.open_count() > 0 {
            self.lifecycle.stop(NotRunReason::NoWorker, CancelMode::Now);
        }
    }

    /// Requests as many workers as could receive a lease.
    fn request_workers(&mut self, actions: &mut Vec<RunAction>) {
        let free = self.slots.free(self.leases.len());
        if self.workers.may_request(free, self.slots.limit()) {
            let wanted = free.min(self.queue.available_batches(&self.occupied_slots()));
            let added = self.workers.request_up_to(wanted);
            actions.extend(std::iter::repeat_n(RunAction::StartWorker, added));
        }
    }

    fn create_lease(&mut self, worker: WorkerId) -> Option<BatchLease> {
        if !self.lifecycle.is_assigning() || self.slots.free(self.leases.len()) == 0 {
            return None;
        }
        let loads = self.slot_loads(|held| self.remaining_time(held));
        let waiting = self.workers.program_waiting_at(worker);
        let first =
            waiting.and_then(|program| self.next_batch(|queue| queue.next_first_batch(program, &loads)));
        let has_waited = first.is_some();
        let batch = match first {
            Some(batch) => batch,
            None => self.next_batch(|queue| queue.next_batch(&loads))?,
        };
        let lease = LeaseId(self.next_lease);
        self.next_lease += 1;
        // From now on the worker may send something of this run, even if only the start of a test: it has to
        // be drained.
        self.ledger.open_stream(worker);
        let start_timeouts = self.programs[batch.program.index()].start_timeouts;
        let held = ActiveLease {
            lease,
            batch: batch.clone(),
            start_timeouts,
            cancel_mode: None,
            pace: LeasePace::default(),
            is_extended: false,
            has_waited,
            idle: LeaseIdleness::Busy,
            is_lost_with_watchdog: false,
            set_ups: LeaseSetUps::default(),
        };
        self.leases.insert(worker, held);
        Some(self.assign(worker, lease, batch, start_timeouts))
    }

    /// Assigns the tests of a batch to a lease.
    pub(super) fn assign(
        &mut self,
        worker: WorkerId,
        lease: LeaseId,
        batch: TestBatch,
        start_timeouts: u32,
    ) -> BatchLease {
        let mut is_failure_held = Vec::with_capacity(batch.tests.len());
        let mut passed_iterations = Vec::with_capacity(batch.tests.len());
        for test in &batch.tests {
            let state = &mut self.tests[test.index()];
            state.location = TestLocation::Leased(lease);
            // The result of an isolated rerun after a death is final, whatever it is.
            let is_lone_check = state.provisional == Some(ProvisionalReason::AwaitsIsolatedRun);
            let retries = self.plan.tests[test.index()].retries.count;
            is_failure_held.push(!is_lone_check && state.failures < retries);
            passed_iterations.push(state.passed_iterations);
        }
        BatchLease {
            lease,
            worker,
            batch,
            is_failure_provisional: is_failure_held,
            passed_iterations,
            start_timeouts,
        }
    }

    /// Takes the next batch out of the queue.
    pub(super) fn next_batch(
        &mut self,
        take: impl Fn(&mut TestQueue) -> Option<TestBatch>,
    ) -> Option<TestBatch> {
        loop {
            let mut batch = take(&mut self.queue)?;
            // A test that has received its result in another way is never run again.
            batch.tests.retain(|test| self.tests[test.index()].location == TestLocation::Waiting);
            if !batch.tests.is_empty() {
                return Some(batch);
            }
        }
    }

    fn cancel_remaining(&mut self, why: NotRunReason, actions: &mut Vec<RunAction>) {
        let delayed = std::mem::take(&mut self.delayed);
        let next_round = std::mem::take(&mut self.next_round);
        let blocked = std::mem::take(&mut self.blocked).into_keys();
        for test in self.queue.take_all().into_iter().chain(delayed).chain(next_round).chain(blocked) {
            if self.tests[test.index()].location == TestLocation::Waiting {
                self.synthesize_result(test, why);
            }
        }
        let mode = self.lifecycle.cancel_mode();
        for (worker, held) in &mut self.leases {
            if held.cancel_mode < Some(mode) {
                held.cancel_mode = Some(mode);
                actions.push(RunAction::CancelLease { worker: *worker, mode });
            }
        }
    }
}
