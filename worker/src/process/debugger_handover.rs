//! Ownership of a test process that was started for a debugger: Heeler's or the debugger's.
//!
//! ```text
//! undecided ──HandOver──► the debugger's: no limits
//!     ├──────TakeBack───► Heeler's: treated as any other
//!     └──launched anew──► the debugger's, which is its parent; the stopped process is killed
//! ```

use heeler_protocol::control::{DebuggeeCommand, DebuggerDecision};
use heeler_sys::process::Pid;

use super::launch_offer::{AcceptedLaunch, LaunchOffer};

/// Ownership of one test process.
pub(crate) enum DebuggerHandover {
    /// No debugger is involved, or the debugger declined: the usual limits apply.
    NotDebugged,
    /// The process is stopped, or soon will be, until a debugger decides.
    Undecided {
        root: Option<Pid>,
        /// Another process that the debugger may launch instead.
        offer: Option<LaunchOffer>,
    },
    /// A debugger controls the process.
    HandedOver,
}

impl DebuggerHandover {
    /// Records the started process; returns it if no debugger decision is pending.
    pub(crate) fn on_started(&mut self, pid: Pid, is_limited: bool) -> Option<(Pid, bool)> {
        match self {
            Self::Undecided { root, .. } => {
                *root = Some(pid);
                None
            }
            Self::NotDebugged | Self::HandedOver => Some((pid, is_limited)),
        }
    }

    /// Returns the process that waits for a decision.
    pub(crate) fn undecided_process(&self) -> Option<Pid> {
        match self {
            Self::Undecided { root, .. } => *root,
            Self::NotDebugged | Self::HandedOver => None,
        }
    }

    /// Returns whether the process is stopped for a decision, so that its time does not count.
    pub(crate) fn is_undecided(&self) -> bool {
        matches!(self, Self::Undecided { .. })
    }

    /// Returns the command that a debugger may launch instead.
    pub(crate) fn debuggee(&self) -> Option<DebuggeeCommand> {
        match self {
            Self::Undecided { offer, .. } => offer.as_ref().map(LaunchOffer::debuggee),
            Self::NotDebugged | Self::HandedOver => None,
        }
    }

    /// Waits until a debugger has launched the offered process; forever where there is no offer.
    pub(crate) async fn wait_until_launched(&self) -> AcceptedLaunch {
        match self {
            // The offer is announced only when the process is stopped.
            Self::Undecided { root: Some(_), offer: Some(offer) } => offer.accept().await,
            Self::Undecided { .. } | Self::NotDebugged | Self::HandedOver => std::future::pending().await,
        }
    }

    /// Records that a debugger has launched the process.
    pub(crate) fn on_launched(&mut self) {
        *self = Self::HandedOver;
    }

    /// Applies the debugger's decision, once; returns the process.
    pub(crate) fn decide(&mut self, decision: DebuggerDecision) -> Option<Pid> {
        let root = self.undecided_process()?;
        *self = match decision {
            DebuggerDecision::ReleaseToDebugger => Self::HandedOver,
            DebuggerDecision::RunWithoutDebugger => Self::NotDebugged,
        };
        Some(root)
    }
}
