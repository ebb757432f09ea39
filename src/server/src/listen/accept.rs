//! Opens and accepts client connections.

use std::{
    fmt,
    future::pending,
    io,
    net::{IpAddr, SocketAddr},
    ops::ControlFlow,
    path::Path,
    sync::{Arc, mpsc as blocking},
    time::Duration,
};

use heeler_http::MAX_CONNECTIONS;
use heeler_transport::{
    accept::{
        ChangeFuture, ConnectionSet, ConnectionTasks, Listener, TcpConnection, TrustedListener,
        accept_connections,
    },
    local,
    tcp::{self, PromptTcpStream},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc,
    task::{JoinError, JoinSet},
    time::{Instant, sleep_until},
};

use super::{
    ClientServer, ClientStream, ConnectionPolicy, PortService, SessionCommand, SessionEnd, SessionOptions,
};

/// Time limit for connecting to a client that started the server and should already be listening.
const DIAL_DEADLINE: Duration = Duration::from_secs(30);
/// Maximum number of concurrent sessions. All of them share the workers, so more sessions would only wait for
/// each other.
const MAX_SESSIONS: usize = 16;
/// How long a new client waits until the previous client's session detects that its client is gone. A client
/// that reconnects may be accepted before the end of its earlier connection is read.
const REPLACEMENT_WAIT: Duration = Duration::from_millis(500);

/// Errors of connecting to or listening for clients.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The client's port could not be reached.
    #[error("reach the client")]
    Dial { host: String, port: u16, source: tcp::DialError },
    /// The threads for blocking streams could not be started.
    #[error("start the two threads for the connection to the client")]
    Threads(#[source] io::Error),
    /// The TCP address could not be bound.
    #[error("listen on {address}")]
    Tcp { address: String, source: io::Error },
    /// The local socket could not be created.
    #[error("listen on the local socket {path}")]
    Local { path: String, source: local::BindError },
}

/// Connects to the client that started the server.
///
/// # Errors
/// The client can't be reached within 30 seconds.
///
/// Cancel safe: yes, because an abandoned connection is closed.
pub async fn dial(host: &str, port: u16) -> Result<PromptTcpStream, ListenError> {
    reserve_threads().await.map_err(ListenError::Threads)?;
    let dialled = tcp::dial(host, port, Instant::now() + DIAL_DEADLINE).await;
    dialled.map(PromptTcpStream::new).map_err(|source| ListenError::Dial {
        host: host.to_owned(),
        port,
        source,
    })
}

/// Returns standard input and output as one stream. Starts their threads now: if no thread could be started
/// later, one direction would block.
///
/// # Errors
/// The system can't start the threads.
///
/// Cancel safe: yes, because abandoned threads exit or wait for work.
pub async fn standard_streams() -> Result<impl AsyncRead + AsyncWrite + Unpin + Send + 'static, ListenError> {
    reserve_threads().await.map_err(ListenError::Threads)?;
    Ok(tokio::io::join(tokio::io::stdin(), tokio::io::stdout()))
}

type HoldChannels = ([blocking::SyncSender<()>; 2], [blocking::Receiver<()>; 2]);

/// Creates two channels whose receivers return once the senders are dropped.
fn hold_channels() -> HoldChannels {
    let [(one, of_one), (other, of_other)] = [(); 2].map(|()| blocking::sync_channel(0));
    ([one, other], [of_one, of_other])
}

fn wait_until_dropped(hold: blocking::Receiver<()>) -> impl FnOnce() {
    // No message is ever sent; `recv` returns when the sender is dropped.
    move || hold.recv().unwrap_or_default()
}

/// Makes the runtime start one thread for each direction of a blocking stream. The runtime keeps these
/// threads. Since it panics when it can't start a thread, plain threads are tried first.
async fn reserve_threads() -> io::Result<()> {
    let (held, ends) = hold_channels();
    let probe =
        |hold| std::thread::Builder::new().name("heeler-probe".to_owned()).spawn(wait_until_dropped(hold));
    let probes = ends.map(probe).into_iter().collect::<io::Result<Vec<_>>>()?;
    drop(held);
    for probe in probes {
        // The thread can't fail.
        drop(probe.join());
    }
    let (held, ends) = hold_channels();
    let tasks = ends.map(|hold| tokio::task::spawn_blocking(wait_until_dropped(hold)));
    drop(held);
    for task in tasks {
        task.await.map_err(io::Error::other)?;
    }
    Ok(())
}

/// Where a server listens on TCP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TcpAddress {
    /// An address and port, such as `127.0.0.1:4711`.
    Named(String),
    /// A port on the loopback interface, on this address or for both IP versions.
    Loopback { address: Option<IpAddr>, port: u16 },
}

impl TcpAddress {
    async fn bind(&self) -> io::Result<TrustedListener> {
        match self {
            Self::Named(address) => TrustedListener::bind(address).await,
            Self::Loopback { address, port } => TrustedListener::bind_loopback(*address, *port).await,
        }
    }
}

impl fmt::Display for TcpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(address) => f.write_str(address),
            Self::Loopback { address: Some(address), port } => SocketAddr::new(*address, *port).fmt(f),
            Self::Loopback { address: None, port } => write!(f, "localhost:{port}"),
        }
    }
}

/// Serves clients on a TCP address until `stop` is closed or a client ends the server. Local connections are
/// accepted only from processes of this user or of root. If the address is reachable from other machines,
/// every connection from there is accepted. Calls `ready` with the bound address.
///
/// # Errors
/// The address can't be bound, or this protocol can't be served there.
///
/// Cancel safe: no, because sessions would be left to detect the end by themselves.
pub async fn serve_tcp(
    address: &TcpAddress,
    server: &ClientServer,
    ready: impl FnOnce(SocketAddr),
    stop: mpsc::Receiver<()>,
) -> Result<(), ListenError> {
    let failed = |source| ListenError::Tcp { address: address.to_string(), source };
    let listener = address.bind().await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    let service = server.front_end.port_service(server, bound).map_err(failed)?;
    ready(bound);
    match service {
        Some(service) => serve_port(listener, service, stop).await,
        None => serve_sessions(listener, server, stop).await,
    }
    Ok(())
}

/// Serves every process of this user that connects to a local socket, until `stop` is closed or a client ends
/// the server.
///
/// # Errors
/// The socket can't be created.
///
/// Cancel safe: yes, because each session notices by itself that the server has stopped.
pub async fn serve_local(
    path: &Path,
    server: &ClientServer,
    ready: impl FnOnce(),
    stop: mpsc::Receiver<()>,
) -> Result<(), ListenError> {
    let listener = local::LocalListener::bind(path)
        .map_err(|source| ListenError::Local { path: path.display().to_string(), source })?;
    ready();
    serve_sessions(listener, server, stop).await;
    Ok(())
}

/// Serves each connection with its own session.
async fn serve_sessions<L>(mut listener: L, server: &ClientServer, mut stop: mpsc::Receiver<()>)
where
    L: Listener<Connection: Into<NewConnection>>,
{
    let mut sessions = SessionSet::new(server.clone());
    accept_connections(&mut listener, &mut sessions, async {
        let (Some(()) | None) = stop.recv().await;
    })
    .await;
    sessions.shut_down().await;
}

/// Serves connections that share sessions, such as HTTP requests.
async fn serve_port(
    mut listener: TrustedListener,
    service: Arc<dyn PortService>,
    mut stop: mpsc::Receiver<()>,
) {
    let serving = Arc::clone(&service);
    let mut connections = ConnectionTasks::new(MAX_CONNECTIONS, move |connection, stopped| {
        Arc::clone(&serving).serve(connection, stopped)
    });
    let stopped = async {
        tokio::select! {
            _ = stop.recv() => {}
            () = service.failed() => tracing::error!("the session of the HTTP clients has ended; closing the port"),
        }
    };
    accept_connections(&mut listener, &mut connections, stopped).await;
    drop(listener);
    connections.stop();
    service.end().await;
    let limit = service.finish_limit();
    if !connections.finish(limit).await {
        tracing::warn!("some connections did not close within {} s", limit.as_secs());
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientOrigin {
    /// The client runs on this machine, as this user or root.
    ThisMachine,
    OtherMachine,
}

fn client_origin(own: IpAddr, peer: IpAddr) -> ClientOrigin {
    let (own, peer) = (own.to_canonical(), peer.to_canonical());
    if peer.is_loopback() || peer == own { ClientOrigin::ThisMachine } else { ClientOrigin::OtherMachine }
}

struct NewConnection {
    stream: ClientStream,
    client_host: String,
    origin: ClientOrigin,
}

impl From<TcpConnection> for NewConnection {
    fn from(TcpConnection { stream, peer, own }: TcpConnection) -> Self {
        let origin = match own {
            Some(own) => client_origin(own.ip(), peer.ip()),
            None => ClientOrigin::OtherMachine,
        };
        Self { stream: Box::new(stream), client_host: peer.ip().to_string(), origin }
    }
}

impl From<local::LocalStream> for NewConnection {
    fn from(stream: local::LocalStream) -> Self {
        let client_host = "127.0.0.1".to_owned();
        Self { stream: Box::new(stream), client_host, origin: ClientOrigin::ThisMachine }
    }
}

/// A connection that waits for the previous session to end.
struct WaitingConnection {
    connection: NewConnection,
    /// When to close the connection if the previous client is still there.
    deadline: Instant,
}

/// A change in the set of sessions.
enum SessionChange {
    Ended(Result<SessionEnd, JoinError>),
    /// The previous session has not ended in time.
    NotReplaced,
}

struct SessionSet {
    server: ClientServer,
    running: JoinSet<SessionEnd>,
    commands: Vec<mpsc::Sender<SessionCommand>>,
    waiting: Option<WaitingConnection>,
}

impl SessionSet {
    fn new(server: ClientServer) -> Self {
        Self { server, running: JoinSet::new(), commands: Vec::new(), waiting: None }
    }

    fn policy(&self) -> ConnectionPolicy {
        self.server.front_end.connection_policy()
    }

    fn spawn_session(&mut self, connection: NewConnection) {
        let NewConnection { stream, client_host, origin } = connection;
        // Without this limit, silent connections could occupy all session slots.
        let options = &self.server.options;
        let initialize_within = Some(options.settings.run.client_stall_timeout);
        let options = SessionOptions {
            client_host,
            initialize_within,
            allows_program_options: origin == ClientOrigin::ThisMachine,
            ..options.clone()
        };
        let (sender, commands) = mpsc::channel(1);
        self.commands.retain(|sender| !sender.is_closed());
        self.commands.push(sender);
        let ClientServer { front_end, scheduler, .. } = &self.server;
        self.running.spawn(front_end.serve(stream, options, scheduler.clone(), commands));
    }

    /// Waits for the next change; forever while there is nothing to wait for.
    ///
    /// Cancel safe: yes, because the end of a session is either still in the set or returned.
    async fn wait_for_change(&mut self) -> SessionChange {
        let Self { running, commands, waiting, .. } = self;
        // When a client is gone, its session closes its command channel and ends soon.
        let is_replaced = commands.iter().all(mpsc::Sender::is_closed);
        let deadline = waiting.as_ref().filter(|_| !is_replaced).map(|waiting| waiting.deadline);
        let ended = async {
            match running.join_next().await {
                Some(ended) => ended,
                None => pending().await,
            }
        };
        let not_replaced = async {
            match deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            ended = ended => SessionChange::Ended(ended),
            () = not_replaced => SessionChange::NotReplaced,
        }
    }

    /// Applies a change. Breaks if a client has ended the server.
    fn apply(&mut self, change: SessionChange) -> ControlFlow<()> {
        match change {
            SessionChange::Ended(ended) => {
                match &ended {
                    Ok(end) => tracing::debug!(?end, "a session ended"),
                    Err(error) => tracing::error!(%error, "a session failed"),
                }
                if let Ok(SessionEnd::Shutdown) = ended {
                    return ControlFlow::Break(());
                }
                if let Some(WaitingConnection { connection, .. }) = self.waiting.take() {
                    self.spawn_session(connection);
                }
            }
            // The channel may have been closed since the wait began.
            SessionChange::NotReplaced if self.commands.iter().all(mpsc::Sender::is_closed) => {}
            SessionChange::NotReplaced => {
                if let Some(WaitingConnection { connection, .. }) = self.waiting.take() {
                    let client = connection.client_host;
                    tracing::warn!(client, "connection closed: another client is already connected");
                }
            }
        }
        ControlFlow::Continue(())
    }

    async fn shut_down(mut self) {
        self.waiting = None;
        for commands in &self.commands {
            // Sending fails only if the session has already ended.
            let _closed = commands.send(SessionCommand::Exit).await;
        }
        while let Some(ended) = self.running.join_next().await {
            tracing::debug!(?ended, "a session ended");
        }
    }
}

impl<C: Into<NewConnection>> ConnectionSet<C> for SessionSet {
    fn has_room(&self) -> bool {
        match self.policy() {
            ConnectionPolicy::Concurrent => self.running.len() < MAX_SESSIONS,
            // Accept another connection only to close it: its client should not wait.
            ConnectionPolicy::OneAtATime => self.waiting.is_none(),
        }
    }

    /// Starts the session of a connection, or makes it wait for the previous session to end.
    fn admit(&mut self, connection: C) {
        let connection = connection.into();
        match self.policy() {
            ConnectionPolicy::OneAtATime if !self.running.is_empty() => {
                let deadline = Instant::now() + REPLACEMENT_WAIT;
                self.waiting = Some(WaitingConnection { connection, deadline });
            }
            ConnectionPolicy::OneAtATime | ConnectionPolicy::Concurrent => self.spawn_session(connection),
        }
    }

    fn next_change(&mut self) -> ChangeFuture<'_> {
        Box::pin(async {
            let change = self.wait_for_change().await;
            self.apply(change)
        })
    }
}

#[cfg(test)]
mod cases {
    use super::*;

    #[test]
    fn client_of_another_machine_is_recognised() {
        let origin = |own: &str, peer: &str| client_origin(own.parse().unwrap(), peer.parse().unwrap());
        for (own, peer) in [
            ("127.0.0.1", "127.0.0.1"),
            ("::1", "::1"),
            ("::ffff:127.0.0.1", "::ffff:127.0.0.1"),
            ("192.0.2.1", "192.0.2.1"),
            ("192.0.2.1", "::ffff:192.0.2.1"),
        ] {
            assert_eq!(origin(own, peer), ClientOrigin::ThisMachine, "{own} {peer}");
        }
        for (own, peer) in [("192.0.2.1", "192.0.2.2"), ("::1", "2001:db8::1"), ("0.0.0.0", "192.0.2.1")] {
            assert_eq!(origin(own, peer), ClientOrigin::OtherMachine, "{own} {peer}");
        }
    }
}
