//! The input of a search: a plan, the kind of client and of processes, possible faults, a planted mistake.

use std::time::Duration;

use heeler_core::{
    ProgramId, ResourceId, RetryPolicy, TestId,
    batching::ProgramCosts,
    run::{Prerequisite, ScheduledTest, SchedulingPlan},
};

use crate::world::SHORT;

/// A budget that never runs out.
pub(crate) const UNLIMITED: u8 = u8::MAX;

/// The input of a search.
#[derive(Debug, Clone)]
pub(crate) struct ModelScenario {
    pub(crate) plan: SchedulingPlan,
    /// Number of tests at the end of the plan that are added one by one while the run is open.
    pub(crate) added: usize,
    /// Number of workers at the start of the run.
    pub(crate) workers: u32,
    pub(crate) client: ClientModel,
    /// Used if the client has its own queues.
    pub(crate) queues: QueueModel,
    pub(crate) processes: ProcessModel,
    pub(crate) faults: ModelFaults,
    /// A process of the first program waits at each worker granted for the first time.
    pub(crate) has_waiting_processes: bool,
    /// Duration of every test.
    pub(crate) test_duration: Duration,
    /// A worker's process blocks while this many of its messages are in flight.
    pub(crate) outbox: usize,
    /// Number of watchdogs that can be started, one after the other.
    pub(crate) watchdogs: u8,
    pub(crate) mistake: PlantedMistake,
}

/// How much of the path to the client is modelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientModel {
    /// No client: any part of a stream may be proven, and the finish is one step.
    Abstract,
    /// Watchdog and main connection.
    MainConnection,
    /// Watchdog, main connection and callback connections.
    Callback,
    /// Like `Callback`, but the client has its own queue for each connection: handling counts instead of
    /// sending.
    Queues,
}

/// A client with its own queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueModel {
    /// The client accepts callback connections; otherwise everything uses the main connection.
    pub(crate) has_callback: bool,
    /// The client answers barriers. A client without answers receives everything over the main connection.
    pub(crate) has_answers: bool,
    /// The client reads every message immediately; otherwise some time later.
    pub(crate) is_read_at_once: bool,
    /// The client may refuse the watchdog's connection and reset any connection.
    pub(crate) may_break: bool,
    /// The client may refuse a worker's connection or open it too late. The worker then sends its updates on
    /// the main connection.
    pub(crate) may_refuse: bool,
    /// Number of changes in a window.
    pub(crate) window: usize,
}

impl Default for QueueModel {
    fn default() -> Self {
        Self {
            has_callback: true,
            has_answers: true,
            is_read_at_once: true,
            may_break: false,
            may_refuse: false,
            window: 2,
        }
    }
}

/// Possible behaviour of test processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessModel {
    /// Test processes run their tests in order; the only failure is death during a test.
    InOrder,
    /// Test processes may also omit tests, time out, exit at any point, and end when cancelled.
    Arbitrary,
}

/// Remaining budgets of faults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct ModelFaults {
    /// Deaths of any process, failed worker starts, and connections that the client refuses, resets or leaves
    /// unanswered.
    pub(crate) deaths: u8,
    /// Failing tests.
    pub(crate) failures: u8,
    /// Cancellations by the user.
    pub(crate) cancels: u8,
    /// Idle workers lent to another run, and changes of the run's share.
    pub(crate) loans: u8,
    /// Guards lost together with their processes.
    pub(crate) guards: u8,
}

/// A deliberate mistake that the rules must find.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) enum PlantedMistake {
    #[default]
    None,
    /// The run is finished as soon as no test waits for a lease.
    FinishOnEmptyQueue,
    /// The run is finished without waiting for the streams.
    FinishBeforeDrain,
    /// Results that streams may have lost are not sent again.
    NoResend,
    /// The run does not know its tear-downs, and gives them up like other tests.
    TearDownForgotten,
    /// The watchdog resends the due results after the completion.
    ResendAfterCompletion,
    /// The watchdog does not announce its completion.
    UnannouncedCompletion,
    /// The coordinator completes a run whose watchdog is late but alive.
    CompletionByBoth,
    /// A worker sends a result before it is in the journal.
    JournalAfterSend,
    /// The coordinator forwards a completion before the watchdog reports that it has finished.
    CompletionNotHeld,
    /// The coordinator responds as soon as it orders the finish.
    ResponseWithFinish,
    /// The coordinator does not request a dead worker's journal, and waits forever for its lease.
    JournalNotRequested,
    /// The coordinator gives up a dead worker without reading its journal.
    JournalNotRead,
    /// A released worker stays with the run.
    WorkerKept,
    /// The client's close, sent once it has read everything, counts as proof.
    CloseAsProof,
    /// The client answers barriers when reading them, which wrongly counts as proof of handling.
    BarrierAnsweredWhenRead,
    /// Updates are sent on a connection that the client has not opened yet. A client that opens late is
    /// mistaken for a client that never answers.
    OpeningNotAwaited,
    /// A provisional result is reported before all updates of its test are handled.
    RerunNotAwaited,
    /// A dead worker's tests are leased again before its stream is handled.
    LossNotAwaited,
    /// A worker considers its stream proven at the answer to the barrier of its last full window.
    CompletionBeforeProof,
    /// The coordinator responds when the completion is sent but not proven.
    ResponseBeforeProof,
    /// The holder of a dead worker's connection writes after a cut frame.
    WrittenBehindCut,
    /// All of a dead worker's results are sent again.
    ResentFromZero,
    /// The holder of a dead worker's connection writes its barrier without publishing it first.
    BarrierNotPublished,
    /// The completion uses a different connection than results forwarded to the main one.
    RelayOvertaken,
    /// A worker whose updates are forwarded does not wait for a barrier before its test may run elsewhere.
    RelayNotAwaited,
    /// A process that ends with its guard counts as having died in its test.
    GuardLossBlamed,
    /// The successor of a watchdog sends another completion although the first was handled.
    CompletionForgotten,
    /// Frames sent by a dead watchdog are neither proven nor counted.
    FinisherStreamAbandoned,
    /// A watchdog without a coordinator assumes that the client lacks no synthesized result.
    NothingDueAlone,
    /// The coordinator does not end idle processes.
    IdleProcessForgotten,
    /// Every lease gets the first units of its resources.
    UnitsNotHeld,
}

impl ModelFaults {
    pub(crate) fn has_guards_only(&self) -> bool {
        let Self { deaths, failures, cancels, loans: _, guards } = *self;
        guards > 0 && [deaths, failures, cancels] == [0; 3]
    }
}

impl ModelScenario {
    /// Returns the plan without the tests that are added later.
    pub(crate) fn first_plan(&self) -> SchedulingPlan {
        let mut plan = self.plan.clone();
        plan.tests.truncate(plan.tests.len() - self.added);
        if self.mistake == PlantedMistake::TearDownForgotten {
            plan.tests.iter_mut().for_each(|test| test.tears_down.clear());
        }
        plan
    }

    /// Returns whether processes of this program accept further tests.
    pub(crate) fn takes_more_tests(&self, program: ProgramId) -> bool {
        self.plan.programs[program.index()].process.takes_more_tests
    }

    /// Returns an upper bound for the length of a path.
    pub(crate) fn longest_path(&self) -> usize {
        400 + 80 * self.plan.tests.len() + 20 * usize::from(self.faults.deaths)
    }

    pub(crate) fn is_abstract(&self) -> bool {
        self.client == ClientModel::Abstract
    }

    pub(crate) fn has_queues(&self) -> bool {
        self.client == ClientModel::Queues
    }

    pub(crate) fn has_callback(&self) -> bool {
        self.client == ClientModel::Callback || (self.has_queues() && self.queues.has_callback)
    }

    /// Returns whether the client may refuse and reset connections.
    pub(crate) fn may_break(&self) -> bool {
        !self.has_queues() || self.queues.may_break
    }
}

/// Returns a plan with one test for each given program.
pub(crate) fn plan(programs: &[u32], change: impl Fn(usize, &mut ScheduledTest)) -> SchedulingPlan {
    let scheduled = |(place, program): (usize, &u32)| {
        let mut test =
            ScheduledTest { retries: RetryPolicy::default(), ..ScheduledTest::new(ProgramId(*program)) };
        change(place, &mut test);
        test
    };
    SchedulingPlan {
        capacities: Vec::new(),
        programs: vec![ProgramCosts::default(); programs.iter().max().map_or(0, |most| *most as usize + 1)],
        tests: programs.iter().enumerate().map(scheduled).collect(),
        batch_limit: None,
        is_open: false,
        slots: 2,
        failure_limit: None,
        max_startup_crashes: 3,
        retry_seed: 0,
    }
}

/// Returns a run without client and watchdog, with processes that may do anything.
pub(crate) fn abstract_scenario(plan: SchedulingPlan, workers: u32, faults: ModelFaults) -> ModelScenario {
    ModelScenario {
        plan,
        added: 0,
        workers,
        client: ClientModel::Abstract,
        queues: QueueModel::default(),
        processes: ProcessModel::Arbitrary,
        faults,
        has_waiting_processes: false,
        test_duration: SHORT,
        outbox: 1,
        watchdogs: 0,
        mistake: PlantedMistake::None,
    }
}

/// Returns a run with all processes and connections, and three tests of two programs.
pub(crate) fn callback_scenario(deaths: u8) -> ModelScenario {
    ModelScenario {
        plan: plan(&[0, 0, 1], |_, _| {}),
        added: 0,
        workers: 2,
        client: ClientModel::Callback,
        queues: QueueModel::default(),
        processes: ProcessModel::InOrder,
        faults: ModelFaults { deaths, ..ModelFaults::default() },
        has_waiting_processes: false,
        test_duration: SHORT,
        outbox: usize::MAX,
        watchdogs: 4,
        mistake: PlantedMistake::None,
    }
}

/// Returns a run with all processes, and a client with its own queues.
pub(crate) fn queues_scenario(plan: SchedulingPlan, workers: u32, faults: ModelFaults) -> ModelScenario {
    ModelScenario { plan, workers, client: ClientModel::Queues, faults, ..callback_scenario(0) }
}

/// Returns a plan with a set-up, a test that uses the fixture, its tear-down, and an unrelated test.
pub(crate) fn fixture_plan() -> SchedulingPlan {
    let after = |test, must_succeed| Prerequisite { test: TestId(test), must_succeed };
    plan(&[0, 1, 0, 1], |place, test| match place {
        1 => test.prerequisites = vec![after(0, true)],
        2 => {
            test.prerequisites = vec![after(0, false), after(1, false)];
            test.tears_down = vec![TestId(0)];
        }
        _ => {}
    })
}

/// Returns a plan with tests that need one of two units, and a test that needs both.
pub(crate) fn units_plan() -> SchedulingPlan {
    let mut plan = plan(&[0, 0, 0, 1], |_, _| {});
    plan.capacities = vec![vec![1, 1]];
    plan.programs[0].needs.resources.insert(ResourceId(0), vec![1]);
    plan.programs[1].needs.resources.insert(ResourceId(0), vec![1, 1]);
    plan
}
