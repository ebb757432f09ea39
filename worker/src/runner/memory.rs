//! Memory use of a test process and its descendants: sampled where there is a limit, and the kernel's count
//! of out-of-memory kills.

use std::time::Duration;

use host::process::{self, Pid};
use tokio::time::Instant;

/// Sampling period. Sampling one process takes about 20 microseconds.
const LOOK: Duration = Duration::from_millis(100);

/// Memory watch of one test process.
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

    /// Starts sampling, unless the system enforces the limit.
    pub(super) fn begin(&mut self, root: Pid, is_limited: bool) {
        self.root = Some(root);
        self.next_look = self.limit_bytes.filter(|_| !is_limited).map(|_| Instant::now() + LOOK);
    }

    /// Returns when to sample next; `None` without a limit.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.next_look
    }

    /// Samples; returns the memory used if it is over the limit.
    pub(super) fn look(&mut self) -> Option<u64> {
        self.next_look = Some(Instant::now() + LOOK);
        let used = process::resident_bytes(self.root?);
        if used <= self.limit_bytes? {
            return None;
        }
        self.next_look = None;
        Some(used)
    }

    /// Returns whether the kernel's out-of-memory killer has killed a process since the start.
    pub(super) fn was_kernel_short(&self) -> bool {
        self.kills_before.zip(process::memory_kills()).is_some_and(|(before, now)| now > before)
    }
}
