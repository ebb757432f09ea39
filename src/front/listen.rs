//! How connections with clients come about.

use std::{io, path::Path, sync::mpsc as blocking, time::Duration};

use link::{
    local,
    tcp::{self, Untold},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinSet,
    time::Instant,
};

use super::{Session, SessionEnd, SessionOptions};

/// A client that starts us listens already.
const DIAL_DEADLINE: Duration = Duration::from_secs(30);
/// Sessions at the same time. Each has processes of its own; more would only fight for the cores.
const SESSIONS: usize = 16;

/// Why no client came in.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The client's port can't be reached.
    #[error("reach the client at {host} port {port}")]
    Dial {
        /// As given.
        host: String,
        /// As given.
        port: u16,
        /// Why.
        source: tcp::DialError,
    },
    /// What blocks has a thread of its own.
    #[error("get two threads from the system")]
    Threads(#[source] io::Error),
    /// The address can't be listened on.
    #[error("listen on {address}")]
    Tcp {
        /// As given.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// The local socket can't be made.
    #[error("listen on the local socket {path}")]
    Local {
        /// As given.
        path: String,
        /// Why.
        source: local::BindError,
    },
}

/// Dials the client that started us.
///
/// # Errors
/// It can't be reached within 30 seconds.
///
/// Cancel safe: yes, because a connection that nobody waits for is closed.
pub async fn dial(host: &str, port: u16) -> Result<TcpStream, ListenError> {
    hold_threads().await.map_err(ListenError::Threads)?;
    tcp::dial(host, port, Instant::now() + DIAL_DEADLINE).await.map_err(|source| ListenError::Dial {
        host: host.to_owned(),
        port,
        source,
    })
}

/// Returns standard input and output as one stream. A machine that has no more threads later stops neither.
///
/// # Errors
/// The system gives no threads.
///
/// Cancel safe: yes, because threads that nobody waits for end or wait for work.
pub async fn standard_streams() -> Result<impl AsyncRead + AsyncWrite + Unpin + Send + 'static, ListenError> {
    hold_threads().await.map_err(ListenError::Threads)?;
    Ok(tokio::io::join(tokio::io::stdin(), tokio::io::stdout()))
}

type Holds = ([blocking::SyncSender<()>; 2], [blocking::Receiver<()>; 2]);

/// Two ends that come when what is held is let go.
fn holds() -> Holds {
    let [(one, of_one), (other, of_other)] = [(); 2].map(|()| blocking::sync_channel(0));
    ([one, other], [of_one, of_other])
}

fn wait(hold: blocking::Receiver<()>) -> impl FnOnce() {
    // Nothing is ever sent.
    move || hold.recv().unwrap_or_default()
}

/// Has the runtime start a thread for each direction of a stream that blocks; it keeps them. Where it gets none when it wants
/// one it panics, so the system is asked before.
async fn hold_threads() -> io::Result<()> {
    let (held, ends) = holds();
    let probe = |hold| std::thread::Builder::new().name("heeler-probe".to_owned()).spawn(wait(hold));
    let probes = ends.map(probe).into_iter().collect::<io::Result<Vec<_>>>()?;
    drop(held);
    for probe in probes {
        // It does nothing that could fail.
        drop(probe.join());
    }
    let (held, ends) = holds();
    let tasks = ends.map(|hold| tokio::task::spawn_blocking(wait(hold)));
    drop(held);
    for task in tasks {
        task.await.map_err(io::Error::other)?;
    }
    Ok(())
}

/// Serves every process of this user, or of root, that connects to a TCP address, until `stop` is closed; from other
/// machines, where the address is theirs too, everyone. Says the address on `ready`.
///
/// # Errors
/// The address can't be listened on.
///
/// Cancel safe: yes, because sessions notice their end by themselves.
pub async fn serve_tcp(
    address: &str,
    options: &SessionOptions,
    ready: impl FnOnce(std::net::SocketAddr),
    mut stop: mpsc::Receiver<()>,
) -> Result<(), ListenError> {
    let failed = |source| ListenError::Tcp { address: address.to_owned(), source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    ready(listener.local_addr().map_err(failed)?);
    let mut sessions = Sessions::new(options);
    loop {
        tokio::select! {
            accepted = listener.accept(), if sessions.has_room() => match accepted {
                // Other users take no room of the own one's sessions.
                Ok((stream, peer)) if let Err(error) = tcp::vouch(&stream, Untold::Refused) => {
                    tracing::warn!(%peer, error = crate::error_chain(&error), "a connection was refused");
                }
                Ok((stream, peer)) => {
                    if let Err(error) = stream.set_nodelay(true) {
                        tracing::debug!(%error, "a connection keeps Nagle's delay");
                    }
                    sessions.begin(stream, peer.ip().to_string());
                }
                Err(error) => pause_after(&error).await,
            },
            () = sessions.ended() => {}
            _ = stop.recv() => break,
        }
    }
    sessions.end().await;
    Ok(())
}

/// Serves every process of this user that connects to a local socket, until `stop` is closed.
///
/// # Errors
/// The socket can't be made.
///
/// Cancel safe: yes, because sessions notice their end by themselves.
pub async fn serve_local(
    path: &Path,
    options: &SessionOptions,
    ready: impl FnOnce(),
    mut stop: mpsc::Receiver<()>,
) -> Result<(), ListenError> {
    let mut listener = local::Listener::bind(path)
        .map_err(|source| ListenError::Local { path: path.display().to_string(), source })?;
    ready();
    let mut sessions = Sessions::new(options);
    loop {
        tokio::select! {
            accepted = listener.accept(), if sessions.has_room() => match accepted {
                Ok(stream) => sessions.begin(stream, "127.0.0.1".to_owned()),
                Err(error) => pause_after(&error).await,
            },
            () = sessions.ended() => {}
            _ = stop.recv() => break,
        }
    }
    sessions.end().await;
    Ok(())
}

/// An error that comes again at once (no file descriptors left) must not spin.
async fn pause_after(error: &(dyn std::error::Error + Sync)) {
    tracing::warn!(%error, "a connection was refused");
    tokio::time::sleep(Duration::from_millis(20)).await;
}

struct Sessions<'a> {
    options: &'a SessionOptions,
    running: JoinSet<SessionEnd>,
    commands: Vec<mpsc::Sender<super::SessionCommand>>,
}

impl<'a> Sessions<'a> {
    fn new(options: &'a SessionOptions) -> Self {
        Self { options, running: JoinSet::new(), commands: Vec::new() }
    }

    fn has_room(&self) -> bool {
        self.running.len() < SESSIONS
    }

    fn begin<S>(&mut self, stream: S, client_host: String)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        // Silent connections would take the room of clients.
        let initialize_within = Some(self.options.settings.run.stall_timeout);
        let options = SessionOptions { client_host, initialize_within, ..self.options.clone() };
        let (sender, commands) = mpsc::channel(1);
        self.commands.retain(|sender| !sender.is_closed());
        self.commands.push(sender);
        self.running.spawn(Session::new(stream, options).serve(commands));
    }

    async fn ended(&mut self) {
        match self.running.join_next().await {
            Some(Ok(end)) => tracing::debug!(?end, "a session ended"),
            Some(Err(error)) => tracing::error!(%error, "a session failed"),
            None => std::future::pending().await,
        }
    }

    async fn end(mut self) {
        for commands in &self.commands {
            // A session that has ended needs no word.
            let _closed = commands.send(super::SessionCommand::Exit).await;
        }
        while let Some(ended) = self.running.join_next().await {
            tracing::debug!(?ended, "a session ended");
        }
    }
}
