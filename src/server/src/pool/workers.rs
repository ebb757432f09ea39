//! The pool: starts the watchdog, starts workers through it, and reports their joins, messages and exits.

use std::{
    collections::VecDeque, future::pending, os::fd::OwnedFd, path::PathBuf, sync::Arc, time::Duration,
};

use heeler_core::{client_progress::OverdueDecision, silence::SilenceWatch};
use heeler_protocol::control::{
    ClientId, FromWatchdog, FromWorker, RunKey, TestProgram, ToWatchdog, ToWorker, WorkerId, WorkerLease,
};
use heeler_sys::{process::exit_text, spawn::SpawnError};
use heeler_transport::{callback::on_client_overdue, local};
use tokio::{sync::mpsc, task::JoinSet, time::Instant};

use super::{
    client_sinks::ClientSinks,
    connection::{self, ControlEvent},
    dead_streams::{DeadSender, DeadSenderProof, DeadStreams},
    deadlines::{SEND_DEADLINE, SHUTDOWN_DEADLINE, START_DEADLINE},
    exit_watch::{ProcessExitWatch, wait_for_exit},
    orphans,
    pooled_workers::{ExitSign, PooledWorker, PooledWorkers},
    silence::on_silent_worker,
    watchdog::{MAX_WATCHDOGS, Watchdog},
    watchdog_process::{WatchdogStart, WorkerStdout},
    worker_starts::{WorkerStarts, WorkerUser},
};

/// Capacity of the event queue. Large enough that a burst of small reports does not stall workers, and small
/// enough to bound memory: a packet contains the results of one read of a test's output.
const EVENT_QUEUE_CAPACITY: usize = 64;

/// Parameters of a pool.
#[derive(Debug)]
pub(crate) struct PoolOptions {
    /// The program that runs as watchdog and worker.
    pub(crate) program: PathBuf,
    /// Destinations of frames forwarded to clients.
    pub(crate) clients: ClientSinks,
    /// Maximum number of workers, not counting workers blocked by their client.
    pub(crate) slots: usize,
    /// Where workers write output that is not captured.
    pub(crate) worker_stdout: WorkerStdout,
    /// Descriptor of the machine's slots that this coordinator holds; `None` if it does not share them.
    pub(crate) machine_slots: Option<OwnedFd>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum PoolError {
    /// No directory for the control socket could be made.
    #[error("create a directory for the control socket")]
    Directory(#[source] heeler_sys::dirs::DirError),
    /// The control socket could not be opened.
    #[error("listen for workers on {path}")]
    Listen { path: PathBuf, source: local::BindError },
    #[error("start the watchdog")]
    Spawn(#[source] SpawnError),
    #[error("start the watchdog: it did not connect within {} s", START_DEADLINE.as_secs())]
    NoWatchdog,
    #[error("restart the watchdog: it has died {MAX_WATCHDOGS} times")]
    TooManyWatchdogs,
}

/// An event that the pool reports to the scheduler.
#[derive(Debug)]
pub(crate) enum PoolEvent {
    /// A worker has joined and is idle.
    WorkerReady,
    /// A worker requested by this user did not start.
    WorkerNotStarted {
        worker: WorkerId,
        user: Option<WorkerUser>,
        error: String,
    },
    /// A worker is blocked because its client stopped reading, or has been unblocked.
    WorkerBlocked,
    WorkerMessage(WorkerId, FromWorker),
    /// A worker is dead, and everything it had sent has been read.
    WorkerDied {
        worker: WorkerId,
        /// Whether the watchdog's death ended the worker.
        is_lost_with_watchdog: bool,
        /// Results that clients are proven to have: forwarded to their connections, or handled on the
        /// worker's own connection.
        proven: DeadSenderProof,
    },
    WatchdogMessage(FromWatchdog),
    /// The watchdog died and was replaced. Its workers die with it.
    WatchdogReplaced {
        /// Parts of the watchdog's finishes that clients are proven to have.
        proven: DeadSenderProof,
    },
    /// The watchdog died and can't be replaced. The deaths of its workers have been reported before.
    WatchdogLost {
        error: PoolError,
        /// Parts of the watchdog's finishes that clients are proven to have.
        proven: DeadSenderProof,
    },
}

impl PoolEvent {
    /// Returns the loss of a watchdog with nothing proven about its finishes.
    pub(super) fn watchdog_lost(error: PoolError) -> Self {
        Self::WatchdogLost { error, proven: DeadSenderProof::default() }
    }
}

/// The death of the last watchdog, to be reported after its workers' deaths.
struct WatchdogLoss {
    error: PoolError,
    proven: DeadSenderProof,
}

/// The watchdog and the workers that serve all clients. Only the pool knows which workers exist and who uses
/// them.
pub(crate) struct WorkerPool {
    /// Must be the first field, so that the process is ended before its connection is dropped.
    watchdog: Watchdog,
    /// Contains the temporary directories of test processes.
    _temporary_dir: Option<heeler_sys::dirs::SessionTemporaryDir>,
    socket_dir: heeler_sys::dirs::SocketDir,
    slots: usize,
    control_events: mpsc::Receiver<ControlEvent>,
    workers: PooledWorkers,
    starts: WorkerStarts,
    /// Events that are ready to be returned.
    pending_events: VecDeque<PoolEvent>,
    /// Destinations of frames forwarded to clients.
    clients: ClientSinks,
    dead_streams: DeadStreams,
    /// The loss of the last watchdog, until the deaths of all workers are reported.
    watchdog_loss: Option<WatchdogLoss>,
    /// The task that accepts connections. It ends when `control_events` is dropped.
    _tasks: JoinSet<()>,
}

fn control_socket_in(directory: &heeler_sys::dirs::SocketDir) -> PathBuf {
    directory.path().join("control")
}

impl WorkerPool {
    /// Starts the watchdog and waits until it has joined.
    ///
    /// # Errors
    /// The socket, the watchdog process or its join message failed.
    ///
    /// Cancel safe: yes, because an abandoned watchdog sees the end of its connection and exits.
    pub(crate) async fn start(options: PoolOptions) -> Result<Self, PoolError> {
        let socket_dir = heeler_sys::dirs::socket_dir().map_err(PoolError::Directory)?;
        let temporary_dir = super::session_dir::create_temporary_dir(&socket_dir);
        let path = control_socket_in(&socket_dir);
        let listener = local::LocalListener::bind(&path)
            .map_err(|source| PoolError::Listen { path: path.clone(), source })?;
        let (sender, control_events) = mpsc::channel(EVENT_QUEUE_CAPACITY);
        let mut tasks = JoinSet::new();
        tasks.spawn(connection::accept(listener, options.clients.clone(), sender));
        orphans::adopt_orphans();
        let start = WatchdogStart {
            program: options.program,
            socket: path.clone(),
            worker_stdout: options.worker_stdout,
            machine_slots: options.machine_slots,
        };
        let watchdog = Watchdog::start(start).await?;
        let mut pool = Self {
            watchdog,
            _temporary_dir: temporary_dir,
            socket_dir,
            slots: options.slots,
            control_events,
            workers: PooledWorkers::default(),
            starts: WorkerStarts::default(),
            pending_events: VecDeque::new(),
            dead_streams: DeadStreams::listen(&path, options.clients.clone()),
            clients: options.clients,
            watchdog_loss: None,
            _tasks: tasks,
        };
        pool.await_watchdog().await?;
        Ok(pool)
    }

    /// Waits until the watchdog or its replacement has joined. A watchdog that dies before that is replaced;
    /// a stopped one is first continued.
    ///
    /// # Errors
    /// The watchdog does not join in time.
    ///
    /// Cancel safe: yes, as [`WorkerPool::next_event`].
    pub(crate) async fn await_watchdog(&mut self) -> Result<(), PoolError> {
        let mut start = Instant::now();
        let mut silence = SilenceWatch::new(Duration::ZERO);
        let mut deadline = start + START_DEADLINE;
        let mut end = ProcessExitWatch::watch(self.watchdog.pid()).ok();
        while !self.watchdog.has_joined() {
            let is_dead = tokio::select! {
                biased;
                raw = self.control_events.recv() => match raw {
                    Some(ControlEvent::WatchdogDisconnected { pid, .. }) if self.watchdog.is_current(pid) => true,
                    Some(raw) => {
                        self.on_control_event(raw);
                        false
                    }
                    None => return Err(PoolError::NoWatchdog),
                },
                // A watchdog that has not joined has no connection yet, so only its exit shows its death.
                () = wait_for_exit(end.as_ref()) => true,
                () = tokio::time::sleep_until(start + silence.check_at()) => {
                    if self.watchdog.check_starting(&mut silence, start.elapsed()) {
                        deadline = Instant::now() + START_DEADLINE;
                    }
                    false
                }
                () = tokio::time::sleep_until(deadline) => return Err(PoolError::NoWatchdog),
            };
            if is_dead {
                self.watchdog.bury();
                self.watchdog.start_next()?;
                start = Instant::now();
                silence = SilenceWatch::new(Duration::ZERO);
                deadline = start + START_DEADLINE;
                end = ProcessExitWatch::watch(self.watchdog.pid()).ok();
            }
        }
        // This watchdog does not know about workers requested before it joined.
        for worker in self.starts.begin_again() {
            self.watchdog.send(&ToWatchdog::StartWorker { worker }).await;
        }
        Ok(())
    }

    /// Returns the workers that have joined.
    #[must_use]
    pub(crate) fn workers(&self) -> &PooledWorkers {
        &self.workers
    }

    /// Makes all processes close their connections to a client that has left.
    ///
    /// Cancel safe: no, because some processes may not receive the message.
    pub(crate) async fn end_client(&mut self, client: ClientId) {
        for worker in self.workers.ready() {
            self.send_to_worker(worker, &ToWorker::EndClient { client }).await;
        }
        self.send_to_watchdog(&ToWatchdog::EndClient { client }).await;
        self.dead_streams.drop_client(client);
    }

    /// Requests workers for a user. They start as soon as there are fewer workers than slots.
    /// [`WorkerPool::grant`] or `PoolEvent::WorkerNotStarted` follows for each.
    pub(crate) fn request_workers(&mut self, user: &WorkerUser, count: usize) {
        self.starts.request(user, count);
    }

    /// Removes the requests of all listings.
    pub(crate) fn clear_listing_requests(&mut self) {
        self.starts.remove_listings();
    }

    /// Starts requested workers while there are fewer workers than slots. Blocked workers do not count.
    ///
    /// Cancel safe: no, because a worker number is used up before the watchdog receives it.
    pub(crate) async fn start_requested(&mut self) {
        let limit = self.slots + self.workers.all_blocked_count();
        while let Some(worker) = self.starts.begin(limit.saturating_sub(self.workers.len())) {
            self.watchdog.send(&ToWatchdog::StartWorker { worker }).await;
        }
    }

    /// Grants an idle worker to a user and removes one of the user's requests. Returns the program whose
    /// process waits for a lease on the worker, if there is one. The process continues if the next job is a
    /// lease of its program, and is ended otherwise.
    pub(crate) fn grant(&mut self, worker: WorkerId, user: WorkerUser) -> Option<Box<TestProgram>> {
        self.starts.on_granted(&user);
        self.workers.grant(worker, user)
    }

    /// Returns a worker to the idle state. `waiting_process` is the program whose process waits for a lease
    /// there, if there is one.
    pub(crate) fn release(&mut self, worker: WorkerId, waiting_process: Option<Box<TestProgram>>) {
        self.workers.release(worker, waiting_process);
    }

    /// Sends a lease, preceded by its program if the worker's last lease had a different one. From now on the
    /// worker serves the lease's run.
    ///
    /// Cancel safe: no, as [`WorkerPool::send_to_worker`].
    pub(crate) async fn send_lease(&mut self, worker: WorkerId, lease: Box<WorkerLease>) {
        self.workers.assign_run(worker, &lease.run);
        if self.workers.set_program(worker, &lease.program) {
            self.send_to_worker(worker, &ToWorker::Program(Arc::clone(&lease.program))).await;
        }
        self.send_to_worker(worker, &ToWorker::Lease(lease)).await;
    }

    /// Removes the records of a run that is over.
    pub(crate) fn end_run(&mut self, run: &RunKey) {
        self.starts.remove_user(&WorkerUser::Run(run.clone()));
        self.workers.end_run(run);
    }

    /// Sends a message to a worker. A worker that does not accept it in time is killed, and
    /// [`PoolEvent::WorkerDied`] follows.
    ///
    /// Cancel safe: no, because the message may or may not be queued.
    pub(crate) async fn send_to_worker(&mut self, worker: WorkerId, message: &ToWorker) {
        let Some(sender) = self.workers.get(worker).map(PooledWorker::sender) else { return };
        match tokio::time::timeout(SEND_DEADLINE, sender.send(message)).await {
            Ok(Ok(())) => {}
            // The event for the worker's death follows.
            Ok(Err(_closed)) => {}
            Err(_elapsed) => {
                tracing::warn!(%worker, "a worker accepts no messages; killing it");
                self.kill_worker(worker).await;
            }
        }
    }

    /// Makes the watchdog kill a worker and its whole process tree. [`PoolEvent::WorkerDied`] follows.
    ///
    /// Cancel safe: no, as [`WorkerPool::send_to_watchdog`].
    pub(crate) async fn kill_worker(&mut self, worker: WorkerId) {
        self.send_to_watchdog(&ToWatchdog::KillWorker { worker }).await;
        self.workers.expect_death(worker);
    }

    /// Sends a message to the watchdog. A watchdog that does not accept it in time is killed, and its
    /// replacement is reported as an event.
    ///
    /// Cancel safe: no, because the message may or may not be queued.
    pub(crate) async fn send_to_watchdog(&mut self, message: &ToWatchdog) {
        self.watchdog.send(message).await;
    }

    /// Sends a message to the watchdog and waits until it is written to the socket. The watchdog then reads
    /// it even if this process is killed.
    ///
    /// Cancel safe: no, as [`WorkerPool::send_to_watchdog`].
    pub(crate) async fn send_to_watchdog_flushed(&mut self, message: &ToWatchdog) {
        self.watchdog.send_flushed(message).await;
    }

    /// Kills the watchdog and with it all workers and tests.
    pub(crate) fn kill_watchdog(&self) {
        self.watchdog.kill();
    }

    /// Waits for the next event.
    ///
    /// Cancel safe: yes, because an event that was read stays in the pool until it is returned.
    pub(crate) async fn next_event(&mut self) -> PoolEvent {
        loop {
            if let Some(event) = self.pending_events.pop_front() {
                return event;
            }
            // The loss of the last watchdog is reported after the deaths of its workers.
            if self.workers.len() == 0
                && self.dead_streams.is_settled()
                && let Some(WatchdogLoss { error, proven }) = self.watchdog_loss.take()
            {
                let report = |proven| PoolEvent::WatchdogLost { error, proven };
                self.pending_events.extend(self.dead_streams.settle(DeadSender::watchdog(proven), report));
                continue;
            }
            let deadline = self.next_deadline();
            let expired = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(settled) = self.dead_streams.next_settled() => self.pending_events.push_back(settled),
                raw = self.control_events.recv() => match raw {
                    Some(raw) => self.on_control_event(raw),
                    None => self.pending_events.push_back(PoolEvent::watchdog_lost(PoolError::NoWatchdog)),
                },
                () = expired => self.on_deadline(Instant::now()),
            }
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.starts.deadlines().chain(self.workers.death_deadlines()).min()
    }

    fn on_deadline(&mut self, now: Instant) {
        for worker in self.starts.take_late(now) {
            let error = format!("it did not connect within {} s", START_DEADLINE.as_secs());
            self.push_not_started(worker, error);
        }
        for worker in self.workers.overdue_deaths(now) {
            if self.is_process_running(worker) {
                // A watchdog that has not killed the worker by now never will, and a live worker may still
                // send messages. Killing the watchdog ends the worker too.
                tracing::warn!(%worker, "the watchdog did not end a worker in time; killing the watchdog");
                self.watchdog.kill();
                self.workers.extend_death_deadline(worker, now);
            } else {
                self.remove_dead_worker(worker);
            }
        }
    }

    /// Returns whether a worker's process still runs, even if it is unreachable. Process ids are reused, so
    /// its parent is compared as well.
    fn is_process_running(&self, worker: WorkerId) -> bool {
        let stat = self.workers.get(worker).and_then(|worker| heeler_sys::process::stat(worker.pid()));
        stat.is_some_and(|stat| stat.parent == self.watchdog.pid() && stat.state != 'Z')
    }

    fn on_control_event(&mut self, raw: ControlEvent) {
        match raw {
            ControlEvent::WorkerJoined { worker, pid, sender, forwarded } => {
                if self.starts.end(worker) {
                    self.workers.join(worker, PooledWorker::joined(pid, sender, forwarded));
                    self.pending_events.push_back(PoolEvent::WorkerReady);
                }
            }
            ControlEvent::WorkerMessage(worker, FromWorker::Blocked { is_blocked }) => {
                if self.workers.set_blocked(worker, is_blocked) {
                    self.pending_events.push_back(PoolEvent::WorkerBlocked);
                }
            }
            ControlEvent::WorkerMessage(worker, message) => {
                self.pending_events.push_back(PoolEvent::WorkerMessage(worker, message))
            }
            ControlEvent::WorkerSilent(worker, step) => {
                if let Some(silent) = self.workers.get(worker).filter(|silent| !silent.is_dying()) {
                    on_silent_worker(self.watchdog.pid(), worker, silent.pid(), step);
                }
            }
            ControlEvent::WorkerDisconnected(worker) => self.on_exit_sign(worker, ExitSign::Disconnected),
            ControlEvent::WatchdogJoined { pid, sender } => {
                if self.watchdog.is_current(pid) {
                    self.watchdog.on_joined(sender);
                }
            }
            ControlEvent::WatchdogMessage(FromWatchdog::WorkerNotStarted { worker, error }) => {
                if self.starts.end(worker) {
                    self.push_not_started(worker, error);
                }
            }
            ControlEvent::WatchdogMessage(FromWatchdog::WorkerEnded { worker, code, signal }) => {
                if self.starts.end(worker) {
                    let end = exit_text(code, signal);
                    self.push_not_started(worker, format!("it exited before it connected ({end})"));
                }
                self.on_exit_sign(worker, ExitSign::Reported);
            }
            ControlEvent::WatchdogSilent { pid, step } => {
                if self.watchdog.is_current(pid) {
                    self.watchdog.on_silent(step);
                }
            }
            ControlEvent::WatchdogMessage(message) => {
                self.pending_events.push_back(PoolEvent::WatchdogMessage(message))
            }
            ControlEvent::WatchdogDisconnected { pid, relayed } => {
                if self.watchdog.is_current(pid) {
                    self.replace_watchdog(DeadSenderProof { relayed, ..DeadSenderProof::default() });
                }
            }
        }
    }

    fn on_exit_sign(&mut self, worker: WorkerId, sign: ExitSign) {
        if self.workers.on_exit_sign(worker, sign) {
            self.remove_dead_worker(worker);
        }
    }

    fn remove_dead_worker(&mut self, worker: WorkerId) {
        let Some(dead) = self.workers.remove(worker) else { return };
        let is_lost_with_watchdog = dead.is_lost_with_watchdog();
        let report = move |proven| PoolEvent::WorkerDied { worker, is_lost_with_watchdog, proven };
        self.pending_events.extend(self.dead_streams.settle(dead.into_dead(worker), report));
    }

    /// Reports to the first requester in the queue that a worker did not start.
    fn push_not_started(&mut self, worker: WorkerId, error: String) {
        let user = self.starts.take_requester();
        self.pending_events.push_back(PoolEvent::WorkerNotStarted { worker, user, error });
    }

    fn replace_watchdog(&mut self, proven: DeadSenderProof) {
        self.watchdog.bury();
        for worker in self.starts.take_all() {
            self.push_not_started(worker, "the watchdog died".to_owned());
        }
        for worker in self.workers.ids() {
            self.on_exit_sign(worker, ExitSign::WatchdogDied);
        }
        match self.watchdog.start_next() {
            Ok(()) => {
                let report = |proven| PoolEvent::WatchdogReplaced { proven };
                self.pending_events.extend(self.dead_streams.settle(DeadSender::watchdog(proven), report));
            }
            Err(error) => self.watchdog_loss = Some(WatchdogLoss { error, proven }),
        }
    }

    /// Shuts the pool down. Workers and watchdog are asked to exit, and killed if they don't.
    ///
    /// Cancel safe: yes, because dropping the pool ends the control connections, which has the same effect.
    pub(crate) async fn shut_down(mut self) {
        for worker in self.workers.ready() {
            self.send_to_worker(worker, &ToWorker::Exit).await;
        }
        self.send_to_watchdog(&ToWatchdog::Exit).await;
        let deadline = Instant::now() + SHUTDOWN_DEADLINE;
        loop {
            match tokio::time::timeout_at(deadline, self.control_events.recv()).await {
                Ok(Some(ControlEvent::WatchdogDisconnected { pid, .. })) if self.watchdog.is_current(pid) => {
                    break;
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_elapsed) => {
                    tracing::warn!(
                        "the watchdog did not exit within {} s; killing it",
                        SHUTDOWN_DEADLINE.as_secs()
                    );
                    break;
                }
            }
        }
        self.watchdog.reap();
    }

    /// Lets every process that sends to the client see which barriers it has answered on its main connection.
    pub(crate) fn share_answers(&self, client: ClientId) {
        self.clients.share_answers(client, &self.control_socket());
    }

    /// Decides whether to keep waiting for a client after `limit`: yes if the client has answered on any
    /// process's connection within that time.
    #[must_use]
    pub(crate) fn on_client_overdue(&self, client: ClientId, limit: Duration) -> OverdueDecision {
        on_client_overdue(&self.control_socket(), client, limit)
    }

    /// Returns the path of the socket that watchdog and workers connect to.
    fn control_socket(&self) -> PathBuf {
        control_socket_in(&self.socket_dir)
    }

    /// Returns whether the control socket exists. Without it, no worker and no watchdog can start.
    pub(crate) fn has_directory(&self) -> bool {
        self.control_socket().exists()
    }
}
