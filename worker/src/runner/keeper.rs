//! Who has the test process in hand: its guard, or, where a debugger has launched it, this worker itself.

use std::time::Duration;

use wire::control::ToGuard;

use super::launch::Launched;
use crate::guard_link::{GuardControl, News};

/// The keeper of one test process.
pub(super) enum Keeper {
    Guard(GuardControl),
    Debugger {
        process: Launched,
        /// A pause was asked for, and is to be confirmed.
        owes_pause: bool,
    },
}

impl Keeper {
    /// Says what is to become of the process. What a debugger has is neither stopped nor looked at by others.
    ///
    /// Cancel safe: yes, because a cancelled call has told nothing.
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

    /// Waits for the next that is heard of the process.
    ///
    /// Cancel safe: yes, because what is half heard stays in `self`.
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

    /// Kills the process, and whoever keeps it.
    pub(super) fn kill(&mut self) {
        match self {
            Self::Guard(guard) => guard.kill(),
            Self::Debugger { process, .. } => process.kill(),
        }
    }

    /// Waits until nothing is left of it.
    ///
    /// Cancel safe: no, because it is given up with the call.
    pub(super) async fn reap(self) {
        match self {
            Self::Guard(guard) => guard.reap().await,
            Self::Debugger { process, .. } => drop(process),
        }
    }
}
