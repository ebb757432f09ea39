//! Reasons for which the process of a batch is ended.

use super::{DialogueStall, RunningBatch};

/// Why the process was terminated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BatchTerminateReason {
    /// The marked running tests exceeded their time limit.
    TimedOut,
    /// No test began, or the process did not exit, within the startup limit.
    ProcessStalled,
    /// The dialogue with it did not go on within the startup limit.
    DialogueStalled(DialogueStall),
    /// The process did not read its request within the startup limit; the test waits for another process.
    RequestUntaken,
    /// It exceeded its memory limit; the number of bytes used.
    MemoryLimit(u64),
    /// A server went on after its last answer.
    ServerEnded,
    /// The coordinator cancelled the lease.
    Cancelled,
    /// Its tests are decided, and what else it would do is not asked for.
    Decided,
    /// The worker exits, or the run stops: the coordinator decides about the running tests.
    Abandoned,
}

impl RunningBatch {
    /// Records that the tests are decided although the process goes on. Returns whether the caller is to kill
    /// it: it is not being ended already.
    pub(crate) fn end_decided(&mut self) -> bool {
        let is_first = self.terminate_reason.is_none();
        if is_first {
            self.terminate_reason = Some(BatchTerminateReason::Decided);
        }
        is_first
    }

    /// Returns why the process is ended, as its framework's request to stop says it.
    pub(crate) fn terminate_reason_text(&self) -> &'static str {
        match self.terminate_reason {
            Some(BatchTerminateReason::TimedOut) => "the time limit of the test has passed",
            Some(BatchTerminateReason::Cancelled | BatchTerminateReason::Abandoned) => {
                "the run was cancelled"
            }
            Some(
                BatchTerminateReason::ProcessStalled
                | BatchTerminateReason::DialogueStalled(_)
                | BatchTerminateReason::RequestUntaken
                | BatchTerminateReason::MemoryLimit(_)
                | BatchTerminateReason::ServerEnded
                | BatchTerminateReason::Decided,
            )
            | None => "the process is ended",
        }
    }
}
