//! Client connections of dead processes. A death is reported only after the process's connections have been
//! read to their end. If tests of a dead worker may run again on other connections, clients must first handle
//! the updates that the worker sent over main connections.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use heeler_protocol::control::{ClientId, OsText, RunKey, StreamSender};
use heeler_transport::callback::{HeldStream, HeldStreams, StreamHolder};
use tokio::task::JoinSet;

use super::{
    client_sinks::ClientSinks,
    connection::ForwardedUpdates,
    workers::{PoolError, PoolEvent},
};

/// Data that clients have provably received from a dead process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DeadSenderProof {
    /// For each run, the number of results (from a worker) or finish frames (from the watchdog) received over
    /// the process's own connection. This proof stays valid even if other processes die.
    pub(crate) own_streams: BTreeMap<RunKey, u64>,
    /// For each run, the number of results or finish frames received over the main connection.
    pub(crate) relayed: BTreeMap<RunKey, u64>,
    /// Directories of the runs whose completion the client has handled.
    pub(crate) completed: Vec<OsText>,
}

impl DeadSenderProof {
    pub(crate) fn own_stream_of(&self, run: &RunKey) -> u64 {
        self.own_streams.get(run).copied().unwrap_or(0)
    }

    pub(crate) fn relayed_of(&self, run: &RunKey) -> u64 {
        self.relayed.get(run).copied().unwrap_or(0)
    }
}

pub(super) struct DeadSender {
    pub(super) sender: StreamSender,
    /// Data that clients have received, as far as known.
    pub(super) proven: DeadSenderProof,
    /// Updates on main connections that clients may not have handled yet.
    pub(super) forwarded: Option<Arc<ForwardedUpdates>>,
}

impl DeadSender {
    pub(super) fn watchdog(proven: DeadSenderProof) -> Self {
        Self { sender: StreamSender::Watchdog, proven, forwarded: None }
    }
}

/// Settles the connections of a dead process. Returns `proven` extended by what clients received over them.
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

/// Connections to clients left behind by dead processes of the pool.
pub(super) struct DeadStreams {
    /// Duplicates of the client connections of workers and watchdog; `None` if they can't be received.
    held: Option<HeldStreams>,
    clients: ClientSinks,
    /// Dead processes whose connections are being settled. Their deaths are reported afterwards.
    settling: JoinSet<PoolEvent>,
}

impl DeadStreams {
    /// Listens for duplicates of the client connections of workers and watchdog.
    pub(super) fn listen(control_socket: &Path, clients: ClientSinks) -> Self {
        let path = StreamHolder::Coordinator.socket_path(control_socket, 0);
        let held = HeldStreams::listen(&path)
            .inspect_err(|error| {
                tracing::warn!(%error, "cannot take over connections of killed workers; their results may come late");
            })
            .ok();
        Self { held, clients, settling: JoinSet::new() }
    }

    pub(super) fn drop_client(&self, client: ClientId) {
        if let Some(held) = &self.held {
            held.drop_client(client);
        }
    }

    /// Settles the client connections of a dead process. Returns the report of its death if there is nothing
    /// to wait for. Otherwise [`DeadStreams::next_settled`] returns it later.
    pub(super) fn settle(
        &mut self,
        dead: DeadSender,
        report: impl FnOnce(DeadSenderProof) -> PoolEvent + Send + 'static,
    ) -> Option<PoolEvent> {
        let DeadSender { sender, proven, forwarded } = dead;
        let streams = self.held.as_ref().map(|held| held.take(sender)).unwrap_or_default();
        if streams.is_empty() && forwarded.is_none() {
            return Some(report(proven));
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
        None
    }

    /// Returns whether no report of a death is pending.
    pub(super) fn is_settled(&self) -> bool {
        self.settling.is_empty()
    }

    /// Returns the next report of a death; `None` if none is pending.
    ///
    /// Cancel safe: yes, because a report is taken only when it is returned.
    pub(super) async fn next_settled(&mut self) -> Option<PoolEvent> {
        let settled = self.settling.join_next().await?;
        Some(settled.unwrap_or_else(|error| {
            // A death that is never reported would block its runs forever. Reporting the watchdog as lost
            // ends all runs.
            tracing::error!(%error, "internal error while closing the connections of a dead process");
            PoolEvent::watchdog_lost(PoolError::NoWatchdog)
        }))
    }
}
