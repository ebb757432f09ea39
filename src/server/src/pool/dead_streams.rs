//! Connections to clients of processes that have died: they are brought to an end before the death is reported.

use std::{collections::BTreeMap, path::Path};

use heeler_protocol::control::{OsText, RunKey};
use heeler_transport::callback::{HeldStream, HeldStreams, StreamHolder};
use tokio::task::JoinSet;

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
    /// By run, the number of results, or of frames of its finish.
    pub positions: BTreeMap<RunKey, u64>,
    /// By run, the number of frames of its finish that were forwarded to the main connection.
    pub relayed: BTreeMap<RunKey, u64>,
    /// The directories of the runs whose completion is handled.
    pub completed: Vec<OsText>,
}

/// Brings the connections of a dead process to an end; returns what is proven with them, beyond what was.
pub(super) async fn settle_streams(streams: Vec<HeldStream>, mut proven: DeadSenderProof) -> DeadSenderProof {
    let settling: JoinSet<_> =
        streams.into_iter().map(|held| held.settle(StreamHolder::Coordinator)).collect();
    for settled in settling.join_all().await {
        for (run, position) in settled.positions {
            let earlier = proven.positions.entry(RunKey::new(settled.client, run)).or_default();
            *earlier = position.max(*earlier);
        }
        proven.completed.extend(settled.completed);
    }
    proven
}
