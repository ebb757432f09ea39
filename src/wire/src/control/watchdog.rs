//! Coordinator ↔ watchdog: lives and deaths of workers, and the finish of a run.

use serde::{Deserialize, Serialize};

use super::{CallbackAddress, DeliveryLimits, OsBytes, Proof, TestIndex, WorkerId};
use crate::{
    manifest::Plan,
    mtp::{Attachment, ExecutionState, RawChange},
};

/// Coordinator → watchdog.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToWatchdog {
    /// First.
    Welcome {
        /// Where to report; `None` relays through the coordinator.
        callback: Option<CallbackAddress>,
        /// How long to wait for a client.
        limits: DeliveryLimits,
    },
    /// Starts a worker. It joins on a control connection of its own.
    StartWorker {
        /// Its number.
        worker: WorkerId,
    },
    /// Kills a worker and everything below it; answered by [`FromWatchdog::WorkerEnded`].
    KillWorker {
        /// Which.
        worker: WorkerId,
    },
    /// A run begins. Should the coordinator die in it, the watchdog finishes it from the manifest and the journals.
    BeginRun {
        /// Which run.
        run: String,
        /// The run's directory.
        run_dir: OsBytes,
        /// Whether the client reads the attachments stream.
        has_attachments_stream: bool,
        /// What is to run, where the manifest could not be written.
        plan: Option<Plan>,
    },
    /// Asks what a dead worker's journal holds.
    ReadJournal {
        /// Which run.
        run: String,
        /// The run's directory.
        run_dir: OsBytes,
        /// Whose journal.
        worker: WorkerId,
    },
    /// Sends what is still due, then the attachments' end and the completion; answered by [`FromWatchdog::Finished`].
    Finish(Box<Finish>),
    /// Ends all workers and leaves.
    Leave,
}

/// What a watchdog sends at the end of a run, in this order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finish {
    /// Which run.
    pub run: String,
    /// The run's directory, where the journals lie.
    pub run_dir: OsBytes,
    /// What streams may have lost: results of this worker's journal behind this position.
    pub resend: Vec<Resend>,
    /// The groups above all that is sent, each behind its own group.
    pub groups: Vec<RawChange>,
    /// Results that no worker has told: tests that never ran, programs that died outside any test.
    pub told: Vec<RawChange>,
    /// Attachments of the run.
    pub attachments: Vec<Attachment>,
    /// Whether the client reads the attachments stream.
    pub has_attachments_stream: bool,
}

/// A part of a journal that must be sent again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Resend {
    /// Whose journal.
    pub worker: WorkerId,
    /// Results up to this position are proven; those behind it are sent.
    pub proven: u64,
    /// What is known of those results without the journal, in order: sent where the journal ends before them.
    pub known: Vec<KnownResult>,
}

impl Resend {
    /// Returns the changes of the results that a journal of so many does not hold.
    pub fn behind(&self, journalled: usize) -> impl Iterator<Item = &RawChange> {
        let journalled = journalled as u64;
        self.known.iter().filter(move |known| known.position > journalled).map(|known| &known.change)
    }
}

/// A result as its worker reported it, without what it said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KnownResult {
    /// Its place in the worker's journal, from 1.
    pub position: u64,
    /// Its change.
    pub change: RawChange,
}

/// Watchdog → coordinator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FromWatchdog {
    /// A worker could not be started.
    WorkerNotStarted {
        /// Which.
        worker: WorkerId,
        /// Why.
        error: String,
    },
    /// A worker's process is gone, and everything below it.
    WorkerEnded {
        /// Which.
        worker: WorkerId,
        /// Its process's exit code, when it left by itself.
        code: Option<i32>,
        /// The signal that killed it.
        signal: Option<i32>,
    },
    /// What a journal holds.
    Journal {
        /// Which run.
        run: String,
        /// Whose.
        worker: WorkerId,
        /// Its terminal results, in order: the first has position 1.
        settled: Vec<JournalledResult>,
        /// The files that these results name.
        #[serde(default)]
        attachments: Vec<Attachment>,
        /// Why it could not be read to its end, if so. A journal that was never begun is empty, not damaged.
        damage: Option<String>,
    },
    /// The client is proven to have all of a run but its completion, which is sent next.
    Completing {
        /// Which run.
        run: String,
    },
    /// A run is finished: its completion is sent.
    Finished {
        /// Which run.
        run: String,
        /// How sure we are that the client has it.
        proof: Proof,
        /// Whether the completion went over the coordinator's connection (as relayed frames before this message).
        is_relayed: bool,
        /// What went wrong on the way, for the client's log.
        soft_errors: Vec<String>,
    },
}

/// One terminal result of a journal, without its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalledResult {
    /// Which test.
    pub test: TestIndex,
    /// How it ended.
    pub state: ExecutionState,
    /// How long it ran, microseconds.
    pub duration_us: u64,
}
