//! Handles a coordinator process that has stopped sending, even heartbeats.

use std::os::fd::OwnedFd;

use heeler_core::silence::{SILENCE_LIMIT, SilenceStep};
use heeler_sys::process::{self, Pid, Signal};

/// Coordinator process, the parent of this process.
#[derive(Debug)]
pub(crate) struct CoordinatorProcess {
    pid: Pid,
    /// `None` if the coordinator is already dead, or if no descriptor was free.
    pidfd: Option<OwnedFd>,
    /// The user suspended the coordinator and expects it to stay suspended.
    pub(crate) is_suspended: bool,
}

impl CoordinatorProcess {
    /// Returns the parent of this process.
    pub(crate) fn of_parent() -> Self {
        let pid = Pid(std::os::unix::process::parent_id().cast_signed());
        Self { pid, pidfd: process::pidfd_open(pid).ok(), is_suspended: false }
    }

    /// Returns whether a silent coordinator is stopped. Returns `false` if the coordinator is busy, or if it
    /// was stopped by a debugger or at a terminal, where the user decides.
    pub(crate) fn is_stopped(&self) -> bool {
        let stat = process::stat(self.pid);
        let is_stopped = stat.is_some_and(|stat| stat.is_stopped() && !stat.has_terminal);
        if !is_stopped || self.is_suspended {
            tracing::debug!("no message from the coordinator for {} s", SILENCE_LIMIT.as_secs());
            return false;
        }
        true
    }

    /// Resumes a stopped coordinator, and later kills it, which ends its connection.
    pub(crate) fn on_silence(&self, step: SilenceStep) {
        let limit = SILENCE_LIMIT.as_secs();
        let signal = match step {
            SilenceStep::Continue => {
                tracing::warn!("the coordinator process is stopped; sending SIGCONT after {limit} s");
                Signal::CONT
            }
            SilenceStep::Replace => {
                tracing::warn!("the coordinator process is still stopped; sending SIGKILL");
                Signal::KILL
            }
        };
        let sent = self.pidfd.as_ref().map(|pidfd| process::pidfd_signal(pidfd, signal));
        if let Some(Err(error)) = sent {
            tracing::debug!(%error, "the coordinator process has already exited");
        }
    }
}
