//! Starts a session without an existing stream: with a new server for this client only, or with a listening
//! server.

use std::{ffi::OsString, io, os::fd::OwnedFd, path::PathBuf};

use heeler_sys::spawn::{ChildStdio, SpawnError, SpawnOptions, SpawnedChild};
use heeler_transport::{local, tcp};
use tokio::{net::UnixStream, sync::oneshot, time::Instant};

use super::{Client, ClientError, ClientOptions, EventStream};

/// Command line of a new server: `heeler serve --stdio` with further arguments, in its own process group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerCommand {
    /// Path of the program `heeler`; a path without a slash is relative to the working directory.
    pub program: PathBuf,
    /// Test programs, and options of `heeler serve`. Without programs, the server uses the suites of
    /// `heeler.toml`.
    pub args: Vec<OsString>,
    /// Working directory, where the search for `heeler.toml` begins; `None` keeps this process's directory.
    pub cwd: Option<PathBuf>,
}

impl ServerCommand {
    /// Creates the command line of a server with these arguments, in this process's working directory.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>, words: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self { program: program.into(), args: words.into_iter().map(Into::into).collect(), cwd: None }
    }
}

/// Error of starting a server or connecting to one.
#[derive(Debug, thiserror::Error)]
pub enum ServerStartError {
    /// The sockets, or the thread that waits for the server, could not be created.
    #[error("prepare a connection to the new server")]
    Prepare(#[source] io::Error),
    /// The server process could not be started.
    #[error("start the server")]
    Spawn(#[source] SpawnError),
    /// No server accepted a connection at the address in time.
    #[error("reach the server")]
    Tcp {
        /// Host name or address, as passed.
        host: String,
        /// Port, as passed.
        port: u16,
        /// Error of the last attempt.
        source: tcp::DialError,
    },
    /// No server accepted a connection on the local socket in time.
    #[error("reach the server")]
    Local {
        /// Path of the socket, as passed.
        path: PathBuf,
        /// Error of the last attempt.
        source: local::ConnectError,
    },
}

impl Client {
    /// Starts a server for this client only, and a session with it. The server ends with the session, no
    /// matter how the session ends. The server also ends with the thread that called this function; on a
    /// single-threaded runtime, that is the runtime's thread.
    ///
    /// Cancel safe: yes, because a server without a client exits, and a thread reaps it.
    ///
    /// # Errors
    /// The server could not be started, or [`Client::connect`] failed.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn start(
        command: ServerCommand,
        options: ClientOptions,
    ) -> Result<(Self, EventStream), ClientError> {
        let (stream, process) = spawn_server(command).map_err(ClientError::Start)?;
        let (mut client, events) = Self::connect(stream, options).await?;
        client.process = Some(process);
        Ok((client, events))
    }

    /// Connects to a server that listens on TCP (`heeler serve --listen`). The server must be listening
    /// before the deadline.
    ///
    /// Cancel safe: yes, because a dropped session is closed.
    ///
    /// # Errors
    /// No server listens there, or [`Client::connect`] failed.
    pub async fn connect_tcp(
        host: &str,
        port: u16,
        deadline: Instant,
        options: ClientOptions,
    ) -> Result<(Self, EventStream), ClientError> {
        let stream = tcp::dial(host, port, deadline).await.map_err(|source| {
            ClientError::Start(ServerStartError::Tcp { host: host.to_owned(), port, source })
        })?;
        Self::connect(stream, options).await
    }

    /// Connects to this user's server that listens on a local socket (`heeler serve --pipe`). The server
    /// must be listening before the deadline.
    ///
    /// Cancel safe: yes, because a dropped session is closed.
    ///
    /// # Errors
    /// No server listens there, or [`Client::connect`] failed.
    pub async fn connect_local(
        path: impl Into<PathBuf>,
        deadline: Instant,
        options: ClientOptions,
    ) -> Result<(Self, EventStream), ClientError> {
        let path = path.into();
        let stream = local::connect(&path, deadline)
            .await
            .map_err(|source| ClientError::Start(ServerStartError::Local { path, source }))?;
        Self::connect(stream, options).await
    }
}

/// A server process started by this process. A thread reaps it even if no task waits for it.
#[derive(Debug)]
pub(super) struct StartedServer {
    ended: oneshot::Receiver<()>,
}

impl StartedServer {
    fn reap_in_background(mut child: SpawnedChild) -> io::Result<Self> {
        let (sender, ended) = oneshot::channel();
        let wait = move || {
            if let Err(error) = child.wait() {
                tracing::debug!(%error, "failed to wait for the server process");
            }
            // The waiting task may have been dropped.
            let _gone = sender.send(());
        };
        std::thread::Builder::new().name("heeler-server".to_owned()).spawn(wait)?;
        Ok(Self { ended })
    }

    /// Waits until the process has exited.
    ///
    /// Cancel safe: no, because the receiver is consumed; the process is reaped anyway.
    pub(super) async fn wait_for_exit(self) {
        // The thread always sends before it ends.
        drop(self.ended.await);
    }
}

fn spawn_server(command: ServerCommand) -> Result<(UnixStream, StartedServer), ServerStartError> {
    let (ours, theirs) = heeler_sys::io::socket_pair().map_err(ServerStartError::Prepare)?;
    let output: OwnedFd = theirs.try_clone().map_err(ServerStartError::Prepare)?;
    let spawn = SpawnOptions {
        args: ["serve", "--stdio"].into_iter().map(OsString::from).chain(command.args).collect(),
        cwd: command.cwd,
        stdin: ChildStdio::Fd(theirs),
        stdout: ChildStdio::Fd(output),
        ..SpawnOptions::new(std::path::absolute(&command.program).unwrap_or(command.program))
    };
    let child = heeler_sys::spawn::spawn(spawn).map_err(ServerStartError::Spawn)?;
    // If the thread cannot be started, the server's input ends, so the server exits. It stays a zombie until
    // this process ends.
    let process = StartedServer::reap_in_background(child).map_err(ServerStartError::Prepare)?;
    let stream = std::os::unix::net::UnixStream::from(ours);
    stream.set_nonblocking(true).map_err(ServerStartError::Prepare)?;
    Ok((UnixStream::from_std(stream).map_err(ServerStartError::Prepare)?, process))
}
