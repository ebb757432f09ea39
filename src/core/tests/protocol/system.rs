//! The processes and what lies between them: coordinator, watchdog, workers, control connections, journals, the client's
//! connections. What they decide is decided by the program's own functions; what they do is told in the rooms beside.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use heeler_core::{
    LeaseId, LeaseOutcome, Outcome, ProvisionalReason, TestId, WorkerId,
    delivery::{Delivery, FinisherConnection, JournalMark, LastRelayedFrame},
    run::{BatchLease, RunState, SchedulingPlan},
};

use crate::{client::SimClient, mistakes::PlantedMistake};

/// What is tried.
#[derive(Debug, Clone)]
pub(crate) struct ProtocolScenario {
    pub(crate) plan: SchedulingPlan,
    /// Workers that are there already.
    pub(crate) workers: u32,
    /// Whether the client offers a callback port.
    pub(crate) has_callback: bool,
    pub(crate) faults: ProtocolFaults,
    /// So many watchdogs can be had, one after the other.
    pub(crate) watchdogs: u8,
    pub(crate) mistake: PlantedMistake,
}

/// What may still go wrong.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct ProtocolFaults {
    /// Deaths of any process, and connections that the client refuses, resets or does not answer.
    pub(crate) deaths: u8,
    /// Failing tests.
    pub(crate) failures: u8,
    /// The user loses patience.
    pub(crate) cancels: u8,
}

/// Everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ProtocolSystem {
    /// `None`: it is dead.
    pub(crate) coordinator: Option<SimCoordinator>,
    /// `None`: it is dead.
    pub(crate) watchdog: Option<SimWatchdog>,
    /// Those that live.
    pub(crate) workers: BTreeMap<WorkerId, SimWorker>,
    pub(crate) journals: BTreeMap<WorkerId, Vec<(TestId, JournalMark)>>,
    /// What workers said and the coordinator has not heard, of the living and the dead.
    pub(crate) from_workers: BTreeMap<WorkerId, VecDeque<SimWorkerMessage>>,
    pub(crate) from_watchdog: VecDeque<SimWatchdogMessage>,
    pub(crate) client: SimClient,
    pub(crate) faults: ProtocolFaults,
    /// So many steps led here. With them no system is its own past: a circle would be a path without end.
    pub(crate) steps: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SimCoordinator {
    pub(crate) run: RunState,
    /// Workers that were asked for.
    pub(crate) starting: u8,
    /// Results passed on to the main connection, by worker.
    pub(crate) relayed: BTreeMap<WorkerId, u64>,
    /// Dead workers whose journals are being read, with what was relayed of them.
    pub(crate) asked: BTreeMap<WorkerId, u64>,
    pub(crate) held: LastRelayedFrame<SimFrame>,
    pub(crate) has_ordered_finish: bool,
    /// Watchdogs that can be had yet.
    pub(crate) watchdogs: u8,
    pub(crate) last_worker: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SimWatchdog {
    /// It knows of the run, and must finish it should the coordinator die.
    pub(crate) has_open_run: bool,
    /// Journals that it was asked for.
    pub(crate) asked: BTreeSet<WorkerId>,
    pub(crate) finish: Option<SimFinish>,
    pub(crate) delivery: Option<Delivery>,
    pub(crate) line: FinisherConnection,
    /// The client has reset the line, which is noticed with the next use.
    pub(crate) is_reset: bool,
    /// On the line, and not proven to be read.
    pub(crate) unproven: BTreeSet<TestId>,
    /// The coordinator is dead, and it has seen that.
    pub(crate) is_alone: bool,
}

/// What a finisher is to send.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SimFinish {
    pub(crate) resend: Vec<(WorkerId, u64)>,
    pub(crate) told: Vec<TestId>,
    /// All but the completion is proven.
    pub(crate) is_completion_only: bool,
}

/// Where a result of a test stands, which makes it that result and no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum ResultSource {
    /// In a worker's journal, at a position from 1.
    Journal(WorkerId, u64),
    Finisher,
}

/// What goes to the client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum SimFrame {
    Results(Vec<(TestId, ResultSource)>),
    Completion,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct SimWorker {
    pub(crate) hand: Option<SimLease>,
    /// Results handed to its stream.
    pub(crate) position: u64,
    pub(crate) route: SimRoute,
    /// On its own connection, and not proven to be read.
    pub(crate) unproven: BTreeSet<TestId>,
    pub(crate) is_cancelled: bool,
    pub(crate) is_to_drain: bool,
}

/// A lease in a worker's hand.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SimLease {
    pub(crate) lease: BatchLease,
    pub(crate) next: usize,
    pub(crate) at: SimTestPhase,
    /// How the process ends behind the result in hand, if it does.
    pub(crate) end: Option<LeaseOutcome>,
}

/// What is done with the next test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum SimTestPhase {
    Idle,
    Running,
    /// Its result has come so far: journalled, sent, reported, in the order of the program.
    Settling(u8),
}

/// A worker's way to the client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) enum SimRoute {
    #[default]
    Relay,
    NotDialled,
    Open,
    /// The client has reset it, which is not noticed yet.
    Reset,
    Broken,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum SimWorkerMessage {
    Started { lease: LeaseId, test: TestId },
    Relayed { frame: SimFrame, position: u64 },
    Settled { test: TestId, outcome: Outcome, position: u64 },
    Held { lease: LeaseId, test: TestId, by: ProvisionalReason },
    Ended { lease: LeaseId, end: LeaseOutcome },
    Drained { proven: u64 },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum SimWatchdogMessage {
    Journal(WorkerId),
    Relayed(SimFrame),
    Completing,
    Finished,
}

impl ProtocolSystem {
    /// Returns everything as it is when a run begins.
    pub(crate) fn new(scenario: &ProtocolScenario) -> Self {
        let mut system = Self {
            coordinator: None,
            watchdog: Some(SimWatchdog::new(scenario)),
            workers: BTreeMap::new(),
            journals: BTreeMap::new(),
            from_workers: BTreeMap::new(),
            from_watchdog: VecDeque::new(),
            client: SimClient::new(scenario.plan.tests.len()),
            faults: scenario.faults,
            steps: 0,
        };
        let there: Vec<_> = (0..scenario.workers).map(WorkerId).collect();
        for worker in &there {
            system.add_worker(scenario, *worker);
        }
        let mut run = RunState::new(scenario.plan.clone());
        let actions = run.begin(&there);
        system.coordinator = Some(SimCoordinator {
            run,
            starting: 0,
            relayed: BTreeMap::new(),
            asked: BTreeMap::new(),
            held: LastRelayedFrame::default(),
            has_ordered_finish: false,
            watchdogs: scenario.watchdogs,
            last_worker: scenario.workers,
        });
        system.obey(scenario, actions);
        system
    }

    pub(crate) fn add_worker(&mut self, scenario: &ProtocolScenario, worker: WorkerId) {
        let route = if scenario.has_callback { SimRoute::NotDialled } else { SimRoute::Relay };
        self.workers.insert(worker, SimWorker { route, ..SimWorker::default() });
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

impl SimWatchdog {
    pub(crate) fn new(scenario: &ProtocolScenario) -> Self {
        Self {
            has_open_run: true,
            asked: BTreeSet::new(),
            finish: None,
            delivery: None,
            line: if scenario.has_callback {
                FinisherConnection::Closed
            } else {
                FinisherConnection::Relayed
            },
            is_reset: false,
            unproven: BTreeSet::new(),
            is_alone: false,
        }
    }
}

impl From<BatchLease> for SimLease {
    fn from(lease: BatchLease) -> Self {
        Self { lease, next: 0, at: SimTestPhase::Idle, end: None }
    }
}
