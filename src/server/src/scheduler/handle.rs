//! What front ends use of the scheduler: they register clients, and each client sends commands and receives
//! events.

use std::time::Duration;

use heeler_protocol::control::{ClientRoute, DebuggerDecision, LeaseId, WorkerId};
use heeler_transport::Outbox;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::timeout,
};

use super::{
    client_events::{ClientEvent, ClientEvents, QUEUE_CAPACITY},
    event_loop::Scheduler,
};
use crate::discovery::ProgramSource;
use crate::run::RunPlan;

/// Capacity of a client's command queue. A client that has sent so many waits until the scheduler has handled
/// one.
const COMMAND_QUEUE_CAPACITY: usize = 64;
/// Capacity of the queue of clients that register.
const REGISTRATION_QUEUE_CAPACITY: usize = 16;

/// Parameters of the scheduler.
#[derive(Debug, Clone)]
pub struct SchedulerOptions {
    /// Maximum number of test processes at the same time, of all clients together.
    pub slots: usize,
    /// Whether workers inherit our standard output (for output that is not captured).
    pub is_output_shared: bool,
}

/// Number of a request, chosen by its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestNumber(pub u64);

/// The lease of a test that waits for a debugger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DebuggeeLease {
    pub worker: WorkerId,
    pub lease: LeaseId,
}

/// Parameters of a client.
#[derive(Debug)]
pub struct ClientRegistration {
    /// How results of its runs reach it.
    pub route: ClientRoute,
    /// Its main connection, for results that are forwarded.
    pub outbox: Outbox,
    pub sources: Vec<ProgramSource>,
    /// Time limit for the listing of each program.
    pub list_timeout: Duration,
}

/// The scheduler is gone: it has failed inside.
#[derive(Debug, thiserror::Error)]
#[error("reach the scheduler, which has failed")]
pub struct SchedulerGone;

/// A command of a client.
pub(super) enum ClientCommand {
    List { request: RequestNumber },
    StartRun { request: RequestNumber, plan: Box<RunPlan> },
    Cancel { request: RequestNumber },
    DecideDebuggee { lease: DebuggeeLease, decision: DebuggerDecision },
    Pause(oneshot::Sender<()>),
    Resume,
}

/// A client that registers.
pub(super) struct NewClient {
    pub(super) registration: ClientRegistration,
    pub(super) commands: mpsc::Receiver<ClientCommand>,
    pub(super) events: ClientEvents,
    /// Dropped when the client has left and nothing of it is in progress.
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
    /// Starts a scheduler. It starts processes when a client requests something.
    #[must_use]
    pub fn start(options: SchedulerOptions) -> (Self, SchedulerTask) {
        let (registrations, receiver) = mpsc::channel(REGISTRATION_QUEUE_CAPACITY);
        let mut tasks = JoinSet::new();
        tasks.spawn(Scheduler::new(options, receiver).run());
        (Self { registrations }, SchedulerTask { tasks })
    }

    /// Registers a client.
    ///
    /// # Errors
    /// The scheduler is gone.
    ///
    /// Cancel safe: yes, because a client whose other end is dropped leaves again.
    pub async fn register(&self, registration: ClientRegistration) -> Result<RunClient, SchedulerGone> {
        let (commands, command_receiver) = mpsc::channel(COMMAND_QUEUE_CAPACITY);
        let (events, event_receiver) = mpsc::channel(QUEUE_CAPACITY);
        let (left, has_left) = oneshot::channel();
        let events = ClientEvents::new(events);
        let client = NewClient { registration, commands: command_receiver, events, left };
        self.registrations.send(client).await.map_err(|_| SchedulerGone)?;
        Ok(RunClient { commands, events: event_receiver, has_left })
    }
}

impl SchedulerTask {
    /// Waits for the scheduler's end, after all handles are dropped; ends it after the limit.
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
    has_left: oneshot::Receiver<()>,
}

impl RunClient {
    /// Requests a listing of all programs; [`ClientEvent::Listed`] follows.
    ///
    /// # Errors
    /// The scheduler is gone.
    ///
    /// Cancel safe: yes, as all commands, because a cancelled call has sent nothing.
    pub async fn list(&self, request: RequestNumber) -> Result<(), SchedulerGone> {
        self.send(ClientCommand::List { request }).await
    }

    /// Starts a run; [`ClientEvent::RunEnded`] or [`ClientEvent::RunRefused`] follows.
    ///
    /// # Errors
    /// The scheduler is gone.
    ///
    /// Cancel safe: yes, as [`RunClient::list`].
    pub async fn start_run(&self, request: RequestNumber, plan: Box<RunPlan>) -> Result<(), SchedulerGone> {
        self.send(ClientCommand::StartRun { request, plan }).await
    }

    /// Cancels a request. A run ends as a cancelled one; of a listing nothing more is reported.
    ///
    /// # Errors
    /// The scheduler is gone.
    ///
    /// Cancel safe: yes, as [`RunClient::list`].
    pub async fn cancel(&self, request: RequestNumber) -> Result<(), SchedulerGone> {
        self.send(ClientCommand::Cancel { request }).await
    }

    /// Decides how a test continues that waits for a debugger.
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

    /// Stops all test processes of this client; `done` is answered once they are stopped.
    ///
    /// # Errors
    /// The scheduler is gone.
    ///
    /// Cancel safe: yes, as [`RunClient::list`].
    pub async fn pause(&self, done: oneshot::Sender<()>) -> Result<(), SchedulerGone> {
        self.send(ClientCommand::Pause(done)).await
    }

    /// Lets stopped test processes continue.
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
        self.events.recv().await
    }

    /// Leaves: returns when nothing of this client is in progress.
    ///
    /// Cancel safe: yes, because the client has left as soon as this is called.
    pub async fn leave(self) {
        let Self { commands, events, has_left } = self;
        drop((commands, events));
        // An error means that the scheduler has dropped its end, as it does in any case.
        let _left = has_left.await;
    }

    async fn send(&self, command: ClientCommand) -> Result<(), SchedulerGone> {
        self.commands.send(command).await.map_err(|_| SchedulerGone)
    }
}
