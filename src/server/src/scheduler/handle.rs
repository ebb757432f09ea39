//! The scheduler's interface for front ends: they register clients, and each client sends commands and
//! receives events.

use std::{path::PathBuf, sync::Arc, time::Duration};

use heeler_config::{CaptureStrategy, MachineLimits, ResolvedSettings};
use heeler_protocol::{
    control::{
        CallbackAddress, ClientRoute, DebuggerDecision, DeliveryLimits, LeaseId, RunUpdates, UpdateEncoding,
        WorkerId,
    },
    mtp::ClientMembers,
};
use heeler_transport::Outbox;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::timeout,
};

use super::client_events::{ClientEvent, ClientEvents, QUEUE_CAPACITY};
use crate::discovery::{ListingSettings, ProgramFinder, ProgramSource};
use crate::pool::{ClientSink, MainBarriers, WorkerStdout};
use crate::run::{PlannedTests, RunPlan};

/// Capacity of a client's command queue. When it is full, the client waits until the scheduler has handled a
/// command.
const COMMAND_QUEUE_CAPACITY: usize = 64;
/// Capacity of a client's update queue, the same as a connection's queue. An entry contains up to a quarter
/// of a megabyte, or a single larger result.
const UPDATE_QUEUE_CAPACITY: usize = 4;
/// Capacity of the queue of new clients.
const REGISTRATION_QUEUE_CAPACITY: usize = 16;

/// Parameters of the scheduler.
#[derive(Debug, Clone)]
pub struct SchedulerOptions {
    /// Heeler's own program, which also runs as watchdog and worker.
    pub program: PathBuf,
    /// Maximum number of concurrent test processes of all clients together.
    pub slots: usize,
    /// Slots of the machine, which other coordinators share; `None` if this one does not share them.
    pub machine: Option<MachineLimits>,
    /// Where workers write output that is not captured.
    pub worker_stdout: WorkerStdout,
    /// Whether a run may begin while another is in progress. Batches are then kept short, so that the new run
    /// soon gets a slot.
    pub has_concurrent_runs: bool,
    /// Whether a run follows the first listing. Its workers are then started while programs are listed.
    pub starts_workers_early: bool,
    /// Id of the run that follows the first listing. Processes that have listed their tests may wait for it.
    pub upcoming_run: Option<String>,
}

impl SchedulerOptions {
    /// Returns the options for this program. Test output that is not captured goes to `shown`.
    #[must_use]
    pub fn new(settings: &ResolvedSettings, shown: WorkerStdout) -> Self {
        Self {
            program: heeler_sys::process::own_program_path(),
            slots: settings.run.jobs.slots().get(),
            machine: settings.machine,
            worker_stdout: match settings.run.capture {
                CaptureStrategy::Shown => shown,
                CaptureStrategy::Kept => WorkerStdout::Discarded,
            },
            has_concurrent_runs: true,
            starts_workers_early: false,
            upcoming_run: None,
        }
    }
}

/// Number of a request, chosen by its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestNumber(pub u64);

/// Whether programs are built before they are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BuildRequest {
    /// List the programs without building them.
    #[default]
    None,
    /// Run the build commands first.
    First,
}

/// The lease of a test that waits for a debugger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DebuggeeLease {
    pub worker: WorkerId,
    pub lease: LeaseId,
}

/// How updates of a client's runs reach the client.
#[derive(Debug)]
pub enum UpdateDelivery {
    /// Updates are sent as frames of the test protocol, over workers' callback connections or the main
    /// connection.
    Frames {
        callback: Option<CallbackAddress>,
        main_connection: Outbox,
        /// Barriers on the main connection. The client's session records the answers.
        main_barriers: MainBarriers,
        limits: DeliveryLimits,
    },
    /// Updates arrive as events of the [`RunClient`], to be rendered by a session of any protocol.
    Events,
}

impl UpdateDelivery {
    /// Returns the route for workers and the watchdog, and the sink for updates sent through the coordinator.
    pub(super) fn into_route(self, updates: mpsc::Sender<RunUpdates>) -> (ClientRoute, ClientSink) {
        match self {
            Self::Frames { callback, main_connection, main_barriers, limits } => {
                let barriers = callback.is_some().then_some(main_barriers);
                let encoding = UpdateEncoding::TestProtocol;
                let route = ClientRoute { callback, limits, encoding, ..ClientRoute::default() };
                (route, ClientSink::Connection(main_connection, barriers))
            }
            Self::Events => {
                // Limits apply to connections only, and this route has none.
                let route = ClientRoute { encoding: UpdateEncoding::Typed, ..ClientRoute::default() };
                (route, ClientSink::Session(updates))
            }
        }
    }
}

/// Parameters of a client.
#[derive(Debug)]
pub struct ClientRegistration {
    /// How updates of the client's runs reach it.
    pub delivery: UpdateDelivery,
    pub sources: Vec<ProgramSource>,
    /// Rebuilds the programs; `None` if they can't be built. Must be the same for all clients of the same
    /// programs.
    pub finder: Option<Arc<dyn ProgramFinder>>,
    pub listing: ListingSettings,
}

/// The scheduler is gone because of an internal failure.
#[derive(Debug, thiserror::Error)]
#[error("reach the scheduler, which has stopped after an internal error")]
pub struct SchedulerGone;

pub(super) enum ClientCommand {
    List { request: RequestNumber, build: BuildRequest },
    StartRun { request: RequestNumber, plan: Box<RunPlan>, client_members: ClientMembers },
    AddTests { request: RequestNumber, tests: Box<PlannedTests> },
    EndTests { request: RequestNumber },
    Cancel { request: RequestNumber },
    Kill { request: RequestNumber },
    DecideDebuggee { lease: DebuggeeLease, decision: DebuggerDecision },
    Pause(oneshot::Sender<()>),
    Resume,
}

pub(super) struct NewClient {
    pub(super) registration: ClientRegistration,
    pub(super) commands: mpsc::Receiver<ClientCommand>,
    pub(super) events: ClientEvents,
    /// Updates of the client's runs, if it receives them as events.
    pub(super) updates: mpsc::Sender<RunUpdates>,
    /// Dropped once the client has left and none of its work is in progress.
    pub(super) left: oneshot::Sender<()>,
}

/// Access to the scheduler. The scheduler ends when all handles are dropped and all clients have left.
#[derive(Debug, Clone)]
pub struct SchedulerHandle {
    registrations: mpsc::Sender<NewClient>,
}

/// The scheduler's task. Dropping it ends all processes.
#[derive(Debug)]
pub struct SchedulerTask {
    tasks: JoinSet<()>,
}

impl SchedulerHandle {
    /// Returns a handle, and the receiver for the scheduler.
    pub(super) fn new() -> (Self, mpsc::Receiver<NewClient>) {
        let (registrations, receiver) = mpsc::channel(REGISTRATION_QUEUE_CAPACITY);
        (Self { registrations }, receiver)
    }

    /// Registers a client.
    ///
    /// # Errors
    /// The scheduler is gone.
    ///
    /// Cancel safe: yes, because dropping the future makes the client leave again.
    pub async fn register(&self, registration: ClientRegistration) -> Result<RunClient, SchedulerGone> {
        let (commands, command_receiver) = mpsc::channel(COMMAND_QUEUE_CAPACITY);
        let (events, event_receiver) = mpsc::channel(QUEUE_CAPACITY);
        let (left, has_left) = oneshot::channel();
        let events = ClientEvents::new(events);
        let (updates, update_receiver) = mpsc::channel(UPDATE_QUEUE_CAPACITY);
        let client = NewClient { registration, commands: command_receiver, events, updates, left };
        self.registrations.send(client).await.map_err(|_| SchedulerGone)?;
        Ok(RunClient { commands, events: event_receiver, updates: update_receiver, has_left })
    }
}

impl SchedulerTask {
    pub(super) fn spawn(scheduler: impl Future<Output = ()> + Send + 'static) -> Self {
        let mut tasks = JoinSet::new();
        tasks.spawn(scheduler);
        Self { tasks }
    }

    /// Waits for the scheduler to end after all handles are dropped. Ends it when the limit expires.
    ///
    /// Cancel safe: yes, because dropping the task ends it.
    pub async fn join(mut self, limit: Duration) {
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if timeout(limit, ended).await.is_err() {
            tracing::warn!("the scheduler did not end within {} s", limit.as_secs());
        }
        self.tasks.shutdown().await;
    }
}

/// A client of the scheduler. Dropping it ends its runs.
#[derive(Debug)]
pub struct RunClient {
    commands: mpsc::Sender<ClientCommand>,
    events: mpsc::Receiver<ClientEvent>,
    updates: mpsc::Receiver<RunUpdates>,
    has_left: oneshot::Receiver<()>,
}

impl RunClient {
    /// Requests a listing of all programs, after a build if `build` asks for one. [`ClientEvent::Listed`]
    /// follows.
    ///
    /// # Errors
    /// The scheduler is gone.
    ///
    /// Cancel safe: yes, like all commands, because a cancelled call has sent nothing.
    pub async fn list(&self, request: RequestNumber, build: BuildRequest) -> Result<(), SchedulerGone> {
        self.send(ClientCommand::List { request, build }).await
    }

    /// Starts a run. [`ClientEvent::RunEnded`] or [`ClientEvent::RunRefused`] follows. `client_members` are
    /// returned on the nodes of their tests and groups.
    ///
    /// # Errors
    /// The scheduler is gone.
    ///
    /// Cancel safe: yes, as [`RunClient::list`].
    pub async fn start_run(
        &self,
        request: RequestNumber,
        plan: Box<RunPlan>,
        client_members: ClientMembers,
    ) -> Result<(), SchedulerGone> {
        self.send(ClientCommand::StartRun { request, plan, client_members }).await
    }

    /// Adds tests to an open run. The run may end before it accepts them: the plan in
    /// [`ClientEvent::RunEnded`] contains all accepted tests.
    ///
    /// # Errors
    /// The scheduler is gone.
    ///
    /// Cancel safe: yes, as [`RunClient::list`].
    pub async fn add_tests(&self, request: RequestNumber, tests: PlannedTests) -> Result<(), SchedulerGone> {
        self.send(ClientCommand::AddTests { request, tests: Box::new(tests) }).await
    }

    /// Closes an open run: no more tests will be added. [`ClientEvent::RunEnded`] follows.
    ///
    /// # Errors
    /// The scheduler is gone.
    ///
    /// Cancel safe: yes, as [`RunClient::list`].
    #[cfg_attr(not(feature = "connect"), expect(dead_code, reason = "only runs of Connect's suite are open"))]
    pub(crate) async fn end_tests(&self, request: RequestNumber) -> Result<(), SchedulerGone> {
        self.send(ClientCommand::EndTests { request }).await
    }

    /// Cancels a request. A run is reported as cancelled; for a listing, no more events follow.
    ///
    /// # Errors
    /// The scheduler is gone.
    ///
    /// Cancel safe: yes, as [`RunClient::list`].
    pub async fn cancel(&self, request: RequestNumber) -> Result<(), SchedulerGone> {
        self.send(ClientCommand::Cancel { request }).await
    }

    /// Cancels a request like [`RunClient::cancel`], but kills running tests without a grace period. May
    /// follow a `cancel`.
    ///
    /// # Errors
    /// The scheduler is gone.
    ///
    /// Cancel safe: yes, as [`RunClient::list`].
    pub async fn kill(&self, request: RequestNumber) -> Result<(), SchedulerGone> {
        self.send(ClientCommand::Kill { request }).await
    }

    /// Decides how a test that waits for a debugger continues.
    ///
    /// # Errors
    /// The scheduler is gone.
    ///
    /// Cancel safe: yes, as [`RunClient::list`].
    pub async fn decide_debuggee(
        &self,
        lease: DebuggeeLease,
        decision: DebuggerDecision,
    ) -> Result<(), SchedulerGone> {
        self.send(ClientCommand::DecideDebuggee { lease, decision }).await
    }

    /// Stops all test processes of this client. `done` is sent once they have stopped.
    ///
    /// # Errors
    /// The scheduler is gone.
    ///
    /// Cancel safe: yes, as [`RunClient::list`].
    pub async fn pause(&self, done: oneshot::Sender<()>) -> Result<(), SchedulerGone> {
        self.send(ClientCommand::Pause(done)).await
    }

    /// Stops all test processes of this client, as [`RunClient::pause`] does. Returns when they have stopped,
    /// or at once if the scheduler is gone, because nothing runs then.
    ///
    /// Cancel safe: no, because some processes may be stopped.
    pub async fn pause_until_stopped(&self) {
        let (done, stopped) = oneshot::channel();
        if self.pause(done).await.is_ok() {
            let _gone = stopped.await;
        }
    }

    /// Resumes stopped test processes.
    ///
    /// # Errors
    /// The scheduler is gone.
    ///
    /// Cancel safe: yes, as [`RunClient::list`].
    pub async fn resume(&self) -> Result<(), SchedulerGone> {
        self.send(ClientCommand::Resume).await
    }

    /// Returns the next event; `None` if the scheduler is gone.
    ///
    /// Cancel safe: yes, because an event is either still in the queue or returned.
    pub async fn next_event(&mut self) -> Option<ClientEvent> {
        tokio::select! {
            biased;
            // Updates of a run are queued before its end.
            Some(updates) = self.updates.recv() => Some(ClientEvent::Updates(updates)),
            event = self.events.recv() => event,
        }
    }

    /// Leaves the scheduler. Returns when none of this client's work is in progress.
    ///
    /// Cancel safe: yes, because the client has left as soon as this is called.
    pub async fn leave(self) {
        let Self { commands, events, updates, has_left } = self;
        drop((commands, events, updates));
        // An error is expected: the scheduler drops its end without sending.
        let _left = has_left.await;
    }

    async fn send(&self, command: ClientCommand) -> Result<(), SchedulerGone> {
        self.commands.send(command).await.map_err(|_| SchedulerGone)
    }
}
