//! Handle to a test process. The process is controlled by its guard, or by this worker if a debugger launched
//! it.

use std::time::Duration;

use heeler_protocol::control::ToGuard;

use super::{
    guard_connection::{GuardConnection, GuardEvent},
    launch_offer::LaunchedProcess,
};

pub(crate) enum ProcessHandle {
    Guard(GuardConnection),
    Debugger {
        process: LaunchedProcess,
        /// A pause was requested but is not confirmed yet.
        has_unconfirmed_pause: bool,
    },
}

impl ProcessHandle {
    /// Sends an order to the process. A debugged process is neither paused nor sampled.
    ///
    /// Cancel safe: yes, because a cancelled call has sent nothing.
    pub(crate) async fn send(&mut self, message: ToGuard) {
        match self {
            Self::Guard(guard) => guard.send(message).await,
            Self::Debugger { process, has_unconfirmed_pause: owes_pause } => match message {
                ToGuard::Terminate { grace_ms } => process.terminate(Duration::from_millis(grace_ms)),
                ToGuard::Kill => process.kill(),
                ToGuard::Pause => *owes_pause = true,
                ToGuard::Exec(_)
                | ToGuard::Resume
                | ToGuard::Sample
                | ToGuard::Dump
                | ToGuard::ReportStacks { .. }
                | ToGuard::ContinueUntraced
                | ToGuard::ContinueTraced => {}
            },
        }
    }

    /// Waits for the next message about the process.
    ///
    /// Cancel safe: yes, because a partial message stays in `self`.
    pub(crate) async fn next_event(&mut self) -> GuardEvent {
        match self {
            Self::Guard(guard) => guard.next_event().await,
            Self::Debugger { process, has_unconfirmed_pause: owes_pause } => {
                if std::mem::take(owes_pause) {
                    return GuardEvent::Paused;
                }
                GuardEvent::Ended(process.wait_for_exit().await)
            }
        }
    }

    /// Kills the process and its guard.
    pub(crate) fn kill(&mut self) {
        match self {
            Self::Guard(guard) => guard.kill(),
            Self::Debugger { process, .. } => process.kill(),
        }
    }

    /// Waits until the process and its guard are gone.
    ///
    /// Cancel safe: no, because the handle is dropped.
    pub(crate) async fn reap(self) {
        match self {
            Self::Guard(guard) => guard.reap().await,
            Self::Debugger { process, .. } => drop(process),
        }
    }
}
