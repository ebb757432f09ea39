//! Messages between coordinator and watchdog: worker lifecycle, and the end of a run.

use heeler_core::{OsText, Outcome, ProgramFailure, TestId, TestResult, WorkerId};
use serde::{Deserialize, Serialize};

use super::{ClientId, ClientRoute, ProofLevel, RunKey};
use crate::{
    manifest::{ManifestPlan, TestDescriptions},
    mtp::{Attachment, ClientMembers},
};

/// Messages from coordinator to watchdog.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToWatchdog {
    /// Starts a worker, which joins on a control connection of its own.
    StartWorker {
        /// Number of the new worker.
        worker: WorkerId,
    },
    /// Kills a worker and its whole process tree; answered by [`FromWatchdog::WorkerEnded`].
    KillWorker { worker: WorkerId },
    /// Announces a run. If the coordinator dies during the run, the watchdog finishes it from the manifest
    /// and the journals.
    BeginRun {
        run: RunKey,
        route: ClientRoute,
        run_dir: OsText,
        /// Whether the client reads the attachments stream.
        has_attachments_stream: bool,
        /// Plan of the run, if the manifest could not be written.
        plan: Option<Box<ManifestPlan>>,
        /// Members that the client added to tests and groups of the run.
        #[serde(default, skip_serializing_if = "ClientMembers::is_empty")]
        client_members: ClientMembers,
    },
    /// The client has handled these results of dead workers of an open run, on their own connections: they
    /// are not sent again if the coordinator dies.
    StreamsHandled {
        run: RunKey,
        /// All that are known of the run.
        positions: Vec<StreamPosition>,
    },
    /// Requests the content of a dead worker's journal.
    ReadJournal {
        run: RunKey,
        run_dir: OsText,
        /// Worker whose journal is read.
        worker: WorkerId,
    },
    /// Sends the remaining updates, then the end of the attachments and the completion; answered by
    /// [`FromWatchdog::Finished`].
    Finish(Box<FinishRequest>),
    /// One more relayed frame was handed to the client: see [`RELAY_WINDOW`].
    FrameForwarded { client: ClientId },
    /// Of the frames of a finish that were relayed to a client with a callback port, these are written to its
    /// main connection.
    RelayWritten { run: RunKey, written: RelayedPart },
    /// A client has left, and all its runs are over: its connection is closed.
    EndClient { client: ClientId },
    /// The user suspends the coordinator, which stops itself next: its silence is expected until
    /// [`Self::Resume`].
    Suspend,
    /// The coordinator runs again.
    Resume,
    /// Orders the watchdog to end all workers and exit.
    Exit,
}

/// Number of relayed frames that the watchdog sends for one client before the coordinator confirms the first
/// of them. A client that does not read would otherwise block the control connection for all others.
pub const RELAY_WINDOW: usize = 4;

/// The part of a finish that was handed to the kernel for the client's main connection, together with
/// everything that went there before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RelayedPart {
    /// This number of frames, from the first.
    Frames(u64),
    /// All frames with the completion.
    Completion,
}

/// Updates that a watchdog sends at the end of a run, in this order.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct FinishRequest {
    pub run: RunKey,
    pub route: ClientRoute,
    /// Directory of the run, which holds the journals.
    pub run_dir: OsText,
    /// Descriptions of all tests that are sent.
    pub descriptions: TestDescriptions,
    /// Members that the client added to these tests and their groups.
    #[serde(default, skip_serializing_if = "ClientMembers::is_empty")]
    pub client_members: ClientMembers,
    /// Results that streams may have lost: per worker, those after a position in its journal.
    pub resend: Vec<JournalResend>,
    /// Synthesized results, which no worker reported.
    pub synthesized: Vec<DueResult>,
    /// Programs that failed outside their tests.
    pub program_failures: Vec<ProgramFailure>,
    /// Attachments of the run that no worker has sent, beyond those that are proven.
    pub attachments: Vec<Attachment>,
    /// Whether the client reads the attachments stream.
    pub has_attachments_stream: bool,
    /// Whether the finish goes over the main connection, in order behind results of the run that went there,
    /// or to a client that proves nothing on connections of its own.
    #[serde(default)]
    pub is_relayed: bool,
    /// Workers whose results went over the main connection. If the coordinator is killed before it has
    /// written what it has queued there, their results are sent again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relayed_workers: Vec<WorkerId>,
    /// The number of frames, from the first, that the client already has of a watchdog that has died.
    #[serde(default)]
    pub sent_frames: u64,
    /// The number of frames, from the first, that the coordinator has forwarded to the main connection for a
    /// watchdog that has died.
    #[serde(default)]
    pub relayed_frames: u64,
}

/// How far a worker's stream of a run has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamPosition {
    pub worker: WorkerId,
    /// The number of results in its journal.
    pub position: u64,
}

/// Result that is due to be sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DueResult {
    pub test: TestId,
    pub result: TestResult,
}

/// Part of a journal that must be sent again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JournalResend {
    /// Worker whose journal is sent again.
    pub worker: WorkerId,
    /// Results up to this position are proven; those after it are sent.
    pub proven: u64,
    /// Results known without the journal, in order: sent if the journal ends before them.
    pub known: Vec<KnownResult>,
}

/// Result as its worker reported it, without its output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KnownResult {
    /// Position in the worker's journal, from 1.
    pub position: u64,
    pub test: TestId,
    pub outcome: Outcome,
}

/// Messages from watchdog to coordinator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum FromWatchdog {
    /// A worker could not be started.
    WorkerNotStarted { worker: WorkerId, error: String },
    /// A worker's process and its whole process tree are gone.
    WorkerEnded {
        worker: WorkerId,
        /// Exit code, if the worker exited by itself.
        code: Option<i32>,
        /// Number of the signal that killed the worker.
        signal: Option<i32>,
    },
    /// Answers [`ToWatchdog::ReadJournal`].
    Journal {
        run: RunKey,
        /// Worker whose journal was read.
        worker: WorkerId,
        /// Terminal results, in order: the first has position 1.
        settled: Vec<JournalledResult>,
        /// Files that these results name.
        #[serde(default)]
        files: Vec<ResultFile>,
        /// Reason why the journal could not be read to its end, if so. A journal that was never started is
        /// empty, not damaged.
        damage: Option<String>,
    },
    /// The relayed frames that follow belong to this run, until it is finished. Their positions count the
    /// frames of its finish.
    Relaying { run: RunKey },
    /// The client is proven to have everything of a run but its completion, which is sent next.
    Completing { run: RunKey },
    /// The run is finished and its completion is sent.
    Finished {
        run: RunKey,
        /// Proof level of the delivery to the client.
        proof: ProofLevel,
        /// Errors on the way, for the client's log.
        soft_errors: Vec<String>,
    },
}

/// File of a test's result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultFile {
    pub test: TestId,
    pub attachment: Attachment,
}

/// Terminal result of a journal, without its details.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalledResult {
    pub test: TestId,
    pub outcome: Outcome,
    /// Duration in microseconds.
    pub duration_us: u64,
}
