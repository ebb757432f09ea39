//! Orders from the coordinator for the process of a job.

use heeler_protocol::control::{DebuggerDecision, LeaseId, WorkerLease};
use tokio::sync::oneshot;

/// An order from the coordinator for the running process.
#[derive(Debug)]
pub(crate) enum JobOrder {
    /// End the process. The running test becomes cancelled.
    Cancel { grace_ms: u64 },
    /// End the process. All tests without a result stay undecided.
    ReturnTests { grace_ms: u64 },
    /// End the process when the tests running now have ended. All other tests stay undecided.
    CancelAfterRunningTests { grace_ms: u64 },
    /// Give the tests of this extended lease to the idle process.
    Extend(Box<WorkerLease>),
    /// End the idle process of this lease.
    EndIdle { lease: LeaseId },
    /// Pause the process. The sender is used or dropped once nothing is running.
    Pause { paused: oneshot::Sender<()> },
    /// Resume the process.
    Resume,
    /// Continue a process that was stopped for a debugger.
    Debugger { lease: LeaseId, decision: DebuggerDecision },
    /// Kill the process because this worker exits.
    Kill,
}

/// Capacity of the order queue. Orders queue up only during one step of the job, and the coordinator waits
/// for the replies to most of them.
pub(crate) const QUEUED_ORDERS: usize = 16;
