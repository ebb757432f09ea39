//! Connections to clients of processes that have died: they are brought to an end before the death is
//! reported. So is what a dead worker has sent over main connections, where its tests may run again on other
//! connections.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use heeler_protocol::control::{ClientId, OsText, RunKey, StreamSender};
use heeler_transport::callback::{HeldStream, HeldStreams, StreamHolder};
use tokio::task::JoinSet;

use super::{
    client_sinks::ClientSinks,
    connection::ForwardedUpdates,
    workers::{PoolError, PoolEvent},
};

/// What clients are proven to have of a dead process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DeadSenderProof {
    /// By run, the number of results, or of frames of its finish, that came over connections of its own. It
    /// holds whatever else dies.
    pub(crate) own_streams: BTreeMap<RunKey, u64>,
    /// By run, the same for the main connection.
    pub(crate) relayed: BTreeMap<RunKey, u64>,
    /// The directories of the runs whose completion is handled.
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

/// The connections to clients that processes of the pool leave behind.
pub(super) struct DeadStreams {
    /// Duplicates of the connections of workers and watchdog to clients; `None` if they can't be received.
    held: Option<HeldStreams>,
    clients: ClientSinks,
    /// Dead processes whose connections are brought to an end; their deaths are reported after it.
    settling: JoinSet<PoolEvent>,
}

impl DeadStreams {
    /// Listens for duplicates of the connections of workers and watchdog to clients.
    pub(super) fn listen(control_socket: &Path, clients: ClientSinks) -> Self {
        let path = StreamHolder::Coordinator.socket_path(control_socket, 0);
        let held = HeldStreams::listen(&path)
            .inspect_err(|error| {
                tracing::warn!(%error, "results of a worker that is killed may arrive late at a slow client");
            })
            .ok();
        Self { held, clients, settling: JoinSet::new() }
    }

    pub(super) fn drop_client(&self, client: ClientId) {
        if let Some(held) = &self.held {
            held.drop_client(client);
        }
    }

    /// Brings to an end what a dead process has sent to clients. Returns the report of its death at once if
    /// there is nothing; otherwise it follows from [`DeadStreams::next_settled`].
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

    /// Returns whether no death is held back.
    pub(super) fn is_settled(&self) -> bool {
        self.settling.is_empty()
    }

    /// Returns the next report of a death; `None` if none is held back.
    ///
    /// Cancel safe: yes, because a report is taken only when it is returned.
    pub(super) async fn next_settled(&mut self) -> Option<PoolEvent> {
        let settled = self.settling.join_next().await?;
        Some(settled.unwrap_or_else(|error| {
            // A death that is never reported would hold its runs up; without a watchdog all runs are ended.
            tracing::error!(%error, "the connections of a dead process could not be brought to an end");
            PoolEvent::watchdog_lost(PoolError::NoWatchdog)
        }))
    }
}
