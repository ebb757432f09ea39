//! Sends results out of the worker: first to the client, over the worker's own callback connection or through
//! the coordinator, then to the coordinator. Each client has its own task, which owns the connection, so a
//! slow client delays only this task and the leases of its own runs.
//!
//! Updates of a test never overtake each other. If a test that the client saw start must run again, the rerun
//! may use another worker's connection. The coordinator therefore learns of the rerun only after the client
//! has handled everything on this connection.

mod early_reports;
mod retained_frames;

use std::{collections::HashMap, sync::Arc, time::Duration};

use bytes::Bytes;
use heeler_protocol::{
    control::{
        CallbackAddress, ClientId, ClientRoute, DeliveryLimits, FromWorker, LeaseEnd, LeaseEvent, LeaseId,
        LogLine, ProofLevel, RunKey, UnfinishedTests, UpdateEncoding, WorkerId,
    },
    mtp::{Attachment, attachments_frame},
};
use heeler_transport::{
    LinkClosed,
    callback::{self, CallbackConnection, StreamHolders},
    control::ControlSender,
};
use tokio::{sync::mpsc, time::timeout};

use self::{
    early_reports::take_early_reports,
    retained_frames::{RetainedFrames, RunningChanges},
};
use crate::results::update_batch::{TestChangeKind, UpdateBatch, UpdateChunk};
use heeler_core::{TestId, error_chain};

/// Maximum number of queued update batches, besides the one being sent: one is written while the next is
/// prepared. More would only use memory, since a slower client slows the run anyway.
pub(crate) const QUEUED_UPDATE_BATCHES: usize = 2;

/// Number of times a worker redials a client that refused or broke its connection, once per run. Reset when
/// the client proves that it has handled results.
const MAX_REDIALS: u32 = 8;

/// A client that accepts no results for this long is reported as blocking this worker.
const BLOCKED_AFTER: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) enum SenderMessage {
    /// Journalled results of a lease.
    Updates { run: Arc<str>, lease: LeaseId, updates: Box<UpdateBatch> },
    /// All tests of a lease have ended, and its process waits for more.
    LeaseIdle { lease: LeaseId },
    /// A lease has ended, and no more of its results follow.
    LeaseEnded { lease: LeaseId, end: Box<LeaseEnd>, start_us: Option<u64> },
    /// Check that the client has received the results of a run.
    Drain { run: String },
}

enum SenderRoute {
    Relay,
    /// Connect to the client when there is something to send.
    NotConnected(CallbackAddress),
    /// Send over this connection to the client.
    Connected(CallbackAddress, Box<CallbackConnection>),
    /// Send through the coordinator until the next run, because the client's port could not be used.
    Fallback(CallbackAddress),
    /// Write results only to the journal. The watchdog sends them from there.
    Broken,
}

/// Task that sends the results of one client's runs.
pub(crate) struct ResultSender {
    control: ControlSender,
    worker: WorkerId,
    client: ClientId,
    /// Processes that complete the stream if this worker dies.
    holders: StreamHolders,
    limits: DeliveryLimits,
    encoding: UpdateEncoding,
    /// The client reads the attachments stream.
    has_attachments_stream: bool,
    route: SenderRoute,
    /// Number of results sent for each run, until the run is drained.
    sent_positions: HashMap<Arc<str>, u64>,
    /// Groups sent for each run, until the run is drained. Sent again on a new connection.
    sent_groups: HashMap<Arc<str>, SentGroups>,
    /// Number of connections used so far. Falling back to the main connection counts as one.
    connections: u32,
    /// Frames on the current connection that the client has not handled yet.
    retained: RetainedFrames,
    unfinished: HashMap<LeaseId, UnfinishedTests>,
    /// Number of redials left after failures.
    redials: u32,
}

#[derive(Debug, Clone)]
struct HandedFrame {
    run: Arc<str>,
    /// Number of the run's results sent up to and including this frame.
    position: u64,
    bytes: Bytes,
    /// Number of changes in the frame.
    changes: usize,
    /// Changes of running tests in this frame. `None` if there are none, or if the frame is never sent again.
    running: Option<RunningChanges>,
    /// Tests whose results are in the frame.
    ended: Vec<TestId>,
}

#[derive(Default)]
struct SentGroups {
    changes: Vec<Vec<u8>>,
    /// Number of the connection that the groups were sent on.
    connection: u32,
}

impl ResultSender {
    /// Creates a worker's result sender for a client. The sender connects to the client for the first result.
    pub(crate) fn new(
        control: ControlSender,
        worker: WorkerId,
        holders: StreamHolders,
        route: ClientRoute,
    ) -> Self {
        let client = holders.client;
        let ClientRoute { callback, limits, encoding, has_attachments_stream } = route;
        let route = callback.map_or(SenderRoute::Relay, SenderRoute::NotConnected);
        Self {
            control,
            worker,
            client,
            holders,
            limits,
            encoding,
            has_attachments_stream,
            route,
            sent_positions: HashMap::new(),
            sent_groups: HashMap::new(),
            connections: 0,
            retained: RetainedFrames::default(),
            unfinished: HashMap::new(),
            redials: MAX_REDIALS,
        }
    }

    /// Runs until all message senders are dropped.
    ///
    /// Cancel safe: no, because the update batch being sent is lost, though its results are in the journal.
    ///
    /// # Errors
    /// If the coordinator has disconnected.
    pub(crate) async fn run(mut self, mut inbox: mpsc::Receiver<SenderMessage>) -> Result<(), LinkClosed> {
        while let Some(message) = inbox.recv().await {
            match message {
                SenderMessage::Updates { run, lease, updates } => {
                    self.send_updates(run, lease, *updates).await?
                }
                SenderMessage::LeaseIdle { lease } => {
                    self.control.send(&FromWorker::LeaseIdle { lease }).await?;
                }
                SenderMessage::LeaseEnded { lease, end, start_us } => {
                    if self.unfinished.remove(&lease).is_some_and(|tests| !tests.is_empty()) {
                        self.wait_until_handled().await?;
                    }
                    self.control.send(&FromWorker::LeaseEnded { lease, end: *end, start_us }).await?;
                }
                SenderMessage::Drain { run } => self.drain(run).await?,
            }
        }
        Ok(())
    }

    async fn send_updates(
        &mut self,
        run: Arc<str>,
        lease: LeaseId,
        mut updates: UpdateBatch,
    ) -> Result<(), LinkClosed> {
        updates.shown.write().await;
        let runs_again = self.unfinished.entry(lease).or_default().record(&updates.reports);
        if updates.is_unjournalled {
            // If this worker dies, a test whose result the client may have must not run again. The
            // coordinator must therefore learn of the result first.
            let early = take_early_reports(&mut updates.reports);
            self.send_reports(lease, early).await?;
            self.control.flush().await?;
        }
        self.redial_for_new_run();
        self.resend_groups(&run, &updates).await?;
        for load in updates.chunks() {
            let frame = self.frame_of(&run, &load);
            self.send_frame(frame).await?;
        }
        heeler_sys::fail::pass("worker.sent");
        let position = updates.position();
        if !updates.logs.is_empty() {
            let run = Some(run.as_ref().to_owned());
            self.control.send(&FromWorker::Log { client: self.client, run, lines: updates.logs }).await?;
        }
        self.sent_positions.insert(run, position);
        if runs_again {
            self.wait_until_handled().await?;
        }
        self.send_reports(lease, updates.reports).await?;
        heeler_sys::fail::pass("worker.reported");
        Ok(())
    }

    fn frame_of(&self, run: &Arc<str>, chunk: &UpdateChunk<'_>) -> HandedFrame {
        let updates = self.encoding.frame(run, chunk.changes.iter().copied());
        // Only frames on a connection that may break are ever sent again.
        let is_kept = matches!(self.route, SenderRoute::Connected(..));
        let running = is_kept.then(|| RunningChanges::of_chunk(chunk, &updates)).flatten();
        let ended = chunk.tests.iter().filter(|change| change.kind == TestChangeKind::Ended);
        HandedFrame {
            run: Arc::clone(run),
            position: chunk.position,
            bytes: self.with_files(run, chunk, updates),
            changes: chunk.changes.len(),
            running,
            ended: ended.map(|change| change.test).collect(),
        }
    }

    /// Appends the files of a chunk's results to the frame of its changes, so that both are sent, counted and
    /// resent as one.
    fn with_files(&self, run: &str, chunk: &UpdateChunk<'_>, updates: Bytes) -> Bytes {
        if chunk.files.is_empty() || !self.has_attachments_stream {
            return updates;
        }
        let files = chunk.files.iter().map(|file| Attachment::file(&file.path, &file.description));
        let files = attachments_frame(run, Some(files.collect()));
        [updates, files].concat().into()
    }

    /// Waits until the client has handled everything on this worker's connection. No wait is needed on the
    /// coordinator's connection, which keeps the order.
    async fn wait_until_handled(&mut self) -> Result<(), LinkClosed> {
        let SenderRoute::Connected(_, callback) = &mut self.route else { return Ok(()) };
        let proof = report_blocking(&self.control, callback.prove()).await?;
        heeler_sys::fail::pass("worker.handled");
        match proof {
            ProofLevel::Handled | ProofLevel::Ordered => Ok(()),
            ProofLevel::Delivered | ProofLevel::None => {
                self.fall_back("confirm that the client has handled its results").await
            }
        }
    }

    async fn send_reports(&self, lease: LeaseId, reports: Vec<LeaseEvent>) -> Result<(), LinkClosed> {
        match reports.is_empty() {
            true => Ok(()),
            false => self.control.send(&FromWorker::LeaseEvents { lease, events: reports }).await,
        }
    }

    /// Allows redialling a client for the first results of a new run, if the client refused this worker, or
    /// closed or broke its connection. A client that did not answer is redialled once it answers.
    fn redial_for_new_run(&mut self) {
        // Results of other runs may be queued on the main connection and must not be overtaken.
        let is_first = self.sent_positions.is_empty();
        if !is_first || self.redials == 0 {
            return;
        }
        let address = match &self.route {
            SenderRoute::Fallback(address) if !self.holders.shared_progress().answers().has_stopped() => {
                address
            }
            // A client may close its connections after a run.
            SenderRoute::Connected(address, callback) if callback.break_reason().is_some() => address,
            SenderRoute::Fallback(_)
            | SenderRoute::Connected(..)
            | SenderRoute::Relay
            | SenderRoute::NotConnected(_)
            | SenderRoute::Broken => return,
        };
        self.redials -= 1;
        self.route = SenderRoute::NotConnected(address.clone());
    }

    /// Sends the groups of a run again on another connection. Connections are independent, so each must begin
    /// with the groups sent on earlier ones.
    async fn resend_groups(&mut self, run: &Arc<str>, updates: &UpdateBatch) -> Result<(), LinkClosed> {
        if !updates.has_changes() {
            return Ok(());
        }
        self.connect_if_needed().await?;
        let again = self.groups_frame(run);
        let sent = self.sent_groups.entry(Arc::clone(run)).or_default();
        sent.connection = self.connections;
        sent.changes.extend(updates.group_changes().map(<[u8]>::to_vec));
        match again {
            Some(frame) => self.send_frame(frame).await,
            None => Ok(()),
        }
    }

    /// Returns a frame with the groups that a run sent on an earlier connection but not on this one.
    fn groups_frame(&mut self, run: &Arc<str>) -> Option<HandedFrame> {
        let position = self.sent_positions.get(run).copied().unwrap_or(0);
        let sent = self.sent_groups.get_mut(run)?;
        let is_new = std::mem::replace(&mut sent.connection, self.connections) != self.connections;
        (is_new && !sent.changes.is_empty()).then(|| HandedFrame {
            run: Arc::clone(run),
            position,
            bytes: self.encoding.frame(run, sent.changes.iter().map(Vec::as_slice)),
            changes: sent.changes.len(),
            running: None,
            ended: Vec::new(),
        })
    }

    async fn connect_if_needed(&mut self) -> Result<(), LinkClosed> {
        match &self.route {
            SenderRoute::NotConnected(address) => self.connect(address.clone()).await,
            SenderRoute::Relay
            | SenderRoute::Connected(..)
            | SenderRoute::Fallback(_)
            | SenderRoute::Broken => Ok(()),
        }
    }

    async fn send_frame(&mut self, frame: HandedFrame) -> Result<(), LinkClosed> {
        self.connect_if_needed().await?;
        let broken = match &mut self.route {
            SenderRoute::Relay | SenderRoute::Fallback(_) => return self.relay(&frame).await,
            SenderRoute::Connected(_, callback) => {
                // Retain the frame first: if sending is interrupted, the frame may have been sent, and is
                // sent again over the other route.
                self.retained.push(frame.clone());
                callback.set_position(&frame.run, frame.position);
                let sending = callback.send(&frame.run, frame.bytes, frame.changes);
                let sent = report_blocking(&self.control, sending).await?;
                self.retained.release(callback);
                match sent {
                    Ok(()) => return Ok(()),
                    Err(broken) => broken,
                }
            }
            SenderRoute::NotConnected(_) | SenderRoute::Broken => return Ok(()),
        };
        self.fall_back(&error_chain(&broken)).await
    }

    async fn relay(&self, frame: &HandedFrame) -> Result<(), LinkClosed> {
        self.control.forward(self.client, frame.position, &frame.bytes).await
    }

    async fn connect(&mut self, address: CallbackAddress) -> Result<(), LinkClosed> {
        if self.holders.shared_progress().answers().has_stopped() {
            // Other connections have already waited for this client and logged it.
            self.route = SenderRoute::Fallback(address);
            return Ok(());
        }
        let from = format!("worker {}", self.worker);
        match callback::dial(&address, &self.limits, &from, Some(&self.holders)).await {
            Ok(callback) => {
                self.connections += 1;
                self.retained = RetainedFrames::default();
                self.route = SenderRoute::Connected(address, Box::new(callback));
                Ok(())
            }
            Err(error) => {
                self.route = SenderRoute::Fallback(address);
                self.log_fallback(&error_chain(&error), "sending its results over the main connection").await
            }
        }
    }

    /// Gives up the callback connection. Frames that the client may not have handled are resent through the
    /// coordinator, followed by later results. If these frames are no longer available, the watchdog sends
    /// all results at the end of the run.
    async fn fall_back(&mut self, why: &str) -> Result<(), LinkClosed> {
        let SenderRoute::Connected(address, mut callback) =
            std::mem::replace(&mut self.route, SenderRoute::Broken)
        else {
            return Ok(());
        };
        self.retained.release(&mut callback);
        callback.give_up().await;
        let Some(frames) = std::mem::take(&mut self.retained).into_unhandled() else {
            return self
                .log_fallback(why, "its results are in its journal and will be sent at the end of the run")
                .await;
        };
        self.route = SenderRoute::Fallback(address);
        self.connections += 1;
        self.log_fallback(why, "sending its results over the main connection").await?;
        for frame in frames {
            if let Some(groups) = self.groups_frame(&frame.run) {
                // Position 0 is safe: the groups contain no results, and the next frame restores the
                // position.
                self.control.forward(self.client, 0, &groups.bytes).await?;
            }
            self.relay(&frame).await?;
        }
        Ok(())
    }

    async fn log_fallback(&self, why: &str, remedy: &str) -> Result<(), LinkClosed> {
        let message = format!("worker {} failed to {why}; {remedy}", self.worker);
        let lines = vec![LogLine::warning(None, message)];
        self.control.send(&FromWorker::Log { client: self.client, run: None, lines }).await
    }

    async fn drain(&mut self, run: String) -> Result<(), LinkClosed> {
        heeler_sys::fail::pass("worker.drain");
        let handed = self.sent_positions.get(run.as_str()).copied().unwrap_or(0);
        let (proof, position) = match &mut self.route {
            SenderRoute::Relay | SenderRoute::Fallback(_) => (ProofLevel::Ordered, handed),
            // No results were sent, so none can be missing.
            SenderRoute::NotConnected(_) => (ProofLevel::Handled, handed),
            SenderRoute::Connected(_, callback) => {
                let proof = callback.prove().await;
                self.prove_drained(&run, proof, handed).await?
            }
            SenderRoute::Broken => (ProofLevel::None, 0),
        };
        // Until here, another route might have needed the groups again.
        self.sent_positions.remove(run.as_str());
        self.sent_groups.remove(run.as_str());
        match self.sent_positions.is_empty() {
            true => self.retained.forget_all(),
            false => self.retained.forget_run(&run),
        }
        heeler_sys::fail::pass("worker.proven");
        let run = RunKey::new(self.client, run);
        self.control.send(&FromWorker::Drained { run, proof, position }).await?;
        heeler_sys::fail::pass("worker.drained");
        Ok(())
    }

    /// Returns the proof for a run whose results were sent on the callback connection, and the position that
    /// it covers.
    async fn prove_drained(
        &mut self,
        run: &str,
        proof: ProofLevel,
        handed: u64,
    ) -> Result<(ProofLevel, u64), LinkClosed> {
        let SenderRoute::Connected(_, callback) = &mut self.route else { return Ok((proof, handed)) };
        self.retained.release(callback);
        let handled = callback.handled_position(run);
        match proof {
            ProofLevel::Handled | ProofLevel::Ordered => {
                self.redials = MAX_REDIALS;
                callback.drain_run(run, handed);
                Ok((proof, handed))
            }
            ProofLevel::Delivered | ProofLevel::None => {
                self.fall_back("confirm that the client has handled its results").await?;
                let is_relayed = matches!(self.route, SenderRoute::Fallback(_));
                Ok(if is_relayed { (ProofLevel::Ordered, handed) } else { (ProofLevel::None, handled) })
            }
        }
    }
}

/// Waits for an operation that the client may delay. After a while, reports the delay to the coordinator, so
/// that the slot can serve other clients.
async fn report_blocking<T>(
    control: &ControlSender,
    waiting: impl Future<Output = T>,
) -> Result<T, LinkClosed> {
    tokio::pin!(waiting);
    if let Ok(output) = timeout(BLOCKED_AFTER, &mut waiting).await {
        return Ok(output);
    }
    control.send(&FromWorker::Blocked { is_blocked: true }).await?;
    let output = waiting.await;
    control.send(&FromWorker::Blocked { is_blocked: false }).await?;
    Ok(output)
}

#[cfg(test)]
mod tests;
