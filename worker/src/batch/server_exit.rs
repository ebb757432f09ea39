//! Processes that are servers: they do not have to exit by themselves after the last request.

use std::time::Duration;

use crate::process::process_clock::ClockReading;

/// How long a server may take to exit when its standard input has ended, unless the grace period is shorter.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// The end of a process that is a server.
#[derive(Debug)]
pub(super) struct ServerExit {
    timeout: Duration,
    /// When its standard input ended.
    since: Option<Duration>,
}

impl ServerExit {
    pub(super) fn new(grace_ms: u64) -> Self {
        Self { timeout: EXIT_TIMEOUT.min(Duration::from_millis(grace_ms)), since: None }
    }

    /// Records that no request follows.
    pub(super) fn on_requests_finished(&mut self, now: ClockReading) {
        self.since.get_or_insert(now.running);
    }

    /// Returns until when the server may take to exit.
    pub(super) fn deadline(&self) -> Option<Duration> {
        Some(self.since?.saturating_add(self.timeout))
    }
}
