//! Callback listener: the server's processes connect, authenticate with a token, and report.
//!
//! An answer on a callback connection proves that every earlier message of the connection has been read and
//! queued as an event. The server's barriers rely on this.

use std::{io, sync::Arc, time::Duration};

use heeler_protocol::{
    frame::FrameDecoder,
    mtp::{CallbackProvider, HelloParams, method},
    rpc::{self, BorrowedRpcMessage, RequestId, RpcError, code},
};
use heeler_transport::{
    Inbox, Outbox,
    tcp::{self, UnknownPeerPolicy},
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::timeout,
};

use super::{
    event_router::EventRouter,
    events::{ClientEvent, EventSource},
};

/// Maximum number of connections, larger than the number of workers on any machine. Further connections
/// wait.
const MAX_CONNECTIONS: usize = 1024;
/// Maximum bytes read from an unauthenticated peer. A hello with its token has a few hundred bytes.
const MAX_HELLO_BYTES: usize = 4 << 10;

/// Number of connections of other users that are reported as events; later ones are rejected silently.
const MAX_REPORTED_UNTRUSTED_PEERS: usize = 3;
/// Pause between a failed `accept` and the next attempt.
const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(20);

/// A listening port, and the token that each connection must send first.
#[derive(Debug)]
pub(super) struct CallbackListener {
    socket: TcpListener,
    token: Arc<str>,
}

/// Reason why a connection was not accepted.
enum RefusedConnection {
    /// The other end belongs to another user.
    OtherUser(String),
    /// The system failed; the next attempt may succeed.
    Failed(String),
}

impl CallbackListener {
    /// Listens on a free TCP port of the loopback interface.
    pub(super) async fn bind() -> io::Result<Self> {
        let socket = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?;
        Ok(Self { socket, token: uuid::Uuid::new_v4().simple().to_string().into() })
    }

    /// Returns the port and token for the server's connections.
    pub(super) fn provider(&self) -> io::Result<CallbackProvider> {
        let port = self.socket.local_addr()?.port();
        Ok(CallbackProvider { port, token: Some(self.token.to_string()) })
    }

    async fn accept(&self) -> Result<TcpStream, RefusedConnection> {
        let accepted = self.socket.accept().await;
        let (stream, _) = accepted.map_err(|error| RefusedConnection::Failed(error.to_string()))?;
        match tcp::verify_peer(&stream, UnknownPeerPolicy::Trust) {
            Ok(()) => Ok(stream),
            Err(untrusted) => Err(RefusedConnection::OtherUser(heeler_core::error_chain(&untrusted))),
        }
    }

    /// Accepts connections until the session ends.
    pub(super) async fn serve(self, hello_limit: Duration, intake: Arc<EventRouter>) {
        let mut connections = JoinSet::new();
        let mut untrusted_peers = 0;
        loop {
            tokio::select! {
                Some(ended) = connections.join_next() => {
                    if let Err(error) = ended {
                        tracing::error!(%error, "internal error while reading a callback connection");
                    }
                }
                accepted = self.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                    Ok(stream) => {
                        if let Err(error) = stream.set_nodelay(true) {
                            tracing::debug!(%error, "failed to set TCP_NODELAY on a callback connection");
                        }
                        let token = Arc::clone(&self.token);
                        connections.spawn(serve_connection(stream, token, hello_limit, Arc::clone(&intake)));
                    }
                    // Connections of other users are rejected immediately, even with a valid token.
                    Err(RefusedConnection::OtherUser(reason)) => {
                        report_untrusted_peer(&intake, &mut untrusted_peers, reason).await;
                    }
                    Err(RefusedConnection::Failed(error)) => {
                        let reason = format!("failed to accept a connection: {error}");
                        intake.send_event(ClientEvent::CallbackRefused { reason }).await;
                        // Pause: a persistent error (no file descriptors left) must not cause a busy loop.
                        tokio::time::sleep(ACCEPT_RETRY_PAUSE).await;
                    }
                },
            }
        }
    }
}

/// Reports only the first few untrusted peers, so that another user cannot flood the client's events.
async fn report_untrusted_peer(intake: &EventRouter, untrusted_peers: &mut usize, reason: String) {
    *untrusted_peers += 1;
    if *untrusted_peers <= MAX_REPORTED_UNTRUSTED_PEERS {
        intake.send_event(ClientEvent::CallbackRefused { reason }).await;
    }
}

async fn serve_connection(
    stream: TcpStream,
    token: Arc<str>,
    hello_limit: Duration,
    intake: Arc<EventRouter>,
) {
    let (outbox, mut inbox, mut task) =
        heeler_transport::open(stream, FrameDecoder::with_limit(MAX_HELLO_BYTES));
    let source = match receive_hello(&mut inbox, &token, hello_limit).await {
        Ok(from) => EventSource::Callback(from.into()),
        Err(reason) => return intake.send_event(ClientEvent::CallbackRefused { reason }).await,
    };
    *inbox.decoder_mut() = FrameDecoder::default();
    intake.on_callback_opened();
    let open = OpenCallbackCount(&intake);
    if let Err(reason) = read_messages(&mut inbox, &outbox, &source, &intake).await {
        intake.send_event(ClientEvent::ConnectionLost { source, reason }).await;
    }
    drop(open);
    outbox.close();
    // The peer has closed its end, so output that cannot be written now never will be.
    drop(timeout(hello_limit, task.join()).await);
}

/// Counts a connection as open until dropped, even when its reader panics.
struct OpenCallbackCount<'a>(&'a EventRouter);

impl Drop for OpenCallbackCount<'_> {
    fn drop(&mut self) {
        self.0.on_callback_closed();
    }
}

/// Waits for the hello; returns the sender's name, or the reason for rejecting the connection.
async fn receive_hello(
    inbox: &mut Inbox<FrameDecoder>,
    token: &str,
    limit: Duration,
) -> Result<String, String> {
    let body = match timeout(limit, inbox.next()).await {
        Err(_) => return Err(format!("no hello within {limit:?}")),
        Ok(Err(error)) => return Err(format!("no hello: failed to {}", heeler_core::error_chain(&error))),
        Ok(Ok(None)) => return Err("closed without a hello".to_owned()),
        Ok(Ok(Some(body))) => body,
    };
    let hello = match rpc::parse_borrowed(&body) {
        Ok(BorrowedRpcMessage::Notification { method, params: Some(params) }) if method == method::HELLO => {
            params
        }
        Ok(_) | Err(_) => return Err(format!("the first message is not {}", method::HELLO)),
    };
    match serde_json::from_str::<HelloParams>(hello.get()) {
        Ok(hello) if hello.token == token => Ok(hello.from),
        Ok(hello) => Err(format!("wrong token from {:?}", hello.from)),
        Err(error) => Err(format!("invalid hello: {error}")),
    }
}

/// Reads until the connection ends; the error describes an abnormal end.
async fn read_messages(
    inbox: &mut Inbox<FrameDecoder>,
    outbox: &Outbox,
    source: &EventSource,
    intake: &EventRouter,
) -> Result<(), String> {
    loop {
        let body = match inbox.next().await {
            Ok(Some(body)) => body,
            Ok(None) => return Ok(()),
            Err(error) => return Err(heeler_core::error_chain(&error)),
        };
        match rpc::parse_borrowed(&body) {
            Ok(BorrowedRpcMessage::Notification { method, params }) => {
                intake.on_notification(source, &method, params).await;
            }
            Ok(BorrowedRpcMessage::Request { id, method, params }) => {
                if method == method::TELEMETRY {
                    intake.on_notification(source, &method, params).await;
                }
                // This task is the only sender on the connection, so a send failure shows as the
                // connection's end.
                drop(outbox.send(response_to(&id, &method)).await);
            }
            Ok(BorrowedRpcMessage::Response { .. }) => {}
            Err(invalid) => {
                let reason = invalid.to_string();
                intake.send_event(ClientEvent::InvalidMessage { source: source.clone(), reason }).await;
                drop(outbox.send(rpc::encode_error(&invalid.id, &invalid.error)).await);
            }
        }
    }
}

/// Returns the response to a request of the server or its processes. Telemetry may arrive as a request; any
/// other method is unknown.
pub(super) fn response_to(id: &RequestId, name: &str) -> bytes::Bytes {
    if name == method::TELEMETRY {
        return rpc::encode_result(id, &());
    }
    rpc::encode_error(id, &RpcError::new(code::METHOD_NOT_FOUND, format!("unknown method {name:?}")))
}
