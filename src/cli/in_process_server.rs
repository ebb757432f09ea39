//! A session with a coordinator in this process: the command line is an ordinary client, connected through
//! memory. Workers and the watchdog report to a local socket of its own; to a TCP port where the system has
//! no such socket left.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::Instant,
};

use heeler_client::{Client, ClientError, ClientOptions, EventStream, InProcessCallbacks};
use heeler_config::ResolvedSettings;
use heeler_run_store::Provenance;
use heeler_server::{
    discovery::ProgramSource,
    listen::{FrontEnd as _, SessionCommand, SessionEnd, SessionOptions},
    mtp::MtpFrontEnd,
    pool::WorkerStdout,
    scheduler::{SchedulerHandle, SchedulerOptions, SchedulerTask},
};

/// Capacity of the in-memory connection between client and session: that of a socket's buffer.
const CONNECTION_BYTES: usize = 256 << 10;
/// Time limit for an orderly shutdown.
const EXIT_DEADLINE: Duration = Duration::from_secs(15);

/// What a session of one command is used for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ServerUse {
    /// Tests are only listed.
    List,
    /// Tests are listed, and run in the run with this id.
    Run { id: String },
}

/// The session and the client connected to it.
pub(super) struct InProcessServer {
    pub(super) client: Client,
    session: JoinSet<SessionEnd>,
    commands: mpsc::Sender<SessionCommand>,
    scheduler: SchedulerTask,
}

impl InProcessServer {
    /// Starts a session and connects to it; workers of a run start while its programs are listed. Tests whose
    /// output is shown live write to `worker_stdout`.
    pub(super) async fn start(
        settings: Arc<ResolvedSettings>,
        sources: Vec<ProgramSource>,
        provenance: Provenance,
        client: ClientOptions,
        worker_stdout: WorkerStdout,
        use_of: ServerUse,
    ) -> Result<(Self, EventStream), ClientError> {
        let upcoming_run = match use_of {
            ServerUse::List => None,
            ServerUse::Run { id } => Some(id),
        };
        let (ours, theirs) = tokio::io::duplex(CONNECTION_BYTES);
        let callbacks = listen_for_callbacks();
        let options = SessionOptions {
            callback: callbacks.as_ref().map(|callbacks| callbacks.address().clone()),
            provenance,
            ..SessionOptions::new(settings, sources)
        };
        let (commands, receiver) = mpsc::channel(4);
        let mut session = JoinSet::new();
        let scheduler_options = SchedulerOptions {
            has_concurrent_runs: false,
            starts_workers_early: upcoming_run.is_some(),
            upcoming_run,
            ..SchedulerOptions::new(&options.settings, worker_stdout)
        };
        let (handle, scheduler) = SchedulerHandle::start(scheduler_options);
        session.spawn(MtpFrontEnd.serve(Box::new(theirs), options, handle, receiver));
        let (client, events) = match callbacks {
            Some(callbacks) => Client::connect_in_process(ours, callbacks, client).await?,
            None => Client::connect(ours, client).await?,
        };
        Ok((Self { client, session, commands, scheduler }, events))
    }

    /// Stops all test processes; returns when all are stopped.
    pub(super) async fn pause(&self) {
        let (sender, receiver) = oneshot::channel();
        if self.commands.send(SessionCommand::Pause(sender)).await.is_ok() {
            // A session that has ended has no processes to stop.
            let _gone = receiver.await;
        }
    }

    /// Continues the test processes.
    pub(super) async fn resume(&self) {
        // A session that has ended has no processes to continue.
        let _gone = self.commands.send(SessionCommand::Resume).await;
    }

    /// Ends the session; all its tasks have ended when this returns.
    pub(super) async fn shut_down(mut self, mut events: EventStream) -> Result<(), ClientError> {
        // The client's readers block when its events are not consumed.
        let mut reader = JoinSet::new();
        reader.spawn(async move { while events.next().await.is_some() {} });
        let left = self.client.exit(Instant::now() + EXIT_DEADLINE).await;
        drop(self.commands);
        while self.session.join_next().await.is_some() {}
        self.scheduler.join(EXIT_DEADLINE).await;
        left
    }
}

/// Listens on a local socket; `None` if the system has none left, or no abstract namespace.
fn listen_for_callbacks() -> Option<InProcessCallbacks> {
    let listened = heeler_sys::fail::at("cli.callback").map_err(|error| error.to_string());
    let listened = listened
        .and_then(|()| InProcessCallbacks::listen().map_err(|error| heeler_core::error_chain(&error)));
    listened
        .inspect_err(|error| tracing::debug!(error, "workers report to a TCP port instead of a local socket"))
        .ok()
}
