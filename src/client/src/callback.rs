//! The callback listener: processes of the server connect, authenticate with the token, and report.
//!
//! An answer to a request on a callback connection proves that every earlier message of that connection has
//! been read and queued as an event; the echo barrier of the other end relies on this.

use std::{io, sync::Arc, time::Duration};

use heeler_protocol::{
    control::{CallbackAddress, CallbackEndpoint},
    frame::FrameDecoder,
    mtp::{CallbackProvider, HelloParams, method},
    rpc::{self, BorrowedRpcMessage, RequestId, RpcError, code},
};
use heeler_transport::{
    Inbox, Outbox,
    local::{AbstractListener, AcceptError, BindError, LocalStream},
    tcp::{self, UnknownPeerPolicy},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::timeout,
};

use super::{
    event_router::EventRouter,
    events::{ClientEvent, EventSource},
};

/// Larger than the number of workers on any machine; further connections wait until one of these ends.
const MAX_CONNECTIONS: usize = 1024;
/// A hello with its token is a few hundred bytes; an unauthenticated peer is not read beyond this.
const MAX_HELLO_BYTES: usize = 4 << 10;

/// Connections of other users that are reported as events; later ones are refused without an event.
const MAX_REPORTED_UNTRUSTED_PEERS: usize = 3;
/// Pause between a failed `accept` and the next attempt.
const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(20);

/// A listening socket, and the token that a connection must send first.
#[derive(Debug)]
pub(super) struct CallbackListener {
    socket: ListeningSocket,
    token: Arc<str>,
}

#[derive(Debug)]
enum ListeningSocket {
    TcpPort(TcpListener),
    Local(AbstractListener),
}

/// The callback listener of a client whose server runs in the same process: a local socket, which costs no
/// TCP port. The server learns its address from its owner, not from the client's `initialize`.
#[derive(Debug)]
pub struct InProcessCallbacks {
    listener: CallbackListener,
    address: CallbackAddress,
}

impl InProcessCallbacks {
    /// Listens on a local socket of its own.
    ///
    /// # Errors
    /// The system has no socket left.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn listen() -> Result<Self, BindError> {
        let name = format!("heeler-callback-{}", uuid::Uuid::new_v4().simple());
        let token: Arc<str> = new_token();
        let endpoint = CallbackEndpoint::LocalSocket { name: name.clone() };
        let address = CallbackAddress { endpoint, token: Some(token.to_string()) };
        let socket = ListeningSocket::Local(AbstractListener::bind(name)?);
        Ok(Self { listener: CallbackListener { socket, token }, address })
    }

    /// Returns the address and token that the server needs in order to connect.
    #[must_use]
    pub fn address(&self) -> &CallbackAddress {
        &self.address
    }

    pub(super) fn into_listener(self) -> CallbackListener {
        self.listener
    }
}

fn new_token() -> Arc<str> {
    uuid::Uuid::new_v4().simple().to_string().into()
}

/// A connection that was accepted.
enum AcceptedStream {
    Tcp(TcpStream),
    Local(LocalStream),
}

/// Why a connection was not accepted.
enum RefusedConnection {
    /// The other end belongs to another user.
    OtherUser(String),
    /// The system failed; the next attempt may succeed.
    Failed(String),
}

impl CallbackListener {
    /// Listens on a TCP port of its own.
    pub(super) async fn bind() -> io::Result<Self> {
        let socket = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?;
        Ok(Self { socket: ListeningSocket::TcpPort(socket), token: new_token() })
    }

    /// Returns the port and token that the server needs in order to connect; `None` for a local socket.
    pub(super) fn provider(&self) -> io::Result<Option<CallbackProvider>> {
        let ListeningSocket::TcpPort(socket) = &self.socket else { return Ok(None) };
        let port = socket.local_addr()?.port();
        Ok(Some(CallbackProvider { port, token: Some(self.token.to_string()) }))
    }

    /// Accepts a connection of this user.
    async fn accept(&self) -> Result<AcceptedStream, RefusedConnection> {
        match &self.socket {
            ListeningSocket::TcpPort(socket) => {
                let (stream, _) =
                    socket.accept().await.map_err(|error| RefusedConnection::Failed(error.to_string()))?;
                match tcp::verify_peer(&stream, UnknownPeerPolicy::Trust) {
                    Ok(()) => Ok(AcceptedStream::Tcp(stream)),
                    Err(untrusted) => Err(RefusedConnection::OtherUser(heeler_core::error_chain(&untrusted))),
                }
            }
            ListeningSocket::Local(socket) => match socket.accept().await {
                Ok(stream) => Ok(AcceptedStream::Local(stream)),
                Err(error @ AcceptError::OtherUser { .. }) => {
                    Err(RefusedConnection::OtherUser(heeler_core::error_chain(&error)))
                }
                Err(error @ (AcceptError::Accept(_) | AcceptError::Credentials(_))) => {
                    Err(RefusedConnection::Failed(heeler_core::error_chain(&error)))
                }
            },
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
                        tracing::error!(%error, "the reader of a callback connection has failed");
                    }
                }
                accepted = self.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                    Ok(AcceptedStream::Tcp(stream)) => {
                        if let Err(error) = stream.set_nodelay(true) {
                            tracing::debug!(%error, "a callback connection will be slow to answer");
                        }
                        let token = Arc::clone(&self.token);
                        connections.spawn(serve_connection(stream, token, hello_limit, Arc::clone(&intake)));
                    }
                    Ok(AcceptedStream::Local(stream)) => {
                        let token = Arc::clone(&self.token);
                        connections.spawn(serve_connection(stream, token, hello_limit, Arc::clone(&intake)));
                    }
                    // Connections of other users get no connection slot and no hello timeout, even with a
                    // valid token.
                    Err(RefusedConnection::OtherUser(reason)) => {
                        report_untrusted_peer(&intake, &mut untrusted_peers, reason).await;
                    }
                    Err(RefusedConnection::Failed(error)) => {
                        let reason = format!("accept: {error}");
                        intake.send_event(ClientEvent::CallbackRefused { reason }).await;
                        // An error that repeats at once (no file descriptors left) must not busy-loop.
                        tokio::time::sleep(ACCEPT_RETRY_PAUSE).await;
                    }
                },
            }
        }
    }
}

/// Reports the first few untrusted peers only, so that another user cannot flood the client's events.
async fn report_untrusted_peer(intake: &EventRouter, untrusted_peers: &mut usize, reason: String) {
    *untrusted_peers += 1;
    if *untrusted_peers <= MAX_REPORTED_UNTRUSTED_PEERS {
        intake.send_event(ClientEvent::CallbackRefused { reason }).await;
    }
}

async fn serve_connection<S>(stream: S, token: Arc<str>, hello_limit: Duration, intake: Arc<EventRouter>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
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
    // The peer has closed its end: output that cannot be written now never will be.
    drop(timeout(hello_limit, task.join()).await);
}

/// Counts a connection as open until it is dropped, also when its reader panics.
struct OpenCallbackCount<'a>(&'a EventRouter);

impl Drop for OpenCallbackCount<'_> {
    fn drop(&mut self) {
        self.0.on_callback_closed();
    }
}

/// Waits for the hello; returns the name of the sender, or the reason for refusing the connection.
async fn receive_hello(
    inbox: &mut Inbox<FrameDecoder>,
    token: &str,
    limit: Duration,
) -> Result<String, String> {
    let body = match timeout(limit, inbox.next()).await {
        Err(_) => return Err(format!("no hello within {limit:?}")),
        Ok(Err(error)) => return Err(format!("no hello: {}", heeler_core::error_chain(&error))),
        Ok(Ok(None)) => return Err("closed without a hello".to_owned()),
        Ok(Ok(Some(body))) => body,
    };
    let hello = match rpc::parse_borrowed(&body) {
        Ok(BorrowedRpcMessage::Notification { method, params: Some(params) }) if method == method::HELLO => {
            params
        }
        Ok(_) | Err(_) => return Err(format!("first message is no {}", method::HELLO)),
    };
    match serde_json::from_str::<HelloParams>(hello.get()) {
        Ok(hello) if hello.token == token => Ok(hello.from),
        Ok(hello) => Err(format!("wrong token from {:?}", hello.from)),
        Err(error) => Err(format!("hello: {error}")),
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
                // This task is the only sender on the connection, so a failure to send shows as the
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

/// Returns the response to a request of the server or one of its processes: telemetry is accepted as a
/// request too, any other method is unknown.
pub(super) fn response_to(id: &RequestId, name: &str) -> bytes::Bytes {
    if name == method::TELEMETRY {
        return rpc::encode_result(id, &());
    }
    rpc::encode_error(
        id,
        &RpcError::new(code::METHOD_NOT_FOUND, format!("method {name:?} is not known here")),
    )
}
