//! Messages of a run for the client's log.

use heeler_protocol::{
    control::{LogLine, ProofLevel, TestId},
    mtp::{LogLevel, LogMessage, log_frames},
};
use heeler_transport::Outbox;

use super::RunPlan;

/// The client's log, for one run.
pub(super) struct ClientLog<'a> {
    pub(super) plan: &'a RunPlan,
    pub(super) client: &'a Outbox,
}

impl ClientLog<'_> {
    /// Forwards log lines, each with the uid of the test of this run that it is about.
    ///
    /// Cancel safe: no, because only a part may be sent.
    pub(super) async fn forward_lines(&self, run: Option<&str>, lines: Vec<LogLine>) {
        let is_ours = run == Some(&self.plan.run_id);
        let uid = |test: TestId| Some(self.plan.tests.get(test.0 as usize)?.uid.clone());
        let message = |LogLine { test, level, message }: LogLine| {
            let node_uid = test.filter(|_| is_ours).and_then(uid);
            LogMessage { node_uid, level, message }
        };
        let messages = lines.into_iter().map(message).collect();
        for frame in log_frames(self.plan.log_form, run, messages) {
            // The session notices a client that is gone.
            let _closed = self.client.send(frame).await;
        }
    }

    /// Logs one message about a test, or about the run.
    ///
    /// Cancel safe: no, as [`ClientLog::forward_lines`].
    pub(super) async fn log_line(&self, test: Option<TestId>, level: LogLevel, message: String) {
        self.forward_lines(Some(&self.plan.run_id), vec![LogLine { test, level, message }]).await;
    }

    /// Logs the proof level of a drained stream, if it is lower than usual.
    ///
    /// Cancel safe: no, as [`ClientLog::forward_lines`].
    pub(super) async fn log_proof(&self, who: &str, proof: ProofLevel) {
        let level = match proof {
            ProofLevel::Answered | ProofLevel::Ordered => {
                tracing::debug!(who, %proof, "a stream is drained");
                return;
            }
            ProofLevel::Closed | ProofLevel::Delivered | ProofLevel::None if proof.is_enough() => {
                LogLevel::Information
            }
            ProofLevel::Closed | ProofLevel::Delivered | ProofLevel::None => LogLevel::Warning,
        };
        self.log_line(None, level, format!("{who} drained its connection with proof level \"{proof}\""))
            .await;
    }
}
