//! What a search tries: a plan, the kind of client and of processes, what may go wrong, a planted mistake.

use std::time::Duration;

use heeler_core::{
    ProgramId, RetryPolicy,
    batching::ProgramCosts,
    run::{ScheduledTest, SchedulingPlan},
};

use crate::world::SHORT;

/// A budget that is never used up.
pub(crate) const UNLIMITED: u8 = u8::MAX;

/// What a search tries.
#[derive(Debug, Clone)]
pub(crate) struct ModelScenario {
    pub(crate) plan: SchedulingPlan,
    /// Number of the plan's last tests that are added while the run is open, one by one.
    pub(crate) added: usize,
    /// Number of workers that the run begins with.
    pub(crate) workers: u32,
    pub(crate) client: ClientModel,
    /// Of a client with queues of its own.
    pub(crate) queues: QueueModel,
    pub(crate) processes: ProcessModel,
    pub(crate) faults: ModelFaults,
    /// At each worker a process of the first program waits when it is granted for the first time.
    pub(crate) has_waiting_processes: bool,
    /// What every test takes.
    pub(crate) test_duration: Duration,
    /// Number of messages of a worker under way at which its process waits.
    pub(crate) outbox: usize,
    /// Number of watchdogs that can be started, one after the other.
    pub(crate) watchdogs: u8,
    pub(crate) mistake: PlantedMistake,
}

/// How much of the way to the client is modelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientModel {
    /// Nothing of it: any part of a stream may be proven, and the finish is one step.
    Abstract,
    /// Watchdog and main connection.
    MainConnection,
    /// Watchdog, main connection and callback connections.
    Callback,
    /// The same, and the client's own queues behind each connection: what it handles counts, not what is
    /// sent.
    Queues,
}

/// A client with queues of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueModel {
    /// It takes callback connections; otherwise everything is on the main connection.
    pub(crate) has_callback: bool,
    /// Answers barriers. A client without answers receives everything over the main connection.
    pub(crate) has_answers: bool,
    /// It reads what is sent at once, or some time later.
    pub(crate) is_read_at_once: bool,
    /// It may refuse the watchdog's connection, and reset any.
    pub(crate) may_break: bool,
    /// The client may refuse a worker's connection, or not open it in time: then the worker sends its updates
    /// on the main connection.
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

/// What test processes may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessModel {
    /// They run their tests in order, and die in tests at most.
    InOrder,
    /// They may also leave tests out, run into a time limit, exit at any place, and end when cancelled.
    Arbitrary,
}

/// What may still go wrong.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct ModelFaults {
    /// Deaths of any process, worker starts that fail, and connections that the client refuses, resets or
    /// leaves unanswered.
    pub(crate) deaths: u8,
    /// Failing tests.
    pub(crate) failures: u8,
    /// Cancellations by the user.
    pub(crate) cancels: u8,
    /// Idle workers that another run receives, and changes of the run's share.
    pub(crate) loans: u8,
    /// Guards that are lost with their processes.
    pub(crate) guards: u8,
}

/// A deliberate mistake, which the rules must find.
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
    /// The watchdog sends the due results again, after the completion.
    ResendAfterCompletion,
    /// The watchdog does not announce its completion.
    UnannouncedCompletion,
    /// The coordinator completes a run whose watchdog is late and alive.
    CompletionByBoth,
    /// A worker sends a result before it is in the journal.
    JournalAfterSend,
    /// The coordinator forwards a completion before the watchdog reports that it has finished.
    CompletionNotHeld,
    /// The coordinator responds when it orders the finish.
    ResponseWithFinish,
    /// The coordinator does not request a dead worker's journal, and waits for its lease forever.
    JournalNotRequested,
    /// The coordinator gives a dead worker up without the results of its journal.
    JournalNotRead,
    /// A worker that the run releases stays with it.
    WorkerKept,
    /// The client's close, which it sends when it has read everything, is taken for proof.
    CloseAsProof,
    /// The client answers barriers as it reads them, and that is taken for proof that it has handled
    /// everything.
    BarrierAnsweredWhenRead,
    /// Updates are sent on a connection that the client has not opened yet: one that is late counts as one
    /// that answers nothing.
    OpeningNotAwaited,
    /// A provisional result is reported while updates of its test are not handled.
    RerunNotAwaited,
    /// A dead worker's tests are leased again while its stream is not handled.
    LossNotAwaited,
    /// A worker takes its stream for proven when the barrier of its last whole window is answered.
    CompletionBeforeProof,
    /// The coordinator responds when the completion is sent, and not proven.
    ResponseBeforeProof,
    /// The holder of a dead worker's connection writes behind a cut frame.
    WrittenBehindCut,
    /// A dead worker's results are sent again from the first.
    ResentFromZero,
    /// The holder of a dead worker's connection does not publish its barrier before it writes it.
    BarrierNotPublished,
    /// The completion goes over another connection than results that were forwarded to the main one.
    RelayOvertaken,
    /// A worker whose updates are forwarded waits for no barrier before its test may run elsewhere.
    RelayNotAwaited,
    /// A process that ends with its guard counts as one that died in its test.
    GuardLossBlamed,
    /// The successor of a watchdog whose completion is handled sends another one.
    CompletionForgotten,
    /// What a dead watchdog has sent is neither proven nor counted.
    FinisherStreamAbandoned,
    /// A watchdog without a coordinator assumes that the client lacks no synthesized result.
    NothingDueAlone,
    /// The coordinator does not tell idle processes to end.
    IdleProcessForgotten,
}

impl ModelFaults {
    pub(crate) fn has_guards_only(&self) -> bool {
        let Self { deaths, failures, cancels, loans: _, guards } = *self;
        guards > 0 && [deaths, failures, cancels] == [0; 3]
    }
}

impl ModelScenario {
    /// Returns the plan with the tests that the run begins with.
    pub(crate) fn first_plan(&self) -> SchedulingPlan {
        let mut plan = self.plan.clone();
        plan.tests.truncate(plan.tests.len() - self.added);
        plan
    }

    /// Returns whether processes of this program can be given further tests.
    pub(crate) fn takes_more_tests(&self, program: ProgramId) -> bool {
        self.plan.programs[program.index()].process.takes_more_tests
    }

    /// Returns the upper bound of the length of a path.
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

/// Returns a plan of tests, given by their programs.
pub(crate) fn plan(programs: &[u32], change: impl Fn(usize, &mut ScheduledTest)) -> SchedulingPlan {
    let scheduled = |(place, program): (usize, &u32)| {
        let mut test = ScheduledTest {
            program: ProgramId(*program),
            weight: None,
            is_isolated: false,
            retries: RetryPolicy::default(),
            selection_bytes: 0,
            is_unrunnable: false,
            prerequisites: Vec::new(),
        };
        change(place, &mut test);
        test
    };
    SchedulingPlan {
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

/// Returns a run whose client and watchdog are left out, with processes that may do anything.
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

/// Returns a run with all processes, and a client with queues of its own.
pub(crate) fn queues_scenario(plan: SchedulingPlan, workers: u32, faults: ModelFaults) -> ModelScenario {
    ModelScenario { plan, workers, client: ClientModel::Queues, faults, ..callback_scenario(0) }
}
