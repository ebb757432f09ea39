//! Server processes: they need not exit by themselves after the last request.

use std::time::Duration;

use crate::process::process_clock::ClockReading;

/// Time for a server to exit after its standard input has ended, unless the grace period is shorter.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct ServerExit {
    timeout: Duration,
    /// Running time at the end of standard input.
    since: Option<Duration>,
}

impl ServerExit {
    pub(super) fn new(grace_ms: u64) -> Self {
        Self { timeout: EXIT_TIMEOUT.min(Duration::from_millis(grace_ms)), since: None }
    }

    /// Records that no more requests follow.
    pub(super) fn on_requests_finished(&mut self, now: ClockReading) {
        self.since.get_or_insert(now.running);
    }

    /// Returns the deadline for the server's exit, in running time.
    pub(super) fn deadline(&self) -> Option<Duration> {
        Some(self.since?.saturating_add(self.timeout))
    }
}
