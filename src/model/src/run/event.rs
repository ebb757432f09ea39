//! The vocabulary of a run: what it is told, what it orders. No decisions.

use std::time::Duration;

use crate::{
    HeldBy, LeaseEnd, LeaseId, Outcome, ProgramId, TestId, Told, WorkerId,
    split::{Batch, ProgramCosts},
};

/// What a run is to do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Plan {
    /// The programs.
    pub programs: Vec<ProgramCosts>,
    /// The selected tests; those of one program in the framework's order (or the shuffled one).
    pub tests: Vec<PlannedTest>,
    /// How many workers at once.
    pub slots: usize,
    /// The run stops at so many failures.
    pub max_failures: Option<usize>,
    /// So many processes in a row that end without a word about any test, in batches of one, give a program up.
    pub give_up_after: u32,
}

/// One selected test.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
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
    /// A worker that has nothing to do here serves another run. It may come back as ready; its stream is to be proven all
    /// the same.
    WorkerTaken(WorkerId),
    /// The run may have so many leases at once from now on; those in hand go on. None for a while is allowed.
    Share(usize),
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
    /// A worker that was ready is gone, and its journal is read. One that was asked for and never became ready is told
    /// by [`Event::WorkerNotStarted`] alone.
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
    /// The finisher has proven all that stands before the completion, and sends that now.
    Completing,
    /// The finisher has sent the completion.
    Finished,
    /// The finisher has taken longer than it may.
    FinisherLate,
    /// The user wants the run to end.
    Cancel,
    /// The run has taken as long as it may.
    TimeIsUp,
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
    Finish(Due),
    /// Have the finisher killed: what it had still to say must not come behind the completion. When it is dead, and all
    /// that it said is read, [`Run::succession`](super::Run::succession) tells what is next.
    KillFinisher,
    /// Answer the request: the run is over.
    Complete,
}

/// What the client may not have when all streams are closed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Due {
    /// Streams that may have lost results, and the position up to which they are proven.
    pub resend: Vec<(WorkerId, u64)>,
    /// Results that no worker tells.
    pub told: Vec<(TestId, Told)>,
}

/// What a finisher that takes a dead one's place is to do.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Succession {
    /// Know of the run: it goes on.
    Begin,
    /// Send what is due, then the completion.
    Finish(Due),
    /// Send the completion alone. The client is proven to have all before it, and may have it, too.
    Complete,
    /// It is not to be asked: the coordinator ends the run.
    Alone,
    /// The run is over.
    Nothing,
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
