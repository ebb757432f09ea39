//! How a session begins where there is no stream yet: with a server that is started for this client alone, or with one
//! that listens already.

use std::{ffi::OsString, io, os::fd::OwnedFd, path::PathBuf};

use host::spawn::{Child, Spawn, SpawnError, Stream};
use link::{local, tcp};
use tokio::{net::UnixStream, sync::oneshot, time::Instant};

use super::{Client, ClientError, ClientOptions, Events};

/// A server to be started: `heeler serve --stdio` with further words, in its own process group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerCommand {
    /// Path of the program `heeler`; one without a slash is taken from the working directory.
    pub program: PathBuf,
    /// Test programs, and options of `heeler serve`. Without programs, the suites of `heeler.toml` are served.
    pub words: Vec<OsString>,
    /// Where it runs, and looks for `heeler.toml`; `None` is this process's own working directory.
    pub cwd: Option<PathBuf>,
}

impl ServerCommand {
    /// Returns the start of a server for these words in this process's working directory.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>, words: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self { program: program.into(), words: words.into_iter().map(Into::into).collect(), cwd: None }
    }
}

/// Why there is no stream to a server.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The system gave no sockets or no thread.
    #[error("prepare a connection to a new server")]
    Prepare(#[source] io::Error),
    /// The server can't be started.
    #[error("start a server")]
    Spawn(#[source] SpawnError),
    /// Nobody listens at the address in time.
    #[error("join the server at {host} port {port}")]
    Tcp {
        /// As given.
        host: String,
        /// As given.
        port: u16,
        /// Why.
        source: tcp::DialError,
    },
    /// Nobody listens on the local socket in time.
    #[error("join the server at {}", path.display())]
    Local {
        /// As given.
        path: PathBuf,
        /// Why.
        source: local::ConnectError,
    },
}

impl Client {
    /// Starts a server for this client alone and a session with it. The server ends with the session, however that
    /// ends: also when the thread that called this ends, which on a runtime of one thread is that of the runtime.
    ///
    /// Cancel safe: yes, because a server whose client is gone leaves, and it is reaped in the background.
    ///
    /// # Errors
    /// The server can't be started; otherwise as [`Client::connect`].
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn start(
        command: ServerCommand,
        options: ClientOptions,
    ) -> Result<(Self, Events), ClientError> {
        let (stream, process) = start(command).map_err(ClientError::Start)?;
        let (mut client, events) = Self::connect(stream, options).await?;
        client.process = Some(process);
        Ok((client, events))
    }

    /// Joins a server that listens on TCP (`heeler serve --listen`); it must be there before the deadline.
    ///
    /// Cancel safe: yes, because a session that nobody waits for is cut.
    ///
    /// # Errors
    /// Nobody listens there; otherwise as [`Client::connect`].
    pub async fn join_tcp(
        (host, port): (&str, u16),
        deadline: Instant,
        options: ClientOptions,
    ) -> Result<(Self, Events), ClientError> {
        let stream = tcp::dial(host, port, deadline)
            .await
            .map_err(|source| ClientError::Start(StartError::Tcp { host: host.to_owned(), port, source }))?;
        Self::connect(stream, options).await
    }

    /// Joins a server of this user that listens on a local socket (`heeler serve --pipe`); it must be there before the
    /// deadline.
    ///
    /// Cancel safe: yes, because a session that nobody waits for is cut.
    ///
    /// # Errors
    /// Nobody listens there; otherwise as [`Client::connect`].
    pub async fn join_local(
        path: impl Into<PathBuf>,
        deadline: Instant,
        options: ClientOptions,
    ) -> Result<(Self, Events), ClientError> {
        let path = path.into();
        let stream = local::connect(&path, deadline)
            .await
            .map_err(|source| ClientError::Start(StartError::Local { path, source }))?;
        Self::connect(stream, options).await
    }
}

/// A server that was started here; it is reaped whoever waits for it.
#[derive(Debug)]
pub(super) struct ServerProcess {
    ended: oneshot::Receiver<()>,
}

impl ServerProcess {
    fn watch(mut child: Child) -> io::Result<Self> {
        let (sender, ended) = oneshot::channel();
        let wait = move || {
            if let Err(error) = child.wait() {
                tracing::debug!(%error, "the server was reaped by someone else");
            }
            // Whoever waited may be gone.
            let _gone = sender.send(());
        };
        std::thread::Builder::new().name("heeler-server".to_owned()).spawn(wait)?;
        Ok(Self { ended })
    }

    /// Waits until the process is gone.
    ///
    /// Cancel safe: no, because the receiver is used up; but the process is reaped all the same.
    pub(super) async fn ended(self) {
        // The thread sends before it ends.
        drop(self.ended.await);
    }
}

fn start(command: ServerCommand) -> Result<(UnixStream, ServerProcess), StartError> {
    let (ours, theirs) = host::io::socket_pair().map_err(StartError::Prepare)?;
    let output: OwnedFd = theirs.try_clone().map_err(StartError::Prepare)?;
    let spawn = Spawn {
        args: ["serve", "--stdio"].into_iter().map(OsString::from).chain(command.words).collect(),
        cwd: command.cwd,
        stdin: Stream::Fd(theirs),
        stdout: Stream::Fd(output),
        ..Spawn::new(std::path::absolute(&command.program).unwrap_or(command.program))
    };
    let child = host::spawn::spawn(spawn).map_err(StartError::Spawn)?;
    // Without its thread it stays a zombie until this process ends, and leaves because its input ends.
    let process = ServerProcess::watch(child).map_err(StartError::Prepare)?;
    let stream = std::os::unix::net::UnixStream::from(ours);
    stream.set_nonblocking(true).map_err(StartError::Prepare)?;
    Ok((UnixStream::from_std(stream).map_err(StartError::Prepare)?, process))
}
