//! Sends results out of the worker: first to the client, on a callback connection of the worker's own or
//! through the coordinator, then to the coordinator. Each client has one task, which owns the connection, so
//! that a client that reads slowly delays only this task and the leases of its own runs.

use std::{collections::HashMap, sync::Arc, time::Duration};

use heeler_protocol::{
    control::{
        CallbackAddress, ClientId, ClientRoute, DeliveryLimits, FromWorker, LeaseEnd, LeaseEvent, LeaseId,
        LogLine, ProofLevel, RunKey, UpdateEncoding, WorkerId,
    },
    mtp::LogLevel,
};
use heeler_transport::{
    LinkClosed,
    callback::{self, CallbackBroken, CallbackConnection},
    control::ControlSender,
};
use tokio::{io::AsyncWriteExt as _, sync::mpsc, time::timeout};

use crate::results::update_batch::UpdateBatch;
use heeler_core::error_chain;

/// At most two update batches wait, beside the one being sent: one is written while the next is made. More
/// would only take memory, since a client that is slower than that slows the run anyway.
pub(crate) const QUEUED_UPDATE_BATCHES: usize = 2;

/// Time after which a client that takes no results is reported as blocking this worker.
const BLOCKED_AFTER: Duration = Duration::from_secs(1);

/// A message to the result sender.
#[derive(Debug)]
pub(crate) enum SenderMessage {
    /// Journalled results of a lease.
    Updates { run: Arc<str>, lease: LeaseId, updates: Box<UpdateBatch> },
    /// The end of a lease: no more results of it follow.
    LeaseEnded { lease: LeaseId, end: Box<LeaseEnd>, start_us: Option<u64> },
    /// The delivery of a run's results is to be proven.
    Drain { run: String },
}

/// Where results are sent.
enum SenderRoute {
    /// Through the coordinator.
    Relay,
    /// To the client, once there is something to send.
    NotConnected(CallbackAddress),
    /// To the client, on this connection.
    Connected(CallbackAddress, Box<CallbackConnection>),
    /// Only to the journal: the watchdog sends them from there.
    Broken,
}

/// The task that sends the results of one client's runs.
pub(crate) struct ResultSender {
    control: ControlSender,
    worker: WorkerId,
    client: ClientId,
    limits: DeliveryLimits,
    encoding: UpdateEncoding,
    route: SenderRoute,
    /// The number of results sent of each run, until it is drained.
    sent_positions: HashMap<Arc<str>, u64>,
    /// The groups sent of each run, until it is drained: a new connection has to send them again.
    sent_groups: HashMap<Arc<str>, SentGroups>,
    /// The number of connections opened so far.
    connections: u32,
}

/// The groups of a run that were sent.
#[derive(Default)]
struct SentGroups {
    changes: Vec<Vec<u8>>,
    /// The number of the connection that they were sent on.
    connection: u32,
}

impl ResultSender {
    /// Returns a worker's result sender for a client. It connects to the client for the first result.
    pub(crate) fn new(
        control: ControlSender,
        worker: WorkerId,
        client: ClientId,
        route: ClientRoute,
    ) -> Self {
        let ClientRoute { callback, limits, encoding } = route;
        let route = callback.map_or(SenderRoute::Relay, SenderRoute::NotConnected);
        Self {
            control,
            worker,
            client,
            limits,
            encoding,
            route,
            sent_positions: HashMap::new(),
            sent_groups: HashMap::new(),
            connections: 0,
        }
    }

    /// Runs until all message senders are dropped.
    ///
    /// Cancel safe: no, because the update batch being sent is lost with the call. Its results are in the
    /// journal.
    ///
    /// # Errors
    /// Fails when the coordinator has disconnected.
    pub(crate) async fn run(mut self, mut inbox: mpsc::Receiver<SenderMessage>) -> Result<(), LinkClosed> {
        while let Some(message) = inbox.recv().await {
            match message {
                SenderMessage::Updates { run, lease, updates } => {
                    self.send_updates(run, lease, *updates).await?
                }
                SenderMessage::LeaseEnded { lease, end, start_us } => {
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
        write_shown_output(&updates).await;
        if updates.is_unjournalled {
            // If this worker dies, a test whose result the client may have must not run again, so the
            // coordinator must know of it first.
            self.send_reports(lease, std::mem::take(&mut updates.reports)).await?;
            self.control.flush().await?;
        }
        self.resend_groups(&run, &updates).await?;
        for load in updates.chunks() {
            let frame = self.encoding.frame(&run, load.changes.iter().copied());
            self.send_frame(load.position, frame).await?;
        }
        heeler_sys::fail::pass("worker.sent");
        let position = updates.position();
        if !updates.logs.is_empty() {
            let run = Some(run.as_ref().to_owned());
            self.control.send(&FromWorker::Log { client: self.client, run, lines: updates.logs }).await?;
        }
        self.sent_positions.insert(run, position);
        self.send_reports(lease, updates.reports).await?;
        heeler_sys::fail::pass("worker.reported");
        Ok(())
    }

    async fn send_reports(&self, lease: LeaseId, reports: Vec<LeaseEvent>) -> Result<(), LinkClosed> {
        match reports.is_empty() {
            true => Ok(()),
            false => self.control.send(&FromWorker::LeaseEvents { lease, events: reports }).await,
        }
    }

    /// Repeats the groups of a run on a new connection, because connections are independent: each begins with
    /// the groups that earlier ones carried.
    async fn resend_groups(&mut self, run: &Arc<str>, updates: &UpdateBatch) -> Result<(), LinkClosed> {
        if matches!(self.route, SenderRoute::Relay | SenderRoute::Broken) || updates.chunks().next().is_none()
        {
            return Ok(());
        }
        self.connect_if_needed().await?;
        let sent = self.sent_groups.entry(Arc::clone(run)).or_default();
        let is_new = std::mem::replace(&mut sent.connection, self.connections) != self.connections;
        let again = (is_new && !sent.changes.is_empty())
            .then(|| self.encoding.frame(run, sent.changes.iter().map(Vec::as_slice)));
        sent.changes.extend(updates.group_changes().map(<[u8]>::to_vec));
        match again {
            Some(frame) => self.send_frame(0, frame).await,
            None => Ok(()),
        }
    }

    async fn connect_if_needed(&mut self) -> Result<(), LinkClosed> {
        match &self.route {
            SenderRoute::NotConnected(address) => self.connect(address.clone()).await,
            SenderRoute::Relay | SenderRoute::Connected(..) | SenderRoute::Broken => Ok(()),
        }
    }

    async fn send_frame(&mut self, position: u64, frame: bytes::Bytes) -> Result<(), LinkClosed> {
        self.connect_if_needed().await?;
        let broken = match &mut self.route {
            SenderRoute::Relay => return self.control.forward(self.client, position, &frame).await,
            SenderRoute::Connected(_, callback) => {
                match send_to_client(&self.control, callback, frame).await? {
                    Ok(()) => return Ok(()),
                    Err(broken) => broken,
                }
            }
            SenderRoute::NotConnected(_) | SenderRoute::Broken => return Ok(()),
        };
        self.give_up(&error_chain(&broken)).await
    }

    async fn connect(&mut self, address: CallbackAddress) -> Result<(), LinkClosed> {
        let from = format!("worker {}", self.worker);
        match callback::dial(&address, &self.limits, &from).await {
            Ok(callback) => {
                self.connections += 1;
                self.route = SenderRoute::Connected(address, Box::new(callback));
                Ok(())
            }
            Err(error) => self.give_up(&error_chain(&error)).await,
        }
    }

    async fn give_up(&mut self, why: &str) -> Result<(), LinkClosed> {
        self.route = SenderRoute::Broken;
        let message = format!(
            "worker {} failed to {why}; its results are kept in its journal and sent when the run ends",
            self.worker
        );
        self.send_log(LogLevel::Warning, message).await
    }

    async fn send_log(&self, level: LogLevel, message: String) -> Result<(), LinkClosed> {
        let lines = vec![LogLine { test: None, level, message }];
        self.control.send(&FromWorker::Log { client: self.client, run: None, lines }).await
    }

    async fn drain(&mut self, run: String) -> Result<(), LinkClosed> {
        heeler_sys::fail::pass("worker.drain");
        let handed = self.sent_positions.remove(run.as_str()).unwrap_or(0);
        self.sent_groups.remove(run.as_str());
        let proof = match std::mem::replace(&mut self.route, SenderRoute::Broken) {
            SenderRoute::Relay => {
                self.route = SenderRoute::Relay;
                ProofLevel::Ordered
            }
            // No results were sent, so none can be missing.
            SenderRoute::NotConnected(address) => {
                self.route = SenderRoute::NotConnected(address);
                ProofLevel::Answered
            }
            SenderRoute::Connected(address, callback) => self.prove_delivery(address, *callback).await?,
            SenderRoute::Broken => ProofLevel::None,
        };
        heeler_sys::fail::pass("worker.proven");
        let position = if proof == ProofLevel::None { 0 } else { handed };
        let run = RunKey::new(self.client, run);
        self.control.send(&FromWorker::Drained { run, proof, position }).await?;
        heeler_sys::fail::pass("worker.drained");
        Ok(())
    }

    /// Proves delivery. A client that does not reply to the barrier can still prove, by closing its
    /// connection, that it has read to the end; the next run then connects again.
    async fn prove_delivery(
        &mut self,
        address: CallbackAddress,
        mut callback: CallbackConnection,
    ) -> Result<ProofLevel, LinkClosed> {
        let proof = match callback.prove().await {
            ProofLevel::Answered => {
                self.route = SenderRoute::Connected(address, Box::new(callback));
                return Ok(ProofLevel::Answered);
            }
            _ if callback.break_reason().is_some() => ProofLevel::None,
            ProofLevel::Closed | ProofLevel::Ordered | ProofLevel::Delivered | ProofLevel::None => {
                callback.finish().await
            }
        };
        if proof.is_enough() {
            self.route = SenderRoute::NotConnected(address);
        } else {
            self.give_up("prove that the client has read its results").await?;
        }
        Ok(proof)
    }
}

/// Sends a frame. While the client takes none, the coordinator knows it, so that the slot serves other clients.
async fn send_to_client(
    control: &ControlSender,
    callback: &mut CallbackConnection,
    frame: bytes::Bytes,
) -> Result<Result<(), CallbackBroken>, LinkClosed> {
    let sending = callback.send(frame);
    tokio::pin!(sending);
    if let Ok(sent) = timeout(BLOCKED_AFTER, &mut sending).await {
        return Ok(sent);
    }
    control.send(&FromWorker::Blocked { is_blocked: true }).await?;
    let sent = sending.await;
    control.send(&FromWorker::Blocked { is_blocked: false }).await?;
    Ok(sent)
}

/// Writes raw output to the worker's own streams. Errors are ignored: if a stream is closed, its owner does
/// not want the output.
async fn write_shown_output(updates: &UpdateBatch) {
    if !updates.shown_stdout.is_empty() {
        let mut stdout = tokio::io::stdout();
        drop(stdout.write_all(&updates.shown_stdout).await);
        drop(stdout.flush().await);
    }
    if !updates.shown_stderr.is_empty() {
        let mut stderr = tokio::io::stderr();
        drop(stderr.write_all(&updates.shown_stderr).await);
        drop(stderr.flush().await);
    }
}

#[cfg(test)]
mod tests;
