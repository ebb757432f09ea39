//! The processes and what lies between them: coordinator, watchdog, workers, control connections, journals,
//! the client's connections. The program's own functions decide; the modules beside this one carry out.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    hash::{Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use heeler_core::{
    LeaseId, LeaseOutcome, Outcome, ProvisionalReason, TestId, WorkerId,
    ack_window::{AckWindow, WindowLimits},
    delivery::{Delivery, FinisherConnection, JournalMark, LastRelayedFrame},
    run::{BatchLease, CancelMode, RunState},
};

use crate::{
    client::SimClient,
    observer::RunObserver,
    scenario::{ModelFaults, ModelScenario},
    streams::StreamOwner,
};

pub(crate) const SHORT: Duration = Duration::from_millis(1);
/// What a start takes after which further ones are delayed.
pub(crate) const EXPENSIVE: Duration = Duration::from_millis(500);

/// The state of everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ModelWorld {
    /// `None`: it is dead.
    pub(crate) coordinator: Option<SimCoordinator>,
    /// `None`: it is dead, or not modelled.
    pub(crate) watchdog: Option<SimWatchdog>,
    /// Workers that are alive.
    pub(crate) workers: BTreeMap<WorkerId, SimWorker>,
    pub(crate) journals: BTreeMap<WorkerId, SimJournal>,
    /// Messages that the coordinator has not read, of workers alive and dead.
    pub(crate) from_workers: BTreeMap<WorkerId, VecDeque<SimWorkerMessage>>,
    pub(crate) from_watchdog: VecDeque<SimWatchdogMessage>,
    pub(crate) client: SimClient,
    pub(crate) faults: ModelFaults,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SimCoordinator {
    /// Shared by the worlds between two events of the run.
    pub(crate) run: Arc<RunState>,
    pub(crate) observer: Arc<RunObserver>,
    /// Hash of the two.
    pub(crate) run_hash: u64,
    /// Number of results forwarded to the main connection, by worker.
    pub(crate) relayed: BTreeMap<WorkerId, u64>,
    /// Dead workers whose journals are being read, with the number of their results that were forwarded.
    pub(crate) journal_requests: BTreeMap<WorkerId, u64>,
    /// Streams of dead processes whose last barrier is open.
    pub(crate) asked: BTreeSet<StreamOwner>,
    /// Streams of dead watchdogs that were asked for proof, or could not be.
    pub(crate) proven_finishers: BTreeSet<StreamOwner>,
    /// Number of frames of the finish that dead watchdogs have sent and that are handled, or that it has
    /// forwarded.
    pub(crate) finish_frames: usize,
    /// Workers' updates were forwarded to the main connection.
    pub(crate) has_relayed: bool,
    /// A dead watchdog has sent the completion, and it is handled.
    pub(crate) is_completion_handled: bool,
    pub(crate) held: LastRelayedFrame<SimFrame>,
    pub(crate) has_ordered_finish: bool,
    /// Number of watchdogs that can still be started, including the present one.
    pub(crate) watchdogs: u8,
    pub(crate) next_worker: u32,
    /// Workers that the pool has granted to another run.
    pub(crate) lent: BTreeSet<WorkerId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SimWatchdog {
    /// It knows of the run, and must finish it if the coordinator dies.
    pub(crate) has_open_run: bool,
    /// Journals that it is to read.
    pub(crate) journal_requests: BTreeSet<WorkerId>,
    pub(crate) finish: Option<SimFinish>,
    pub(crate) delivery: Option<Delivery>,
    pub(crate) line: FinisherConnection,
    /// The client has reset the line, which is noticed with the next use.
    pub(crate) is_reset: bool,
    /// The client answers nothing.
    pub(crate) is_never_opened: bool,
    /// On the line, and not proven to be read.
    pub(crate) unproven: BTreeSet<TestId>,
    /// It has seen that the coordinator is dead.
    pub(crate) is_alone: bool,
    /// Number of watchdogs that could be started when it was.
    pub(crate) generation: u8,
    /// Number of barriers on its own connection, and of the last one that is answered.
    pub(crate) barriers: u64,
    pub(crate) answered: u64,
    /// Streams of dead workers whose last barrier is open.
    pub(crate) asked: BTreeSet<StreamOwner>,
}

/// What a finisher is to send.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct SimFinish {
    pub(crate) resend: Vec<(WorkerId, u64)>,
    pub(crate) synthesized: Vec<TestId>,
    /// Everything but the completion is proven.
    pub(crate) is_completion_only: bool,
    /// Number of frames that other finishers have sent, and that are handled.
    pub(crate) handled_frames: usize,
    /// Number of frames sent by these and this one.
    pub(crate) sent_frames: usize,
}

/// Where a result of a test is recorded: this makes it that result and no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum ResultSource {
    /// In a worker's journal, at a position from 1.
    Journal(WorkerId, u64),
    Finisher,
}

/// A frame to the client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum SimFrame {
    /// A test runs.
    Started(TestId),
    Results(Vec<(TestId, ResultSource)>),
    Completion,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct SimJournal {
    pub(crate) records: Vec<(TestId, JournalMark)>,
    /// The results, in the order of their records.
    pub(crate) results: Vec<(TestId, Outcome)>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct SimWorker {
    pub(crate) process: Option<SimProcess>,
    /// Number of results put on its stream.
    pub(crate) position: u64,
    pub(crate) route: SimRoute,
    /// On its own connection, and not proven to be read.
    pub(crate) unproven: BTreeSet<TestId>,
    pub(crate) cancel_mode: Option<CancelMode>,
    pub(crate) is_to_drain: bool,
    /// Of its own connection to a client with queues of its own.
    pub(crate) window: Option<AckWindow>,
    /// Its last barrier is sent.
    pub(crate) is_draining: bool,
    /// The coordinator forwards its updates, and a barrier behind them is open.
    pub(crate) is_relay_asked: bool,
}

/// A process that runs a batch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SimProcess {
    pub(crate) lease: BatchLease,
    /// Place in the batch of the test that is next in order.
    pub(crate) next: usize,
    pub(crate) phase: ProcessPhase,
    /// How the process ends after the result that is being settled, if it does.
    pub(crate) end: Option<LeaseOutcome>,
    /// It has reported that its tests have ended, and waits for others.
    pub(crate) is_waiting: bool,
    /// It was told that there are none.
    pub(crate) is_ending: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ProcessPhase {
    Idle,
    /// The test at this place of the batch runs.
    Running(usize),
    /// Its result is journalled, sent and reported in this order; `step` is next.
    Settling {
        place: usize,
        outcome: Outcome,
        step: usize,
    },
    /// Its provisional result is reported when the client has handled everything before it.
    AwaitingHandling {
        place: usize,
        by: ProvisionalReason,
    },
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
    RelayedBarrier,
    Settled { test: TestId, outcome: Outcome, position: u64 },
    Provisional { lease: LeaseId, test: TestId, by: ProvisionalReason },
    LeaseIdle { lease: LeaseId },
    LeaseEnded { lease: LeaseId, end: LeaseOutcome },
    Drained { proven: u64 },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum SimWatchdogMessage {
    Journal(WorkerId),
    Relayed(SimFrame),
    Completing,
    Finished,
}

impl ModelWorld {
    /// Returns the state of everything when a run begins.
    pub(crate) fn new(scenario: &ModelScenario) -> Self {
        let mut world = Self {
            coordinator: None,
            watchdog: (!scenario.is_abstract()).then(|| SimWatchdog::new(scenario)),
            workers: BTreeMap::new(),
            journals: BTreeMap::new(),
            from_workers: BTreeMap::new(),
            from_watchdog: VecDeque::new(),
            client: SimClient::new(scenario),
            faults: scenario.faults,
        };
        for worker in (0..scenario.workers).map(WorkerId) {
            world.add_worker(scenario, worker);
        }
        let mut run = RunState::new(scenario.first_plan());
        let actions = run.begin();
        let mut observer = RunObserver::new(&scenario.first_plan());
        observer.learn(&scenario.plan, &run);
        observer.is_blameless = scenario.faults.has_guards_only();
        world.coordinator = Some(SimCoordinator {
            run: Arc::new(run),
            observer: Arc::new(observer),
            run_hash: 0,
            relayed: BTreeMap::new(),
            journal_requests: BTreeMap::new(),
            asked: BTreeSet::new(),
            proven_finishers: BTreeSet::new(),
            finish_frames: 0,
            has_relayed: false,
            is_completion_handled: false,
            held: LastRelayedFrame::default(),
            has_ordered_finish: false,
            watchdogs: scenario.watchdogs,
            next_worker: scenario.workers,
            lent: BTreeSet::new(),
        });
        world.execute(scenario, actions);
        world.grant_idle_workers(scenario);
        world
    }

    pub(crate) fn add_worker(&mut self, scenario: &ModelScenario, worker: WorkerId) {
        let route = if scenario.has_callback() { SimRoute::NotDialled } else { SimRoute::Relay };
        let limits = WindowLimits { changes: scenario.queues.window, bytes: usize::MAX, open: 2 };
        let window = scenario.has_queues().then(|| AckWindow::new(limits));
        self.workers.insert(worker, SimWorker { route, window, ..SimWorker::default() });
        self.from_workers.insert(worker, VecDeque::new());
    }

    /// Messages to a dead coordinator are lost.
    pub(crate) fn kill_coordinator(&mut self) {
        self.coordinator = None;
        self.from_workers.clear();
        self.from_watchdog.clear();
    }

    /// Kills the coordinator. Of a client without answers nobody can ask then what it has of its main
    /// connection: it is sent again.
    pub(crate) fn kill_coordinator_of(&mut self, scenario: &ModelScenario) {
        self.kill_coordinator();
        if !scenario.queues.has_answers {
            self.client.reset_stream(StreamOwner::Main);
        }
    }

    pub(crate) fn kill_watchdog(&mut self) {
        self.watchdog = None;
        self.workers.clear();
    }
}

impl SimWatchdog {
    pub(crate) fn new(scenario: &ModelScenario) -> Self {
        let has_callback = scenario.has_callback();
        Self {
            has_open_run: true,
            journal_requests: BTreeSet::new(),
            finish: None,
            delivery: None,
            line: if has_callback { FinisherConnection::Closed } else { FinisherConnection::Relayed },
            is_reset: false,
            is_never_opened: scenario.has_queues() && !scenario.queues.has_answers,
            unproven: BTreeSet::new(),
            is_alone: false,
            generation: scenario.watchdogs,
            barriers: 0,
            answered: 0,
            asked: BTreeSet::new(),
        }
    }
}

impl Hash for SimCoordinator {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { run: _, observer: _, run_hash, relayed, journal_requests, held, .. } = self;
        let Self { has_ordered_finish, watchdogs, next_worker, lent, asked, finish_frames, .. } = self;
        (run_hash, relayed, journal_requests, held, has_ordered_finish, watchdogs, next_worker).hash(state);
        (lent, asked, finish_frames, &self.proven_finishers).hash(state);
        (self.is_completion_handled, self.has_relayed).hash(state);
    }
}

impl From<BatchLease> for SimProcess {
    fn from(lease: BatchLease) -> Self {
        Self { lease, next: 0, phase: ProcessPhase::Idle, end: None, is_waiting: false, is_ending: false }
    }
}
