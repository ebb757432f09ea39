//! The inputs and outputs of a run: its plan, its events and its actions. No decisions.

use std::time::Duration;

use crate::{
    LeaseId, LeaseOutcome, Outcome, ProgramId, ProvisionalReason, RetryPolicy, SetUpProgress, Slots,
    SynthesizedResult, TestId, WorkerId,
    batching::{ProgramCosts, QueuedTest, TestBatch},
    ledger::Ledger,
};

/// The tests and limits of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct SchedulingPlan {
    pub programs: Vec<ProgramCosts>,
    /// The selected tests; those of one program in the framework's order (or the shuffled one).
    pub tests: Vec<ScheduledTest>,
    /// Maximum number of concurrent workers.
    pub slots: usize,
    /// Whether tests are added while it runs: until [`RunEvent::NoMoreTests`], or until the first synthesized
    /// result, which is sent at the end of the run.
    pub is_open: bool,
    /// Target duration of a batch beyond which it is not extended, so that other runs soon get a slot; `None`
    /// where no other run can begin.
    pub batch_limit: Option<Duration>,
    /// The limit of failures at which the run stops.
    pub failure_limit: Option<FailureLimit>,
    /// The number of consecutive processes with a batch of one that end without a report about any test after
    /// which a program is given up.
    pub max_startup_crashes: u32,
    /// Seed of the random parts of the delays of retries.
    pub retry_seed: u64,
}

/// The number of failures at which a run stops, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FailureLimit {
    pub failures: usize,
    /// What becomes of the tests that run then. Those that have not started are not run.
    pub cancel_mode: CancelMode,
}

/// What becomes of the running tests of a cancelled lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CancelMode {
    /// They finish first.
    AfterRunningTests,
    /// They are cancelled.
    Now,
}

/// A test that has its result before another one begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Prerequisite {
    pub test: TestId,
    /// Whether the other one is not run if this one fails.
    pub must_succeed: bool,
}

/// One selected test.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ScheduledTest {
    pub program: ProgramId,
    /// Its duration in earlier runs.
    pub weight: Option<Duration>,
    /// Whether it gets a process of its own: requested, or because it crashed in earlier runs.
    pub is_isolated: bool,
    /// How often it may be retried when it fails, and when.
    pub retries: RetryPolicy,
    /// Bytes that its name takes on the command line.
    pub selection_bytes: usize,
    /// Whether it cannot be run in any case.
    pub is_unrunnable: bool,
    /// The tests that have their results before it begins.
    pub prerequisites: Vec<Prerequisite>,
}

impl ScheduledTest {
    /// Returns the test as it waits in the queue of its program.
    pub(super) fn queued(&self, test: TestId) -> (ProgramId, QueuedTest) {
        let Self { weight, is_isolated, selection_bytes, .. } = *self;
        (self.program, QueuedTest { test, weight, is_isolated, selection_bytes })
    }
}

/// An input of the run.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RunEvent {
    /// The pool grants an idle worker to the run, in response to a request if there is one. The run responds
    /// with [`RunAction::Lease`] or [`RunAction::ReleaseWorker`]. A worker that has a lease, or whose stream
    /// is closed, is not granted; such an event changes nothing.
    WorkerGranted(WorkerId),
    /// A process of this program waits for tests at a worker: the next lease of the program that the worker
    /// gets needs no start. The worker has no lease, and is granted next.
    ProcessWaiting { worker: WorkerId, program: ProgramId },
    /// A requested worker could not be started.
    WorkerNotStarted,
    /// The number of slots that its leases may take from now on; existing leases continue. It may be 0
    /// for a while.
    SlotShare(Slots),
    /// The number of slots that no run can use as things are. Tests may be taken back for them.
    SpareSlots(Slots),
    /// A test has started.
    Started { lease: LeaseId, test: TestId },
    /// A test has ended, and its result is held until its process has proven it.
    Held { lease: LeaseId, test: TestId },
    /// A test has its result on the worker's stream.
    Settled {
        worker: WorkerId,
        test: TestId,
        outcome: Outcome,
        /// Its duration.
        duration: Duration,
        /// Its position on the stream, from 1.
        position: u64,
    },
    /// A test has a provisional result, which may still be replaced.
    Provisional { lease: LeaseId, test: TestId, by: ProvisionalReason },
    /// The delay of a retry is over: [`RunAction::DelayRetry`] has begun it.
    RetryDue(TestId),
    /// Further processes of a program may start: [`RunAction::DelayStarts`] has delayed them.
    StartsDue(ProgramId),
    /// A test has passed an iteration and has no result yet, because it is to run again.
    IterationPassed {
        lease: LeaseId,
        test: TestId,
        /// Duration of the iteration.
        duration: Duration,
    },
    /// The process of a lease sets a fixture up that it keeps until its end.
    SetUp { worker: WorkerId, lease: LeaseId, fixture: String, progress: SetUpProgress },
    /// The limit of a set-up is over: [`RunAction::LimitSetUp`] has begun it.
    SetUpDue { lease: LeaseId },
    /// All tests of a lease have ended, and its process can be given others: [`RunAction::ExtendLease`] or
    /// [`RunAction::EndLease`] follows, at once or, while tests may be added to the run, later.
    LeaseIdle { worker: WorkerId, lease: LeaseId },
    /// Tests are added to an open run; they are numbered after those before them. If the run has stopped or
    /// is not open, nothing changes: they are not tests of this run.
    TestsAdded(Vec<ScheduledTest>),
    /// No further tests are added to an open run.
    NoMoreTests,
    /// The process of a lease has exited. The run leases another batch to the worker or releases it.
    LeaseEnded {
        worker: WorkerId,
        lease: LeaseId,
        end: LeaseOutcome,
        /// Time that its process took before its first test.
        start: Option<Duration>,
    },
    /// A worker dies because the watchdog has died, which its tests are not blamed for; [`Self::WorkerLost`]
    /// follows.
    WatchdogDied { worker: WorkerId },
    /// A worker whose stream is open has died, and its journal has been read. A requested worker that never
    /// started is reported by [`RunEvent::WorkerNotStarted`] only.
    WorkerLost {
        worker: WorkerId,
        /// The position up to which its results were forwarded nevertheless.
        proven: u64,
        /// All results of its journal, in order: the first has position 1.
        settled: Vec<(TestId, Outcome, Duration)>,
    },
    /// A worker has proven its stream up to a position, as far as it could.
    Drained {
        worker: WorkerId,
        /// The proven position.
        proven: u64,
    },
    /// The finisher has proven everything before the completion, and sends the completion now.
    Completing,
    /// The finisher has sent the completion.
    Finished,
    /// The finisher has exceeded its time limit.
    FinisherLate,
    /// The user cancels the run.
    Cancel,
    /// The run has reached its time limit.
    TimeLimitReached,
}

/// What is left of the stream of a worker that is lost.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LostStream {
    /// The position up to which the client is proven to have its results.
    pub proven: u64,
    /// All results of its journal, in order: the first has position 1.
    pub settled: Vec<(TestId, Outcome, Duration)>,
}

/// An output of the run, to be carried out by the driver.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RunAction {
    /// Request a worker; [`RunEvent::WorkerGranted`] or [`RunEvent::WorkerNotStarted`] follows.
    StartWorker,
    /// Lease a batch to a worker.
    Lease(Box<BatchLease>),
    /// Give the process of an idle lease the tests of this batch, in addition to those before them.
    ExtendLease(Box<BatchLease>),
    /// Have the process of an idle lease end; [`RunEvent::LeaseEnded`] follows.
    EndLease { worker: WorkerId, lease: LeaseId },
    /// Return a worker to the pool: the run has no work for it now. It may be granted again; until then its
    /// stream stays open, and has to be proven.
    ReleaseWorker(WorkerId),
    /// Have a failed test wait for its retry, without a slot; [`RunEvent::RetryDue`] follows after the delay.
    DelayRetry { test: TestId, delay: Duration },
    /// Have [`RunEvent::StartsDue`] follow after the delay, which replaces an earlier one of the program:
    /// until then no further process of it starts, as long as one that runs takes its tests.
    DelayStarts { program: ProgramId, delay: Duration },
    /// Have [`RunEvent::SetUpDue`] follow after the startup limit of the program, which replaces an earlier
    /// one of the lease.
    LimitSetUp { lease: LeaseId, program: ProgramId },
    /// End the process of a lease at once, and return its tests without a result; [`RunEvent::LeaseEnded`]
    /// follows. The process was blocked in the set-up of a fixture that another process of the program holds.
    ReturnTests { worker: WorkerId, program: ProgramId, fixture: String },
    /// Cancel a worker's lease; [`RunEvent::LeaseEnded`] follows. A lease whose running tests finish first
    /// may be cancelled again, at once.
    CancelLease { worker: WorkerId, mode: CancelMode },
    /// Have a worker prove its stream; [`RunEvent::Drained`] or [`RunEvent::WorkerLost`] follows.
    Drain(WorkerId),
    /// Have the finisher send what is due, then the completion; [`RunEvent::Finished`] follows.
    Finish(DueResults),
    /// Kill the finisher: its remaining messages must not arrive after the completion. When it is dead, and
    /// all its messages are read, [`RunState::finisher_task`](super::RunState::finisher_task) returns the
    /// next step.
    KillFinisher,
    /// Respond to the request: the run is complete.
    Complete,
}

/// Results that the client may lack when all streams are closed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct DueResults {
    /// Streams that may have lost results, with their proven positions.
    pub resend: Vec<(WorkerId, u64)>,
    /// Synthesized results, which no worker sends.
    pub synthesized: Vec<(TestId, SynthesizedResult)>,
}

impl DueResults {
    /// Returns what the client may lack, now that all streams are closed.
    pub(super) fn of(ledger: &Ledger) -> Self {
        Self { resend: ledger.unproven_streams(), synthesized: ledger.synthesized_results() }
    }
}

/// The task of a finisher that replaces a dead one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum FinisherTask {
    /// Register the run, which continues.
    Register,
    /// Send what is due, then the completion.
    Finish(DueResults),
    /// Send only the completion. The client is proven to have everything before it, and may have the
    /// completion too.
    Complete,
    /// None: the coordinator completes the run itself.
    CoordinatorCompletes,
    /// None: the run is complete.
    None,
}

/// A batch that is assigned to a worker.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BatchLease {
    pub lease: LeaseId,
    /// The worker that holds the lease.
    pub worker: WorkerId,
    pub batch: TestBatch,
    /// For each test of the batch, whether a failure is to be reported as provisional.
    pub is_failure_provisional: Vec<bool>,
    /// For each test of the batch, the number of iterations that it has passed in earlier leases.
    pub passed_iterations: Vec<u32>,
    /// Number of startup limits that processes of the program have exceeded: the limit of this one is to be
    /// twice as long for each of them.
    pub start_timeouts: u32,
}

/// The stage of a run: what it waits for. A deadline names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RunStage {
    /// Tests wait or run.
    Running,
    /// Workers prove their streams.
    Draining,
    /// The finisher sends what is due.
    Finishing,
    /// The run waits for nothing.
    Completed,
}
