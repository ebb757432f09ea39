//! Decides who controls a test process that was started for a debugger: Heeler or the debugger.
//!
//! ```text
//! undecided ──ReleaseToDebugger───► debugger: no limits
//!     ├───────RunWithoutDebugger──► Heeler: treated like any other process
//!     └───────launched anew───────► debugger, as parent; the stopped process is killed
//! ```

use heeler_protocol::control::{DebuggeeCommand, DebuggerDecision};
use heeler_sys::process::Pid;

use super::launch_offer::{AcceptedLaunch, LaunchOffer};

pub(crate) enum DebuggerHandover {
    /// No debugger is involved, or the debugger declined. The usual limits apply.
    NotDebugged,
    /// The process is stopped, or soon will be, until a debugger decides.
    Undecided {
        root: Option<Pid>,
        /// Another process that the debugger can launch instead.
        offer: Option<LaunchOffer>,
    },
    /// A debugger controls the process.
    HandedOver,
}

impl DebuggerHandover {
    /// Records the started process. Returns it if no debugger decision is pending.
    pub(crate) fn on_started(&mut self, pid: Pid, is_limited: bool) -> Option<(Pid, bool)> {
        match self {
            Self::Undecided { root, .. } => {
                *root = Some(pid);
                None
            }
            Self::NotDebugged | Self::HandedOver => Some((pid, is_limited)),
        }
    }

    /// Returns the process that waits for a debugger's decision.
    pub(crate) fn undecided_process(&self) -> Option<Pid> {
        match self {
            Self::Undecided { root, .. } => *root,
            Self::NotDebugged | Self::HandedOver => None,
        }
    }

    /// Returns whether the process is stopped for a decision. That time does not count.
    pub(crate) fn is_undecided(&self) -> bool {
        matches!(self, Self::Undecided { .. })
    }

    /// Returns the command that a debugger can launch instead.
    pub(crate) fn debuggee(&self) -> Option<DebuggeeCommand> {
        match self {
            Self::Undecided { offer, .. } => offer.as_ref().map(LaunchOffer::debuggee),
            Self::NotDebugged | Self::HandedOver => None,
        }
    }

    /// Waits until a debugger has launched the offered process. Never returns without an offer.
    pub(crate) async fn wait_until_launched(&self) -> AcceptedLaunch {
        match self {
            // The offer is announced only after the process has stopped.
            Self::Undecided { root: Some(_), offer: Some(offer) } => offer.accept().await,
            Self::Undecided { .. } | Self::NotDebugged | Self::HandedOver => std::future::pending().await,
        }
    }

    pub(crate) fn on_launched(&mut self) {
        *self = Self::HandedOver;
    }

    /// Applies the debugger's decision, once, and returns the process.
    pub(crate) fn decide(&mut self, decision: DebuggerDecision) -> Option<Pid> {
        let root = self.undecided_process()?;
        *self = match decision {
            DebuggerDecision::ReleaseToDebugger => Self::HandedOver,
            DebuggerDecision::RunWithoutDebugger => Self::NotDebugged,
        };
        Some(root)
    }
}
