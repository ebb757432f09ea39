//! Reasons for which the process of a batch is ended.

use super::dialogue_stall::DialogueStall;

/// Why the process was terminated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BatchTerminateReason {
    /// The marked running tests exceeded their time limit.
    TimedOut,
    /// No test began, or the process did not exit, within the startup limit.
    ProcessStalled,
    /// The dialogue with it did not go on within the startup limit.
    DialogueStalled(DialogueStall),
    /// The process did not read its request within the startup limit; the test waits for another process.
    RequestUntaken,
    /// The process exceeded its memory limit; the number of bytes used.
    MemoryLimit(u64),
    /// A server went on after its last answer.
    ServerEnded,
    /// The coordinator cancelled the lease.
    Cancelled,
    /// The tests are decided, and the process is not needed any more.
    Decided,
    /// The worker exits, or the run stops: the coordinator decides about the running tests.
    Abandoned,
}

impl BatchTerminateReason {
    /// Returns whether the process is ended on request.
    pub(super) fn is_on_request(self) -> bool {
        matches!(self, Self::Cancelled | Self::Abandoned)
    }

    /// Returns why the dialogue with the process did not go on, if that is the reason.
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

    /// Returns whether the clock decided: a crash that is captured meanwhile is still a crash.
    pub(super) fn is_by_clock(self) -> bool {
        matches!(
            self,
            Self::TimedOut | Self::ProcessStalled | Self::DialogueStalled(_) | Self::RequestUntaken
        )
    }

    /// Returns the reason as the framework's request to stop says it.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::TimedOut => "the time limit of the test has passed",
            Self::Cancelled | Self::Abandoned => "the run was cancelled",
            Self::ProcessStalled
            | Self::DialogueStalled(_)
            | Self::RequestUntaken
            | Self::MemoryLimit(_)
            | Self::ServerEnded
            | Self::Decided => "the process is ended",
        }
    }
}
