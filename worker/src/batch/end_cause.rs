//! Why a process was ended, and which limits applied to it.

use std::time::Duration;

use heeler_sys::process::Signal;

use super::{
    batch_input::ProcessExitSummary, terminate_reason::BatchTerminateReason, verdict::format_seconds,
};

#[derive(Debug, Clone, Copy)]
pub(super) struct EndCause {
    /// `None`: the process ended by itself.
    pub(super) reason: Option<BatchTerminateReason>,
    /// A debugger launched the process, so only the debugger learns its exit status.
    pub(super) is_launched: bool,
    pub(super) startup_limit: Duration,
    /// Time that an announced set-up or tear-down could take.
    pub(super) announced_phase_limit: Duration,
    /// Time that the process could run without running a test.
    pub(super) idle_limit: Duration,
    pub(super) memory_bytes: Option<u64>,
}

impl EndCause {
    pub(super) fn is_own(self) -> bool {
        self.reason.is_none()
    }

    pub(super) fn is_on_request(self) -> bool {
        self.reason.is_some_and(BatchTerminateReason::is_on_request)
    }

    /// Returns whether the process was ended because it reached a limit.
    pub(super) fn is_limit(self) -> bool {
        use BatchTerminateReason::{DialogueStalled, MemoryLimit, ProcessStalled, TimedOut};
        matches!(self.reason, Some(TimedOut | ProcessStalled | DialogueStalled(_) | MemoryLimit(_)))
    }

    /// Returns whether the process was ended because it ran no test for too long.
    pub(super) fn is_stalled(self) -> bool {
        self.reason == Some(BatchTerminateReason::ProcessStalled)
    }

    /// Returns the limit of an announced set-up or tear-down, with the config key that changes it.
    pub(super) fn announced_phase_limit_text(self) -> String {
        format!("{} (four times startup-timeout)", format_seconds(self.announced_phase_limit))
    }

    /// Describes the dialogue stall that ended the process, if any.
    pub(super) fn stall_text(self) -> Option<String> {
        let stall = self.reason?.stall()?;
        let limit = format_seconds(self.startup_limit);
        Some(format!("{} within {limit} and was terminated", stall.description()))
    }

    /// Returns a message if the process ran out of memory.
    pub(super) fn memory_text(self, gone: &ProcessExitSummary) -> Option<String> {
        let mebibytes = |bytes: u64| bytes.div_ceil(1 << 20);
        let limit = mebibytes(self.memory_bytes.unwrap_or_default());
        match self.reason {
            Some(BatchTerminateReason::MemoryLimit(used)) => {
                let used = mebibytes(used);
                Some(format!("killed because it used {used} MiB of memory, over its limit of {limit} MiB"))
            }
            None if let Some(peak) = gone.exit.limit_peak_bytes => {
                let peak = mebibytes(peak);
                Some(format!("killed because it used {peak} MiB of memory, at its limit of {limit} MiB"))
            }
            None if gone.is_out_of_memory && gone.exit.signal == Some(Signal::KILL.0) => {
                let peak = mebibytes(gone.exit.peak_kib.saturating_mul(1024));
                Some(format!("killed by the kernel's out-of-memory killer; peak memory {peak} MiB"))
            }
            _ => None,
        }
    }
}
