//! Whose a test process is that was started for a debugger.
//!
//! ```text
//! undecided ──HandOver──► the debugger's: no limits
//!     ├──────TakeBack───► ours: as any other
//!     └──launched anew──► the debugger's, which is its parent; the one that stood is ended
//! ```

use host::process::Pid;
use wire::control::{Debuggee, DebuggerDecision};

use super::launch::{Offer, Taken};

/// Whose one process is.
pub(super) enum Debugging {
    /// Ours.
    No,
    /// It stands, or soon does.
    Undecided {
        root: Option<Pid>,
        /// Another in its place.
        offer: Option<Offer>,
    },
    /// A debugger's.
    HandedOver,
}

impl Debugging {
    pub(super) fn new(is_debugged: bool, offer: Option<Offer>) -> Self {
        if is_debugged { Self::Undecided { root: None, offer } } else { Self::No }
    }

    /// Takes note of the process; gives it back where it is ours.
    pub(super) fn started(&mut self, pid: Pid, is_limited: bool) -> Option<(Pid, bool)> {
        match self {
            Self::Undecided { root, .. } => {
                *root = Some(pid);
                None
            }
            Self::No | Self::HandedOver => Some((pid, is_limited)),
        }
    }

    /// Returns the process that waits for a decision.
    pub(super) fn root(&self) -> Option<Pid> {
        match self {
            Self::Undecided { root, .. } => *root,
            Self::No | Self::HandedOver => None,
        }
    }

    /// Whether the process stands, so that no time passes for it.
    pub(super) fn is_undecided(&self) -> bool {
        matches!(self, Self::Undecided { .. })
    }

    /// Returns the command that a debugger may launch instead.
    pub(super) fn debuggee(&self) -> Option<Debuggee> {
        match self {
            Self::Undecided { offer, .. } => offer.as_ref().map(Offer::debuggee),
            Self::No | Self::HandedOver => None,
        }
    }

    /// Waits until a debugger has launched it; for ever where none may.
    ///
    /// Cancel safe: yes, because [`Offer::taken`] is.
    pub(super) async fn taken(&self) -> Taken {
        match self {
            // Before it stands, nobody knows of the offer.
            Self::Undecided { root: Some(_), offer: Some(offer) } => offer.taken().await,
            Self::Undecided { .. } | Self::No | Self::HandedOver => std::future::pending().await,
        }
    }

    /// Takes note that a debugger has launched it.
    pub(super) fn was_launched(&mut self) {
        *self = Self::HandedOver;
    }

    /// Decides, once; returns the process.
    pub(super) fn decide(&mut self, decision: DebuggerDecision) -> Option<Pid> {
        let root = self.root()?;
        *self = match decision {
            DebuggerDecision::HandOver => Self::HandedOver,
            DebuggerDecision::TakeBack => Self::No,
        };
        Some(root)
    }
}
