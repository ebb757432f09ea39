//! The inputs and outputs of a run: its plan, its events and its actions. No decisions.

use std::time::Duration;

use crate::{
    LeaseId, LeaseOutcome, Outcome, ProgramId, ProvisionalReason, RetryPolicy, SetUpProgress, Slots,
    SynthesizedResult, TestId, WorkerId,
    batching::{HeldPortion, LeaseNeeds, ProgramCosts, QueuedTest, TestBatch},
    ledger::Ledger,
};

/// The tests and limits of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct SchedulingPlan {
    pub programs: Vec<ProgramCosts>,
    /// For each resource that tests need, the amounts of its units. A resource whose units are not told apart
    /// is a single unit.
    pub capacities: Vec<Vec<u32>>,
    /// Selected tests. Tests of one program are in the framework's order, or shuffled.
    pub tests: Vec<ScheduledTest>,
    /// Maximum number of concurrent workers.
    pub slots: usize,
    /// Whether tests may be added during the run: until [`RunEvent::NoMoreTests`], or until the first
    /// synthesized result, which is sent at the end of the run.
    pub is_open: bool,
    /// Target duration beyond which a batch gets no more tests, because other runs need a slot soon; `None`
    /// if no other run can begin.
    pub batch_limit: Option<Duration>,
    /// The run stops at this many failures.
    pub failure_limit: Option<FailureLimit>,
    /// Give up a program after this many consecutive processes with a batch of one test that end without
    /// reporting any test.
    pub max_startup_crashes: u32,
    /// Seed of the jitter of retry delays.
    pub retry_seed: u64,
}

impl SchedulingPlan {
    /// Returns whether tests may have to wait for more than a free slot.
    #[must_use]
    pub fn may_wait(&self) -> bool {
        let is_limited =
            |costs: &ProgramCosts| costs.needs != LeaseNeeds::default() || costs.max_processes.is_some();
        self.programs.iter().any(is_limited) || self.tests.iter().any(|test| !test.prerequisites.is_empty())
    }
}

/// How many failures stop a run, and how it stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FailureLimit {
    pub failures: usize,
    /// Effect on running tests. Tests that have not started are not run.
    pub cancel_mode: CancelMode,
}

/// Effect of cancelling a lease on its running tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CancelMode {
    /// Running tests finish first.
    AfterRunningTests,
    /// Running tests are cancelled.
    Now,
}

/// A test that must have its result before another test starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Prerequisite {
    pub test: TestId,
    /// Whether the other test is not run if this one fails.
    pub must_succeed: bool,
}

/// One selected test.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ScheduledTest {
    pub program: ProgramId,
    /// Duration in earlier runs.
    pub weight: Option<Duration>,
    /// Whether the test runs alone in its process, because it was requested or the test crashed in earlier
    /// runs.
    pub is_isolated: bool,
    /// How often and when a failed test is retried.
    pub retries: RetryPolicy,
    /// Tests of a program with the same bond run in one process, and are adjacent in the plan.
    pub bond: Option<u32>,
    /// Bytes of the test's name on the command line.
    pub selection_bytes: usize,
    /// Whether the test cannot be run at all.
    pub is_unrunnable: bool,
    /// Tests that must have their results before this one starts.
    pub prerequisites: Vec<Prerequisite>,
    /// The set-ups whose effects this test removes; empty for other tests. Once one of them has begun, this
    /// test runs even if the run stops. If none has begun, this test is not run.
    pub tears_down: Vec<TestId>,
}

impl ScheduledTest {
    /// Returns a test of unknown duration that shares processes, is not retried, and waits for nothing.
    #[must_use]
    pub fn new(program: ProgramId) -> Self {
        Self {
            program,
            weight: None,
            is_isolated: false,
            retries: RetryPolicy::immediate(0),
            bond: None,
            selection_bytes: 0,
            is_unrunnable: false,
            prerequisites: Vec::new(),
            tears_down: Vec::new(),
        }
    }

    /// Returns the test as an entry of its program's queue.
    pub(super) fn queued(&self, test: TestId) -> (ProgramId, QueuedTest) {
        let Self { weight, is_isolated, bond, selection_bytes, .. } = *self;
        (self.program, QueuedTest { test, weight, is_isolated, bond, selection_bytes })
    }
}

/// An input of the run.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RunEvent {
    /// The pool grants an idle worker to the run, usually in response to a request. The run responds with
    /// [`RunAction::Lease`] or [`RunAction::ReleaseWorker`]. A worker that has a lease, or whose stream is
    /// closed, must not be granted; such an event is ignored.
    WorkerGranted(WorkerId),
    /// A process of this program waits for tests at a worker without a lease. The worker is granted next, and
    /// its next lease of the program needs no start.
    ProcessWaiting { worker: WorkerId, program: ProgramId },
    /// A requested worker could not be started.
    WorkerNotStarted,
    /// Maximum number of slots for the run's leases from now on; existing leases continue. May be 0 for a
    /// while.
    SlotShare(Slots),
    /// Maximum number of slots at this moment, within the share: processes outside this coordinator have the
    /// rest of the machine. A lease that needs more slots waits for them.
    AvailableSlots(Slots),
    /// Duration beyond which a batch gets no more tests, from now on.
    BatchLimit(Option<Duration>),
    /// Slots that no run can use at the moment. Tests may be taken back for them.
    SpareSlots(Slots),
    /// A test has started.
    Started { lease: LeaseId, test: TestId },
    /// A test has ended. Its result is held back until further output or the exit of the process confirms it.
    Held { lease: LeaseId, test: TestId },
    /// The worker has put the result of a test on its stream.
    Settled {
        worker: WorkerId,
        test: TestId,
        outcome: Outcome,
        /// Duration of the test.
        duration: Duration,
        /// Position of the result on the stream, from 1.
        position: u64,
    },
    /// A test has a provisional result, which may still be replaced.
    Provisional { lease: LeaseId, test: TestId, by: ProvisionalReason },
    /// The delay of a retry, started by [`RunAction::DelayRetry`], is over.
    RetryDue(TestId),
    /// The delay started by [`RunAction::DelayStarts`] is over: the program may start more processes.
    StartsDue(ProgramId),
    /// A test has passed an iteration, and will run again before it has a result.
    IterationPassed {
        lease: LeaseId,
        test: TestId,
        /// Duration of the iteration.
        duration: Duration,
    },
    /// The process of a lease sets up a fixture that it keeps until the process ends.
    SetUp { worker: WorkerId, lease: LeaseId, fixture: String, progress: SetUpProgress },
    /// A set-up has reached its time limit, started by [`RunAction::LimitSetUp`].
    SetUpDue { lease: LeaseId },
    /// All tests of a lease have ended, and its process can be given more. [`RunAction::ExtendLease`] or
    /// [`RunAction::EndLease`] follows immediately, or later if tests may still be added to the run.
    LeaseIdle { worker: WorkerId, lease: LeaseId },
    /// Tests are added to an open run, numbered after the existing ones. If the run has stopped or is not
    /// open, they are ignored and do not belong to this run.
    TestsAdded(Vec<ScheduledTest>),
    /// No more tests will be added to an open run.
    NoMoreTests,
    /// The process of a lease has exited. The run leases another batch to the worker, or releases the worker.
    LeaseEnded {
        worker: WorkerId,
        lease: LeaseId,
        end: LeaseOutcome,
        /// Time from the start of the process to its first test.
        start: Option<Duration>,
    },
    /// A worker dies because the watchdog has died, so its tests are not blamed. [`Self::WorkerLost`]
    /// follows.
    WatchdogDied { worker: WorkerId },
    /// A worker with an open stream has died, and its journal has been read. For a requested worker that
    /// never started, there is only [`RunEvent::WorkerNotStarted`].
    WorkerLost {
        worker: WorkerId,
        /// The client is proven to have the worker's results up to this position.
        proven: u64,
        /// All results of the journal, in order; the first has position 1.
        settled: Vec<(TestId, Outcome, Duration)>,
    },
    /// A worker has proven its stream as far as it could.
    Drained {
        worker: WorkerId,
        /// The proven position.
        proven: u64,
    },
    /// The finisher has proven everything except the completion, and is about to send the completion.
    Completing,
    /// The finisher has sent the completion.
    Finished,
    /// The finisher has timed out.
    FinisherLate,
    /// The user cancels the run.
    Cancel,
    /// The run has reached its time limit.
    TimeLimitReached,
}

/// Remains of a lost worker's stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LostStream {
    /// The client is proven to have the worker's results up to this position.
    pub proven: u64,
    /// All results of the journal, in order; the first has position 1.
    pub settled: Vec<(TestId, Outcome, Duration)>,
}

/// An output of the run, executed by the driver.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RunAction {
    /// Request a worker; [`RunEvent::WorkerGranted`] or [`RunEvent::WorkerNotStarted`] follows.
    StartWorker,
    /// Lease a batch to a worker.
    Lease(Box<BatchLease>),
    /// Give the process of an idle lease the tests of this batch, in addition to its earlier ones.
    ExtendLease(Box<BatchLease>),
    /// End the process of an idle lease; [`RunEvent::LeaseEnded`] follows.
    EndLease { worker: WorkerId, lease: LeaseId },
    /// Return a worker to the pool, because the run has no work for it now. The worker may be granted again.
    /// Until then its stream stays open, and must be proven.
    ReleaseWorker(WorkerId),
    /// Delay the retry of a failed test, without holding a slot; [`RunEvent::RetryDue`] follows after the
    /// delay.
    DelayRetry { test: TestId, delay: Duration },
    /// Delay further processes of the program while a running process runs its tests. [`RunEvent::StartsDue`]
    /// follows after the delay, which replaces an earlier delay of the program.
    DelayStarts { program: ProgramId, delay: Duration },
    /// Limit the current set-up of a lease. [`RunEvent::SetUpDue`] follows after the startup limit of the
    /// program, which replaces an earlier limit of the lease.
    LimitSetUp { lease: LeaseId, program: ProgramId },
    /// End the process of a lease immediately, and put its tests without results back into the queue.
    /// [`RunEvent::LeaseEnded`] follows. The process was blocked in the set-up of a fixture that another
    /// process of the program uses.
    ReturnTests { worker: WorkerId, program: ProgramId, fixture: String },
    /// Cancel a worker's lease; [`RunEvent::LeaseEnded`] follows. A lease that waits for its running tests
    /// may be cancelled again with [`CancelMode::Now`].
    CancelLease { worker: WorkerId, mode: CancelMode },
    /// Order a worker to drain its stream; [`RunEvent::Drained`] or [`RunEvent::WorkerLost`] follows.
    Drain(WorkerId),
    /// Let the finisher send the pending results, then the completion; [`RunEvent::Finished`] follows.
    Finish(DueResults),
    /// Kill the finisher, because its remaining messages must not arrive after the completion. When it is
    /// dead and all its messages have been read, [`RunState::finisher_task`](super::RunState::finisher_task)
    /// returns the next step.
    KillFinisher,
    /// Respond to the request, because the run is complete.
    Complete,
}

/// Results that the client may lack after all streams are closed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct DueResults {
    /// Streams that may have lost results, with their proven positions.
    pub resend: Vec<(WorkerId, u64)>,
    /// Synthesized results, which no worker sends.
    pub synthesized: Vec<(TestId, SynthesizedResult)>,
}

impl DueResults {
    /// Returns the results that the client may lack, after all streams are closed.
    pub(super) fn of(ledger: &Ledger) -> Self {
        Self { resend: ledger.unproven_streams(), synthesized: ledger.synthesized_results() }
    }
}

/// Task of a finisher that replaces a dead one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum FinisherTask {
    /// Register the run, which continues.
    Register,
    /// Send the pending results, then the completion.
    Finish(DueResults),
    /// Send only the completion. The client is proven to have everything before it, and may even have the
    /// completion.
    Complete,
    /// No task: the coordinator completes the run itself.
    CoordinatorCompletes,
    /// No task: the run is complete.
    None,
}

/// A batch assigned to a worker.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BatchLease {
    pub lease: LeaseId,
    /// Worker that holds the lease.
    pub worker: WorkerId,
    pub batch: TestBatch,
    /// For each test of the batch: whether a failure is reported as provisional.
    pub is_failure_provisional: Vec<bool>,
    /// For each test of the batch: the number of iterations passed in earlier leases.
    pub passed_iterations: Vec<u32>,
    /// Startup timeouts of the program's processes so far. Each one doubles the startup limit of this
    /// process.
    pub start_timeouts: u32,
    /// Number of the lease's process from 1 to the number of slots. No other lease has the number until this
    /// one ends.
    pub slot: usize,
    /// Resources that the lease holds until it ends: for each resource one entry for each portion that the
    /// program needs, in the same order.
    pub portions: Vec<HeldPortion>,
}

/// Stage of a run, named after what the run waits for. Timeout messages name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RunStage {
    /// Tests wait or run.
    Running,
    /// Workers drain their streams.
    Draining,
    /// The finisher sends the pending results and the completion.
    Finishing,
    /// The run is complete.
    Completed,
}
