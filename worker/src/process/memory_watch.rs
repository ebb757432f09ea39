//! Memory use of a test process and its descendants: sampled if there is a limit. Also watches the kernel's
//! count of out-of-memory kills.

use std::time::Duration;

use heeler_sys::process::{self, Pid};
use tokio::time::Instant;

/// Sampling period. A sample of one process below its limit takes about 20 microseconds.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
/// Minimum ratio of the period to the duration of a sample.
const MAX_SAMPLE_SHARE: u32 = 10;

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

    /// Returns when to sample next, or `None` without a limit.
    pub(crate) fn next_sample_at(&self) -> Option<Instant> {
        self.next_sample_at
    }

    /// Takes a sample. Returns the memory used if it exceeds the limit.
    pub(crate) fn sample(&mut self) -> Option<u64> {
        let started = Instant::now();
        let used = process::memory_above(self.root?, self.limit_bytes?);
        // Counting shared pages is slow, and may stay slow as long as the process runs.
        let interval = SAMPLE_INTERVAL.max(started.elapsed() * MAX_SAMPLE_SHARE);
        self.next_sample_at = if used.is_some() { None } else { Some(Instant::now() + interval) };
        used
    }

    /// Returns whether the kernel's out-of-memory killer has killed a process since this watch was created.
    pub(crate) fn had_oom_kill(&self) -> bool {
        self.oom_kills_before.zip(process::oom_kill_count()).is_some_and(|(before, now)| now > before)
    }
}
