//! Where the results of a lease go: first the journal, then the result sender.

use std::sync::Arc;

use heeler_core::{TestId, error_chain};
use heeler_protocol::{
    control::{LeaseEnd, LeaseId, LogLine, WorkerLease},
    mtp::LogLevel,
};
use tokio::sync::mpsc::{self, error::TrySendError};

use crate::results::{journal::Journal, update_batch::UpdateBatch, uplink::SenderMessage};

/// Destination of one lease's results: first the journal, then the result sender.
pub(super) struct ResultSink {
    run: Arc<str>,
    pub(super) lease: LeaseId,
    journal: Journal,
    result_sender: mpsc::Sender<SenderMessage>,
    /// Updates that are not handed over yet.
    pub(super) updates: UpdateBatch,
}

impl ResultSink {
    /// Returns the destination of a lease's results. The journal continues after earlier leases of the run.
    pub(super) fn new(
        lease: &WorkerLease,
        mut journal: Journal,
        result_sender: mpsc::Sender<SenderMessage>,
    ) -> Self {
        let mut updates = UpdateBatch::at_position(journal.position());
        updates.sent_groups = std::mem::take(&mut journal.sent_groups);
        updates.is_journal_full = journal.is_full();
        Self { run: lease.run.id.as_str().into(), lease: lease.lease, journal, result_sender, updates }
    }

    /// Returns the id of the run.
    pub(super) fn run(&self) -> &Arc<str> {
        &self.run
    }

    /// Waits until there is room for an update batch.
    ///
    /// Cancel safe: yes, because nothing is sent.
    pub(super) async fn has_room(&self) {
        // Without the coordinator this worker is about to exit.
        let _closed = self.result_sender.reserve().await;
    }

    /// Reports that all tests of the lease have ended, and its process waits for others.
    ///
    /// # Errors
    /// The queue of the result sender is full, or the coordinator has disconnected.
    pub(super) fn try_send_idle(&self) -> Result<(), TrySendError<SenderMessage>> {
        self.result_sender.try_send(SenderMessage::LeaseIdle { lease: self.lease })
    }

    /// Returns the journal for the next lease of the run.
    pub(super) fn into_journal(mut self) -> Journal {
        self.journal.sent_groups = self.updates.sent_groups;
        self.journal
    }

    /// Writes new records to the journal, before any result is sent.
    fn write_ahead(&mut self) {
        let written = self.journal.append(&self.updates.journal, self.updates.position());
        self.updates.journal.clear();
        self.updates.is_unjournalled = self.journal.is_given_up();
        if let Err(error) = written {
            let message =
                format!("failed to {}; results go on to the client without it", error_chain(&error));
            self.add_log_line(None, LogLevel::Error, message);
        }
        if self.journal.check_limit() {
            let message = "the journals of this run have reached their limit (journal-limit): reports will lack the \
                           outputs of tests that end from now on";
            self.add_log_line(None, LogLevel::Warning, message.to_owned());
        }
        self.updates.is_journal_full = self.journal.is_full();
    }

    /// Adds a line to the client's log, sent with the next update batch.
    pub(super) fn add_log_line(&mut self, test: Option<TestId>, level: LogLevel, message: String) {
        self.updates.logs.push(LogLine { test, level, message });
    }

    /// Hands the update batch over if there is room; otherwise it is kept and grows. Its records are in the
    /// journal then, in either case.
    pub(super) fn try_send_batch(&mut self) {
        self.write_ahead();
        if self.updates.is_empty() {
            return;
        }
        match self.result_sender.try_reserve() {
            Ok(permit) => permit.send(SenderMessage::Updates {
                run: Arc::clone(&self.run),
                lease: self.lease,
                updates: Box::new(self.updates.take()),
            }),
            Err(TrySendError::Full(())) => {}
            // The coordinator has disconnected, and this worker is about to exit.
            Err(TrySendError::Closed(())) => drop(self.updates.take()),
        }
    }

    /// Returns whether an update batch waits for room.
    pub(super) fn is_blocked(&self) -> bool {
        !self.updates.is_empty()
    }

    /// Hands over the remaining updates and the end of the lease.
    pub(super) async fn finish(&mut self, end: LeaseEnd, start_us: Option<u64>) {
        self.write_ahead();
        let lease = self.lease;
        if !self.updates.is_empty() {
            let updates = Box::new(self.updates.take());
            // Sending fails only when the coordinator has disconnected, and this worker is about to exit.
            drop(
                self.result_sender
                    .send(SenderMessage::Updates { run: Arc::clone(&self.run), lease, updates })
                    .await,
            );
        }
        drop(
            self.result_sender.send(SenderMessage::LeaseEnded { lease, end: Box::new(end), start_us }).await,
        );
    }
}
