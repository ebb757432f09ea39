//! Schedules 20,000 tests in a simulated clock, with the state machine of a run alone: no process starts. The
//! duration is compared with the shortest possible one: the largest of the sum of all tests divided by the
//! slots, the longest test, the longest chain of prerequisites, and the sum of the tests of one lock.
//!
//! `cargo bench -p heeler-core --bench scheduling`; `benches/compare --only scheduling` runs it, too.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    process::ExitCode,
    time::{Duration, Instant},
};

use heeler_core::{
    LeaseId, LeaseOutcome, Outcome, ProgramId, ResourceId, Slots, TestId, WorkerId,
    batching::{LeaseNeeds, ProgramCosts},
    run::{BatchLease, Prerequisite, RunAction, RunEvent, RunState, ScheduledTest, SchedulingPlan},
};

const PROGRAMS: u32 = 40;
const TESTS_PER_PROGRAM: u32 = 500;
const LOCKS: u32 = 50;
const EDGES: usize = 200;
const SLOTS: usize = 16;
/// Time from the start of a process to its first test.
const PROCESS_START: Duration = Duration::from_millis(5);
/// Largest accepted ratio of the duration to the shortest possible one.
const BAR: f64 = 1.1;

/// The needs of a test, apart from a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Workload {
    /// No locks and no prerequisites.
    Plain,
    /// 50 locks, each of 40 tests, and 200 prerequisites.
    Locks,
    /// The same, and one lock whose tests take nine tenths of the shortest possible duration.
    BusyLock,
}

fn main() -> ExitCode {
    let mut is_met = true;
    let workloads = [
        (Workload::Plain, "no lock and no edge"),
        (Workload::Locks, "50 locks and 200 edges"),
        (Workload::BusyLock, "50 locks, one of them busy 90 % of the time, and 200 edges"),
    ];
    for (workload, name) in workloads {
        let plan = plan_of(workload);
        let bound = shortest(&plan);
        let began = Instant::now();
        let wall = Simulation::new(plan).run();
        let took = began.elapsed();
        let ratio = wall.as_secs_f64() / bound.as_secs_f64();
        let verdict = if ratio <= BAR { "met" } else { "missed" };
        is_met &= ratio <= BAR;
        println!(
            "20,000 tests with {name}, {SLOTS} slots: {:.2} s, bound {:.2} s, {ratio:.3} × the bound \
             (bar {BAR}: {verdict}); the model took {:.2} s",
            wall.as_secs_f64(),
            bound.as_secs_f64(),
            took.as_secs_f64()
        );
    }
    if is_met { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Random numbers that are the same on each run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    /// Returns a duration from 1 to 128 ms. Short ones are more frequent: each doubling is equally likely.
    fn duration(&mut self) -> Duration {
        let least = 1000_u64 << self.below(7);
        Duration::from_micros(least + self.below(least))
    }
}

fn plan_of(workload: Workload) -> SchedulingPlan {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut by_needs: BTreeMap<(u32, Option<u32>), ProgramId> = BTreeMap::new();
    let mut programs = Vec::new();
    let mut tests = Vec::new();
    for number in 0..PROGRAMS * TESTS_PER_PROGRAM {
        let (program, place) = (number / TESTS_PER_PROGRAM, number % TESTS_PER_PROGRAM);
        let lock = match workload {
            Workload::Plain => None,
            _ if place % 10 == 0 => Some((program + place / 10 % 5 * 10) % LOCKS),
            Workload::BusyLock if place % 18 == 1 => Some(0),
            Workload::Locks | Workload::BusyLock => None,
        };
        let id = *by_needs.entry((program, lock)).or_insert_with(|| {
            let resources = lock.into_iter().map(|lock| (ResourceId(lock), vec![1])).collect();
            let needs = LeaseNeeds { resources, ..LeaseNeeds::default() };
            programs.push(ProgramCosts { start: Some(PROCESS_START), needs, ..ProgramCosts::default() });
            ProgramId(u32::try_from(programs.len() - 1).expect("there are few programs"))
        });
        tests.push(ScheduledTest { weight: Some(random.duration()), ..ScheduledTest::new(id) });
    }
    if workload != Workload::Plain {
        let count = tests.len() as u64;
        for _ in 0..EDGES {
            let (one, other) = (random.below(count), random.below(count));
            let first = TestId(u32::try_from(one.min(other)).expect("there are 20,000 tests"));
            let after = usize::try_from(one.max(other)).expect("there are 20,000 tests");
            if one != other {
                tests[after].prerequisites.push(Prerequisite { test: first, must_succeed: false });
            }
        }
    }
    let capacities = vec![vec![1]; LOCKS as usize];
    SchedulingPlan {
        programs,
        capacities,
        tests,
        slots: SLOTS,
        max_startup_crashes: 3,
        ..SchedulingPlan::default()
    }
}

fn duration_of(test: &ScheduledTest) -> Duration {
    test.weight.unwrap_or_default()
}

/// Returns the shortest possible duration.
fn shortest(plan: &SchedulingPlan) -> Duration {
    let sum: Duration = plan.tests.iter().map(duration_of).sum();
    let mut by_lock: BTreeMap<ResourceId, Duration> = BTreeMap::new();
    // Each edge leads to an earlier test, so the chain of each test is known when its turn comes.
    let mut chains: Vec<Duration> = Vec::with_capacity(plan.tests.len());
    for test in &plan.tests {
        for lock in plan.programs[test.program.index()].needs.resources.keys() {
            *by_lock.entry(*lock).or_default() += duration_of(test);
        }
        let before = test.prerequisites.iter().map(|one| chains[one.test.index()]).max();
        chains.push(before.unwrap_or_default() + duration_of(test));
    }
    let slots = u32::try_from(SLOTS).expect("there are few slots");
    [sum / slots].into_iter().chain(chains).chain(by_lock.into_values()).max().unwrap_or_default()
}

/// An event of the simulated clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SimulatedEvent {
    TestEnded { worker: WorkerId, test: TestId },
    ProcessEnded { worker: WorkerId, lease: LeaseId },
}

/// A run whose workers need no time of their own.
struct Simulation {
    run: RunState,
    durations: Vec<Duration>,
    clock: Duration,
    /// Coming events. The number keeps events at the same time in order.
    coming: BinaryHeap<Reverse<(Duration, u64, SimulatedEvent)>>,
    next_number: u64,
    idle: Vec<WorkerId>,
    next_worker: u32,
    requested: usize,
    positions: BTreeMap<WorkerId, u64>,
}

impl Simulation {
    fn new(plan: SchedulingPlan) -> Self {
        Self {
            durations: plan.tests.iter().map(duration_of).collect(),
            run: RunState::new(plan),
            clock: Duration::ZERO,
            coming: BinaryHeap::new(),
            next_number: 0,
            idle: Vec::new(),
            next_worker: 0,
            requested: 0,
            positions: BTreeMap::new(),
        }
    }

    /// Runs all tests; returns the time of the last end.
    fn run(mut self) -> Duration {
        let actions = self.run.begin();
        self.execute(actions);
        while let Some(Reverse((at, _, event))) = self.coming.pop() {
            self.clock = at;
            let event = match event {
                SimulatedEvent::TestEnded { worker, test } => {
                    let position = self.positions.entry(worker).or_default();
                    *position += 1;
                    let (duration, outcome) = (self.durations[test.index()], Outcome::Passed);
                    RunEvent::Settled { worker, test, outcome, duration, position: *position }
                }
                SimulatedEvent::ProcessEnded { worker, lease } => {
                    let (end, start) = (LeaseOutcome::Complete, Some(PROCESS_START));
                    RunEvent::LeaseEnded { worker, lease, end, start }
                }
            };
            let actions = self.run.handle(event);
            self.execute(actions);
        }
        assert_eq!(self.run.ledger().open_count(), 0, "every test has a result");
        self.clock
    }

    fn execute(&mut self, actions: Vec<RunAction>) {
        self.apply(actions);
        while self.requested > 0 && self.run.slots_taken() < Slots(SLOTS) && self.run.can_use_worker() {
            self.requested -= 1;
            let worker = self.idle.pop().unwrap_or_else(|| {
                self.next_worker += 1;
                WorkerId(self.next_worker)
            });
            let actions = self.run.handle(RunEvent::WorkerGranted(worker));
            self.apply(actions);
        }
    }

    fn apply(&mut self, actions: Vec<RunAction>) {
        for action in actions {
            match action {
                RunAction::StartWorker => self.requested += 1,
                RunAction::Lease(lease) => self.start(&lease),
                RunAction::ReleaseWorker(worker) => self.idle.push(worker),
                _ => {}
            }
        }
    }

    fn start(&mut self, lease: &BatchLease) {
        let worker = lease.worker;
        let mut at = self.clock + PROCESS_START;
        for test in &lease.batch.tests {
            at += self.durations[test.index()];
            self.push(at, SimulatedEvent::TestEnded { worker, test: *test });
        }
        self.push(at, SimulatedEvent::ProcessEnded { worker, lease: lease.lease });
    }

    fn push(&mut self, at: Duration, event: SimulatedEvent) {
        self.next_number += 1;
        self.coming.push(Reverse((at, self.next_number, event)));
    }
}
