//! Handle to a test process, controlled by its guard or, where a debugger has launched it, by this worker.

use std::time::Duration;

use wire::control::ToGuard;

use super::launch::Launched;
use crate::guard_link::{GuardControl, News};

/// The handle to one test process.
pub(super) enum Keeper {
    Guard(GuardControl),
    Debugger {
        process: Launched,
        /// A pause was requested and is not confirmed yet.
        owes_pause: bool,
    },
}

impl Keeper {
    /// Sends an order about the process. A process under a debugger is neither paused nor sampled.
    ///
    /// Cancel safe: yes, because a cancelled call has sent nothing.
    pub(super) async fn tell(&mut self, message: ToGuard) {
        match self {
            Self::Guard(guard) => guard.tell(message).await,
            Self::Debugger { process, owes_pause } => match message {
                ToGuard::Terminate { grace_ms } => process.terminate(Duration::from_millis(grace_ms)),
                ToGuard::Kill => process.kill(),
                ToGuard::Pause => *owes_pause = true,
                ToGuard::Exec(_)
                | ToGuard::Resume
                | ToGuard::Sample
                | ToGuard::Dump
                | ToGuard::LetGo
                | ToGuard::HandOver
                | ToGuard::TakeBack => {}
            },
        }
    }

    /// Waits for the next message about the process.
    ///
    /// Cancel safe: yes, because a partial message stays in `self`.
    pub(super) async fn next(&mut self) -> News {
        match self {
            Self::Guard(guard) => guard.next().await,
            Self::Debugger { process, owes_pause } => {
                if std::mem::take(owes_pause) {
                    return News::Paused;
                }
                News::Ended(process.ended().await)
            }
        }
    }

    /// Kills the process and its guard.
    pub(super) fn kill(&mut self) {
        match self {
            Self::Guard(guard) => guard.kill(),
            Self::Debugger { process, .. } => process.kill(),
        }
    }

    /// Waits until the process and its guard are gone.
    ///
    /// Cancel safe: no, because the handle is dropped with the call.
    pub(super) async fn reap(self) {
        match self {
            Self::Guard(guard) => guard.reap().await,
            Self::Debugger { process, .. } => drop(process),
        }
    }
}
