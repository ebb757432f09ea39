//! The processes and what lies between them: coordinator, watchdog, workers, control connections, journals, the client's
//! connections. What they decide is decided by the program's own functions; what they do is told in the rooms beside.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use model::{
    HeldBy, LeaseEnd, LeaseId, Outcome, TestId, WorkerId,
    finish::{Delivery, HeldFrame, Line, Said},
    run::{Lease, Plan, Run},
};

use crate::{client::Client, mistakes::Mistake};

/// What is tried.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) plan: Plan,
    /// Workers that are there already.
    pub(crate) workers: u32,
    /// Whether the client offers a callback port.
    pub(crate) has_callback: bool,
    pub(crate) faults: Faults,
    /// So many watchdogs can be had, one after the other.
    pub(crate) watchdogs: u8,
    pub(crate) mistake: Mistake,
}

/// What may still go wrong.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Faults {
    /// Deaths of any process, and connections that the client refuses, resets or does not answer.
    pub(crate) deaths: u8,
    /// Failing tests.
    pub(crate) failures: u8,
    /// The user loses patience.
    pub(crate) cancels: u8,
}

/// Everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct System {
    /// `None`: it is dead.
    pub(crate) coordinator: Option<Coordinator>,
    /// `None`: it is dead.
    pub(crate) watchdog: Option<Watchdog>,
    /// Those that live.
    pub(crate) workers: BTreeMap<WorkerId, Worker>,
    pub(crate) journals: BTreeMap<WorkerId, Vec<(TestId, Said)>>,
    /// What workers said and the coordinator has not heard, of the living and the dead.
    pub(crate) from_workers: BTreeMap<WorkerId, VecDeque<FromWorker>>,
    pub(crate) from_watchdog: VecDeque<FromWatchdog>,
    pub(crate) client: Client,
    pub(crate) faults: Faults,
    /// So many steps led here. With them no system is its own past: a circle would be a path without end.
    pub(crate) steps: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Coordinator {
    pub(crate) run: Run,
    /// Workers that were asked for.
    pub(crate) starting: u8,
    /// Results passed on to the main connection, by worker.
    pub(crate) relayed: BTreeMap<WorkerId, u64>,
    /// Dead workers whose journals are being read, with what was relayed of them.
    pub(crate) asked: BTreeMap<WorkerId, u64>,
    pub(crate) held: HeldFrame<Frame>,
    pub(crate) has_ordered_finish: bool,
    /// Watchdogs that can be had yet.
    pub(crate) watchdogs: u8,
    pub(crate) last_worker: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Watchdog {
    /// It knows of the run, and must finish it should the coordinator die.
    pub(crate) has_open_run: bool,
    /// Journals that it was asked for.
    pub(crate) asked: BTreeSet<WorkerId>,
    pub(crate) finish: Option<Finish>,
    pub(crate) delivery: Option<Delivery>,
    pub(crate) line: Line,
    /// The client has reset the line, which is noticed with the next use.
    pub(crate) is_reset: bool,
    /// On the line, and not proven to be read.
    pub(crate) unproven: BTreeSet<TestId>,
    /// The coordinator is dead, and it has seen that.
    pub(crate) is_alone: bool,
}

/// What a finisher is to send.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Finish {
    pub(crate) resend: Vec<(WorkerId, u64)>,
    pub(crate) told: Vec<TestId>,
    /// All but the completion is proven.
    pub(crate) is_completion_only: bool,
}

/// Where a result of a test stands, which makes it that result and no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Source {
    /// In a worker's journal, at a position from 1.
    Journal(WorkerId, u64),
    Finisher,
}

/// What goes to the client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Frame {
    Results(Vec<(TestId, Source)>),
    Completion,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Worker {
    pub(crate) hand: Option<Hand>,
    /// Results handed to its stream.
    pub(crate) position: u64,
    pub(crate) route: Route,
    /// On its own connection, and not proven to be read.
    pub(crate) unproven: BTreeSet<TestId>,
    pub(crate) is_cancelled: bool,
    pub(crate) is_to_drain: bool,
}

/// A lease in a worker's hand.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Hand {
    pub(crate) lease: Lease,
    pub(crate) next: usize,
    pub(crate) at: At,
    /// How the process ends behind the result in hand, if it does.
    pub(crate) end: Option<LeaseEnd>,
}

/// What is done with the next test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum At {
    Idle,
    Running,
    /// Its result has come so far: journalled, sent, reported, in the order of the program.
    Settling(u8),
}

/// A worker's way to the client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) enum Route {
    #[default]
    Relay,
    NotDialled,
    Open,
    /// The client has reset it, which is not noticed yet.
    Reset,
    Broken,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum FromWorker {
    Started { lease: LeaseId, test: TestId },
    Relayed { frame: Frame, position: u64 },
    Settled { test: TestId, outcome: Outcome, position: u64 },
    Held { lease: LeaseId, test: TestId, by: HeldBy },
    Ended { lease: LeaseId, end: LeaseEnd },
    Drained { proven: u64 },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum FromWatchdog {
    Journal(WorkerId),
    Relayed(Frame),
    Completing,
    Finished,
}

impl System {
    /// Returns everything as it is when a run begins.
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let mut system = Self {
            coordinator: None,
            watchdog: Some(Watchdog::new(scenario)),
            workers: BTreeMap::new(),
            journals: BTreeMap::new(),
            from_workers: BTreeMap::new(),
            from_watchdog: VecDeque::new(),
            client: Client::new(scenario.plan.tests.len()),
            faults: scenario.faults,
            steps: 0,
        };
        let there: Vec<_> = (0..scenario.workers).map(WorkerId).collect();
        for worker in &there {
            system.add_worker(scenario, *worker);
        }
        let mut run = Run::new(scenario.plan.clone());
        let actions = run.begin(&there);
        system.coordinator = Some(Coordinator {
            run,
            starting: 0,
            relayed: BTreeMap::new(),
            asked: BTreeMap::new(),
            held: HeldFrame::default(),
            has_ordered_finish: false,
            watchdogs: scenario.watchdogs,
            last_worker: scenario.workers,
        });
        system.obey(scenario, actions);
        system
    }

    pub(crate) fn add_worker(&mut self, scenario: &Scenario, worker: WorkerId) {
        let route = if scenario.has_callback { Route::NotDialled } else { Route::Relay };
        self.workers.insert(worker, Worker { route, ..Worker::default() });
        self.from_workers.insert(worker, VecDeque::new());
    }

    /// Nobody hears any more what is said to it.
    pub(crate) fn kill_coordinator(&mut self) {
        self.coordinator = None;
        self.from_workers.clear();
        self.from_watchdog.clear();
    }

    pub(crate) fn kill_watchdog(&mut self) {
        self.watchdog = None;
        self.workers.clear();
    }
}

impl Watchdog {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        Self {
            has_open_run: true,
            asked: BTreeSet::new(),
            finish: None,
            delivery: None,
            line: if scenario.has_callback { Line::Down } else { Line::Relayed },
            is_reset: false,
            unproven: BTreeSet::new(),
            is_alone: false,
        }
    }
}

impl From<Lease> for Hand {
    fn from(lease: Lease) -> Self {
        Self { lease, next: 0, at: At::Idle, end: None }
    }
}
