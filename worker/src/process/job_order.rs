//! Orders from the coordinator for the process of a job.

use heeler_protocol::control::{DebuggerDecision, LeaseId, WorkerLease};
use tokio::sync::oneshot;

/// An order from the coordinator for the running process.
#[derive(Debug)]
pub(crate) enum JobOrder {
    /// End the process; the running test becomes cancelled.
    Cancel { grace_ms: u64 },
    /// End the process; all tests without a result stay undecided.
    ReturnTests { grace_ms: u64 },
    /// End the process when the tests that run now have ended; the others stay undecided.
    CancelAfterRunningTests { grace_ms: u64 },
    /// Give the idle process of a lease the tests of this one.
    Extend(Box<WorkerLease>),
    /// End the idle process of this lease.
    EndIdle { lease: LeaseId },
    /// Pause the process. The sender is used or dropped when nothing runs any more.
    Pause { paused: oneshot::Sender<()> },
    /// Resume the process.
    Resume,
    /// Continue a process that was stopped for a debugger.
    Debugger { lease: LeaseId, decision: DebuggerDecision },
    /// Kill the process, because this worker exits.
    Kill,
}

/// Orders queue only during one step of the job, and the coordinator waits for the replies to most of them.
pub(crate) const QUEUED_ORDERS: usize = 16;
