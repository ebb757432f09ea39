//! A running test: since when it runs, and what it has written.

use std::time::Duration;

use crate::{output_capture::OutputCapture, process_clock::ClockReading, verdict::TestOutputs};

pub(super) const SHARED_STDERR_NOTE: &[u8] =
    b"[heeler: several tests ran while this was written; any of them may have written it]\n";

#[derive(Debug)]
pub(super) struct RunningTest {
    pub(super) place: usize,
    pub(super) started_at: ClockReading,
    /// Set when the test ends.
    pub(super) duration: Duration,
    pub(super) stdout: OutputCapture,
    pub(super) stderr: OutputCapture,
    pub(super) is_timed_out: bool,
    /// When the test or its process last produced output, moved forward by the time in which the system did
    /// not schedule it.
    pub(super) last_activity: Duration,
    pub(super) is_idle: bool,
    /// Its framework reported its end after its time limit had passed.
    pub(super) is_late: bool,
    /// The number of times it was reported as slow.
    pub(super) slow_warnings: u32,
}

impl RunningTest {
    pub(super) fn with_limit(limit_bytes: u64) -> Self {
        Self {
            place: 0,
            started_at: ClockReading::default(),
            duration: Duration::ZERO,
            stdout: OutputCapture::with_limit(limit_bytes),
            stderr: OutputCapture::with_limit(limit_bytes),
            is_timed_out: false,
            last_activity: Duration::ZERO,
            is_idle: false,
            is_late: false,
            slow_warnings: 0,
        }
    }

    pub(super) fn push_stderr(&mut self, stderr: &[u8], is_shared: bool) {
        if is_shared {
            self.stderr.push(SHARED_STDERR_NOTE);
        }
        self.stderr.push(stderr);
    }

    pub(super) fn outputs(&self) -> TestOutputs {
        TestOutputs { stdout: self.stdout.text(), stderr: self.stderr.text(), evidence: None }
    }

    pub(super) fn reset(&mut self) {
        self.stdout.clear();
        self.stderr.clear();
        self.is_timed_out = false;
        self.is_idle = false;
        self.is_late = false;
        self.slow_warnings = 0;
    }
}
