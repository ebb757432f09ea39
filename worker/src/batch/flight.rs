//! A running test: since when it runs, and what it has written.

use std::time::Duration;

use crate::{clock::Moment, conclusion::Outputs, output::Capture};

pub(super) const SHARED_NOTE: &[u8] =
    b"[heeler: several tests ran while this was written, and which of them wrote it can't be told]\n";

#[derive(Debug)]
pub(super) struct Flight {
    pub(super) place: usize,
    pub(super) begun: Moment,
    /// Set when the test ends.
    pub(super) duration: Duration,
    pub(super) stdout: Capture,
    pub(super) stderr: Capture,
    pub(super) is_timed_out: bool,
    /// When the test or its process last produced output, moved forward by the time in which the system did
    /// not schedule it.
    pub(super) last_sign: Duration,
    pub(super) is_silent: bool,
    /// Its framework reported its end after its time limit had passed.
    pub(super) is_late: bool,
    /// The number of times it was reported as slow.
    pub(super) warnings: u32,
}

impl Flight {
    pub(super) fn with_limit(limit_bytes: u64) -> Self {
        Self {
            place: 0,
            begun: Moment::default(),
            duration: Duration::ZERO,
            stdout: Capture::with_limit(limit_bytes),
            stderr: Capture::with_limit(limit_bytes),
            is_timed_out: false,
            last_sign: Duration::ZERO,
            is_silent: false,
            is_late: false,
            warnings: 0,
        }
    }

    pub(super) fn give(&mut self, stderr: &[u8], is_shared: bool) {
        if is_shared {
            self.stderr.push(SHARED_NOTE);
        }
        self.stderr.push(stderr);
    }

    pub(super) fn outputs(&self) -> Outputs {
        Outputs { stdout: self.stdout.text(), stderr: self.stderr.text(), evidence: None }
    }

    pub(super) fn clear(&mut self) {
        self.stdout.clear();
        self.stderr.clear();
        self.is_timed_out = false;
        self.is_silent = false;
        self.is_late = false;
        self.warnings = 0;
    }
}
