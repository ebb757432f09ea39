//! The front end trait: each protocol that clients speak implements it.

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

/// A session that is being served; returns how it ended.
pub type ServingSession = Pin<Box<dyn Future<Output = SessionEnd> + Send>>;

/// A protocol that clients speak.
pub trait FrontEnd: Debug + Sync {
    /// Returns the word that names it on the command line.
    fn name(&self) -> &'static str;

    /// Returns whether clients are served the tests of programs, as `heeler serve` finds them. Others have a
    /// command of their own, which composes the options of their sessions.
    fn serves_programs(&self) -> bool {
        true
    }

    /// Returns how clients are served if the user names no transport.
    fn default_transport(&self) -> DefaultTransport {
        DefaultTransport::AnyPort
    }

    /// Returns what serves the connections of a TCP port, if each is not a session of its own: over HTTP, a
    /// message is a request, and clients share sessions.
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

    /// Returns how the server says on which TCP address it listens.
    fn announcement(&self, bound: SocketAddr) -> Announcement {
        Announcement::Diagnostic(bound.to_string())
    }

    /// Returns how many clients a listening server serves at the same time.
    fn connection_policy(&self) -> ConnectionPolicy {
        ConnectionPolicy::Concurrent
    }

    /// Returns whether each listing builds or finds the programs first. A session then begins without them,
    /// so that its client does not wait for a build before its first answer.
    fn finds_programs_for_each_listing(&self) -> bool {
        false
    }

    /// Serves one client until its session ends. Nothing of the session is left then, except for processes of
    /// the scheduler that serve other sessions.
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
    /// On a free port of the loopback interface, which is printed.
    AnyPort,
    /// One client, the process that started the server, on standard input and output.
    StandardStreams,
}

/// How a server says where it listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Announcement {
    /// The address, for people.
    Diagnostic(String),
    /// A line of standard output, which the program reads that started the server.
    Output(String),
}

/// Something that is waited for.
pub type PortFuture<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Serves the connections of a TCP port, where each is not a session of its own.
pub trait PortService: Debug + Send + Sync {
    /// Serves a connection until it ends or the server stops.
    fn serve(self: Arc<Self>, connection: TcpConnection, stopped: StopSignal) -> PortFuture<'static>;

    /// Returns when what the connections share has ended by itself.
    fn failed(&self) -> PortFuture<'_> {
        Box::pin(pending())
    }

    /// Ends what the connections share, once the server stops.
    fn end(&self) -> PortFuture<'_>;

    /// Returns the time for the ends of the connections after that.
    fn finish_limit(&self) -> Duration;
}

/// How many clients a listening server serves at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionPolicy {
    /// Several, each with a session of its own; further ones wait.
    Concurrent,
    /// One. A further connection is closed, unless the client before it is gone: its session says so by
    /// closing its channel of commands.
    OneAtATime,
}

/// Parameters of a session.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    pub settings: Arc<ResolvedSettings>,
    pub sources: Vec<ProgramSource>,
    /// Finds the programs again while the session is open; `None` for a session of one command.
    pub finder: Option<Arc<dyn ProgramFinder>>,
    /// Host of the client's callback port.
    pub client_host: String,
    /// The session ends when this process dies.
    pub exit_with: Option<u32>,
    /// Time limit for `initialize`, after which the connection is closed; `None` waits forever, for a client
    /// that started the server.
    pub initialize_within: Option<Duration>,
    /// Every run of the session is a debug run.
    pub is_debug: bool,
    /// Whether the client may change what the programs are started with. With other arguments and another
    /// environment a program may do anything, so a client on another machine may only run the tests.
    pub allows_program_options: bool,
    /// Warnings for the client's log, which it gets as soon as there is a session.
    pub notices: Vec<String>,
    /// How the runs of the session were started, recorded for later commands.
    pub provenance: Provenance,
    /// What finds and tests mutants, for clients that ask for them.
    #[cfg(feature = "mutation")]
    pub mutation: Option<MutationServer>,
    /// Takes the events of a conformance suite's cases, and slows the session while it does not.
    #[cfg(feature = "connect")]
    pub case_observer: Option<mpsc::Sender<CaseEvent>>,
}

impl SessionOptions {
    /// Returns the parameters of a session with a client that started the server and gets no more than these
    /// programs.
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

    /// Returns how the session registers with the scheduler.
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

/// How each client that connects is served.
#[derive(Debug, Clone)]
pub struct ClientServer {
    pub front_end: &'static dyn FrontEnd,
    /// Parameters of each session.
    pub options: SessionOptions,
    /// The scheduler of all sessions.
    pub scheduler: SchedulerHandle,
}

/// A command from the owner of a session.
#[derive(Debug)]
pub enum SessionCommand {
    /// Stops all test processes; answered once they are stopped.
    Pause(oneshot::Sender<()>),
    /// Lets stopped test processes continue.
    Resume,
    /// Ends the session as after `exit`.
    Exit,
}

/// Reason for the end of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionEnd {
    /// The client sent `exit`, or the owner did.
    Exit,
    /// The client ended the server: it serves no other client either.
    Shutdown,
    /// The connection ended without `exit`.
    Disconnected,
    /// The process that the session depends on died.
    ParentDied,
}
