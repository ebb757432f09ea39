//! Accepts connections from listeners of every kind. The loop accepts nothing while the connection set is
//! full, and ends when the server stops.

use std::{
    error::Error,
    future::pending,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    ops::ControlFlow,
    pin::{Pin, pin},
    time::Duration,
};

use heeler_core::error_chain;
use tokio::{
    net::TcpListener,
    sync::watch,
    task::{JoinError, JoinSet},
    time::{sleep, timeout},
};

use crate::{
    local::{LocalListener, LocalStream},
    tcp::{PromptTcpStream, UnknownPeerPolicy, verify_peer},
};

/// Pause before the next attempt if the system has no resources for a connection.
const ACCEPT_RETRY: Duration = Duration::from_millis(20);
/// Maximum number of ports to try until one is free for both IPv4 and IPv6.
const PORT_ATTEMPTS: usize = 16;

/// The next connection, or the reason why it could not be accepted.
type AcceptFuture<'a, C> = Pin<Box<dyn Future<Output = Result<C, Box<dyn Error + Send + Sync>>> + Send + 'a>>;

/// The next change; `Break` if it ends the server.
pub type ChangeFuture<'a> = Pin<Box<dyn Future<Output = ControlFlow<()>> + Send + 'a>>;

/// A source of connections.
pub trait Listener {
    /// An accepted connection.
    type Connection;

    /// Waits for the next connection. After an error, the next call may succeed. Must be cancel safe.
    fn accept(&mut self) -> AcceptFuture<'_, Self::Connection>;
}

/// Connections that are being served.
pub trait ConnectionSet<C> {
    /// Returns whether another connection can be accepted.
    fn has_room(&self) -> bool;

    /// Starts to serve a connection.
    fn admit(&mut self, connection: C);

    /// Waits for a change, such as the end of a connection; `Break` if it ends the server. Must be cancel
    /// safe.
    fn next_change(&mut self) -> ChangeFuture<'_>;
}

/// Accepts connections until `stop` completes or a connection ends the server.
///
/// Cancel safe: yes, because its parts are.
pub async fn accept_connections<L: Listener>(
    listener: &mut L,
    connections: &mut impl ConnectionSet<L::Connection>,
    stop: impl Future<Output = ()>,
) {
    let mut stop = pin!(stop);
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.has_room() => match accepted {
                Ok(connection) => connections.admit(connection),
                Err(error) => {
                    tracing::warn!(error = error_chain(error.as_ref()), "failed to accept a connection");
                    // A recurring error must not cause a busy loop.
                    sleep(ACCEPT_RETRY).await;
                }
            },
            change = connections.next_change() => if change.is_break() { return },
            () = &mut stop => return,
        }
    }
}

/// An accepted TCP connection.
#[derive(Debug)]
pub struct TcpConnection {
    /// The connection, without Nagle's delay.
    pub stream: PromptTcpStream,
    /// Address of the client.
    pub peer: SocketAddr,
    /// Address of this end, if the system reports it.
    pub own: Option<SocketAddr>,
}

/// Listens on a TCP port. Connections from this machine are accepted only from processes of this user and
/// root. Other connections are closed before they are served; otherwise other users could use up the maximum
/// number of connections.
#[derive(Debug)]
pub struct TrustedListener {
    first: TcpListener,
    /// Listener of the other address family, if the machine has it.
    second: Option<TcpListener>,
}

impl TrustedListener {
    /// Listens on an address, such as `127.0.0.1:4711`.
    ///
    /// # Errors
    /// The address cannot be bound.
    ///
    /// Cancel safe: yes, because bound sockets are closed.
    pub async fn bind(address: &str) -> io::Result<Self> {
        Ok(Self { first: TcpListener::bind(address).await?, second: None })
    }

    /// Listens on a loopback port, on both 127.0.0.1 and ::1, because clients dial either for `localhost`.
    /// Port 0 picks a free port. If an address is given, only that address is used.
    ///
    /// # Errors
    /// The address is not a loopback address, or cannot be bound.
    ///
    /// Cancel safe: yes, because bound sockets are closed.
    pub async fn bind_loopback(address: Option<IpAddr>, port: u16) -> io::Result<Self> {
        if let Some(address) = address {
            if !address.is_loopback() {
                let expected = format!("{address} is not a loopback address");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, expected));
            }
            let first = TcpListener::bind(SocketAddr::new(address, port)).await?;
            return Ok(Self { first, second: None });
        }
        let mut attempts = 0;
        loop {
            attempts += 1;
            let first = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
            let bound = first.local_addr()?.port();
            match TcpListener::bind((Ipv6Addr::LOCALHOST, bound)).await {
                Ok(second) => return Ok(Self { first, second: Some(second) }),
                // A port that is free in one family may be in use in the other.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    if port != 0 || attempts >= PORT_ATTEMPTS {
                        return Err(error);
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "cannot listen on ::1; listening on 127.0.0.1 only");
                    return Ok(Self { first, second: None });
                }
            }
        }
    }

    async fn accept_trusted(&mut self) -> io::Result<TcpConnection> {
        loop {
            let (stream, peer) = match &self.second {
                None => self.first.accept().await?,
                Some(second) => tokio::select! {
                    accepted = self.first.accept() => accepted?,
                    accepted = second.accept() => accepted?,
                },
            };
            if let Err(error) = verify_peer(&stream, UnknownPeerPolicy::Refuse) {
                tracing::warn!(%peer, error = error_chain(&error), "connection rejected");
                continue;
            }
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "failed to set TCP_NODELAY");
            }
            let own = stream.local_addr().ok();
            return Ok(TcpConnection { stream: PromptTcpStream::new(stream), peer, own });
        }
    }

    /// Returns the bound address, or the first of two.
    ///
    /// # Errors
    /// The system does not report the address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.first.local_addr()
    }
}

impl Listener for TrustedListener {
    type Connection = TcpConnection;

    fn accept(&mut self) -> AcceptFuture<'_, TcpConnection> {
        Box::pin(async { Ok(self.accept_trusted().await?) })
    }
}

impl Listener for LocalListener {
    type Connection = LocalStream;

    fn accept(&mut self) -> AcceptFuture<'_, LocalStream> {
        Box::pin(async { Ok(LocalListener::accept(self).await?) })
    }
}

/// Signal that the server stops.
#[derive(Debug, Clone)]
pub struct StopSignal(watch::Receiver<bool>);

impl StopSignal {
    /// Waits until the server stops.
    ///
    /// Cancel safe: yes, because it only waits.
    pub async fn stopped(&mut self) {
        // A server that no longer exists has stopped.
        let (Ok(_) | Err(_)) = self.0.wait_for(|is_stopped| *is_stopped).await;
    }
}

/// Connections that are each served by their own task.
#[derive(Debug)]
pub struct ConnectionTasks<F> {
    tasks: JoinSet<()>,
    max_connections: usize,
    stopping: watch::Sender<bool>,
    serve: F,
}

impl<F> ConnectionTasks<F> {
    /// Returns an empty set of at most `max_connections`; `serve` serves each of them.
    pub fn new(max_connections: usize, serve: F) -> Self {
        Self { tasks: JoinSet::new(), max_connections, stopping: watch::Sender::new(false), serve }
    }

    /// Asks all connections to end.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Waits for all connections to end, and closes them after the timeout. Returns whether all ended by
    /// themselves.
    ///
    /// Cancel safe: yes, because cancelling closes the connections.
    pub async fn finish(mut self, limit: Duration) -> bool {
        let finished = async {
            while let Some(ended) = self.tasks.join_next().await {
                note_end(ended);
            }
        };
        timeout(limit, finished).await.is_ok()
    }
}

impl<C, F, T> ConnectionSet<C> for ConnectionTasks<F>
where
    F: FnMut(C, StopSignal) -> T + Send,
    T: Future<Output = ()> + Send + 'static,
{
    fn has_room(&self) -> bool {
        self.tasks.len() < self.max_connections
    }

    fn admit(&mut self, connection: C) {
        self.tasks.spawn((self.serve)(connection, StopSignal(self.stopping.subscribe())));
    }

    fn next_change(&mut self) -> ChangeFuture<'_> {
        Box::pin(async {
            match self.tasks.join_next().await {
                Some(ended) => note_end(ended),
                None => pending().await,
            }
            ControlFlow::Continue(())
        })
    }
}

fn note_end(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "internal error while serving a connection");
    }
}
