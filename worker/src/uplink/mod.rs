//! Sends results out of the worker: first to the client, on a callback connection of the worker's own or
//! through the coordinator, then to the coordinator. One task owns the connection, so that a client that
//! reads slowly delays only this task.

use std::{collections::HashMap, sync::Arc};

use link::{
    Closed,
    callback::{self, Callback},
    control::ControlSender,
};
use tokio::{io::AsyncWriteExt as _, sync::mpsc};
use wire::{
    control::{
        CallbackAddress, DeliveryLimits, FromWorker, LeaseEnd, LeaseId, LogLine, Proof, Report, WorkerId,
    },
    mtp::{LogLevel, updates_frame},
};

use crate::{chain::chain, parcel::Parcel};

/// At most two update batches wait, beside the one being sent: one is written while the next is made. More
/// would only take memory, since a client that is slower than that slows the run anyway.
pub(crate) const QUEUED_PARCELS: usize = 2;

/// A message to the result sender.
#[derive(Debug)]
pub(crate) enum ToUplink {
    /// Journalled results of a lease.
    Parcel { run: Arc<str>, lease: LeaseId, parcel: Box<Parcel> },
    /// The end of a lease: no more results of it follow.
    LeaseEnded { lease: LeaseId, end: Box<LeaseEnd>, start_us: Option<u64> },
    /// The delivery of a run's results is to be proven.
    Drain { run: String },
}

/// Where results are sent.
enum Route {
    /// Through the coordinator.
    Relay,
    /// To the client, once there is something to send.
    NotDialled(CallbackAddress),
    /// To the client, on this connection.
    Open(CallbackAddress, Box<Callback>),
    /// Only to the journal: the watchdog sends them from there.
    Broken,
}

/// The task that sends results.
pub(crate) struct Uplink {
    control: ControlSender,
    worker: WorkerId,
    limits: DeliveryLimits,
    route: Route,
    /// The number of results sent of each run, until it is drained.
    handed: HashMap<Arc<str>, u64>,
    /// The groups sent of each run, until it is drained: a new connection has to send them again.
    told: HashMap<Arc<str>, Told>,
    /// The number of connections opened so far.
    connections: u32,
}

/// The groups of a run that were sent.
#[derive(Default)]
struct Told {
    changes: Vec<Vec<u8>>,
    /// The number of the connection that they were sent on.
    on: u32,
}

impl Uplink {
    /// Returns the result sender of a worker. It connects to the client for the first result.
    pub(crate) fn new(
        control: ControlSender,
        worker: WorkerId,
        callback: Option<CallbackAddress>,
        limits: DeliveryLimits,
    ) -> Self {
        let route = callback.map_or(Route::Relay, Route::NotDialled);
        Self { control, worker, limits, route, handed: HashMap::new(), told: HashMap::new(), connections: 0 }
    }

    /// Runs until all message senders are dropped.
    ///
    /// Cancel safe: no, because the update batch being sent is lost with the call. Its results are in the
    /// journal.
    ///
    /// # Errors
    /// Fails when the coordinator has disconnected.
    pub(crate) async fn run(mut self, mut inbox: mpsc::Receiver<ToUplink>) -> Result<(), Closed> {
        while let Some(message) = inbox.recv().await {
            match message {
                ToUplink::Parcel { run, lease, parcel } => self.parcel(run, lease, *parcel).await?,
                ToUplink::LeaseEnded { lease, end, start_us } => {
                    self.control.send(&FromWorker::LeaseEnded { lease, end: *end, start_us }).await?;
                }
                ToUplink::Drain { run } => self.drain(run).await?,
            }
        }
        Ok(())
    }

    async fn parcel(&mut self, run: Arc<str>, lease: LeaseId, mut parcel: Parcel) -> Result<(), Closed> {
        show(&parcel).await;
        if parcel.is_unjournalled {
            // If this worker dies, a test whose result the client may have must not run again, so the
            // coordinator must know of it first.
            self.report(lease, std::mem::take(&mut parcel.reports)).await?;
            self.control.flush().await?;
        }
        self.tell_groups_again(&run, &parcel).await?;
        for load in parcel.loads() {
            let frame = updates_frame(&run, load.changes.iter().copied());
            self.hand_over(load.position, frame).await?;
        }
        host::fail::pass("worker.sent");
        let position = parcel.position();
        if !parcel.logs.is_empty() {
            let run = Some(run.as_ref().to_owned());
            self.control.send(&FromWorker::Log { run, lines: parcel.logs }).await?;
        }
        self.handed.insert(run, position);
        self.report(lease, parcel.reports).await?;
        host::fail::pass("worker.reported");
        Ok(())
    }

    async fn report(&self, lease: LeaseId, reports: Vec<Report>) -> Result<(), Closed> {
        match reports.is_empty() {
            true => Ok(()),
            false => self.control.send(&FromWorker::Reports { lease, reports }).await,
        }
    }

    /// Repeats the groups of a run on a new connection, because connections are independent: each begins with
    /// the groups that earlier ones carried.
    async fn tell_groups_again(&mut self, run: &Arc<str>, parcel: &Parcel) -> Result<(), Closed> {
        if matches!(self.route, Route::Relay | Route::Broken) || parcel.loads().next().is_none() {
            return Ok(());
        }
        self.dial_if_due().await?;
        let told = self.told.entry(Arc::clone(run)).or_default();
        let is_new = std::mem::replace(&mut told.on, self.connections) != self.connections;
        let again = (is_new && !told.changes.is_empty())
            .then(|| updates_frame(run, told.changes.iter().map(Vec::as_slice)));
        told.changes.extend(parcel.group_changes().map(<[u8]>::to_vec));
        match again {
            Some(frame) => self.hand_over(0, frame).await,
            None => Ok(()),
        }
    }

    async fn dial_if_due(&mut self) -> Result<(), Closed> {
        match &self.route {
            Route::NotDialled(address) => self.dial(address.clone()).await,
            Route::Relay | Route::Open(..) | Route::Broken => Ok(()),
        }
    }

    async fn hand_over(&mut self, position: u64, frame: bytes::Bytes) -> Result<(), Closed> {
        self.dial_if_due().await?;
        let broken = match &mut self.route {
            Route::Relay => return self.control.relay(position, &frame).await,
            Route::Open(_, callback) => match callback.send(frame).await {
                Ok(()) => return Ok(()),
                Err(broken) => broken,
            },
            Route::NotDialled(_) | Route::Broken => return Ok(()),
        };
        self.give_up(&chain(&broken)).await
    }

    async fn dial(&mut self, address: CallbackAddress) -> Result<(), Closed> {
        let from = format!("worker {}", self.worker);
        match callback::dial(&address, &self.limits, &from).await {
            Ok(callback) => {
                self.connections += 1;
                self.route = Route::Open(address, Box::new(callback));
                Ok(())
            }
            Err(error) => self.give_up(&chain(&error)).await,
        }
    }

    async fn give_up(&mut self, why: &str) -> Result<(), Closed> {
        self.route = Route::Broken;
        let message = format!(
            "worker {} failed to {why}; its results are kept in its journal and sent when the run ends",
            self.worker
        );
        self.log(LogLevel::Warning, message).await
    }

    async fn log(&self, level: LogLevel, message: String) -> Result<(), Closed> {
        let lines = vec![LogLine { test: None, level, message }];
        self.control.send(&FromWorker::Log { run: None, lines }).await
    }

    async fn drain(&mut self, run: String) -> Result<(), Closed> {
        host::fail::pass("worker.drain");
        let handed = self.handed.remove(run.as_str()).unwrap_or(0);
        self.told.remove(run.as_str());
        let proof = match std::mem::replace(&mut self.route, Route::Broken) {
            Route::Relay => {
                self.route = Route::Relay;
                Proof::Ordered
            }
            // No results were sent, so none can be missing.
            Route::NotDialled(address) => {
                self.route = Route::NotDialled(address);
                Proof::Answered
            }
            Route::Open(address, callback) => self.prove(address, *callback).await?,
            Route::Broken => Proof::None,
        };
        host::fail::pass("worker.proven");
        let position = if proof == Proof::None { 0 } else { handed };
        self.control.send(&FromWorker::Drained { run, proof, position }).await?;
        host::fail::pass("worker.drained");
        Ok(())
    }

    /// Proves delivery. A client that does not reply to the barrier can still prove, by closing its
    /// connection, that it has read to the end; the next run then connects again.
    async fn prove(&mut self, address: CallbackAddress, mut callback: Callback) -> Result<Proof, Closed> {
        let proof = match callback.prove().await {
            Proof::Answered => {
                self.route = Route::Open(address, Box::new(callback));
                return Ok(Proof::Answered);
            }
            _ if callback.broken().is_some() => Proof::None,
            Proof::Closed | Proof::Ordered | Proof::Delivered | Proof::None => callback.finish().await,
        };
        if proof.is_enough() {
            self.route = Route::NotDialled(address);
        } else {
            self.give_up("prove that the client has read its results").await?;
        }
        Ok(proof)
    }
}

/// Writes raw output to the worker's own streams. Errors are ignored: if a stream is closed, its owner does
/// not want the output.
async fn show(parcel: &Parcel) {
    if !parcel.shown.is_empty() {
        let mut stdout = tokio::io::stdout();
        drop(stdout.write_all(&parcel.shown).await);
        drop(stdout.flush().await);
    }
    if !parcel.shown_errors.is_empty() {
        let mut stderr = tokio::io::stderr();
        drop(stderr.write_all(&parcel.shown_errors).await);
        drop(stderr.flush().await);
    }
}

#[cfg(test)]
mod tests;
