//! Reasons for ending the process of a batch.

use super::dialogue_stall::DialogueStall;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BatchTerminateReason {
    /// Running tests exceeded their time limit. Their clocks show which tests.
    TimedOut,
    /// No test began, or the process did not exit, within the startup limit.
    ProcessStalled,
    /// The dialogue with the process was stalled for the startup limit.
    DialogueStalled(DialogueStall),
    /// The process did not read its request within the startup limit. The test is left for another process.
    RequestUntaken,
    /// The process exceeded its memory limit; contains the bytes used.
    MemoryLimit(u64),
    /// A server kept running after its last answer.
    ServerEnded,
    /// The coordinator cancelled the lease.
    Cancelled,
    /// All tests have a result, so the process is no longer needed.
    Decided,
    /// The worker exits or the run stops. The coordinator decides about the running tests.
    Abandoned,
}

impl BatchTerminateReason {
    pub(super) fn is_on_request(self) -> bool {
        matches!(self, Self::Cancelled | Self::Abandoned)
    }

    /// Returns the dialogue stall, if that is the reason.
    pub(super) fn stall(self) -> Option<DialogueStall> {
        match self {
            Self::DialogueStalled(stall) => Some(stall),
            Self::RequestUntaken => Some(DialogueStall::RequestUnread),
            Self::TimedOut
            | Self::ProcessStalled
            | Self::MemoryLimit(_)
            | Self::ServerEnded
            | Self::Cancelled
            | Self::Decided
            | Self::Abandoned => None,
        }
    }

    /// Returns whether a time limit is the reason. A crash that was being captured meanwhile still counts as
    /// a crash.
    pub(super) fn is_by_clock(self) -> bool {
        matches!(
            self,
            Self::TimedOut | Self::ProcessStalled | Self::DialogueStalled(_) | Self::RequestUntaken
        )
    }

    /// Returns the reason as worded in the framework's stop request.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::TimedOut => "the test timed out",
            Self::Cancelled | Self::Abandoned => "the run was cancelled",
            Self::ProcessStalled
            | Self::DialogueStalled(_)
            | Self::RequestUntaken
            | Self::MemoryLimit(_)
            | Self::ServerEnded
            | Self::Decided => "the process is being terminated",
        }
    }
}
