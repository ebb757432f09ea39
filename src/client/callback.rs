//! The callback listener: processes of the server connect, authenticate with the token, and report.
//!
//! An answer to a request on a callback connection proves that every earlier message of that connection has
//! been read and queued as an event; the echo barrier of the other end relies on this.

use std::{io, sync::Arc, time::Duration};

use link::{
    Inbox, Outbox,
    tcp::{self, Stranger, Untold},
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::timeout,
};
use wire::{
    frame::Frames,
    mtp::{CallbackProvider, HelloParams, method},
    rpc::{self, BorrowedMessage, RequestId, RpcError, code},
};

use super::{
    events::{Event, Source},
    intake::Intake,
};

/// Larger than the number of workers on any machine; further connections wait until one of these ends.
const CONNECTIONS_AT_MOST: usize = 1024;
/// A hello with its token is a few hundred bytes; an unauthenticated peer is not read beyond this.
const HELLO_LIMIT_BYTES: usize = 4 << 10;

/// Connections of other users that are reported as events; later ones are refused without an event.
const STRANGERS_TOLD: usize = 3;
/// Pause between a failed `accept` and the next attempt.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// A listening socket on a port of its own.
#[derive(Debug)]
pub(super) struct Listener {
    socket: TcpListener,
    token: Arc<str>,
    hello_limit: Duration,
}

impl Listener {
    pub(super) async fn bind(hello_limit: Duration) -> io::Result<Self> {
        let socket = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?;
        Ok(Self { socket, token: uuid::Uuid::new_v4().simple().to_string().into(), hello_limit })
    }

    /// Returns the port and token that the server needs in order to connect.
    pub(super) fn provider(&self) -> io::Result<CallbackProvider> {
        Ok(CallbackProvider { port: self.socket.local_addr()?.port(), token: Some(self.token.to_string()) })
    }

    /// Accepts connections until the session ends.
    pub(super) async fn serve(self, intake: Arc<Intake>) {
        let mut connections = JoinSet::new();
        let mut strangers = 0;
        loop {
            tokio::select! {
                Some(ended) = connections.join_next() => {
                    if let Err(error) = ended {
                        tracing::error!(%error, "the reader of a callback connection has failed");
                    }
                }
                accepted = self.socket.accept(), if connections.len() < CONNECTIONS_AT_MOST => match accepted {
                    // Connections of other users get no connection slot and no hello timeout, even with a valid
                    // token.
                    Ok((stream, _)) if let Err(stranger) = tcp::vouch(&stream, Untold::Trusted) => {
                        refuse(&intake, &mut strangers, stranger).await;
                    }
                    Ok((stream, _)) => {
                        let connection = connection(
                            stream, Arc::clone(&self.token), self.hello_limit, Arc::clone(&intake),
                        );
                        connections.spawn(connection);
                    }
                    Err(error) => {
                        let reason = format!("accept: {error}");
                        intake.tell(Event::CallbackRefused { reason }).await;
                        // An error that repeats at once (no file descriptors left) must not busy-loop.
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
    }
}

/// Reports the first few untrusted peers only, so that another user cannot flood the client's events.
async fn refuse(intake: &Intake, strangers: &mut usize, stranger: Stranger) {
    *strangers += 1;
    if *strangers <= STRANGERS_TOLD {
        let reason = crate::error_chain(&stranger);
        intake.tell(Event::CallbackRefused { reason }).await;
    }
}

async fn connection(stream: TcpStream, token: Arc<str>, hello_limit: Duration, intake: Arc<Intake>) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a callback connection will be slow to answer");
    }
    let (outbox, mut inbox, mut task) = link::open(stream, Frames::with_limit(HELLO_LIMIT_BYTES));
    let source = match hello(&mut inbox, &token, hello_limit).await {
        Ok(from) => Source::Callback(from.into()),
        Err(reason) => return intake.tell(Event::CallbackRefused { reason }).await,
    };
    *inbox.decoder_mut() = Frames::default();
    intake.callback_opened();
    let open = Open(&intake);
    if let Err(reason) = read(&mut inbox, &outbox, &source, &intake).await {
        intake.tell(Event::ConnectionLost { source, reason }).await;
    }
    drop(open);
    outbox.close();
    // The peer has closed its end: output that cannot be written now never will be.
    drop(timeout(hello_limit, task.join()).await);
}

/// Counts a connection as open until it is dropped, also when its reader panics.
struct Open<'a>(&'a Intake);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.callback_closed();
    }
}

/// Waits for the hello; returns the name of the sender, or the reason for refusing the connection.
async fn hello(inbox: &mut Inbox<Frames>, token: &str, limit: Duration) -> Result<String, String> {
    let body = match timeout(limit, inbox.next()).await {
        Err(_) => return Err(format!("no hello within {limit:?}")),
        Ok(Err(error)) => return Err(format!("no hello: {}", crate::error_chain(&error))),
        Ok(Ok(None)) => return Err("closed without a hello".to_owned()),
        Ok(Ok(Some(body))) => body,
    };
    let hello = match rpc::parse_borrowed(&body) {
        Ok(BorrowedMessage::Notification { method, params: Some(params) }) if method == method::HELLO => {
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
async fn read(
    inbox: &mut Inbox<Frames>,
    outbox: &Outbox,
    source: &Source,
    intake: &Intake,
) -> Result<(), String> {
    loop {
        let body = match inbox.next().await {
            Ok(Some(body)) => body,
            Ok(None) => return Ok(()),
            Err(error) => return Err(crate::error_chain(&error)),
        };
        match rpc::parse_borrowed(&body) {
            Ok(BorrowedMessage::Notification { method, params }) => {
                intake.notification(source, &method, params).await;
            }
            Ok(BorrowedMessage::Request { id, method, params }) => {
                if method == method::TELEMETRY {
                    intake.notification(source, &method, params).await;
                }
                // This task is the only sender on the connection, so a failure to send shows as the
                // connection's end.
                drop(outbox.send(answer(&id, &method)).await);
            }
            Ok(BorrowedMessage::Response { .. }) => {}
            Err(invalid) => {
                let reason = invalid.to_string();
                intake.tell(Event::Unreadable { source: source.clone(), reason }).await;
                drop(outbox.send(rpc::error(&invalid.id, &invalid.error)).await);
            }
        }
    }
}

/// Returns the response to a request of the server or one of its processes: telemetry is accepted as a
/// request too, any other method is unknown.
pub(super) fn answer(id: &RequestId, name: &str) -> bytes::Bytes {
    if name == method::TELEMETRY {
        return rpc::result(id, &());
    }
    rpc::error(id, &RpcError::new(code::METHOD_NOT_FOUND, format!("method {name:?} is not known here")))
}
