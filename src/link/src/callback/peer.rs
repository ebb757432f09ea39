//! Background reader of a callback connection: it sees answers to barriers and the peer's end, and answers
//! the client's requests, as every JSON-RPC peer must.

use serde_json::value::RawValue;
use tokio::sync::watch;
use wire::{
    frame::{FrameError, Frames},
    mtp::{self, InitializeResult, PeerInfo, ServerCapabilities, ServerTesting, method},
    rpc::{self, Message, RequestId, RpcError, code},
};

use crate::{Closed, Inbox, LinkError, Outbox};

const BARRIER_PREFIX: &str = "heeler-drained-";

/// State of the client on this connection.
#[derive(Debug, Default)]
pub(super) struct Peer {
    /// Number of the latest barrier that the client answered.
    pub(super) answered: u64,
    /// Number of the client's requests that were answered.
    pub(super) served: u64,
    /// Set once nothing more arrives from the client.
    pub(super) ended: Option<Ended>,
}

/// End of the client's side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// The client closed, or at least will send nothing more.
    Closed,
    /// The connection was reset, or the received data is damaged.
    Failed,
}

pub(super) fn barrier_id(barrier: u64) -> String {
    format!("{BARRIER_PREFIX}{barrier}")
}

fn barrier_of(id: &RequestId) -> Option<u64> {
    let RequestId::String(text) = id else { return None };
    text.strip_prefix(BARRIER_PREFIX)?.parse().ok()
}

/// Reads until the peer's end of stream.
pub(super) async fn read(mut inbox: Inbox<Frames>, outbox: Outbox, seen: watch::Sender<Peer>) {
    let ended = match read_all(&mut inbox, &outbox, &seen).await {
        Ok(()) => Ended::Closed,
        Err(error) => {
            tracing::debug!(%error, "a callback connection ended badly");
            Ended::Failed
        }
    };
    seen.send_modify(|peer| peer.ended = Some(ended));
}

async fn read_all(
    inbox: &mut Inbox<Frames>,
    outbox: &Outbox,
    seen: &watch::Sender<Peer>,
) -> Result<(), LinkError<FrameError>> {
    while let Some(body) = inbox.next().await? {
        let answer = match rpc::parse(&body) {
            Ok(Message::Response { id, .. }) => {
                if let Some(barrier) = barrier_of(&id) {
                    seen.send_modify(|peer| peer.answered = peer.answered.max(barrier));
                }
                continue;
            }
            Ok(Message::Notification { .. }) => continue,
            Ok(Message::Request { id, method, params }) => answer(&id, &method, params.as_deref()),
            Err(invalid) => rpc::error(&invalid.id, &invalid.error),
        };
        // After our half-close no request can be answered any more, but the peer's end must still be seen.
        let (Ok(()) | Err(Closed { .. })) = outbox.send(answer).await;
        seen.send_modify(|peer| peer.served += 1);
    }
    Ok(())
}

fn answer(id: &RequestId, name: &str, _params: Option<&RawValue>) -> bytes::Bytes {
    if name == method::INITIALIZE {
        return rpc::result(id, &introduction());
    }
    rpc::error(id, &RpcError::new(code::METHOD_NOT_FOUND, format!("method {name:?} is not known here")))
}

/// Returns this end's `initialize` result: the same as the server's on its main connection.
fn introduction() -> InitializeResult {
    InitializeResult {
        process_id: std::process::id(),
        server_info: PeerInfo { name: "heeler".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() },
        protocol_version: mtp::PROTOCOL_VERSION.to_owned(),
        capabilities: ServerCapabilities {
            testing: ServerTesting {
                supports_discovery: true,
                experimental_multi_request_support: true,
                attachments_support: true,
                attachments_provider: true,
                ..ServerTesting::default()
            },
        },
    }
}
