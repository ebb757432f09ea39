//! The state machine of one run: events in, actions out.
//!
//! ```text
//!            tests wait or run                 no test open            all streams closed
//!   Running ───────────────────► Draining ──────────────────► Finishing ──────────────► Completed
//!      │  cancel, too many failures: nothing is handed out any more, leases are cancelled
//! ```
//!
//! Every test is in exactly one place: waiting in the queue, in one lease, or settled in the ledger. A worker may die at
//! any point: what its journal holds is settled, what it had begun is tried alone, the rest waits again. Each process
//! either settles a test, or counts as a death; deaths without progress are bounded, so every run ends.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    HeldBy, LeaseEnd, LeaseId, NotRun, Outcome, ProgramId, TestId, Told, WorkerId,
    ledger::Ledger,
    split::{Batch, Item, ProgramCosts, Queue},
};

/// A test under whose process the worker itself died so often is not tried again.
const WORKER_DEATHS_PER_TEST: u8 = 2;
/// So many workers may fail to start or die without settling anything, in a row, before the run gives up on workers.
const BARREN_WORKERS: u32 = 4;
/// So many processes in a row that die under their first test make the program's batches smaller.
const FIRST_TEST_DEATHS: u32 = 3;

/// What a run is to do.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// The programs.
    pub programs: Vec<ProgramCosts>,
    /// The selected tests; those of one program in the framework's order (or the shuffled one).
    pub tests: Vec<PlannedTest>,
    /// How many workers at once.
    pub slots: usize,
    /// The run stops at so many failures.
    pub max_failures: Option<usize>,
    /// So many deaths in a row outside any test, in batches of one, give a program up.
    pub give_up_after: u32,
}

/// One selected test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedTest {
    /// Of which program.
    pub program: ProgramId,
    /// How long it took in earlier runs.
    pub weight: Option<Duration>,
    /// It goes into a process of its own: asked for, or it crashed in earlier runs.
    pub is_alone: bool,
    /// How often it may be tried again when it fails.
    pub retries: u32,
    /// What naming it costs on the command line.
    pub selection_bytes: usize,
    /// It can't be run, whatever happens.
    pub is_unrunnable: bool,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// A worker is there and free.
    WorkerReady(WorkerId),
    /// A worker that was asked for does not come.
    WorkerNotStarted,
    /// A test runs.
    Started {
        /// Which lease.
        lease: LeaseId,
        /// Which test.
        test: TestId,
    },
    /// A test has its result on the worker's stream.
    Settled {
        /// Which worker.
        worker: WorkerId,
        /// Which test.
        test: TestId,
        /// How it ended.
        outcome: Outcome,
        /// How long it ran.
        duration: Duration,
        /// Its place on the stream, from 1.
        position: u64,
    },
    /// A test has a result that may still be replaced.
    Held {
        /// Which lease.
        lease: LeaseId,
        /// Which test.
        test: TestId,
        /// By what.
        by: HeldBy,
    },
    /// A lease's process is gone.
    LeaseEnded {
        /// Whose.
        worker: WorkerId,
        /// Which.
        lease: LeaseId,
        /// How.
        end: LeaseEnd,
        /// What its process cost before its first test.
        start: Option<Duration>,
    },
    /// A worker is gone, and its journal is read.
    WorkerLost {
        /// Which.
        worker: WorkerId,
        /// Up to this position its results were passed on all the same.
        proven: u64,
        /// All results of its journal, in order: the first has position 1.
        settled: Vec<(TestId, Outcome, Duration)>,
    },
    /// A worker has proven its stream up to a position, as far as it could.
    Drained {
        /// Which.
        worker: WorkerId,
        /// What is proven.
        proven: u64,
    },
    /// The finisher has sent the completion.
    Finished,
    /// The user wants the run to end.
    Cancel,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// Have a worker started; [`Event::WorkerReady`] or [`Event::WorkerNotStarted`] answers.
    StartWorker,
    /// Hand out a batch.
    Lease(Box<Lease>),
    /// End a worker's lease; [`Event::LeaseEnded`] answers.
    CancelLease(WorkerId),
    /// Have a worker prove its stream; [`Event::Drained`] or [`Event::WorkerLost`] answers.
    Drain(WorkerId),
    /// Have the finisher send what is due, then the completion; [`Event::Finished`] answers.
    Finish {
        /// Streams that may have lost results, and the position up to which they are proven.
        resend: Vec<(WorkerId, u64)>,
        /// Results that no worker tells.
        told: Vec<(TestId, Told)>,
    },
    /// Answer the request: the run is over.
    Complete,
}

/// A batch in a worker's hands.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lease {
    /// Its number.
    pub lease: LeaseId,
    /// In whose hands.
    pub worker: WorkerId,
    /// The batch.
    pub batch: Batch,
    /// For each test of the batch, whether a failure is to be held back.
    pub is_failure_held: Vec<bool>,
}

/// What a run waits for, to be named by a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// Tests wait or run.
    Running,
    /// Workers prove their streams.
    Draining,
    /// The finisher sends what is due.
    Finishing,
    /// Nothing.
    Completed,
}

/// Where a test is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
enum Place {
    /// In the queue.
    #[default]
    Waiting,
    /// In a worker's hands.
    Leased(LeaseId),
    /// In a worker's hands, and running.
    InFlight(LeaseId),
    /// In the ledger.
    Booked,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct TestState {
    place: Place,
    failures: u32,
    worker_deaths: u8,
    barren_ends: u8,
    held: Option<HeldBy>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct ProgramState {
    /// Processes that died outside any test, in a row, without any test having ended.
    outside_deaths: u32,
    /// Processes that died under their first test, in a row.
    first_test_deaths: u32,
}

#[derive(Debug, Clone)]
struct Held {
    lease: LeaseId,
    batch: Batch,
    /// Whether a test has ended in it.
    has_progress: bool,
    /// Whether a test has ended or died in it.
    has_report: bool,
    is_cancelled: bool,
}

/// One run.
#[derive(Debug, Clone)]
pub struct Run {
    plan: Plan,
    queue: Queue,
    ledger: Ledger,
    tests: Vec<TestState>,
    programs: Vec<ProgramState>,
    free: Vec<WorkerId>,
    leases: BTreeMap<WorkerId, Held>,
    starting: usize,
    barren_workers: u32,
    next_lease: u32,
    stop: Option<NotRun>,
    stage: Stage,
    draining: Vec<WorkerId>,
    failures: usize,
}

impl Run {
    /// Plans a run; [`Run::begin`] starts it.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        let mut queue = Queue::new(plan.programs.iter().cloned());
        for program in (0..).map(ProgramId).take(plan.programs.len()) {
            let items = (0..)
                .map(TestId)
                .zip(&plan.tests)
                .filter(|(_, test)| test.program == program && !test.is_unrunnable);
            queue.add(
                program,
                items.map(|(id, test)| Item {
                    test: id,
                    weight: test.weight,
                    is_alone: test.is_alone,
                    selection_bytes: test.selection_bytes,
                }),
            );
        }
        let mut ledger = Ledger::new(plan.tests.len());
        for (test, _) in (0..).map(TestId).zip(&plan.tests).filter(|(_, test)| test.is_unrunnable) {
            let _is_first = ledger.tell(test, Told::NotRun(NotRun::Unrunnable));
        }
        Self {
            queue,
            tests: vec![TestState::default(); plan.tests.len()],
            programs: vec![ProgramState::default(); plan.programs.len()],
            failures: ledger.failures(),
            ledger,
            free: Vec::new(),
            leases: BTreeMap::new(),
            starting: 0,
            barren_workers: 0,
            next_lease: 0,
            stop: None,
            stage: Stage::Running,
            draining: Vec::new(),
            plan,
        }
    }

    /// Starts the run with the workers that are there already.
    #[must_use]
    pub fn begin(&mut self, workers: &[WorkerId]) -> Vec<Action> {
        self.free.extend(workers);
        self.advance()
    }

    /// Takes one event in, and returns what is to be done.
    #[must_use]
    pub fn handle(&mut self, event: Event) -> Vec<Action> {
        match event {
            Event::WorkerReady(worker) => {
                self.starting = self.starting.saturating_sub(1);
                self.free.push(worker);
            }
            Event::WorkerNotStarted => {
                self.starting = self.starting.saturating_sub(1);
                self.barren_workers += 1;
            }
            Event::Started { lease, test } => self.started(lease, test),
            Event::Settled { worker, test, outcome, duration, position } => {
                self.settled(worker, test, (outcome, duration, position));
            }
            Event::Held { lease, test, by } => self.held(lease, test, by),
            Event::LeaseEnded { worker, lease, end, start } => self.lease_ended(worker, lease, end, start),
            Event::WorkerLost { worker, proven, settled } => self.worker_lost(worker, proven, settled),
            Event::Drained { worker, proven } => {
                self.ledger.close_stream(worker, proven);
                self.draining.retain(|one| *one != worker);
            }
            Event::Finished if self.stage == Stage::Finishing => {
                self.stage = Stage::Completed;
                return vec![Action::Complete];
            }
            Event::Finished => {}
            Event::Cancel => self.stop(NotRun::Cancelled),
        }
        self.advance()
    }

    /// Returns what the run waits for.
    #[must_use]
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Returns the books.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Returns why the run hands nothing out any more, if so.
    #[must_use]
    pub fn stopped_by(&self) -> Option<NotRun> {
        self.stop
    }

    /// Returns the workers whose leases or drains are awaited.
    #[must_use]
    pub fn awaited_workers(&self) -> Vec<WorkerId> {
        self.leases.keys().copied().chain(self.draining.iter().copied()).collect()
    }

    fn stop(&mut self, why: NotRun) {
        if self.stop.is_none() {
            self.stop = Some(why);
        }
    }

    fn started(&mut self, lease: LeaseId, test: TestId) {
        let place = &mut self.tests[test.index()].place;
        if *place == Place::Leased(lease) {
            *place = Place::InFlight(lease);
        }
    }

    fn settled(
        &mut self,
        worker: WorkerId,
        test: TestId,
        (outcome, duration, position): (Outcome, Duration, u64),
    ) {
        if self.ledger.settle(test, outcome, worker, position).is_err() {
            return;
        }
        self.tests[test.index()].place = Place::Booked;
        self.barren_workers = 0;
        let program = self.plan.tests[test.index()].program;
        if outcome != Outcome::Skipped {
            self.queue.observe(program, duration);
        }
        self.progressed(worker, program);
        self.failures += usize::from(outcome.is_failure());
        if self.plan.max_failures.is_some_and(|most| self.failures >= most) {
            self.stop(NotRun::TooManyFailures);
        }
    }

    fn progressed(&mut self, worker: WorkerId, program: ProgramId) {
        self.programs[program.index()] = ProgramState::default();
        if let Some(held) = self.leases.get_mut(&worker) {
            held.has_progress = true;
            held.has_report = true;
        }
    }

    fn held(&mut self, lease: LeaseId, test: TestId, by: HeldBy) {
        let Some((worker, held)) = self.leases.iter_mut().find(|(_, held)| held.lease == lease) else {
            return;
        };
        let state = &mut self.tests[test.index()];
        if state.place != Place::Leased(lease) && state.place != Place::InFlight(lease) {
            return;
        }
        held.has_report = true;
        state.held = Some(by);
        let (worker, program, has_progress) = (*worker, held.batch.program, held.has_progress);
        match by {
            HeldBy::Retry => {
                state.failures += 1;
                self.progressed(worker, program);
            }
            HeldBy::LoneRun => {
                let program = &mut self.programs[program.index()];
                program.outside_deaths = 0;
                program.first_test_deaths = if has_progress { 0 } else { program.first_test_deaths + 1 };
            }
        }
        self.wait_alone(program, test);
    }

    fn wait_alone(&mut self, program: ProgramId, test: TestId) {
        self.tests[test.index()].place = Place::Waiting;
        self.queue.add_alone(program, test, self.plan.tests[test.index()].weight);
    }

    fn lease_ended(&mut self, worker: WorkerId, lease: LeaseId, end: LeaseEnd, start: Option<Duration>) {
        if self.leases.get(&worker).is_none_or(|held| held.lease != lease) {
            return;
        }
        let Some(held) = self.leases.remove(&worker) else { return };
        self.free.push(worker);
        let program = held.batch.program;
        if let Some(start) = start {
            self.queue.observe_start(program, start);
        }
        let rest = self.rest(&held);
        match end {
            LeaseEnd::Complete | LeaseEnd::BadExit => {
                self.queue.relax(program);
                self.never_began(program, rest);
            }
            LeaseEnd::Cancelled if self.stop.is_some() => self.put_back(&held.batch, rest),
            LeaseEnd::DiedInTest if held.has_report => {
                if self.programs[program.index()].first_test_deaths >= FIRST_TEST_DEATHS {
                    self.programs[program.index()].first_test_deaths = 0;
                    self.queue.shrink(program, held.batch.tests.len());
                }
                self.put_back(&held.batch, rest);
            }
            // A death that is charged to no test must count somewhere, or a run could go on for ever.
            LeaseEnd::Cancelled | LeaseEnd::DiedInTest | LeaseEnd::DiedOutside | LeaseEnd::NotStarted => {
                self.died_outside(&held, rest);
            }
        }
    }

    /// The tests that are still in this lease.
    fn rest(&self, held: &Held) -> Vec<TestId> {
        let is_here = |test: &&TestId| {
            let place = self.tests[test.index()].place;
            place == Place::Leased(held.lease) || place == Place::InFlight(held.lease)
        };
        held.batch.tests.iter().filter(is_here).copied().collect()
    }

    fn put_back(&mut self, batch: &Batch, rest: Vec<TestId>) {
        for test in &rest {
            self.tests[test.index()].place = Place::Waiting;
        }
        if batch.is_alone {
            for test in rest {
                self.wait_alone(batch.program, test);
            }
        } else {
            self.queue.resume(batch.program, rest);
        }
    }

    fn never_began(&mut self, program: ProgramId, rest: Vec<TestId>) {
        for test in rest {
            let state = &mut self.tests[test.index()];
            state.barren_ends += 1;
            if state.barren_ends > 1 {
                self.tell(test, NotRun::NeverBegan);
            } else {
                self.wait_alone(program, test);
            }
        }
    }

    fn died_outside(&mut self, held: &Held, rest: Vec<TestId>) {
        let program = held.batch.program;
        if held.has_progress {
            self.put_back(&held.batch, rest);
            return;
        }
        let is_smallest = held.batch.tests.len() == 1;
        let state = &mut self.programs[program.index()];
        state.outside_deaths += u32::from(is_smallest);
        let deaths = state.outside_deaths;
        if is_smallest && deaths >= self.plan.give_up_after.max(1) {
            let waiting = self.queue.forget_program(program);
            for test in waiting.into_iter().chain(rest) {
                self.tell(test, NotRun::GivenUp { deaths });
            }
            return;
        }
        self.queue.shrink(program, held.batch.tests.len());
        self.put_back(&held.batch, rest);
    }

    fn worker_lost(&mut self, worker: WorkerId, proven: u64, settled: Vec<(TestId, Outcome, Duration)>) {
        self.free.retain(|one| *one != worker);
        self.draining.retain(|one| *one != worker);
        self.barren_workers += u32::from(settled.is_empty());
        for (position, (test, outcome, duration)) in (1..).zip(settled) {
            self.settled(worker, test, (outcome, duration, position));
        }
        if self.ledger.streams().contains_key(&worker) {
            self.ledger.close_stream(worker, proven);
        }
        let Some(held) = self.leases.remove(&worker) else { return };
        let (in_flight, waiting): (Vec<_>, Vec<_>) = self
            .rest(&held)
            .into_iter()
            .partition(|test| self.tests[test.index()].place == Place::InFlight(held.lease));
        for test in in_flight {
            let state = &mut self.tests[test.index()];
            state.worker_deaths += 1;
            if state.worker_deaths >= WORKER_DEATHS_PER_TEST {
                self.tell(test, NotRun::WorkerDied);
            } else {
                self.wait_alone(held.batch.program, test);
            }
        }
        self.put_back(&held.batch, waiting);
    }

    /// Books a result that no worker tells. What was held back is truer than why it can't be replaced.
    fn tell(&mut self, test: TestId, why: NotRun) {
        let told = match self.tests[test.index()].held {
            Some(by) => Told::Held(by),
            None => Told::NotRun(why),
        };
        self.tests[test.index()].place = Place::Booked;
        if self.ledger.tell(test, told).is_ok() {
            self.failures += usize::from(told.outcome().is_failure());
        }
    }

    fn advance(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.stage == Stage::Running {
            self.check_workers();
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
            actions.push(Action::Finish { resend: self.ledger.unproven(), told: self.ledger.told() });
        }
        actions
    }

    /// Without any hope for a worker, what waits is told so.
    fn check_workers(&mut self) {
        if self.barren_workers >= BARREN_WORKERS {
            self.stop(NotRun::NoWorker);
        }
    }

    fn hand_out(&mut self, actions: &mut Vec<Action>) {
        while self.leases.len() < self.plan.slots.max(1)
            && let Some(worker) = self.free.pop()
        {
            let Some(batch) = self.queue.next(self.plan.slots) else {
                self.free.push(worker);
                break;
            };
            actions.push(Action::Lease(Box::new(self.lease(worker, batch))));
        }
        let slots = self.plan.slots.max(1);
        let room = slots.saturating_sub(self.free.len() + self.starting + self.leases.len());
        let wanted = self.queue.wanted(slots).saturating_sub(self.free.len() + self.starting);
        for _ in 0..room.min(wanted) {
            self.starting += 1;
            actions.push(Action::StartWorker);
        }
    }

    fn lease(&mut self, worker: WorkerId, batch: Batch) -> Lease {
        let lease = LeaseId(self.next_lease);
        self.next_lease += 1;
        let is_failure_held = batch
            .tests
            .iter()
            .map(|test| {
                let state = &self.tests[test.index()];
                // A lone check of a death decides, whatever it brings.
                state.failures < self.plan.tests[test.index()].retries && state.held != Some(HeldBy::LoneRun)
            })
            .collect();
        for test in &batch.tests {
            self.tests[test.index()].place = Place::Leased(lease);
        }
        let held =
            Held { lease, batch: batch.clone(), has_progress: false, has_report: false, is_cancelled: false };
        self.leases.insert(worker, held);
        Lease { lease, worker, batch, is_failure_held }
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
        self.draining = self
            .ledger
            .streams()
            .iter()
            .filter(|(_, stream)| !stream.is_closed)
            .map(|(worker, _)| *worker)
            .collect();
        actions.extend(self.draining.iter().map(|worker| Action::Drain(*worker)));
    }
}
