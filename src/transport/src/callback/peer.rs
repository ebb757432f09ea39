//! Background reader of a callback connection. The reader sees answers to barriers and the peer's end, and
//! answers the client's requests, as every JSON-RPC peer must.

use std::sync::Arc;

use heeler_protocol::{
    frame::{FrameDecoder, FrameError},
    mtp::{InitializeResult, method},
    rpc::{self, RequestId, RpcError, RpcMessage, code},
};
use serde_json::value::RawValue;
use tokio::sync::watch;

use super::client_progress::SharedProgress;
use crate::{Inbox, LinkClosed, LinkError, Outbox};

/// State of the client on this connection.
#[derive(Debug, Default)]
pub(super) struct PeerState {
    /// Number of the latest answered barrier.
    pub(super) answered: u64,
    /// Whether the client has answered the first barrier, which uses the method of updates.
    pub(super) has_answered_opening: bool,
    /// Number of the client's requests that were answered.
    pub(super) served: u64,
    /// Set when nothing more will arrive from the client.
    pub(super) ended: Option<PeerEnd>,
}

/// End of the client's side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PeerEnd {
    /// The client closed the connection, or at least its sending side.
    Closed,
    /// The connection was reset, or received damaged data.
    Failed,
    /// The peer has sent a message that only clients receive, such as our own request. The peer is not a
    /// client (perhaps an echo server), so its answers prove nothing.
    NoClient,
}

const OPENING_BARRIER: u64 = 1;

/// Returns the number of the barrier that a response answers. All our requests on this connection are
/// barriers.
fn barrier_number(id: &RequestId) -> Option<u64> {
    let RequestId::Number(text) = id else { return None };
    text.parse().ok()
}

/// Reads until the peer's end of stream.
pub(super) async fn read(
    mut inbox: Inbox<FrameDecoder>,
    outbox: Outbox,
    seen: watch::Sender<PeerState>,
    progress: Arc<SharedProgress>,
) {
    let ended = match read_all(&mut inbox, &outbox, &seen, &progress).await {
        Ok(ended) => ended,
        Err(error) => {
            tracing::debug!(%error, "a callback connection ended with an error");
            PeerEnd::Failed
        }
    };
    seen.send_modify(|peer| peer.ended = Some(ended));
}

async fn read_all(
    inbox: &mut Inbox<FrameDecoder>,
    outbox: &Outbox,
    seen: &watch::Sender<PeerState>,
    progress: &SharedProgress,
) -> Result<PeerEnd, LinkError<FrameError>> {
    while let Some(body) = inbox.next().await? {
        let answer = match rpc::parse(&body) {
            Ok(RpcMessage::Response { id, .. }) => {
                if let Some(barrier) = barrier_number(&id) {
                    // Record immediately, even if nothing is being sent here: other processes may be waiting
                    // for this client.
                    progress.note_answer();
                    if barrier == OPENING_BARRIER {
                        progress.note_bound_method();
                    }
                    seen.send_modify(|peer| {
                        peer.answered = peer.answered.max(barrier);
                        peer.has_answered_opening |= barrier == OPENING_BARRIER;
                    });
                }
                continue;
            }
            Ok(RpcMessage::Request { method, .. } | RpcMessage::Notification { method, .. })
                if method::is_sent_to_clients(&method) =>
            {
                return Ok(PeerEnd::NoClient);
            }
            Ok(RpcMessage::Notification { .. }) => continue,
            Ok(RpcMessage::Request { id, method, params }) => respond(&id, &method, params.as_deref()),
            Err(invalid) => rpc::encode_error(&invalid.id, &invalid.error),
        };
        // After our half-close, requests can no longer be answered, but the peer's end must still be seen.
        let (Ok(()) | Err(LinkClosed { .. })) = outbox.send(answer).await;
        seen.send_modify(|peer| peer.served += 1);
    }
    Ok(PeerEnd::Closed)
}

fn respond(id: &RequestId, name: &str, _params: Option<&RawValue>) -> bytes::Bytes {
    if name == method::INITIALIZE {
        // Answer `initialize` as on the main connection.
        return rpc::encode_result(id, &InitializeResult::of_heeler(std::process::id()));
    }
    rpc::encode_error(id, &RpcError::new(code::METHOD_NOT_FOUND, format!("unknown method {name:?}")))
}
