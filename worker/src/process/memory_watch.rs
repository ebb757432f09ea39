//! Memory use of a test process and its descendants: sampled where there is a limit, and the kernel's count
//! of out-of-memory kills.

use std::time::Duration;

use heeler_sys::process::{self, Pid};
use tokio::time::Instant;

/// Sampling period. Sampling one process takes about 20 microseconds.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// Memory watch of one test process.
pub(crate) struct MemoryWatch {
    limit_bytes: Option<u64>,
    root: Option<Pid>,
    next_sample_at: Option<Instant>,
    oom_kills_before: Option<u64>,
}

impl MemoryWatch {
    pub(crate) fn new(limit_bytes: Option<u64>) -> Self {
        Self { limit_bytes, root: None, next_sample_at: None, oom_kills_before: process::oom_kill_count() }
    }

    /// Starts sampling, unless the system enforces the limit.
    pub(crate) fn start(&mut self, root: Pid, is_limited: bool) {
        self.root = Some(root);
        self.next_sample_at =
            self.limit_bytes.filter(|_| !is_limited).map(|_| Instant::now() + SAMPLE_INTERVAL);
    }

    /// Returns when to sample next; `None` without a limit.
    pub(crate) fn next_sample_at(&self) -> Option<Instant> {
        self.next_sample_at
    }

    /// Samples; returns the memory used if it is over the limit.
    pub(crate) fn sample(&mut self) -> Option<u64> {
        self.next_sample_at = Some(Instant::now() + SAMPLE_INTERVAL);
        let used = process::resident_bytes(self.root?);
        if used <= self.limit_bytes? {
            return None;
        }
        self.next_sample_at = None;
        Some(used)
    }

    /// Returns whether the kernel's out-of-memory killer has killed a process since the start.
    pub(crate) fn had_oom_kill(&self) -> bool {
        self.oom_kills_before.zip(process::oom_kill_count()).is_some_and(|(before, now)| now > before)
    }
}
