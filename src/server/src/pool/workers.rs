//! The pool: starts the watchdog, starts workers through it, and reports which of them join, send messages
//! and exit.

use std::{
    collections::{BTreeMap, VecDeque},
    future::pending,
    path::PathBuf,
    time::Duration,
};

use heeler_core::silence::SilenceWatch;
use heeler_protocol::control::{ClientId, FromWatchdog, FromWorker, ToWatchdog, ToWorker, WorkerId};
use heeler_sys::process::Signal;
use heeler_sys::spawn::{SpawnError, SpawnedChild};
use heeler_transport::{callback::HeldStreams, control::ControlSender, local};
use tokio::{sync::mpsc, task::JoinSet, time::Instant};

use super::{
    client_sinks::ClientSinks,
    connection::{self, ControlEvent},
    dead_streams::{DeadSender, DeadSenderProof, listen_for_streams},
    deadlines::{DEATH_DEADLINE, SEND_DEADLINE, SHUTDOWN_DEADLINE, START_DEADLINE},
    exit_watch::ProcessExitWatch,
    exit_watch::wait_for_exit,
    grants::WorkerUser,
    orphans,
    pooled_worker::PooledWorker,
    watchdog_process::{WorkerStdout, spawn_first_watchdog, spawn_watchdog},
};

/// Maximum number of watchdogs; after this many deaths the watchdog is not replaced any more.
const MAX_WATCHDOGS: u32 = 4;
/// Capacity of the event queue to the driver: enough that a burst of small reports does not stop workers, few
/// enough to bound memory (a report packet carries the result of one read of a test's output).
const EVENT_QUEUE_CAPACITY: usize = 64;

/// Parameters of a pool.
#[derive(Debug, Clone)]
pub struct PoolOptions {
    /// The program that runs as watchdog and workers.
    pub program: PathBuf,
    /// Where forwarded frames of all clients go.
    pub clients: ClientSinks,
    /// Maximum number of workers that are not blocked by their client.
    pub slots: usize,
    /// Where workers write output that is not captured.
    pub worker_stdout: WorkerStdout,
}

/// Errors of starting or keeping the pool.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// No directory for the control socket.
    #[error("prepare a directory for the control socket")]
    Directory(#[source] heeler_sys::dirs::DirError),
    /// No control socket in it.
    #[error("listen for workers on {path}")]
    Listen { path: PathBuf, source: local::BindError },
    /// The watchdog could not be started.
    #[error("start the watchdog")]
    Spawn(#[source] SpawnError),
    /// The watchdog did not join in time.
    #[error("wait for the watchdog to connect within {} s", START_DEADLINE.as_secs())]
    NoWatchdog,
    /// The watchdog died too often.
    #[error("keep a watchdog alive: {MAX_WATCHDOGS} of them died")]
    TooManyWatchdogs,
}

/// An event that the pool reports to the scheduler.
#[derive(Debug)]
pub enum PoolEvent {
    /// A worker has joined, and is idle.
    WorkerReady,
    /// A worker that was requested for this user did not start.
    WorkerNotStarted { worker: WorkerId, user: Option<WorkerUser>, error: String },
    /// A worker waits for a client that takes no frames, or does not wait any more.
    WorkerBlocked,
    /// A worker sent a message.
    WorkerMessage(WorkerId, FromWorker),
    /// A worker is dead, and everything that it had sent is read.
    WorkerDied {
        worker: WorkerId,
        /// The death of the watchdog ended the worker.
        is_lost_with_watchdog: bool,
        /// The results that clients are proven to have: those forwarded to their connections, or handled by
        /// them on the worker's own.
        proven: DeadSenderProof,
    },
    /// The watchdog sent a message.
    WatchdogMessage(FromWatchdog),
    /// The watchdog died and was replaced. Its workers die with it.
    WatchdogReplaced {
        /// The parts of its finishes that clients are proven to have.
        proven: DeadSenderProof,
    },
    /// The watchdog died and can't be replaced any more. The deaths of its workers are reported before.
    WatchdogLost {
        error: PoolError,
        /// The parts of its finishes that clients are proven to have.
        proven: DeadSenderProof,
    },
}

/// The last watchdog is dead.
struct WatchdogLoss {
    error: PoolError,
    proven: DeadSenderProof,
}

pub(super) struct WatchdogProcess {
    pub(super) child: SpawnedChild,
    sender: Option<ControlSender>,
}

/// The watchdog and the workers of this process, for all clients: the only record of which workers there are
/// and what each is used for.
pub struct WorkerPool {
    /// Where test processes have their temporary directories.
    _temporary_dir: Option<heeler_sys::dirs::SessionTemporaryDir>,
    socket_dir: heeler_sys::dirs::SocketDir,
    pub(super) slots: usize,
    program: PathBuf,
    worker_stdout: WorkerStdout,
    control_events: mpsc::Receiver<ControlEvent>,
    pub(super) workers: BTreeMap<WorkerId, PooledWorker>,
    pub(super) starting: BTreeMap<WorkerId, Instant>,
    /// Users that have requested a worker which has not joined yet, in order.
    pub(super) requests: VecDeque<WorkerUser>,
    pub(super) watchdog: WatchdogProcess,
    watchdogs_started: u32,
    next_worker: u32,
    /// Events that arose together with another one and are not returned yet.
    pub(super) pending_events: VecDeque<PoolEvent>,
    /// Where forwarded frames go.
    pub(super) clients: ClientSinks,
    /// Duplicates of the connections of workers and watchdog to clients; `None` if they can't be received.
    pub(super) held_streams: Option<HeldStreams>,
    /// Dead processes whose connections are brought to an end; their deaths are reported after it.
    pub(super) settling: JoinSet<PoolEvent>,
    /// The loss of the last watchdog, until the deaths of all workers are reported.
    watchdog_loss: Option<WatchdogLoss>,
    /// The task that accepts connections; it ends when `raw` is dropped.
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
    pub async fn start(options: PoolOptions) -> Result<Self, PoolError> {
        let socket_dir = heeler_sys::dirs::socket_dir().map_err(PoolError::Directory)?;
        let temporary_dir = super::session_dir::create_temporary_dir(&socket_dir);
        let path = control_socket_in(&socket_dir);
        let listener = local::LocalListener::bind(&path)
            .map_err(|source| PoolError::Listen { path: path.clone(), source })?;
        let (sender, raw) = mpsc::channel(EVENT_QUEUE_CAPACITY);
        let mut tasks = JoinSet::new();
        tasks.spawn(connection::accept(listener, options.clients.clone(), sender));
        orphans::adopt_orphans();
        let child = spawn_first_watchdog(&options.program, &path, options.worker_stdout)
            .await
            .map_err(PoolError::Spawn)?;
        let mut pool = Self {
            _temporary_dir: temporary_dir,
            socket_dir,
            slots: options.slots,
            program: options.program,
            worker_stdout: options.worker_stdout,
            control_events: raw,
            workers: BTreeMap::new(),
            starting: BTreeMap::new(),
            requests: VecDeque::new(),
            watchdog: WatchdogProcess { child, sender: None },
            watchdogs_started: 1,
            next_worker: 1,
            pending_events: VecDeque::new(),
            clients: options.clients,
            held_streams: listen_for_streams(&path),
            settling: JoinSet::new(),
            watchdog_loss: None,
            _tasks: tasks,
        };
        pool.await_watchdog().await?;
        Ok(pool)
    }

    /// Waits until the watchdog has joined; one that dies before that is replaced, one that is stopped
    /// continued first.
    async fn await_watchdog(&mut self) -> Result<(), PoolError> {
        let mut start = Instant::now();
        let mut silence = SilenceWatch::new(Duration::ZERO);
        let mut deadline = start + START_DEADLINE;
        let mut end = ProcessExitWatch::watch(self.watchdog.child.pid()).ok();
        while self.watchdog.sender.is_none() {
            let is_dead = tokio::select! {
                biased;
                raw = self.control_events.recv() => match raw {
                    Some(ControlEvent::WatchdogDisconnected { pid, .. }) if pid == self.watchdog.child.pid().as_u32() => true,
                    Some(raw) => {
                        self.on_control_event(raw);
                        false
                    }
                    None => return Err(PoolError::NoWatchdog),
                },
                // Before it has joined, there is no connection whose end would show its death.
                () = wait_for_exit(end.as_ref()) => true,
                () = tokio::time::sleep_until(start + silence.check_at()) => {
                    if self.check_starting_watchdog(&mut silence, start.elapsed()) {
                        deadline = Instant::now() + START_DEADLINE;
                    }
                    false
                }
                () = tokio::time::sleep_until(deadline) => return Err(PoolError::NoWatchdog),
            };
            if is_dead {
                self.reap_watchdog();
                orphans::kill_orphans();
                self.spawn_next_watchdog()?;
                start = Instant::now();
                silence = SilenceWatch::new(Duration::ZERO);
                deadline = start + START_DEADLINE;
                end = ProcessExitWatch::watch(self.watchdog.child.pid()).ok();
            }
        }
        // Workers that were requested while there was no watchdog are not known to this one.
        for worker in self.starting.keys().copied().collect::<Vec<_>>() {
            self.starting.insert(worker, Instant::now() + START_DEADLINE);
            self.send_to_watchdog(&ToWatchdog::StartWorker { worker }).await;
        }
        Ok(())
    }

    /// Starts the successor of a dead watchdog.
    fn spawn_next_watchdog(&mut self) -> Result<(), PoolError> {
        if self.watchdogs_started >= MAX_WATCHDOGS {
            return Err(PoolError::TooManyWatchdogs);
        }
        self.watchdogs_started += 1;
        let path = self.control_socket();
        self.watchdog.child =
            spawn_watchdog(&self.program, &path, self.worker_stdout).map_err(PoolError::Spawn)?;
        Ok(())
    }

    /// Returns the workers that have joined and are not dying.
    #[must_use]
    pub fn ready_workers(&self) -> Vec<WorkerId> {
        self.workers.iter().filter(|(_, worker)| !worker.is_dying()).map(|(id, _)| *id).collect()
    }

    /// Closes the connections of all processes to a client that has left.
    ///
    /// Cancel safe: no, because some processes may not receive the message.
    pub async fn end_client(&mut self, client: ClientId) {
        for worker in self.ready_workers() {
            self.send_to_worker(worker, &ToWorker::EndClient { client }).await;
        }
        self.send_to_watchdog(&ToWatchdog::EndClient { client }).await;
        if let Some(held) = &self.held_streams {
            held.drop_client(client);
        }
    }

    /// Starts one more worker.
    ///
    /// Cancel safe: no, because the worker number is used up before the watchdog receives it.
    pub(super) async fn start_worker(&mut self) {
        let worker = WorkerId(self.next_worker);
        self.next_worker += 1;
        self.starting.insert(worker, Instant::now() + START_DEADLINE);
        self.send_to_watchdog(&ToWatchdog::StartWorker { worker }).await;
    }

    /// Sends a message to a worker. A worker that does not accept it in time is killed;
    /// [`PoolEvent::WorkerDied`] follows.
    ///
    /// Cancel safe: no, because the message may or may not be queued.
    pub async fn send_to_worker(&mut self, worker: WorkerId, message: &ToWorker) {
        let Some(link) = self.workers.get(&worker) else { return };
        let sender = link.sender.clone();
        match tokio::time::timeout(SEND_DEADLINE, sender.send(message)).await {
            Ok(Ok(())) => {}
            // The event for its death follows.
            Ok(Err(_closed)) => {}
            Err(_elapsed) => {
                tracing::warn!(%worker, "a worker takes no messages and is killed");
                self.kill_worker(worker).await;
            }
        }
    }

    /// Kills a worker and its whole process tree through the watchdog; [`PoolEvent::WorkerDied`] follows.
    ///
    /// Cancel safe: no, as [`WorkerPool::send_to_watchdog`].
    pub async fn kill_worker(&mut self, worker: WorkerId) {
        self.send_to_watchdog(&ToWatchdog::KillWorker { worker }).await;
        if let Some(link) = self.workers.get_mut(&worker) {
            link.death_deadline.get_or_insert(Instant::now() + DEATH_DEADLINE);
        }
    }

    /// Sends a message to the watchdog. A watchdog that does not accept it in time is killed; its replacement
    /// is reported as an event.
    ///
    /// Cancel safe: no, because the message may or may not be queued.
    pub async fn send_to_watchdog(&mut self, message: &ToWatchdog) {
        let Some(sender) = self.watchdog.sender.clone() else { return };
        if tokio::time::timeout(SEND_DEADLINE, sender.send(message)).await.is_err() {
            tracing::warn!("the watchdog takes no messages and is killed");
            self.kill_watchdog();
        }
    }

    /// Sends a message to the watchdog, and waits until its socket has it: the watchdog reads it even if this
    /// process is killed now.
    ///
    /// Cancel safe: no, as [`WorkerPool::send_to_watchdog`].
    pub async fn send_to_watchdog_flushed(&mut self, message: &ToWatchdog) {
        self.send_to_watchdog(message).await;
        let Some(sender) = self.watchdog.sender.clone() else { return };
        match tokio::time::timeout(SEND_DEADLINE, sender.flush()).await {
            // The event for its death follows.
            Ok(Ok(()) | Err(_)) => {}
            Err(_elapsed) => {
                tracing::warn!("the watchdog reads no messages and is killed");
                self.kill_watchdog();
            }
        }
    }

    /// Kills the watchdog, and with it all workers and tests.
    pub fn kill_watchdog(&mut self) {
        if let Err(error) = self.watchdog.child.signal(heeler_sys::process::Signal::KILL) {
            tracing::debug!(%error, "the watchdog is gone already");
        }
    }

    /// Returns the next event; waits until there is one.
    ///
    /// Cancel safe: yes, because an event that was read stays in the pool until it is returned.
    pub async fn next_event(&mut self) -> PoolEvent {
        loop {
            if let Some(event) = self.pending_events.pop_front() {
                return event;
            }
            if self.workers.is_empty()
                && self.settling.is_empty()
                && let Some(WatchdogLoss { error, proven }) = self.watchdog_loss.take()
            {
                let report = |proven| PoolEvent::WatchdogLost { error, proven };
                self.report_settled(DeadSender::watchdog(proven), report);
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
                Some(settled) = self.settling.join_next() => self.on_settled(settled),
                raw = self.control_events.recv() => match raw {
                    Some(raw) => self.on_control_event(raw),
                    None => self.push_watchdog_lost(PoolError::NoWatchdog),
                },
                () = expired => self.on_deadline(Instant::now()),
            }
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let dying = self.workers.values().filter_map(|worker| worker.death_deadline);
        self.starting.values().copied().chain(dying).min()
    }

    fn on_deadline(&mut self, now: Instant) {
        let late: Vec<_> =
            self.starting.iter().filter(|(_, deadline)| **deadline <= now).map(|(id, _)| *id).collect();
        for worker in late {
            self.starting.remove(&worker);
            let error = format!("did not connect within {} s", START_DEADLINE.as_secs());
            self.push_not_started(worker, error);
        }
        let dead: Vec<_> = self
            .workers
            .iter()
            .filter(|(_, worker)| worker.death_deadline.is_some_and(|deadline| deadline <= now))
            .map(|(id, _)| *id)
            .collect();
        for worker in dead {
            if self.is_process_running(worker) {
                // A watchdog that has not killed the worker by now never will, and a worker that is alive may
                // still send messages. It dies with the watchdog.
                tracing::warn!(%worker, "the watchdog does not end a worker in time and is killed");
                self.kill_watchdog();
                self.extend_death_deadline(worker, now);
            } else {
                self.remove_dead_worker(worker);
            }
        }
    }

    /// Returns whether a worker's process still runs, even if it is unreachable. A process id alone proves
    /// nothing, its parent does.
    fn is_process_running(&self, worker: WorkerId) -> bool {
        let watchdog = self.watchdog.child.pid();
        let stat = self.workers.get(&worker).and_then(|link| heeler_sys::process::stat(link.pid));
        stat.is_some_and(|stat| stat.parent == watchdog && stat.state != 'Z')
    }

    fn extend_death_deadline(&mut self, worker: WorkerId, now: Instant) {
        if let Some(link) = self.workers.get_mut(&worker) {
            link.death_deadline = Some(now + DEATH_DEADLINE);
        }
    }

    fn on_control_event(&mut self, raw: ControlEvent) {
        match raw {
            ControlEvent::WorkerJoined { worker, pid, sender, forwarded: relayed } => {
                if self.starting.remove(&worker).is_some() {
                    let link = PooledWorker::joined(pid, sender, relayed);
                    self.workers.insert(worker, link);
                    self.pending_events.push_back(PoolEvent::WorkerReady);
                }
            }
            ControlEvent::WorkerMessage(worker, FromWorker::Blocked { is_blocked }) => {
                if let Some(link) = self.workers.get_mut(&worker) {
                    link.is_blocked = is_blocked;
                    self.pending_events.push_back(PoolEvent::WorkerBlocked);
                }
            }
            ControlEvent::WorkerMessage(worker, message) => {
                self.pending_events.push_back(PoolEvent::WorkerMessage(worker, message))
            }
            ControlEvent::WorkerSilent(worker, step) => self.on_silent_worker(worker, step),
            ControlEvent::WorkerDisconnected(worker) => {
                self.note_exit(worker, |link| link.is_disconnected = true)
            }
            ControlEvent::WatchdogJoined { pid, sender } => {
                if pid == self.watchdog.child.pid().as_u32() {
                    self.watchdog.sender = Some(sender);
                }
            }
            ControlEvent::WatchdogMessage(FromWatchdog::WorkerNotStarted { worker, error }) => {
                if self.starting.remove(&worker).is_some() {
                    self.push_not_started(worker, error);
                }
            }
            ControlEvent::WatchdogMessage(FromWatchdog::WorkerEnded { worker, code, signal }) => {
                if self.starting.remove(&worker).is_some() {
                    let error = format!("exited before it connected (exit code {code:?}, signal {signal:?})");
                    self.push_not_started(worker, error);
                }
                self.note_exit(worker, |link| link.is_exit_reported = true);
            }
            ControlEvent::WatchdogSilent { pid, step } => {
                if pid == self.watchdog.child.pid().as_u32() {
                    self.on_silent_watchdog(step);
                }
            }
            ControlEvent::WatchdogMessage(message) => {
                self.pending_events.push_back(PoolEvent::WatchdogMessage(message))
            }
            ControlEvent::WatchdogDisconnected { pid, relayed } => {
                if pid == self.watchdog.child.pid().as_u32() {
                    self.replace_watchdog(DeadSenderProof { relayed, ..DeadSenderProof::default() });
                }
            }
        }
    }

    /// Records a sign of a worker's death. A worker is dead once its connection has ended, so that none of
    /// its messages is missed, and the watchdog has reported its exit, so that none of its processes is left.
    fn note_exit(&mut self, worker: WorkerId, sign: impl FnOnce(&mut PooledWorker)) {
        let Some(link) = self.workers.get_mut(&worker) else { return };
        sign(link);
        if link.is_disconnected && link.is_exit_reported {
            self.remove_dead_worker(worker);
        } else {
            link.death_deadline.get_or_insert(Instant::now() + DEATH_DEADLINE);
        }
    }

    /// Reports to the first requester in the queue that a worker did not start.
    fn push_not_started(&mut self, worker: WorkerId, error: String) {
        let user = self.requests.pop_front();
        self.pending_events.push_back(PoolEvent::WorkerNotStarted { worker, user, error });
    }

    fn replace_watchdog(&mut self, proven: DeadSenderProof) {
        self.reap_watchdog();
        orphans::kill_orphans();
        self.watchdog.sender = None;
        for (worker, _) in std::mem::take(&mut self.starting) {
            self.push_not_started(worker, "the watchdog died".to_owned());
        }
        for worker in self.workers.keys().copied().collect::<Vec<_>>() {
            self.note_exit(worker, |link| {
                link.is_lost_with_watchdog = !link.is_exit_reported;
                link.is_exit_reported = true;
            });
        }
        match self.spawn_next_watchdog() {
            Ok(()) => self.report_settled(DeadSender::watchdog(proven), |proven| {
                PoolEvent::WatchdogReplaced { proven }
            }),
            Err(error) => self.watchdog_loss = Some(WatchdogLoss { error, proven }),
        }
    }

    /// Waits until the replacement of a watchdog has joined.
    ///
    /// # Errors
    /// It does not join.
    ///
    /// Cancel safe: yes, as [`WorkerPool::next_event`].
    pub async fn await_replacement(&mut self) -> Result<(), PoolError> {
        self.await_watchdog().await
    }

    /// Shuts the pool down: workers and watchdog are requested to exit, and killed if they don't.
    ///
    /// Cancel safe: yes, because dropping the pool ends the control connections, which has the same effect.
    pub async fn shut_down(mut self) {
        for worker in self.ready_workers() {
            self.send_to_worker(worker, &ToWorker::Exit).await;
        }
        self.send_to_watchdog(&ToWatchdog::Exit).await;
        let deadline = Instant::now() + SHUTDOWN_DEADLINE;
        let pid = self.watchdog.child.pid().as_u32();
        loop {
            match tokio::time::timeout_at(deadline, self.control_events.recv()).await {
                Ok(Some(ControlEvent::WatchdogDisconnected { pid: left, .. })) if left == pid => break,
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_elapsed) => {
                    tracing::warn!(
                        "the watchdog did not leave within {} s and is killed",
                        SHUTDOWN_DEADLINE.as_secs()
                    );
                    break;
                }
            }
        }
        self.reap_watchdog();
    }

    /// Has all processes know what a client answers on its main connection.
    pub fn share_answers(&self, client: ClientId) {
        self.clients.share_answers(client, &self.control_socket());
    }

    /// Returns where the watchdog and the workers connect.
    pub(super) fn control_socket(&self) -> PathBuf {
        control_socket_in(&self.socket_dir)
    }

    /// Returns whether the control socket exists. Without it no worker and no watchdog can start.
    pub fn has_directory(&self) -> bool {
        self.control_socket().exists()
    }

    fn reap_watchdog(&mut self) {
        self.kill_watchdog();
        if let Err(error) = self.watchdog.child.wait() {
            tracing::debug!(%error, "the watchdog could not be waited for");
        }
        orphans::unregister_watchdog(self.watchdog.child.pid());
    }
}

/// Ends the watchdog of a pool that is dropped without [`WorkerPool::shut_down`], because its client is gone.
/// Without the signal the watchdog would take the end of its connection for the coordinator's death and
/// finish the run for a client that no longer exists.
impl Drop for WorkerPool {
    fn drop(&mut self) {
        let watchdog = self.watchdog.child.pid();
        // After a panic the watchdog is right to finish the run; a watchdog that has exited gets no signal.
        if std::thread::panicking() || self.watchdog.child.signal(Signal::TERM).is_err() {
            return;
        }
        let reap = move || {
            drop(heeler_sys::process::reap_child(watchdog));
            orphans::unregister_watchdog(watchdog);
        };
        // Without a thread it stays a zombie until this process exits.
        drop(std::thread::Builder::new().name("heeler-reaper".to_owned()).spawn(reap));
    }
}
