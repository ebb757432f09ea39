//! The coordinator's process, when it sends nothing any more, not even heartbeats.

use std::os::fd::OwnedFd;

use heeler_core::silence::{SILENCE_LIMIT, SilenceStep};
use heeler_sys::process::{self, Pid, Signal};

/// The coordinator, which is the parent of this process.
#[derive(Debug)]
pub(crate) struct CoordinatorProcess {
    pid: Pid,
    /// `None` if the coordinator is dead already, or without a free descriptor.
    pidfd: Option<OwnedFd>,
    /// The user suspends it, and expects that it stays so.
    pub(crate) is_suspended: bool,
}

impl CoordinatorProcess {
    /// Returns the parent of this process.
    pub(crate) fn of_parent() -> Self {
        let pid = Pid(std::os::unix::process::parent_id().cast_signed());
        Self { pid, pidfd: process::pidfd_open(pid).ok(), is_suspended: false }
    }

    /// Returns whether a silent coordinator is stopped. One that was stopped at a terminal is left to its
    /// user; so is one that is busy, or stopped by a debugger.
    pub(crate) fn is_stopped(&self) -> bool {
        let stat = process::stat(self.pid);
        let is_stopped = stat.is_some_and(|stat| stat.is_stopped() && !stat.has_terminal);
        if !is_stopped || self.is_suspended {
            tracing::debug!("the coordinator has been silent for {} s", SILENCE_LIMIT.as_secs());
            return false;
        }
        true
    }

    /// Continues a coordinator that is stopped, and later kills it: the end of its connection follows.
    pub(crate) fn on_silence(&self, step: SilenceStep) {
        let limit = SILENCE_LIMIT.as_secs();
        let signal = match step {
            SilenceStep::Continue => {
                tracing::warn!("the coordinator is stopped, has been silent for {limit} s, and is continued");
                Signal::CONT
            }
            SilenceStep::Replace => {
                tracing::warn!("the coordinator stays stopped and is killed");
                Signal::KILL
            }
        };
        let sent = self.pidfd.as_ref().map(|pidfd| process::pidfd_signal(pidfd, signal));
        if let Some(Err(error)) = sent {
            tracing::debug!(%error, "the coordinator is gone already");
        }
    }
}
