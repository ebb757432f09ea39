//! The front end trait, implemented by each client protocol.

use std::{fmt::Debug, future::pending, io, net::SocketAddr, pin::Pin, sync::Arc, time::Duration};

use heeler_transport::accept::{StopSignal, TcpConnection};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{mpsc, oneshot},
};

#[cfg(feature = "connect")]
use crate::connect::CaseEvent;
use crate::discovery::{ListingSettings, ProgramFinder, ProgramSource};
#[cfg(feature = "mutation")]
use crate::mutation::MutationServer;
use crate::scheduler::{ClientRegistration, SchedulerHandle, UpdateDelivery};
use heeler_config::ResolvedSettings;
use heeler_run_store::Provenance;

/// A connection to a client.
pub type ClientStream = Box<dyn ByteStream>;

/// A stream of bytes in both directions.
pub trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for S {}

/// A session that is being served. Returns how it ended.
pub type ServingSession = Pin<Box<dyn Future<Output = SessionEnd> + Send>>;

/// A client protocol.
pub trait FrontEnd: Debug + Sync {
    /// Returns the name used on the command line.
    fn name(&self) -> &'static str;

    /// Returns whether `heeler serve` offers this front end, with the programs it finds. Other front ends
    /// have their own command, which composes their session options.
    fn serves_programs(&self) -> bool {
        true
    }

    /// Returns how clients are served if the user names no transport.
    fn default_transport(&self) -> DefaultTransport {
        DefaultTransport::AnyPort
    }

    /// Returns the service for connections of a TCP port, if a connection is not a session. Over HTTP, for
    /// example, each message is a request, and clients share sessions.
    ///
    /// # Errors
    /// Clients can't be served on this address.
    fn port_service(
        &self,
        _server: &ClientServer,
        _bound: SocketAddr,
    ) -> io::Result<Option<Arc<dyn PortService>>> {
        Ok(None)
    }

    /// Returns how the server announces its TCP address.
    fn announcement(&self, bound: SocketAddr) -> Announcement {
        Announcement::Diagnostic(bound.to_string())
    }

    /// Returns how many clients a listening server serves at a time.
    fn connection_policy(&self) -> ConnectionPolicy {
        ConnectionPolicy::Concurrent
    }

    /// Returns whether each listing first builds or finds the programs. Sessions then begin without programs,
    /// and the first answer does not wait for a build.
    fn finds_programs_for_each_listing(&self) -> bool {
        false
    }

    /// Serves one client until its session ends. The session leaves nothing behind, except scheduler
    /// processes that serve other sessions.
    fn serve(
        &self,
        stream: ClientStream,
        options: SessionOptions,
        scheduler: SchedulerHandle,
        commands: mpsc::Receiver<SessionCommand>,
    ) -> ServingSession;
}

/// How clients of a protocol are served if the user names no transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultTransport {
    /// On a free loopback port, which is printed.
    AnyPort,
    /// On standard input and output, for the one process that started the server.
    StandardStreams,
}

/// How a server announces its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Announcement {
    /// A message for users.
    Diagnostic(String),
    /// A line on standard output, read by the program that started the server.
    Output(String),
}

/// A boxed future of a port service.
pub type PortFuture<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Serves the connections of a TCP port where a connection is not a session.
pub trait PortService: Debug + Send + Sync {
    /// Serves a connection until it ends or the server stops.
    fn serve(self: Arc<Self>, connection: TcpConnection, stopped: StopSignal) -> PortFuture<'static>;

    /// Returns when the state shared by the connections has failed.
    fn failed(&self) -> PortFuture<'_> {
        Box::pin(pending())
    }

    /// Ends the state shared by the connections once the server stops.
    fn end(&self) -> PortFuture<'_>;

    /// Returns the time limit for connections to end after `end`.
    fn finish_limit(&self) -> Duration;
}

/// How many clients a listening server serves at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionPolicy {
    /// Several, each with its own session. Connections beyond the limit wait.
    Concurrent,
    /// One. Another connection is closed, unless the previous client is gone. Its session indicates that by
    /// closing its command channel.
    OneAtATime,
}

/// Parameters of a session.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    pub settings: Arc<ResolvedSettings>,
    pub sources: Vec<ProgramSource>,
    /// Rebuilds or finds the programs while the session is open; `None` for the session of a single command.
    pub finder: Option<Arc<dyn ProgramFinder>>,
    /// Host of the client's callback port.
    pub client_host: String,
    /// Process whose death ends the session.
    pub exit_with: Option<u32>,
    /// A client that sends no `initialize` within this time is disconnected. `None` for a client that
    /// started the server.
    pub initialize_within: Option<Duration>,
    /// Whether every run of the session is a debug run.
    pub is_debug: bool,
    /// Whether the client may change the arguments and environment of programs. Doing so can make a program
    /// do anything, so clients on other machines may only run tests.
    pub allows_program_options: bool,
    /// Warnings for the client's log, sent once the session has begun.
    pub notices: Vec<String>,
    /// How the session's runs were started, recorded for later commands.
    pub provenance: Provenance,
    /// Finds and tests mutants for clients that ask for it.
    #[cfg(feature = "mutation")]
    pub mutation: Option<MutationServer>,
    /// Receives case events of a conformance suite. The session slows down if the receiver does.
    #[cfg(feature = "connect")]
    pub case_observer: Option<mpsc::Sender<CaseEvent>>,
}

impl SessionOptions {
    /// Returns the options for a client that started the server and only uses these programs.
    #[must_use]
    pub fn new(settings: Arc<ResolvedSettings>, sources: Vec<ProgramSource>) -> Self {
        Self {
            settings,
            sources,
            finder: None,
            client_host: "127.0.0.1".to_owned(),
            exit_with: None,
            initialize_within: None,
            is_debug: false,
            allows_program_options: true,
            notices: Vec::new(),
            provenance: Provenance::default(),
            #[cfg(feature = "mutation")]
            mutation: None,
            #[cfg(feature = "connect")]
            case_observer: None,
        }
    }

    /// Returns the session's registration with the scheduler.
    #[must_use]
    pub fn registration(&self, delivery: UpdateDelivery) -> ClientRegistration {
        ClientRegistration {
            delivery,
            sources: self.sources.clone(),
            finder: self.finder.clone(),
            listing: ListingSettings::of_session(&self.settings),
        }
    }
}

/// How each connecting client is served.
#[derive(Debug, Clone)]
pub struct ClientServer {
    pub front_end: &'static dyn FrontEnd,
    /// Parameters of each session.
    pub options: SessionOptions,
    /// The scheduler shared by all sessions.
    pub scheduler: SchedulerHandle,
}

/// A command from the owner of a session.
#[derive(Debug)]
pub enum SessionCommand {
    /// Stops all test processes. The sender is used once they have stopped.
    Pause(oneshot::Sender<()>),
    /// Resumes stopped test processes.
    Resume,
    /// Ends the session like the client's `exit`.
    Exit,
}

/// Why a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionEnd {
    /// The client sent `exit`, or the session's owner ended it.
    Exit,
    /// The client ended the whole server.
    Shutdown,
    /// The connection ended without `exit`.
    Disconnected,
    /// A process that the session depends on died.
    ParentDied,
}
