//! Destination of a lease's results: first the journal, then the result sender.

use std::sync::Arc;

use heeler_core::{LogLine, RecordSink, RunRecord, Severity, error_chain};
use heeler_protocol::control::{LeaseEnd, LeaseEvent, LeaseId, WorkerId, WorkerLease};
use tokio::sync::mpsc::{self, error::TrySendError};

use crate::results::{
    journal::Journal, lease_updates::LeaseUpdates, shown_output::ShownOutput, uplink::SenderMessage,
};

pub(super) struct ResultSink {
    run: Arc<str>,
    pub(super) lease: LeaseId,
    journal: Journal,
    result_sender: mpsc::Sender<SenderMessage>,
    /// Updates not handed over yet.
    updates: LeaseUpdates,
}

impl ResultSink {
    /// Creates the destination of a lease's results. The journal continues after earlier leases of the run.
    pub(super) fn new(
        lease: &WorkerLease,
        worker: WorkerId,
        mut journal: Journal,
        result_sender: mpsc::Sender<SenderMessage>,
    ) -> Self {
        let mut updates = LeaseUpdates::new(lease, worker, journal.position());
        updates.batch.sent_groups = std::mem::take(&mut journal.sent_groups);
        updates.batch.is_journal_full = journal.is_full();
        Self { run: lease.run.id.as_str().into(), lease: lease.lease, journal, result_sender, updates }
    }

    pub(super) fn run(&self) -> &Arc<str> {
        &self.run
    }

    /// Waits until the result sender has room for an update batch.
    ///
    /// Cancel safe: yes, because nothing is sent.
    pub(super) async fn has_room(&self) {
        // If the coordinator is gone, this worker is about to exit.
        let _closed = self.result_sender.reserve().await;
    }

    /// Tells the coordinator that all tests of the lease have ended and its process waits for more.
    ///
    /// # Errors
    /// If the queue of the result sender is full, or if the coordinator has disconnected.
    pub(super) fn try_send_idle(&self) -> Result<(), TrySendError<SenderMessage>> {
        self.result_sender.try_send(SenderMessage::LeaseIdle { lease: self.lease })
    }

    pub(super) fn into_journal(mut self) -> Journal {
        self.journal.sent_groups = self.updates.batch.sent_groups;
        self.journal
    }

    /// Writes new records to the journal, before any result is sent.
    fn write_ahead(&mut self) {
        let batch = &mut self.updates.batch;
        let written = self.journal.append(&batch.journal, batch.position());
        batch.journal.clear();
        batch.is_unjournalled = self.journal.is_given_up();
        if let Err(error) = written {
            let message =
                format!("failed to {}; results are still reported, but not recorded", error_chain(&error));
            batch.logs.push(LogLine { test: None, severity: Severity::Error, message });
        }
        if self.journal.check_limit() {
            let message = "the journals of this run have reached journal-limit; reports will lack the output of tests \
                           that end from now on";
            batch.logs.push(LogLine::warning(None, message.to_owned()));
        }
        batch.is_journal_full = self.journal.is_full();
    }

    pub(super) fn extend(&mut self, lease: &WorkerLease) {
        self.updates.extend(lease);
    }

    /// Adds a report to the coordinator that is not an event of the run.
    pub(super) fn report(&mut self, report: LeaseEvent) {
        self.updates.batch.reports.push(report);
    }

    /// Adds output for the worker's own standard streams.
    pub(super) fn show(&mut self, output: ShownOutput) {
        self.updates.batch.shown.append(output);
    }

    /// Hands over the update batch if the result sender has room. Otherwise the batch is kept and grows. In
    /// both cases, its records are in the journal afterwards.
    pub(super) fn try_send_batch(&mut self) {
        self.write_ahead();
        if self.updates.batch.is_empty() {
            return;
        }
        match self.result_sender.try_reserve() {
            Ok(permit) => permit.send(SenderMessage::Updates {
                run: Arc::clone(&self.run),
                lease: self.lease,
                updates: Box::new(self.updates.batch.take()),
            }),
            Err(TrySendError::Full(())) => {}
            // The coordinator has disconnected, so this worker is about to exit.
            Err(TrySendError::Closed(())) => drop(self.updates.batch.take()),
        }
    }

    /// Returns whether an update batch waits for room.
    pub(super) fn is_blocked(&self) -> bool {
        !self.updates.batch.is_empty()
    }

    /// Hands over the remaining updates and the end of the lease.
    pub(super) async fn finish(&mut self, end: LeaseEnd, start_us: Option<u64>) {
        self.write_ahead();
        let lease = self.lease;
        if !self.updates.batch.is_empty() {
            let updates = Box::new(self.updates.batch.take());
            // Sending fails only if the coordinator has disconnected, and this worker is about to exit.
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

impl RecordSink for ResultSink {
    fn record(&mut self, record: RunRecord) {
        self.updates.record(record);
    }
}
