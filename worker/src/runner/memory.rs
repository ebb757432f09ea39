//! The memory of a test process and all below it: looked at now and then where there is a limit, and the kernel's own
//! word when it killed something for want of memory.

use std::time::Duration;

use host::process::{self, Pid};
use tokio::time::Instant;

/// Between two looks. A look at one process takes some 20 microseconds.
const LOOK: Duration = Duration::from_millis(100);

/// Watches one test process.
pub(super) struct MemoryWatch {
    limit_bytes: Option<u64>,
    root: Option<Pid>,
    next_look: Option<Instant>,
    kills_before: Option<u64>,
}

impl MemoryWatch {
    pub(super) fn new(limit_bytes: Option<u64>) -> Self {
        Self { limit_bytes, root: None, next_look: None, kills_before: process::memory_kills() }
    }

    /// The process runs. If the system holds its limit, nobody need look.
    pub(super) fn begin(&mut self, root: Pid, is_limited: bool) {
        self.root = Some(root);
        self.next_look = self.limit_bytes.filter(|_| !is_limited).map(|_| Instant::now() + LOOK);
    }

    /// When to look next; `None` without a limit.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.next_look
    }

    /// Looks; returns what is used when that is too much.
    pub(super) fn look(&mut self) -> Option<u64> {
        self.next_look = Some(Instant::now() + LOOK);
        let used = process::resident_bytes(self.root?);
        if used <= self.limit_bytes? {
            return None;
        }
        self.next_look = None;
        Some(used)
    }

    /// Returns whether the kernel has killed a process for want of memory since the start.
    pub(super) fn was_kernel_short(&self) -> bool {
        self.kills_before.zip(process::memory_kills()).is_some_and(|(before, now)| now > before)
    }
}
