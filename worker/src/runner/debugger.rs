//! Whose a test process is that was started for a debugger.
//!
//! ```text
//! undecided ──HandOver──► the debugger's: no limits
//!     └──────TakeBack───► ours: as any other
//! ```

use host::process::Pid;
use wire::control::DebuggerDecision;

/// Whose one process is.
pub(super) enum Debugging {
    /// Ours.
    No,
    /// It stands, or soon does.
    Undecided { root: Option<Pid> },
    /// A debugger's.
    HandedOver,
}

impl Debugging {
    pub(super) fn new(is_debugged: bool) -> Self {
        if is_debugged { Self::Undecided { root: None } } else { Self::No }
    }

    /// Takes note of the process; gives it back where it is ours.
    pub(super) fn started(&mut self, pid: Pid, is_limited: bool) -> Option<(Pid, bool)> {
        match self {
            Self::Undecided { root } => {
                *root = Some(pid);
                None
            }
            Self::No | Self::HandedOver => Some((pid, is_limited)),
        }
    }

    /// Returns the process that waits for a decision.
    pub(super) fn root(&self) -> Option<Pid> {
        match self {
            Self::Undecided { root } => *root,
            Self::No | Self::HandedOver => None,
        }
    }

    /// Whether the process stands, so that no time passes for it.
    pub(super) fn is_undecided(&self) -> bool {
        matches!(self, Self::Undecided { .. })
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
