//! The processes and everything between them: coordinator, watchdog, workers, control connections, journals,
//! the client's connections. The program's own functions decide; the sibling modules carry out the decisions.

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
/// A start that takes this long delays further starts.
pub(crate) const EXPENSIVE: Duration = Duration::from_millis(500);

/// The complete state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ModelWorld {
    /// `None` if dead.
    pub(crate) coordinator: Option<SimCoordinator>,
    /// `None` if dead or not modelled.
    pub(crate) watchdog: Option<SimWatchdog>,
    /// Workers that are alive.
    pub(crate) workers: BTreeMap<WorkerId, SimWorker>,
    pub(crate) journals: BTreeMap<WorkerId, SimJournal>,
    /// Messages that the coordinator has not read, from workers alive or dead.
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
    /// Hash of `run` and `observer`.
    pub(crate) run_hash: u64,
    /// Number of results forwarded to the main connection, by worker.
    pub(crate) relayed: BTreeMap<WorkerId, u64>,
    /// Dead workers whose journals are being read, with the number of their forwarded results.
    pub(crate) journal_requests: BTreeMap<WorkerId, u64>,
    /// Streams of dead processes whose last barrier is unanswered.
    pub(crate) asked: BTreeSet<StreamOwner>,
    /// Streams of dead watchdogs that were, or could not be, asked for proof.
    pub(crate) proven_finishers: BTreeSet<StreamOwner>,
    /// Number of dead watchdogs' finish frames that the client handled or the coordinator forwarded.
    pub(crate) finish_frames: usize,
    /// Some workers' updates were forwarded to the main connection.
    pub(crate) has_relayed: bool,
    /// A dead watchdog sent the completion, and the client handled it.
    pub(crate) is_completion_handled: bool,
    pub(crate) held: LastRelayedFrame<SimFrame>,
    pub(crate) has_ordered_finish: bool,
    /// Number of watchdogs that can still be started, including the current one.
    pub(crate) watchdogs: u8,
    pub(crate) next_worker: u32,
    /// Workers granted to another run by the pool.
    pub(crate) lent: BTreeSet<WorkerId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SimWatchdog {
    /// The watchdog knows the run, and must finish it if the coordinator dies.
    pub(crate) has_open_run: bool,
    /// Journals that the watchdog must read.
    pub(crate) journal_requests: BTreeSet<WorkerId>,
    pub(crate) finish: Option<SimFinish>,
    pub(crate) delivery: Option<Delivery>,
    pub(crate) line: FinisherConnection,
    /// The client has reset the connection; the watchdog notices at the next use.
    pub(crate) is_reset: bool,
    /// The client never opens the connection.
    pub(crate) is_never_opened: bool,
    /// Sent on the watchdog's connection and not proven to be read.
    pub(crate) unproven: BTreeSet<TestId>,
    /// The watchdog has seen the coordinator's death.
    pub(crate) is_alone: bool,
    /// Number of watchdogs that could still be started when this one started.
    pub(crate) generation: u8,
    /// Barriers on the watchdog's own connection: number sent, and number of the last one answered.
    pub(crate) barriers: u64,
    pub(crate) answered: u64,
    /// Streams of dead workers whose last barrier is unanswered.
    pub(crate) asked: BTreeSet<StreamOwner>,
}

/// The messages that a finisher must send.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct SimFinish {
    pub(crate) resend: Vec<(WorkerId, u64)>,
    pub(crate) synthesized: Vec<TestId>,
    /// Everything but the completion is proven.
    pub(crate) is_completion_only: bool,
    /// Number of frames that other finishers sent and the client handled.
    pub(crate) handled_frames: usize,
    /// Number of frames sent by this finisher and the earlier ones.
    pub(crate) sent_frames: usize,
}

/// The record of a test's result, which identifies the result.
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
    /// Results in the order of their records.
    pub(crate) results: Vec<(TestId, Outcome)>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct SimWorker {
    pub(crate) process: Option<SimProcess>,
    /// Number of results written to the worker's stream.
    pub(crate) position: u64,
    pub(crate) route: SimRoute,
    /// Sent on the worker's own connection and not proven to be read.
    pub(crate) unproven: BTreeSet<TestId>,
    pub(crate) cancel_mode: Option<CancelMode>,
    pub(crate) is_to_drain: bool,
    /// Window of the worker's own connection, for a client with its own queues.
    pub(crate) window: Option<AckWindow>,
    /// The last barrier is sent.
    pub(crate) is_draining: bool,
    /// The coordinator forwards the worker's updates, and a barrier after them is unanswered.
    pub(crate) is_relay_asked: bool,
}

/// A process that runs a batch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SimProcess {
    pub(crate) lease: BatchLease,
    /// Index in the batch of the next test in order.
    pub(crate) next: usize,
    pub(crate) phase: ProcessPhase,
    /// How the process ends after the result being settled, if it ends.
    pub(crate) end: Option<LeaseOutcome>,
    /// The process has reported that its tests have ended, and waits for others.
    pub(crate) is_waiting: bool,
    /// The process was ended: no tests follow.
    pub(crate) is_ending: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ProcessPhase {
    Idle,
    /// The test at this index of the batch runs.
    Running(usize),
    /// The test's result is written to the journal, sent and reported in this order; `step` is the next one.
    Settling {
        place: usize,
        outcome: Outcome,
        step: usize,
    },
    /// The test's provisional result is reported once the client has handled everything before it.
    AwaitingHandling {
        place: usize,
        by: ProvisionalReason,
    },
}

/// A worker's route to the client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) enum SimRoute {
    #[default]
    Relay,
    NotDialled,
    Open,
    /// The client has reset the connection; the worker has not noticed yet.
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
    /// Returns the initial state of a scenario.
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

    /// Kills the coordinator; messages to it are lost.
    pub(crate) fn kill_coordinator(&mut self) {
        self.coordinator = None;
        self.from_workers.clear();
        self.from_watchdog.clear();
    }

    /// Kills the coordinator. For a client without answers, no process can then ask what arrived on the main
    /// connection, so everything is sent again.
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
