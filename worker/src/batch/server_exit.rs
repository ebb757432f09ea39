//! Processes that are servers: they do not have to exit by themselves after the last request.

use std::time::Duration;

use heeler_sys::process::Signal;

use super::{BatchTerminateReason, ProcessExitSummary, RunningBatch};
use crate::process::process_clock::ClockReading;

/// How long a server may take to exit when its standard input has ended, unless the grace period is shorter.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// The end of a process that is a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ServerExit {
    timeout: Duration,
    /// When its standard input ended.
    since: Option<Duration>,
}

impl RunningBatch {
    /// Lets the process be a server, which is ended after its last request.
    pub(crate) fn expect_server(&mut self, grace_ms: u64) {
        let timeout = EXIT_TIMEOUT.min(Duration::from_millis(grace_ms));
        self.server_exit = Some(ServerExit { timeout, since: None });
    }

    /// Records that no request follows.
    pub(crate) fn on_requests_finished(&mut self, now: ClockReading) {
        if let Some(exit) = &mut self.server_exit {
            exit.since.get_or_insert(now.running);
        }
    }

    pub(super) fn server_exit_deadline(&self) -> Option<Duration> {
        let exit = self.server_exit.filter(|_| self.running_tests.is_empty())?;
        Some(exit.since?.saturating_add(exit.timeout))
    }

    /// Lets the end of a server that was ended count as its own good end, unless it crashed.
    pub(super) fn accept_server_end(&mut self, gone: &mut ProcessExitSummary) {
        if self.terminate_reason != Some(BatchTerminateReason::ServerEnded) {
            return;
        }
        (self.terminate_reason, gone.guard_loss) = (None, None);
        let is_ended = |signal| [Signal::TERM.0, Signal::KILL.0].contains(&signal);
        if gone.exit.signal.is_none_or(is_ended) {
            (gone.exit.signal, gone.exit.code) = (None, Some(0));
            gone.is_explained = gone.outside_failure.is_none();
            gone.is_own_death = false;
        }
    }
}
