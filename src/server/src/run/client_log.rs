//! Messages of a run for the client's log.

use heeler_protocol::{
    control::{LogLine, ProofLevel, TestId},
    mtp::LogLevel,
};

use super::RunPlan;
use crate::scheduler::{ClientEvents, ClientLogLine};

/// The client's log, for one run.
pub(super) struct ClientLog<'a> {
    pub(super) plan: &'a RunPlan,
    pub(super) events: &'a ClientEvents,
}

impl ClientLog<'_> {
    /// Forwards log lines, replacing each test id with the test's uid.
    pub(super) fn forward_lines(&self, lines: Vec<LogLine>) {
        let uid = |test| self.uid_of(test);
        let line = |LogLine { test, severity, message }: LogLine| {
            let test_uid = test.and_then(uid);
            ClientLogLine { test_uid, level: severity.into(), message }
        };
        self.events.log(Some(&self.plan.run_id), lines.into_iter().map(line).collect());
    }

    /// Logs one message about a test, or about the run if `test` is `None`.
    pub(super) fn log_line(&self, test: Option<TestId>, level: LogLevel, message: String) {
        let test_uid = test.and_then(|test| self.uid_of(test));
        self.events.log(Some(&self.plan.run_id), vec![ClientLogLine { test_uid, level, message }]);
    }

    fn uid_of(&self, test: TestId) -> Option<String> {
        Some(self.plan.tests.get(test.index())?.uid.clone())
    }

    /// Logs the proof level of a drained stream, if it is lower than usual.
    pub(super) fn log_proof(&self, who: &str, proof: ProofLevel) {
        let level = match proof {
            ProofLevel::Handled | ProofLevel::Ordered => {
                tracing::debug!(who, %proof, "a stream is drained");
                return;
            }
            ProofLevel::Delivered => LogLevel::Information,
            ProofLevel::None => LogLevel::Warning,
        };
        self.log_line(None, level, format!("{who}: all updates were sent, with proof level \"{proof}\""));
    }
}
