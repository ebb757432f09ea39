//! Accepts connections on loopback, of IPv4 and IPv6 on the same port. The first bytes of a connection decide
//! whether it speaks HTTP or is a stream with `Content-Length`.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use heeler_http as http;
use heeler_transport::tcp::{PromptTcpStream, UnknownPeerPolicy, verify_peer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
    task::{JoinError, JoinSet},
    time::{Instant, sleep, timeout, timeout_at},
};

use super::{
    MutationService, MutationSessionOptions,
    http::Endpoint,
    responder::Watchers,
    session::{INPUT_QUEUE, Session, SessionHost},
    stream::serve_framed,
    websocket::serve_websocket,
};

/// Maximum number of connections. Further ones wait until one is closed.
const MAX_CONNECTIONS: usize = 64;
/// Number of WebSocket connections that wait to be served.
const SOCKET_QUEUE: usize = 16;
/// Time limit for the first bytes of a connection.
const FIRST_BYTES_LIMIT: Duration = Duration::from_secs(10);
/// Time between two looks at first bytes that decide nothing yet.
const FIRST_BYTES_RETRY: Duration = Duration::from_millis(5);
/// Time between two attempts to accept a connection, when the system has no resources left for one.
const ACCEPT_RETRY: Duration = Duration::from_millis(20);
/// Time for the ends of all sessions, once the server stops.
const STOP_LIMIT: Duration = Duration::from_secs(15);
/// Number of ports that are tried until one is free in both families.
const PORT_ATTEMPTS: usize = 16;

/// How clients are served.
pub struct MutationServer {
    pub service: Arc<dyn MutationService>,
    pub options: MutationSessionOptions,
}

/// A port on which the server listens.
#[derive(Debug)]
pub struct MutationListener {
    first: TcpListener,
    /// The other family, where the machine has it.
    second: Option<TcpListener>,
    port: u16,
}

impl MutationListener {
    /// Listens on a port of loopback, on 127.0.0.1 and ::1, because clients dial either for `localhost`; 0 is
    /// a free port. With an address, only on that one.
    ///
    /// # Errors
    /// The address is not one of the loopback interface, or can't be bound.
    ///
    /// Cancel safe: yes, because what was bound is closed.
    pub async fn bind(address: Option<IpAddr>, port: u16) -> io::Result<Self> {
        if let Some(address) = address {
            if !address.is_loopback() {
                let expected = format!("expected an address of the loopback interface, got {address}");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, expected));
            }
            let first = TcpListener::bind(SocketAddr::new(address, port)).await?;
            let port = first.local_addr()?.port();
            return Ok(Self { first, second: None, port });
        }
        let mut attempts = 0;
        loop {
            attempts += 1;
            let first = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
            let bound = first.local_addr()?.port();
            match TcpListener::bind((Ipv6Addr::LOCALHOST, bound)).await {
                Ok(second) => return Ok(Self { first, second: Some(second), port: bound }),
                // A free port of one family may be taken in the other.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    if port != 0 || attempts >= PORT_ATTEMPTS {
                        return Err(error);
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "::1 is left out");
                    return Ok(Self { first, second: None, port: bound });
                }
            }
        }
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        match &self.second {
            None => self.first.accept().await,
            Some(second) => tokio::select! {
                accepted = self.first.accept() => accepted,
                accepted = second.accept() => accepted,
            },
        }
    }

    /// Serves clients of this user and of root until `stop` is over. Everything that they started has ended
    /// then.
    ///
    /// Cancel safe: no, because operations of the service would be dropped instead of cancelled.
    pub async fn serve(self, server: MutationServer, stop: impl Future<Output = ()>) {
        let MutationServer { service, options } = server;
        let host = SessionHost::new(service);
        let (inputs, http_inputs) = mpsc::channel(INPUT_QUEUE);
        let (sockets, mut new_sockets) = mpsc::channel(SOCKET_QUEUE);
        let mut http_session = JoinSet::new();
        let http_options = MutationSessionOptions { begin_within: None, ..options };
        http_session.spawn(Session::new(host.clone(), http_options).serve(http_inputs));
        let endpoint = Arc::new(Endpoint { inputs, watchers: Watchers::default(), sockets });
        let (stopping, stopped) = watch::channel(false);
        let mut connections = JoinSet::new();
        let mut stop = std::pin::pin!(stop);
        loop {
            tokio::select! {
                accepted = self.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                    Ok((stream, peer)) => match verify_peer(&stream, UnknownPeerPolicy::Refuse) {
                        Ok(()) => {
                            let connection =
                                Connection { host: host.clone(), options, stopped: stopped.clone() };
                            connections.spawn(connection.serve(stream, Arc::clone(&endpoint)));
                        }
                        Err(error) => {
                            let error = heeler_core::error_chain(&error);
                            tracing::warn!(%peer, error, "a connection was refused");
                        }
                    },
                    Err(error) => {
                        tracing::warn!(%error, "a connection was refused");
                        sleep(ACCEPT_RETRY).await;
                    }
                },
                Some(pending) = new_sockets.recv() => {
                    let stop = wait_until_stopped(stopped.clone());
                    connections.spawn(serve_websocket(pending, host.clone(), options, stop));
                }
                Some(ended) = connections.join_next() => note_end(ended),
                () = &mut stop => break,
            }
        }
        drop(self);
        stopping.send_replace(true);
        // The session of the HTTP clients ends with its last input.
        drop((endpoint, new_sockets));
        let finished = async {
            while let Some(ended) = connections.join_next().await {
                note_end(ended);
            }
            while http_session.join_next().await.is_some() {}
        };
        if timeout(STOP_LIMIT, finished).await.is_err() {
            tracing::warn!("not all sessions ended within {} s", STOP_LIMIT.as_secs());
        }
    }
}

fn note_end(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a connection failed inside");
    }
}

async fn wait_until_stopped(mut stopped: watch::Receiver<bool>) {
    let (Ok(_) | Err(_)) = stopped.wait_for(|stopped| *stopped).await;
}

/// A connection that was accepted.
struct Connection {
    host: SessionHost,
    options: MutationSessionOptions,
    stopped: watch::Receiver<bool>,
}

/// What a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Speech {
    Http,
    Framed,
    /// Too few bytes.
    Undecided,
}

impl Connection {
    async fn serve(self, stream: TcpStream, endpoint: Arc<Endpoint>) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection keeps Nagle's delay");
        }
        let speech = tokio::select! {
            speech = first_speech(&stream) => speech,
            () = wait_until_stopped(self.stopped.clone()) => return,
        };
        match speech {
            Some(Speech::Http) => {
                http::serve_connection(PromptTcpStream::new(stream), endpoint, self.stopped).await;
            }
            Some(Speech::Framed) => {
                let stop = wait_until_stopped(self.stopped);
                serve_framed(PromptTcpStream::new(stream), self.host, self.options, stop).await;
            }
            Some(Speech::Undecided) | None => tracing::debug!("a connection was closed: it sent nothing"),
        }
    }
}

/// Looks at the first bytes without taking them; `None` if there are none in time.
async fn first_speech(stream: &TcpStream) -> Option<Speech> {
    let deadline = Instant::now() + FIRST_BYTES_LIMIT;
    let mut bytes = [0; 8];
    loop {
        let count = timeout_at(deadline, stream.peek(&mut bytes)).await.ok()?.ok()?;
        match speech(&bytes[..count]) {
            Speech::Undecided if count == 0 || Instant::now() >= deadline => return None,
            Speech::Undecided => sleep(FIRST_BYTES_RETRY).await,
            decided => return Some(decided),
        }
    }
}

/// Returns what these first bytes begin. A method of HTTP is followed by a blank; headers and the blank lines
/// and marks before them are not.
fn speech(bytes: &[u8]) -> Speech {
    const HEADER: &[u8] = b"content-";
    let known = bytes.len().min(HEADER.len());
    match bytes.first() {
        None => Speech::Undecided,
        Some(b'\r' | b'\n' | 0xef) => Speech::Framed,
        Some(_) if !bytes[..known].eq_ignore_ascii_case(&HEADER[..known]) => Speech::Http,
        Some(_) if known < HEADER.len() => Speech::Undecided,
        Some(_) => Speech::Framed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_decide() {
        for (bytes, expected) in [
            ("GET / HT", Speech::Http),
            ("POST / H", Speech::Http),
            ("CONNECT ", Speech::Http),
            ("{\"jsonrp", Speech::Http),
            ("Content-", Speech::Framed),
            ("content-", Speech::Framed),
            ("\r\nConten", Speech::Framed),
            ("", Speech::Undecided),
            ("C", Speech::Undecided),
            ("Conten", Speech::Undecided),
            ("CO", Speech::Undecided),
        ] {
            assert_eq!(speech(bytes.as_bytes()), expected, "{bytes:?}");
        }
        assert_eq!(speech(b"\xef\xbb\xbfC"), Speech::Framed);
    }
}
