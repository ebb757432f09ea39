//! State of a run: its tests, workers and leases, and the transitions between them. The sibling module `ends`
//! decides what happens when a process or a worker dies.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{Action, Event, Lease, Plan, Stage};
use crate::{
    HeldBy, LeaseId, NotRun, Outcome, ProgramId, TestId, Told, WorkerId,
    ledger::{Ledger, StreamPlace},
    split::{Batch, Item, Queue},
};

/// Number of workers per slot that may fail to start, or die without having settled anything, before no more
/// are requested. Per slot, because a common cause (a dead watchdog, a full disk) may kill all of them.
const BARREN_WORKERS_PER_SLOT: usize = 4;

/// Location of a test.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// In the queue.
    #[default]
    Waiting,
    /// Leased to a worker.
    Leased(LeaseId),
    /// Leased to a worker, and running.
    InFlight(LeaseId),
    /// In the ledger.
    Booked,
}

impl Place {
    pub(super) fn is_in(self, lease: LeaseId) -> bool {
        self == Self::Leased(lease) || self == Self::InFlight(lease)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct TestState {
    pub(super) place: Place,
    /// Number of failures that were provisional because a retry followed.
    failures: u32,
    /// Number of workers that died during the test.
    pub(super) worker_deaths: u8,
    /// Number of its own processes that exited successfully without running it.
    pub(super) barren_ends: u8,
    /// Its provisional result, which is final if nothing replaces it.
    held: Option<HeldBy>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct ProgramState {
    /// Number of consecutive processes with a batch of one that reported nothing.
    pub(super) barren: u32,
    /// Number of consecutive processes that completed only a small part of their batch.
    pub(super) early_ends: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Held {
    pub(super) lease: LeaseId,
    pub(super) batch: Batch,
    is_cancelled: bool,
}

/// State of one run.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Run {
    pub(super) plan: Plan,
    pub(super) queue: Queue,
    pub(super) ledger: Ledger,
    pub(super) tests: Vec<TestState>,
    pub(super) programs: Vec<ProgramState>,
    pub(super) free: Vec<WorkerId>,
    /// Workers that are assigned to other runs, and may come back.
    pub(super) away: BTreeSet<WorkerId>,
    pub(super) leases: BTreeMap<WorkerId, Held>,
    /// Workers whose death is known: any later event from them is stale.
    pub(super) gone: BTreeSet<WorkerId>,
    starting: usize,
    /// Number of workers that failed to start since the last successful start.
    failed_starts: usize,
    /// Number of workers that died without having settled anything, since a test was last settled.
    pub(super) barren_workers: usize,
    pub(super) next_lease: u32,
    pub(super) stop: Option<NotRun>,
    pub(super) stage: Stage,
    pub(super) draining: Vec<WorkerId>,
    /// Whether the finisher has proven everything but the completion.
    pub(super) is_completing: bool,
    /// Whether the finisher exceeded its time limit.
    pub(super) is_finisher_given_up: bool,
    failures: usize,
    /// Maximum number of concurrent leases, limited because other runs need slots as well.
    share: usize,
}

impl Run {
    /// Creates a run from its plan; [`Run::begin`] starts it.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        let mut queue = Queue::new(plan.programs.iter().cloned());
        let mut ledger = Ledger::new(plan.tests.len());
        let mut tests = vec![TestState::default(); plan.tests.len()];
        let mut items = Vec::with_capacity(plan.tests.len());
        for (test, planned) in (0..).map(TestId).zip(&plan.tests) {
            if planned.is_unrunnable {
                tests[test.index()].place = Place::Booked;
                ledger.tell(test, Told::NotRun(NotRun::Unrunnable)).expect("nothing is booked yet");
                continue;
            }
            let (weight, is_alone) = (planned.weight, planned.is_alone);
            let item = Item { test, weight, is_alone, selection_bytes: planned.selection_bytes };
            items.push((planned.program, item));
        }
        queue.add(items);
        Self {
            queue,
            tests,
            programs: vec![ProgramState::default(); plan.programs.len()],
            failures: ledger.failures(),
            ledger,
            free: Vec::new(),
            away: BTreeSet::new(),
            leases: BTreeMap::new(),
            gone: BTreeSet::new(),
            starting: 0,
            failed_starts: 0,
            barren_workers: 0,
            next_lease: 0,
            stop: None,
            stage: Stage::Running,
            draining: Vec::new(),
            is_completing: false,
            is_finisher_given_up: false,
            share: plan.slots.max(1),
            plan,
        }
    }

    /// Starts the run with the workers that are already available.
    #[must_use]
    pub fn begin(&mut self, workers: &[WorkerId]) -> Vec<Action> {
        for worker in workers {
            self.welcome(*worker);
        }
        self.advance()
    }

    /// Handles one event, and returns the resulting actions. A stale event (from a worker whose death is
    /// known, about a lease that has ended, or repeated) changes nothing.
    #[must_use]
    pub fn handle(&mut self, event: Event) -> Vec<Action> {
        match event {
            Event::WorkerReady(worker) => self.worker_ready(worker),
            Event::WorkerNotStarted => self.worker_not_started(),
            Event::WorkerTaken(worker) => self.worker_taken(worker),
            Event::Share(share) => self.share = share,
            Event::Started { lease, test } => self.started(lease, test),
            Event::Settled { worker, test, outcome, duration, position } => {
                if self.leases.contains_key(&worker) {
                    self.settled(worker, test, (outcome, duration, position));
                }
            }
            Event::Held { lease, test, by } => self.held(lease, test, by),
            Event::LeaseEnded { worker, lease, end, start } => self.lease_ended(worker, lease, (end, start)),
            Event::WorkerLost { worker, proven, settled } => self.worker_lost(worker, proven, settled),
            Event::Drained { worker, proven } => self.drained(worker, proven),
            Event::Completing => self.is_completing |= self.stage == Stage::Finishing,
            Event::Finished if self.stage == Stage::Finishing => {
                self.stage = Stage::Completed;
                return vec![Action::Complete];
            }
            Event::Finished => {}
            Event::FinisherLate => return self.finisher_late(),
            Event::Cancel => self.stop(NotRun::Cancelled),
            Event::TimeIsUp => self.stop(NotRun::TimeIsUp),
        }
        self.advance()
    }

    /// Returns the stage of the run.
    #[must_use]
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Returns the ledger.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Returns the reason why the run assigns no more work, if it has stopped.
    #[must_use]
    pub fn stopped_by(&self) -> Option<NotRun> {
        self.stop
    }

    /// Returns the workers whose leases are awaited.
    pub fn leasing_workers(&self) -> impl Iterator<Item = WorkerId> + '_ {
        self.leases.keys().copied()
    }

    /// Returns the workers whose leases or drains are awaited.
    #[must_use]
    pub fn awaited_workers(&self) -> Vec<WorkerId> {
        self.leases.keys().copied().chain(self.draining.iter().copied()).collect()
    }

    /// Returns the workers without work in this run.
    #[must_use]
    pub fn idle_workers(&self) -> &[WorkerId] {
        &self.free
    }

    /// Returns the number of leases that workers hold.
    #[must_use]
    pub fn leases_in_hand(&self) -> usize {
        self.leases.len()
    }

    /// Returns the number of concurrent leases that the run could use now, including those that workers hold.
    #[must_use]
    pub fn wanted_leases(&self) -> usize {
        let is_handing_out = self.stage == Stage::Running && self.stop.is_none();
        let waiting = if is_handing_out { self.queue.wanted(self.slots()) } else { 0 };
        (self.leases.len() + waiting).min(self.slots())
    }

    /// Returns whether the death of this worker concerns this run.
    #[must_use]
    pub fn has_to_do_with(&self, worker: WorkerId) -> bool {
        let is_undrained = || self.ledger.streams().get(&worker).is_some_and(|stream| !stream.is_closed);
        let is_known = self.free.contains(&worker) || self.away.contains(&worker);
        is_known || self.leases.contains_key(&worker) || is_undrained()
    }

    pub(super) fn stop(&mut self, why: NotRun) {
        if self.stop.is_none() {
            self.stop = Some(why);
        }
    }

    fn welcome(&mut self, worker: WorkerId) -> bool {
        let is_new = !self.gone.contains(&worker)
            && !self.free.contains(&worker)
            && !self.leases.contains_key(&worker);
        if is_new {
            self.away.remove(&worker);
            self.free.push(worker);
        }
        is_new
    }

    fn worker_taken(&mut self, worker: WorkerId) {
        if self.free.contains(&worker) {
            self.free.retain(|one| *one != worker);
            self.away.insert(worker);
        }
    }

    fn worker_ready(&mut self, worker: WorkerId) {
        if self.welcome(worker) {
            self.starting = self.starting.saturating_sub(1);
            self.failed_starts = 0;
        }
    }

    fn worker_not_started(&mut self) {
        if self.starting > 0 {
            self.starting -= 1;
            self.failed_starts += 1;
        }
    }

    fn started(&mut self, lease: LeaseId, test: TestId) {
        let place = &mut self.tests[test.index()].place;
        if *place == Place::Leased(lease) {
            *place = Place::InFlight(lease);
        }
    }

    pub(super) fn settled(
        &mut self,
        worker: WorkerId,
        test: TestId,
        (outcome, duration, position): (Outcome, Duration, u64),
    ) {
        if self.ledger.settle(test, outcome, StreamPlace { worker, position }).is_err() {
            return;
        }
        self.tests[test.index()].place = Place::Booked;
        self.barren_workers = 0;
        let program = self.plan.tests[test.index()].program;
        if outcome != Outcome::Skipped {
            self.queue.observe(program, duration);
        }
        self.programs[program.index()].barren = 0;
        self.failures += usize::from(outcome.is_failure());
    }

    fn held(&mut self, lease: LeaseId, test: TestId, by: HeldBy) {
        let Some(held) = self.leases.values().find(|held| held.lease == lease) else { return };
        let state = &mut self.tests[test.index()];
        if !state.place.is_in(lease) {
            return;
        }
        let program = held.batch.program;
        self.programs[program.index()].barren = 0;
        state.held = Some(by);
        let is_final = match by {
            HeldBy::Retry => {
                state.failures += 1;
                state.failures > self.plan.tests[test.index()].retries
            }
            HeldBy::LoneRun => held.batch.is_alone,
        };
        if is_final {
            // The result was not to be provisional: it is final.
            self.book_told(test, Told::Held(by));
        } else {
            self.wait_alone(program, test);
        }
    }

    pub(super) fn wait_alone(&mut self, program: ProgramId, test: TestId) {
        self.tests[test.index()].place = Place::Waiting;
        self.queue.add_alone(program, test, self.plan.tests[test.index()].weight);
    }

    fn drained(&mut self, worker: WorkerId, proven: u64) {
        if self.draining.contains(&worker) {
            self.draining.retain(|one| *one != worker);
            self.ledger.close_stream(worker, proven);
        }
    }

    /// Records a synthesized result. A provisional result says more than the reason why it cannot be
    /// replaced.
    pub(super) fn tell(&mut self, test: TestId, why: NotRun) {
        let told = match self.tests[test.index()].held {
            Some(by) => Told::Held(by),
            None => Told::NotRun(why),
        };
        self.book_told(test, told);
    }

    fn book_told(&mut self, test: TestId, told: Told) {
        self.tests[test.index()].place = Place::Booked;
        if self.ledger.tell(test, told).is_ok() {
            self.failures += usize::from(told.outcome().is_failure());
        }
    }

    fn advance(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.stage == Stage::Running {
            self.check_limits();
            match self.stop {
                None => self.hand_out(&mut actions),
                Some(why) => self.wind_down(why, &mut actions),
            }
            if self.ledger.open() == 0 && self.leases.is_empty() {
                self.begin_drain(&mut actions);
            }
        }
        if self.stage == Stage::Draining && self.draining.is_empty() && self.ledger.is_balanced() {
            self.stage = Stage::Finishing;
            actions.push(Action::Finish(self.due()));
        }
        actions
    }

    fn check_limits(&mut self) {
        if self.failures > 0 && self.plan.max_failures.is_some_and(|most| self.failures >= most) {
            self.stop(NotRun::TooManyFailures);
        }
        // The available workers continue, as long as there is at least one.
        let is_nobody_there = self.free.is_empty() && self.away.is_empty() && self.leases.is_empty();
        if is_nobody_there && self.starting == 0 && !self.may_start_workers() && self.ledger.open() > 0 {
            self.stop(NotRun::NoWorker);
        }
    }

    fn may_start_workers(&self) -> bool {
        let most = self.slots().saturating_mul(BARREN_WORKERS_PER_SLOT);
        self.failed_starts.max(self.barren_workers) < most
    }

    fn slots(&self) -> usize {
        self.plan.slots.max(1)
    }

    fn hand_out(&mut self, actions: &mut Vec<Action>) {
        let slots = self.slots();
        let share = self.share.min(slots);
        while self.leases.len() < share
            && let Some(worker) = self.free.pop()
        {
            let Some(lease) = self.lease(worker) else {
                self.free.push(worker);
                break;
            };
            actions.push(Action::Lease(Box::new(lease)));
        }
        let there = self.free.len() + self.starting;
        let room = share.saturating_sub(there + self.leases.len());
        if room == 0 || !self.may_start_workers() {
            return;
        }
        let wanted = self.queue.wanted(slots).saturating_sub(there);
        for _ in 0..room.min(wanted) {
            self.starting += 1;
            actions.push(Action::StartWorker);
        }
    }

    fn lease(&mut self, worker: WorkerId) -> Option<Lease> {
        let batch = self.next_batch()?;
        let lease = LeaseId(self.next_lease);
        self.next_lease += 1;
        let mut is_failure_held = Vec::with_capacity(batch.tests.len());
        for test in &batch.tests {
            let state = &mut self.tests[test.index()];
            state.place = Place::Leased(lease);
            // The result of an isolated rerun after a death is final, whatever it is.
            let is_lone_check = state.held == Some(HeldBy::LoneRun);
            is_failure_held.push(!is_lone_check && state.failures < self.plan.tests[test.index()].retries);
        }
        // From now on the worker may send something of this run, even if only the start of a test: it has to
        // be drained.
        self.ledger.open_stream(worker);
        self.leases.insert(worker, Held { lease, batch: batch.clone(), is_cancelled: false });
        Some(Lease { lease, worker, batch, is_failure_held })
    }

    fn next_batch(&mut self) -> Option<Batch> {
        loop {
            let mut batch = self.queue.next(self.plan.slots)?;
            // A test that has received its result in another way is never run again.
            batch.tests.retain(|test| self.tests[test.index()].place == Place::Waiting);
            if !batch.tests.is_empty() {
                return Some(batch);
            }
        }
    }

    fn wind_down(&mut self, why: NotRun, actions: &mut Vec<Action>) {
        for test in self.queue.forget_all() {
            self.tell(test, why);
        }
        for (worker, held) in &mut self.leases {
            if !held.is_cancelled {
                held.is_cancelled = true;
                actions.push(Action::CancelLease(*worker));
            }
        }
    }

    fn begin_drain(&mut self, actions: &mut Vec<Action>) {
        self.stage = Stage::Draining;
        self.draining = self.ledger.open_streams().collect();
        actions.extend(self.draining.iter().map(|worker| Action::Drain(*worker)));
    }
}
