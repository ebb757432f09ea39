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
    /// Starts a worker, which dials its own control connection.
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
    /// The client has handled these results of dead workers of an open run, on the workers' own connections.
    /// They are not sent again if the coordinator dies.
    StreamsHandled {
        run: RunKey,
        /// All known positions of the run.
        positions: Vec<StreamPosition>,
    },
    /// Requests the content of a dead worker's journal.
    ReadJournal {
        run: RunKey,
        run_dir: OsText,
        /// Worker whose journal is read.
        worker: WorkerId,
    },
    /// Sends the remaining updates, the end of the attachments, and the completion; answered by
    /// [`FromWatchdog::Finished`].
    Finish(Box<FinishRequest>),
    /// Another relayed frame was handed to the client; see [`RELAY_WINDOW`].
    FrameForwarded { client: ClientId },
    /// The part of a relayed finish that has been written to the main connection of a client with a callback
    /// port.
    RelayWritten { run: RunKey, written: RelayedPart },
    /// A client has left, and all its runs are over: close its connection.
    EndClient { client: ClientId },
    /// The user is suspending the coordinator, which stops itself next. The watchdog expects its silence
    /// until [`Self::Resume`].
    Suspend,
    /// The coordinator runs again.
    Resume,
    /// Ends all workers, then the watchdog itself.
    Exit,
}

/// Maximum number of relayed frames for one client that the coordinator has not confirmed. Without this
/// limit, a client that does not read would block the control connection for all others.
pub const RELAY_WINDOW: usize = 4;

/// Part of a finish that the kernel has accepted for the client's main connection, after everything queued
/// there before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RelayedPart {
    /// This number of frames, counted from the first.
    Frames(u64),
    /// All frames, including the completion.
    Completion,
}

/// Updates that a watchdog sends at the end of a run, in this order.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct FinishRequest {
    pub run: RunKey,
    pub route: ClientRoute,
    /// Run directory with the journals.
    pub run_dir: OsText,
    /// Descriptions of all tests to send.
    pub descriptions: TestDescriptions,
    /// Members that the client added to these tests and their groups.
    #[serde(default, skip_serializing_if = "ClientMembers::is_empty")]
    pub client_members: ClientMembers,
    /// Results that streams may have lost: for each worker, the results after a position of its journal.
    pub resend: Vec<JournalResend>,
    /// Synthesized results, which no worker reported.
    pub synthesized: Vec<DueResult>,
    /// Programs that failed outside their tests.
    pub program_failures: Vec<ProgramFailure>,
    /// Attachments of the run that no worker is proven to have sent.
    pub attachments: Vec<Attachment>,
    /// Whether the client reads the attachments stream.
    pub has_attachments_stream: bool,
    /// Whether to use the main connection. Either earlier results of the run went there and must stay in
    /// order, or the client cannot prove the delivery on its callback connections.
    #[serde(default)]
    pub is_relayed: bool,
    /// Workers whose results used the main connection. Their results are sent again if the coordinator is
    /// killed before it has written its queue.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relayed_workers: Vec<WorkerId>,
    /// Number of initial frames that a dead watchdog has already delivered to the client.
    #[serde(default)]
    pub sent_frames: u64,
    /// Number of initial frames that the coordinator has already forwarded to the main connection for a dead
    /// watchdog.
    #[serde(default)]
    pub relayed_frames: u64,
}

/// Position of a worker's stream in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamPosition {
    pub worker: WorkerId,
    /// Number of results in the worker's journal.
    pub position: u64,
}

/// A result that must be sent.
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
    /// Results up to this position are proven; later ones are sent.
    pub proven: u64,
    /// Results known without the journal, in order. Sent if the journal ends before them.
    pub known: Vec<KnownResult>,
}

/// A result as reported by its worker, without output.
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
    /// Answer to [`ToWatchdog::ReadJournal`].
    Journal {
        run: RunKey,
        /// Worker whose journal was read.
        worker: WorkerId,
        /// Terminal results in order; the first has position 1.
        settled: Vec<JournalledResult>,
        /// Files named by these results.
        #[serde(default)]
        files: Vec<ResultFile>,
        /// Why the journal could not be read to its end, if so. A journal that was never started is empty,
        /// not damaged.
        damage: Option<String>,
    },
    /// The following relayed frames belong to this run until it is finished. Their positions count the frames
    /// of its finish.
    Relaying { run: RunKey },
    /// The client is proven to have everything of a run except the completion, which is sent next.
    Completing { run: RunKey },
    /// The run is finished, and its completion has been sent.
    Finished {
        run: RunKey,
        /// Proof level of the delivery.
        proof: ProofLevel,
        /// Errors that did not stop the finish, for the client's log.
        soft_errors: Vec<String>,
    },
}

/// File of a test's result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultFile {
    pub test: TestId,
    pub attachment: Attachment,
}

/// Terminal result from a journal, without details.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalledResult {
    pub test: TestId,
    pub outcome: Outcome,
    /// Duration in microseconds.
    pub duration_us: u64,
}
