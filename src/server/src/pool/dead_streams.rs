//! Connections to clients of processes that have died: they are brought to an end before the death is
//! reported. So is what a dead worker has sent over main connections, where its tests may run again on other
//! connections.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use heeler_core::client_progress::OverdueDecision;
use heeler_protocol::control::{ClientId, OsText, RunKey, StreamSender, WorkerId};
use heeler_transport::callback::{HeldStream, HeldStreams, StreamHolder, on_client_overdue};
use tokio::task::{JoinError, JoinSet};

use super::{
    connection::ForwardedUpdates,
    workers::{PoolError, PoolEvent, WorkerPool},
};

/// Listens for duplicates of the connections of workers and watchdog to clients.
pub(super) fn listen_for_streams(control_socket: &Path) -> Option<HeldStreams> {
    let path = StreamHolder::Coordinator.socket_path(control_socket, 0);
    HeldStreams::listen(&path)
        .inspect_err(|error| {
            tracing::warn!(%error, "results of a worker that is killed may arrive late at a slow client");
        })
        .ok()
}

/// What clients are proven to have of a dead process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadSenderProof {
    /// By run, the number of results, or of frames of its finish, that came over connections of its own. It
    /// holds whatever else dies.
    pub own_streams: BTreeMap<RunKey, u64>,
    /// By run, the same for the main connection.
    pub relayed: BTreeMap<RunKey, u64>,
    /// The directories of the runs whose completion is handled.
    pub completed: Vec<OsText>,
}

/// A process that has died.
pub(super) struct DeadSender {
    pub(super) sender: StreamSender,
    /// What is proven so far.
    pub(super) proven: DeadSenderProof,
    /// Its updates on main connections that may not be handled yet.
    pub(super) forwarded: Option<Arc<ForwardedUpdates>>,
}

impl DeadSender {
    /// Returns a dead watchdog.
    pub(super) fn watchdog(proven: DeadSenderProof) -> Self {
        Self { sender: StreamSender::Watchdog, proven, forwarded: None }
    }
}

/// Brings the connections of a dead process to an end; returns what is proven with them, beyond what was.
async fn settle_streams(streams: Vec<HeldStream>, mut proven: DeadSenderProof) -> DeadSenderProof {
    let settling: JoinSet<_> =
        streams.into_iter().map(|held| held.settle(StreamHolder::Coordinator)).collect();
    for settled in settling.join_all().await {
        for (run, position) in settled.positions {
            let run = RunKey::new(settled.client, run);
            let earlier = proven.own_streams.entry(run).or_default();
            *earlier = position.max(*earlier);
        }
        proven.completed.extend(settled.completed);
    }
    proven
}

impl WorkerPool {
    /// Decides whether a client is waited for longer that was waited for during `limit`: it is, if it has
    /// answered on the connection of any process within the limit.
    #[must_use]
    pub fn on_client_overdue(&self, client: ClientId, limit: Duration) -> OverdueDecision {
        on_client_overdue(&self.control_socket(), client, limit)
    }

    pub(super) fn remove_dead_worker(&mut self, worker: WorkerId) {
        let Some(link) = self.workers.remove(&worker) else { return };
        let is_lost_with_watchdog = link.is_lost_with_watchdog;
        let mut relayed = link.forwarded_before;
        let position = link.forwarded.position.load(Ordering::Acquire);
        relayed.extend(link.assigned_run.map(|run| (run, position)));
        let proven = DeadSenderProof { relayed, ..DeadSenderProof::default() };
        let forwarded = Some(link.forwarded).filter(|forwarded| forwarded.is_unhandled());
        let dead = DeadSender { sender: StreamSender::Worker(worker), proven, forwarded };
        let report = move |proven| PoolEvent::WorkerDied { worker, is_lost_with_watchdog, proven };
        self.report_settled(dead, report);
    }

    /// Reports the death of a process, once what it has sent to clients is brought to an end.
    pub(super) fn report_settled(
        &mut self,
        dead: DeadSender,
        report: impl FnOnce(DeadSenderProof) -> PoolEvent + Send + 'static,
    ) {
        let DeadSender { sender, proven, forwarded } = dead;
        let streams = self.held_streams.as_ref().map(|held| held.take(sender)).unwrap_or_default();
        if streams.is_empty() && forwarded.is_none() {
            self.pending_events.push_back(report(proven));
            return;
        }
        let clients = self.clients.clone();
        self.settling.spawn(async move {
            let handled = async {
                if let Some(forwarded) = forwarded {
                    forwarded.wait_until_handled(&clients).await;
                }
            };
            let (proven, ()) = tokio::join!(settle_streams(streams, proven), handled);
            report(proven)
        });
    }

    pub(super) fn on_settled(&mut self, settled: Result<PoolEvent, JoinError>) {
        match settled {
            Ok(event) => self.pending_events.push_back(event),
            // A death that is never reported would hold its runs up; without a watchdog all runs are ended.
            Err(error) => {
                tracing::error!(%error, "the connections of a dead process could not be brought to an end");
                self.push_watchdog_lost(PoolError::NoWatchdog);
            }
        }
    }

    pub(super) fn push_watchdog_lost(&mut self, error: PoolError) {
        self.pending_events.push_back(PoolEvent::WatchdogLost { error, proven: DeadSenderProof::default() });
    }
}
