//! State of a run, composed of its tests, leases, workers and stages. Each event updates the parts that it
//! concerns; then all actions that have become due are returned.

use std::time::Duration;

use super::{
    CancelMode, FailureLimit, FinisherTask, LostStream, RunAction, RunEvent, RunStage, SchedulingPlan,
    active_lease::ActiveLease,
    active_leases::ActiveLeases,
    failure_policy::{FailurePolicy, rerun_after_worker_death},
    lifecycle::RunLifecycle,
    run_slots::RunSlots,
    run_tests::RunTests,
    waits::{WaitingTests, waiting_tests},
    worker_requests::WorkerRequests,
};
use crate::{
    LeaseId, LeaseOutcome, NotRunReason, Outcome, ProgramId, ProvisionalReason, Slots, TestId, WorkerId,
    batching::least_slots::least_slots,
    ledger::{Ledger, StreamPosition},
};

/// State of one run.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RunState {
    tests: RunTests,
    leases: ActiveLeases,
    workers: WorkerRequests,
    slots: RunSlots,
    lifecycle: RunLifecycle,
    failures: FailurePolicy,
    failure_limit: Option<FailureLimit>,
}

impl RunState {
    /// Creates a run from its plan; [`RunState::begin`] starts it.
    #[must_use]
    pub fn new(plan: SchedulingPlan) -> Self {
        let failures = FailurePolicy::new(plan.programs.len(), plan.max_startup_crashes, plan.slots);
        let mut tests =
            RunTests::new(plan.programs, plan.capacities, plan.batch_limit, plan.is_open, plan.retry_seed);
        tests.add(plan.tests);
        Self {
            tests,
            leases: ActiveLeases::default(),
            workers: WorkerRequests::default(),
            slots: RunSlots::new(Slots(plan.slots)),
            lifecycle: RunLifecycle::new(),
            failures,
            failure_limit: plan.failure_limit,
        }
    }

    /// Starts the run, which has no workers yet.
    #[must_use]
    pub fn begin(&mut self) -> Vec<RunAction> {
        self.advance(None)
    }

    /// Handles one event, and returns the resulting actions. A stale event changes nothing: an event from a
    /// dead worker, about an ended lease, or a repeated event.
    #[must_use]
    pub fn handle(&mut self, event: RunEvent) -> Vec<RunAction> {
        // The event updates its part of the state. Events that cannot make anything else due return here.
        let mut free = None;
        let mut delayed = None;
        match event {
            RunEvent::WorkerGranted(worker) => free = self.on_worker_granted(worker),
            RunEvent::ProcessWaiting { worker, program } => {
                self.on_process_waiting(worker, program);
                return Vec::new();
            }
            RunEvent::StartsDue(program) => self.leases.allow_starts(program),
            RunEvent::WorkerNotStarted => self.workers.on_not_started(),
            RunEvent::SlotShare(share) => self.slots.on_share(share),
            RunEvent::AvailableSlots(available) => self.slots.on_available(available),
            RunEvent::BatchLimit(limit) => self.tests.limit_batches(limit),
            RunEvent::SpareSlots(spare) => self.slots.on_spare(spare),
            RunEvent::Started { lease, test } => self.tests.on_started(lease, test),
            RunEvent::Held { lease, test } => self.tests.on_held(lease, test),
            RunEvent::Settled { worker, test, outcome, duration, position } => {
                if self.leases.get(worker).is_some() {
                    self.on_settled(test, outcome, duration, StreamPosition { worker, position });
                }
            }
            RunEvent::Provisional { lease, test, by } => delayed = self.on_provisional(lease, test, by),
            RunEvent::RetryDue(test) => self.tests.on_retry_due(test),
            RunEvent::IterationPassed { lease, test, duration } => {
                self.on_iteration_passed(lease, test, duration);
            }
            RunEvent::SetUp { worker, lease, fixture, progress } => {
                return self.leases.on_set_up(worker, lease, fixture, progress);
            }
            RunEvent::SetUpDue { lease } => {
                return self.leases.on_set_up_due(lease, &mut self.tests).into_iter().collect();
            }
            RunEvent::LeaseIdle { worker, lease } => self.leases.on_idle(worker, lease, &self.tests),
            RunEvent::TestsAdded(added) if self.is_open() => self.tests.add(added),
            RunEvent::TestsAdded(_) => {}
            RunEvent::NoMoreTests => self.tests.close(),
            RunEvent::LeaseEnded { worker, lease, end, start } => {
                free = self.on_lease_ended(worker, lease, end, start);
            }
            RunEvent::WatchdogDied { worker } => self.leases.on_watchdog_died(worker),
            RunEvent::WorkerLost { worker, proven, settled } => {
                self.on_worker_lost(worker, LostStream { proven, settled });
            }
            RunEvent::Drained { worker, proven } => {
                if self.lifecycle.end_drain_of(worker) {
                    self.tests.close_stream(worker, proven);
                }
            }
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
        // All actions that have become due follow. A waiting process is remembered for one event only.
        let mut actions = self.advance(free);
        self.workers.forget_waiting_process();
        if let Some((test, delay)) = delayed.filter(|(test, _)| self.tests.is_delayed(*test)) {
            actions.push(RunAction::DelayRetry { test, delay });
        }
        actions
    }

    #[must_use]
    pub fn stage(&self) -> RunStage {
        self.lifecycle.stage()
    }

    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        self.tests.ledger()
    }

    /// Returns whether tests may be added.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.tests.is_open() && self.lifecycle.is_assigning()
    }

    /// Returns why the run assigns no more work, if it has stopped.
    #[must_use]
    pub fn stop_reason(&self) -> Option<NotRunReason> {
        self.lifecycle.stop_reason()
    }

    /// Returns the workers whose leases are cancelled, and have not ended yet.
    pub fn cancelled_workers(&self) -> impl Iterator<Item = WorkerId> + '_ {
        self.leases.cancelled_workers()
    }

    /// Returns the workers whose leases or drains the run waits for.
    #[must_use]
    pub fn awaited_workers(&self) -> Vec<WorkerId> {
        self.leases.workers().chain(self.lifecycle.draining_workers().iter().copied()).collect()
    }

    #[must_use]
    pub fn active_leases(&self) -> usize {
        self.leases.count()
    }

    /// Returns the number of slots that the leases occupy.
    #[must_use]
    pub fn slots_taken(&self) -> Slots {
        self.leases.slots_taken()
    }

    /// Returns the number of slots that a worker's lease occupies: one if the worker has no lease.
    #[must_use]
    pub fn weight_of(&self, worker: WorkerId) -> Slots {
        self.leases.get(worker).map_or(Slots::ONE, ActiveLease::weight)
    }

    /// Returns the number of slots that the run could use now, including its leases' slots.
    #[must_use]
    pub fn wanted_slots(&self) -> Slots {
        let waiting = match self.stage() == RunStage::Running {
            true => self.tests.queue().wanted_slots(&self.leases.occupied(&self.slots)),
            false => Slots::NONE,
        };
        self.slots_taken().saturating_add(waiting).min(self.slots.limit())
    }

    /// Returns the slots that the run must have before it can start another lease, including the slots of its
    /// leases. More than one above the leases' slots only if no waiting test can start with a single slot.
    #[must_use]
    pub fn least_slots(&self) -> Slots {
        least_slots(self.tests.queue(), &self.leases.occupied(&self.slots))
    }

    /// Returns whether a worker would get a lease now. A run may want more slots than it can use at the
    /// moment: a test that takes several waits until all of them are free.
    #[must_use]
    pub fn can_use_worker(&self) -> bool {
        self.slots.free(self.slots_taken()) > Slots::NONE
            && self.tests.queue().has_startable(&self.leases.occupied(&self.slots))
    }

    /// Returns what the waiting tests wait for, largest group first: tests that need more than is free, and
    /// while slots are idle, also tests with open prerequisites. Tests that only wait for a free slot, for a
    /// retry delay or for the next iteration are not counted.
    #[must_use]
    pub fn waits(&self) -> Vec<WaitingTests> {
        if !self.lifecycle.is_assigning() {
            return Vec::new();
        }
        let loads = self.leases.occupied(&self.slots);
        waiting_tests(&self.tests, &loads, self.slots.idle(self.slots_taken()))
    }

    /// Returns whether the death of this worker affects this run.
    #[must_use]
    pub fn involves(&self, worker: WorkerId) -> bool {
        self.ledger().streams().get(&worker).is_some_and(|stream| !stream.is_closed)
    }

    /// Returns the task of a finisher that replaces a dead one.
    #[must_use]
    pub fn finisher_task(&self) -> FinisherTask {
        self.lifecycle.finisher_task(self.ledger())
    }

    /// Returns whether the finisher has timed out, and the run waits for its death.
    #[must_use]
    pub fn is_finisher_given_up(&self) -> bool {
        self.lifecycle.is_finisher_given_up()
    }

    /// Completes the run immediately, without a finisher and therefore without workers. Leases and unproven
    /// streams are settled from `stream`, and all other tests are recorded as not run for lack of workers.
    /// Returns the work left for the coordinator in place of the finisher.
    pub fn complete_without_finisher(
        &mut self,
        mut stream: impl FnMut(WorkerId) -> LostStream,
    ) -> FinisherTask {
        // Stop first: tests returned by a lost worker must not be assigned to the next one. The stop is
        // needed even if the run waits for no worker, as in a run whose share is 0.
        self.lifecycle.stop(NotRunReason::NoWorker, CancelMode::Now);
        let _not_executed = self.advance(None);
        while let Some(worker) = self.awaited_workers().first().copied() {
            let LostStream { proven, settled } = stream(worker);
            let _not_executed = self.handle(RunEvent::WorkerLost { worker, proven, settled });
        }
        self.tests.give_up_waiting(NotRunReason::NoWorker);
        self.lifecycle.complete(self.tests.ledger())
    }

    /// Returns the worker if the grant is valid.
    fn on_worker_granted(&mut self, worker: WorkerId) -> Option<WorkerId> {
        let is_closed = self.ledger().streams().get(&worker).is_some_and(|stream| stream.is_closed);
        if is_closed || self.leases.get(worker).is_some() {
            return None;
        }
        self.workers.on_granted();
        Some(worker)
    }

    fn on_process_waiting(&mut self, worker: WorkerId, program: ProgramId) {
        let takes_more = self.tests.queue().process_traits(program).takes_more_tests;
        if takes_more && self.lifecycle.is_assigning() && self.leases.get(worker).is_none() {
            self.workers.on_process_waiting(worker, program);
        }
    }

    fn on_settled(&mut self, test: TestId, outcome: Outcome, duration: Duration, at: StreamPosition) {
        if !self.tests.settle(test, outcome, at) {
            return;
        }
        self.workers.on_result();
        self.failures.on_report(self.tests.program_of(test));
        let held = self.leases.get(at.worker);
        let includes_start = held.is_some_and(|held| held.includes_start(self.tests.queue(), test));
        if outcome != Outcome::Skipped && !includes_start {
            self.leases.record_pace(at.worker, duration, self.tests.expected_duration(test));
            self.tests.observe_duration(test, duration);
        }
    }

    /// Returns the test and its retry delay, if it has one.
    fn on_provisional(
        &mut self,
        lease: LeaseId,
        test: TestId,
        by: ProvisionalReason,
    ) -> Option<(TestId, Duration)> {
        let held = self.leases.find(lease).filter(|_| self.tests.location(test).is_in(lease))?;
        self.failures.on_report(held.program());
        let delay = self.tests.record_provisional(test, by, held.batch().is_isolated)?;
        Some((test, delay))
    }

    fn on_iteration_passed(&mut self, lease: LeaseId, test: TestId, duration: Duration) {
        if self.tests.location(test).is_in(lease) {
            self.workers.on_result();
            self.failures.on_report(self.tests.program_of(test));
            self.tests.on_iteration_passed(test, duration);
        }
    }

    /// Returns the worker if it held this lease.
    fn on_lease_ended(
        &mut self,
        worker: WorkerId,
        lease: LeaseId,
        end: LeaseOutcome,
        start: Option<Duration>,
    ) -> Option<WorkerId> {
        let held = self.leases.end(worker, lease)?;
        if let Some(start) = start {
            self.tests.observe_start(held.program(), start);
        }
        let rest = self.tests.unfinished(lease, held.batch());
        let is_cancelled = end == LeaseOutcome::Cancelled && held.is_cancelled();
        if self.is_rest_given_up(&held) || (is_cancelled && held.batch().is_isolated) {
            self.tests.requeue(held.batch(), rest);
        } else if is_cancelled {
            for test in rest {
                self.tests.requeue_unstarted(test, held.paced_duration(&self.tests, test));
            }
        } else {
            self.failures.on_process_ended(&mut self.tests, &held, end, rest);
        }
        Some(worker)
    }

    fn on_worker_lost(&mut self, worker: WorkerId, LostStream { proven, settled }: LostStream) {
        // A closed stream is final, and a worker without a stream never had a lease.
        if !self.involves(worker) {
            return;
        }
        self.lifecycle.end_drain_of(worker);
        let held = self.leases.lose(worker);
        let is_blamed = held.as_ref().is_some_and(|held| !held.is_lost_with_watchdog());
        if is_blamed && settled.is_empty() {
            self.workers.on_unproductive_death();
        }
        for (position, (test, outcome, duration)) in (1..).zip(settled) {
            self.on_settled(test, outcome, duration, StreamPosition { worker, position });
        }
        self.tests.close_stream(worker, proven);
        match held {
            Some(held) if self.is_rest_given_up(&held) => {
                let rest = self.tests.unfinished(held.id(), held.batch());
                self.tests.requeue(held.batch(), rest);
            }
            Some(held) => rerun_after_worker_death(&mut self.tests, &held),
            None => {}
        }
    }

    /// Returns whether the unfinished tests of an ended lease are not run again, because the run has stopped.
    fn is_rest_given_up(&self, ended: &ActiveLease) -> bool {
        let is_tear_down = |test: &TestId| self.tests.is_tear_down(*test);
        self.stop_reason().is_some() && !ended.batch().tests.iter().any(is_tear_down)
    }

    /// Returns all actions that have become due after an event. `free` is a worker that the event left
    /// without a lease.
    fn advance(&mut self, free: Option<WorkerId>) -> Vec<RunAction> {
        let mut actions = Vec::new();
        self.leases.release_starts();
        if self.lifecycle.stage() == RunStage::Running {
            if self.lifecycle.is_assigning() {
                self.tests.release_blocked();
            }
            if self.leases.slots_taken() < self.slots.limit() {
                self.tests.begin_next_round();
            }
            self.check_limits(free);
            if let Some(why) = self.stop_reason() {
                self.tests.give_up_waiting(why);
            }
        }
        // After a stop, only tear-downs are still in the queue.
        if let Some(worker) = free {
            self.lease_to(worker, &mut actions);
        }
        if self.lifecycle.stage() == RunStage::Running {
            match self.lifecycle.stop_reason() {
                None => self.leases.serve_idle(&mut self.tests, &self.slots, &mut actions),
                Some(_) => self.leases.cancel(self.lifecycle.cancel_mode(), &self.tests, &mut actions),
            }
            // The steps above may have ended a process.
            self.leases.release_starts();
            self.request_workers(&mut actions);
            if self.lifecycle.is_assigning() {
                actions.extend(self.leases.take_back(&self.tests, &self.slots));
            }
            if self.ledger().open_count() == 0 && self.leases.count() == 0 && !self.is_open() {
                self.lifecycle.begin_drain(self.tests.ledger().open_streams().collect(), &mut actions);
            }
        }
        actions.extend(self.lifecycle.begin_finish(self.tests.ledger()));
        actions
    }

    /// Stops the run if too many tests have failed, or no worker can run the remaining tests.
    fn check_limits(&mut self, free: Option<WorkerId>) {
        let ledger = self.tests.ledger();
        if let Some(limit) = self.failure_limit
            && ledger.failure_count() >= limit.failures.max(1)
        {
            self.lifecycle.stop(NotRunReason::TooManyFailures, limit.cancel_mode);
        }
        // A worker with an open stream is presumed alive: it has a lease, or may be granted again.
        let has_worker = free.is_some() || ledger.open_streams().next().is_some();
        let may_get_worker = has_worker || self.workers.may_be_granted(self.slots.limit());
        if !may_get_worker && ledger.open_count() > 0 {
            self.lifecycle.stop(NotRunReason::NoWorker, CancelMode::Now);
            self.tests.give_up_waiting(NotRunReason::NoWorker);
        }
    }

    /// Leases a batch to a worker without a lease, or releases the worker.
    fn lease_to(&mut self, worker: WorkerId, actions: &mut Vec<RunAction>) {
        let Self { tests, leases, workers, slots, lifecycle, failures, .. } = self;
        let waiting = workers.program_waiting_at(worker);
        let lease = match lifecycle.stage() == RunStage::Running {
            true => leases.create(worker, waiting, tests, slots, failures),
            false => None,
        };
        actions.push(match lease {
            Some(lease) => RunAction::Lease(Box::new(lease)),
            None => RunAction::ReleaseWorker(worker),
        });
        actions.extend(leases.delay_starts(worker, tests, slots));
    }

    /// Requests as many workers as could receive a lease.
    fn request_workers(&mut self, actions: &mut Vec<RunAction>) {
        let free = self.slots.free(self.slots_taken());
        if self.workers.may_request(free, self.slots.limit()) {
            let loads = self.leases.occupied(&self.slots);
            let added = self.workers.request_up_to(self.tests.queue().startable_leases(&loads));
            actions.extend(std::iter::repeat_n(RunAction::StartWorker, added));
        }
    }
}
