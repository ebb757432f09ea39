//! The pool: starts the watchdog, starts workers through it, and reports which of them join, send messages
//! and exit.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    future::pending,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use host::process::{Pid, Signal};
use host::spawn::{Child, Spawn, SpawnError, Stream};
use link::{control::ControlSender, local};
use tokio::{sync::mpsc, task::JoinSet, time::Instant};
use wire::control::{
    CallbackAddress, DeliveryLimits, FromWatchdog, FromWorker, ToWatchdog, ToWorker, WorkerId,
};

use super::{
    connection::{self, Greeting, Raw},
    end::ProcessEnd,
    orphans,
};

/// Time limit for a started process to join.
const START_DEADLINE: Duration = Duration::from_secs(20);
/// How long `fork` is retried after `EAGAIN` when the first watchdog starts.
const SPAWN_PATIENCE: Duration = Duration::from_secs(2);
/// Pause between two such attempts.
const SPAWN_PAUSE: Duration = Duration::from_millis(50);
/// Maximum time between the two signs of a worker's death: the end of its connection, and the watchdog's
/// report.
const DEATH_DEADLINE: Duration = Duration::from_secs(5);
/// Time limit for sending a control message; a process that does not accept one by then never will.
const SEND_DEADLINE: Duration = Duration::from_secs(10);
/// Time limit for a process tree to exit when the pool is shut down.
const LEAVE_DEADLINE: Duration = Duration::from_secs(2);
/// Maximum number of watchdogs; after this many deaths the watchdog is not replaced any more.
const WATCHDOGS: u32 = 4;
/// Capacity of the event queue to the driver: enough that a burst of small reports does not stop workers, few
/// enough to bound memory (a report packet carries the result of one read of a test's output).
const EVENTS_WAITING: usize = 64;

/// Parameters of a pool.
#[derive(Debug, Clone)]
pub struct PoolOptions {
    /// Address to which workers and watchdog send results; `None` forwards them through `client`.
    pub callback: Option<CallbackAddress>,
    /// Time limits for a slow client.
    pub limits: DeliveryLimits,
    /// The outbox of the main connection, for forwarded frames.
    pub client: link::Outbox,
    /// Whether workers inherit our standard output (for output that is not captured).
    pub is_output_shared: bool,
}

/// Errors of starting or keeping the pool.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// No directory for the control socket.
    #[error("prepare a directory for the control socket")]
    Directory(#[source] host::dirs::DirError),
    /// No control socket in it.
    #[error("listen for workers on {path}")]
    Listen { path: PathBuf, source: local::BindError },
    /// The watchdog could not be started.
    #[error("start the watchdog")]
    Spawn(#[source] SpawnError),
    /// The watchdog did not join in time.
    #[error("have the watchdog join within {} s", START_DEADLINE.as_secs())]
    NoWatchdog,
    /// The watchdog died too often.
    #[error("keep a watchdog alive: {WATCHDOGS} of them died")]
    TooManyWatchdogs,
}

/// An event that the pool reports to the scheduler.
#[derive(Debug)]
pub enum PoolEvent {
    /// A worker has joined.
    WorkerReady(WorkerId),
    /// A requested worker did not start.
    WorkerNotStarted { worker: WorkerId, error: String },
    /// A worker sent a message.
    Worker(WorkerId, FromWorker),
    /// A worker is dead, and everything that it had sent is read.
    WorkerGone {
        worker: WorkerId,
        /// By run, the position of its last frame that was forwarded to the client's connection.
        relayed: BTreeMap<String, u64>,
    },
    /// The watchdog sent a message.
    Watchdog(FromWatchdog),
    /// The watchdog died and was replaced. Its workers die with it.
    WatchdogReplaced,
    /// The watchdog died and can't be replaced any more.
    WatchdogLost(PoolError),
}

struct Worker {
    pid: Pid,
    sender: ControlSender,
    /// The position of the last forwarded frame of the run that the worker serves.
    relayed: Arc<AtomicU64>,
    /// The run of its last lease.
    serves: Option<String>,
    /// Positions of the runs that it served before, for as long as those runs last.
    relayed_before: BTreeMap<String, u64>,
    /// Its connection has ended.
    has_left: bool,
    /// The watchdog has reported its exit, or is dead itself.
    has_ended: bool,
    /// Deadline for the second sign of death, set at the first one.
    dying_until: Option<Instant>,
}

struct Watchdog {
    child: Child,
    sender: Option<ControlSender>,
}

/// The watchdog and the workers of a session.
pub struct Pool {
    socket_dir: host::dirs::SocketDir,
    is_output_shared: bool,
    raw: mpsc::Receiver<Raw>,
    workers: BTreeMap<WorkerId, Worker>,
    starting: BTreeMap<WorkerId, Instant>,
    watchdog: Watchdog,
    watchdogs: u32,
    next_worker: u32,
    /// Events that arose together with another one and are not returned yet.
    found: std::collections::VecDeque<PoolEvent>,
    /// The task that accepts connections; it ends when `raw` is dropped.
    _tasks: JoinSet<()>,
}

impl Pool {
    /// Starts the watchdog and waits until it has joined.
    ///
    /// # Errors
    /// The socket, the watchdog process or its join message failed.
    ///
    /// Cancel safe: yes, because an abandoned watchdog sees the end of its connection and exits.
    pub async fn start(options: PoolOptions) -> Result<Self, PoolError> {
        let socket_dir = host::dirs::socket_dir().map_err(PoolError::Directory)?;
        let path = socket_dir.path().join("control");
        let listener = local::Listener::bind(&path)
            .map_err(|source| PoolError::Listen { path: path.clone(), source })?;
        let (sender, raw) = mpsc::channel(EVENTS_WAITING);
        let greeting =
            Greeting { callback: options.callback, limits: options.limits, client: options.client };
        let mut tasks = JoinSet::new();
        tasks.spawn(connection::accept(listener, greeting, sender));
        orphans::adopt();
        let child = first_watchdog(&path, options.is_output_shared).await.map_err(PoolError::Spawn)?;
        let mut pool = Self {
            socket_dir,
            is_output_shared: options.is_output_shared,
            raw,
            workers: BTreeMap::new(),
            starting: BTreeMap::new(),
            watchdog: Watchdog { child, sender: None },
            watchdogs: 1,
            next_worker: 1,
            found: std::collections::VecDeque::new(),
            _tasks: tasks,
        };
        pool.await_watchdog().await?;
        Ok(pool)
    }

    /// Waits until the watchdog has joined; one that dies before that is replaced.
    async fn await_watchdog(&mut self) -> Result<(), PoolError> {
        let mut deadline = Instant::now() + START_DEADLINE;
        let mut end = ProcessEnd::of(self.watchdog.child.pid()).ok();
        while self.watchdog.sender.is_none() {
            let is_dead = tokio::select! {
                biased;
                raw = self.raw.recv() => match raw {
                    Some(Raw::WatchdogLeft { pid }) if pid == self.watchdog.child.pid().as_u32() => true,
                    Some(raw) => {
                        self.absorb(raw);
                        false
                    }
                    None => return Err(PoolError::NoWatchdog),
                },
                // Before it has joined, there is no connection whose end would show its death.
                () = ended(end.as_ref()) => true,
                () = tokio::time::sleep_until(deadline) => return Err(PoolError::NoWatchdog),
            };
            if is_dead {
                self.bury_watchdog();
                orphans::clear();
                self.next_watchdog()?;
                deadline = Instant::now() + START_DEADLINE;
                end = ProcessEnd::of(self.watchdog.child.pid()).ok();
            }
        }
        // Workers that were requested while there was no watchdog are not known to this one.
        for worker in self.starting.keys().copied().collect::<Vec<_>>() {
            self.starting.insert(worker, Instant::now() + START_DEADLINE);
            self.tell_watchdog(&ToWatchdog::StartWorker { worker }).await;
        }
        Ok(())
    }

    /// Starts the successor of a dead watchdog.
    fn next_watchdog(&mut self) -> Result<(), PoolError> {
        if self.watchdogs >= WATCHDOGS {
            return Err(PoolError::TooManyWatchdogs);
        }
        self.watchdogs += 1;
        let path = self.socket_dir.path().join("control");
        self.watchdog.child = spawn_watchdog(&path, self.is_output_shared).map_err(PoolError::Spawn)?;
        Ok(())
    }

    /// Returns the workers that have joined and are not dying.
    #[must_use]
    pub fn ready_workers(&self) -> Vec<WorkerId> {
        self.workers.iter().filter(|(_, worker)| !worker.is_dying()).map(|(id, _)| *id).collect()
    }

    /// Returns whether a worker has joined and shows no sign of death.
    #[must_use]
    pub fn is_ready(&self, worker: WorkerId) -> bool {
        self.workers.get(&worker).is_some_and(|link| !link.is_dying())
    }

    /// Returns the number of workers that have joined or are starting.
    #[must_use]
    pub fn worker_count(&self) -> usize {
        self.workers.len() + self.starting.len()
    }

    /// Returns the number of workers that are starting.
    #[must_use]
    pub fn starting_count(&self) -> usize {
        self.starting.len()
    }

    /// Records that a worker without a lease serves this run from now on. Positions are counted from 1 in
    /// each run. All frames of the previous run have been forwarded, because they precede the end of its
    /// lease.
    pub fn assign(&mut self, worker: WorkerId, run: &str) {
        let Some(link) = self.workers.get_mut(&worker) else { return };
        if link.serves.as_deref() == Some(run) {
            return;
        }
        let before = link.relayed_before.remove(run).unwrap_or(0);
        let relayed = link.relayed.swap(before, Ordering::AcqRel);
        if let Some(earlier) = link.serves.replace(run.to_owned()) {
            link.relayed_before.insert(earlier, relayed);
        }
    }

    /// Returns the run of a worker's last lease.
    #[must_use]
    pub fn serves(&self, worker: WorkerId) -> Option<&str> {
        self.workers.get(&worker)?.serves.as_deref()
    }

    /// Removes the records of a run that is over.
    pub fn end_run(&mut self, run: &str) {
        for link in self.workers.values_mut() {
            link.relayed_before.remove(run);
            if link.serves.as_deref() == Some(run) {
                link.serves = None;
            }
        }
    }

    /// Requests one more worker; [`PoolEvent::WorkerReady`] or [`PoolEvent::WorkerNotStarted`] follows.
    ///
    /// Cancel safe: no, because the worker number is used up before the watchdog receives it.
    pub async fn start_worker(&mut self) {
        let worker = WorkerId(self.next_worker);
        self.next_worker += 1;
        self.starting.insert(worker, Instant::now() + START_DEADLINE);
        self.tell_watchdog(&ToWatchdog::StartWorker { worker }).await;
    }

    /// Sends a message to a worker. A worker that does not accept it in time is killed;
    /// [`PoolEvent::WorkerGone`] follows.
    ///
    /// Cancel safe: no, because the message may or may not be queued.
    pub async fn tell(&mut self, worker: WorkerId, message: &ToWorker) {
        let Some(link) = self.workers.get(&worker) else { return };
        let sender = link.sender.clone();
        match tokio::time::timeout(SEND_DEADLINE, sender.send(message)).await {
            Ok(Ok(())) => {}
            // The event for its death follows.
            Ok(Err(_closed)) => {}
            Err(_elapsed) => {
                tracing::warn!(%worker, "a worker takes no messages and is killed");
                self.kill(worker).await;
            }
        }
    }

    /// Kills a worker and its whole process tree through the watchdog; [`PoolEvent::WorkerGone`] follows.
    ///
    /// Cancel safe: no, as [`Pool::tell_watchdog`].
    pub async fn kill(&mut self, worker: WorkerId) {
        self.tell_watchdog(&ToWatchdog::KillWorker { worker }).await;
        if let Some(link) = self.workers.get_mut(&worker) {
            link.dying_until.get_or_insert(Instant::now() + DEATH_DEADLINE);
        }
    }

    /// Sends a message to the watchdog. A watchdog that does not accept it in time is killed; its replacement
    /// is reported as an event.
    ///
    /// Cancel safe: no, because the message may or may not be queued.
    pub async fn tell_watchdog(&mut self, message: &ToWatchdog) {
        let Some(sender) = self.watchdog.sender.clone() else { return };
        if tokio::time::timeout(SEND_DEADLINE, sender.send(message)).await.is_err() {
            tracing::warn!("the watchdog takes no messages and is killed");
            self.kill_watchdog();
        }
    }

    /// Kills the watchdog, and with it all workers and tests.
    pub fn kill_watchdog(&mut self) {
        if let Err(error) = self.watchdog.child.signal(host::process::Signal::KILL) {
            tracing::debug!(%error, "the watchdog is gone already");
        }
    }

    /// Returns the next event; waits until there is one.
    ///
    /// Cancel safe: yes, because an event that was read stays in the pool until it is returned.
    pub async fn next(&mut self) -> PoolEvent {
        loop {
            if let Some(event) = self.found.pop_front() {
                return event;
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
                raw = self.raw.recv() => match raw {
                    Some(raw) => self.absorb(raw),
                    None => self.found.push_back(PoolEvent::WatchdogLost(PoolError::NoWatchdog)),
                },
                () = expired => self.expire(Instant::now()),
            }
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let dying = self.workers.values().filter_map(|worker| worker.dying_until);
        self.starting.values().copied().chain(dying).min()
    }

    fn expire(&mut self, now: Instant) {
        let late: Vec<_> =
            self.starting.iter().filter(|(_, deadline)| **deadline <= now).map(|(id, _)| *id).collect();
        for worker in late {
            self.starting.remove(&worker);
            let error = format!("did not join within {} s", START_DEADLINE.as_secs());
            self.found.push_back(PoolEvent::WorkerNotStarted { worker, error });
        }
        let dead: Vec<_> = self
            .workers
            .iter()
            .filter(|(_, worker)| worker.dying_until.is_some_and(|deadline| deadline <= now))
            .map(|(id, _)| *id)
            .collect();
        for worker in dead {
            if self.is_still_there(worker) {
                // A watchdog that has not killed the worker by now never will, and a worker that is alive may
                // still send messages. It dies with the watchdog.
                tracing::warn!(%worker, "the watchdog does not end a worker in time and is killed");
                self.kill_watchdog();
                self.postpone_death(worker, now);
            } else {
                self.bury(worker);
            }
        }
    }

    /// Returns whether a worker's process still runs, even if it is unreachable. A process id alone proves
    /// nothing, its parent does.
    fn is_still_there(&self, worker: WorkerId) -> bool {
        let watchdog = self.watchdog.child.pid();
        let stat = self.workers.get(&worker).and_then(|link| host::process::stat(link.pid));
        stat.is_some_and(|stat| stat.parent == watchdog && stat.state != 'Z')
    }

    fn postpone_death(&mut self, worker: WorkerId, now: Instant) {
        if let Some(link) = self.workers.get_mut(&worker) {
            link.dying_until = Some(now + DEATH_DEADLINE);
        }
    }

    fn bury(&mut self, worker: WorkerId) {
        if let Some(link) = self.workers.remove(&worker) {
            let mut relayed = link.relayed_before;
            relayed.extend(link.serves.map(|run| (run, link.relayed.load(Ordering::Acquire))));
            self.found.push_back(PoolEvent::WorkerGone { worker, relayed });
        }
    }

    fn absorb(&mut self, raw: Raw) {
        match raw {
            Raw::WorkerJoined { worker, pid, sender, relayed } => {
                if self.starting.remove(&worker).is_some() {
                    let link = Worker {
                        pid,
                        sender,
                        relayed,
                        serves: None,
                        relayed_before: BTreeMap::new(),
                        has_left: false,
                        has_ended: false,
                        dying_until: None,
                    };
                    self.workers.insert(worker, link);
                    self.found.push_back(PoolEvent::WorkerReady(worker));
                }
            }
            Raw::Worker(worker, message) => self.found.push_back(PoolEvent::Worker(worker, message)),
            Raw::WorkerLeft(worker) => self.sign_of_death(worker, |link| link.has_left = true),
            Raw::WatchdogJoined { pid, sender } => {
                if pid == self.watchdog.child.pid().as_u32() {
                    self.watchdog.sender = Some(sender);
                }
            }
            Raw::Watchdog(FromWatchdog::WorkerNotStarted { worker, error }) => {
                if self.starting.remove(&worker).is_some() {
                    self.found.push_back(PoolEvent::WorkerNotStarted { worker, error });
                }
            }
            Raw::Watchdog(FromWatchdog::WorkerEnded { worker, code, signal }) => {
                if self.starting.remove(&worker).is_some() {
                    let error = format!("ended before it joined (exit code {code:?}, signal {signal:?})");
                    self.found.push_back(PoolEvent::WorkerNotStarted { worker, error });
                }
                self.sign_of_death(worker, |link| link.has_ended = true);
            }
            Raw::Watchdog(message) => self.found.push_back(PoolEvent::Watchdog(message)),
            Raw::WatchdogLeft { pid } => {
                if pid == self.watchdog.child.pid().as_u32() {
                    self.replace_watchdog();
                }
            }
        }
    }

    /// Records a sign of a worker's death. A worker is dead once its connection has ended, so that none of
    /// its messages is missed, and the watchdog has reported its exit, so that none of its processes is left.
    fn sign_of_death(&mut self, worker: WorkerId, sign: impl FnOnce(&mut Worker)) {
        let Some(link) = self.workers.get_mut(&worker) else { return };
        sign(link);
        if link.has_left && link.has_ended {
            self.bury(worker);
        } else {
            link.dying_until.get_or_insert(Instant::now() + DEATH_DEADLINE);
        }
    }

    fn replace_watchdog(&mut self) {
        self.bury_watchdog();
        orphans::clear();
        self.watchdog.sender = None;
        for (worker, _) in std::mem::take(&mut self.starting) {
            let error = "the watchdog died".to_owned();
            self.found.push_back(PoolEvent::WorkerNotStarted { worker, error });
        }
        for worker in self.workers.keys().copied().collect::<Vec<_>>() {
            self.sign_of_death(worker, |link| link.has_ended = true);
        }
        let next = self.next_watchdog();
        self.found.push_back(next.map_or_else(PoolEvent::WatchdogLost, |()| PoolEvent::WatchdogReplaced));
    }

    /// Waits until the replacement of a watchdog has joined.
    ///
    /// # Errors
    /// It does not join.
    ///
    /// Cancel safe: yes, as [`Pool::next`].
    pub async fn await_replacement(&mut self) -> Result<(), PoolError> {
        self.await_watchdog().await
    }

    /// Shuts the pool down: workers and watchdog are requested to exit, and killed if they don't.
    ///
    /// Cancel safe: yes, because dropping the pool ends the control connections, which has the same effect.
    pub async fn leave(mut self) {
        for worker in self.ready_workers() {
            self.tell(worker, &ToWorker::Leave).await;
        }
        self.tell_watchdog(&ToWatchdog::Leave).await;
        let deadline = Instant::now() + LEAVE_DEADLINE;
        let pid = self.watchdog.child.pid().as_u32();
        loop {
            match tokio::time::timeout_at(deadline, self.raw.recv()).await {
                Ok(Some(Raw::WatchdogLeft { pid: left })) if left == pid => break,
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_elapsed) => {
                    tracing::warn!(
                        "the watchdog did not leave within {} s and is killed",
                        LEAVE_DEADLINE.as_secs()
                    );
                    break;
                }
            }
        }
        self.bury_watchdog();
    }

    fn bury_watchdog(&mut self) {
        self.kill_watchdog();
        if let Err(error) = self.watchdog.child.wait() {
            tracing::debug!(%error, "the watchdog could not be waited for");
        }
        orphans::forget(self.watchdog.child.pid());
    }
}

/// Ends the watchdog of a pool that is dropped without [`Pool::leave`], because its client is gone. Without
/// the signal the watchdog would take the end of its connection for the coordinator's death and finish the
/// run for a client that no longer exists.
impl Drop for Pool {
    fn drop(&mut self) {
        let watchdog = self.watchdog.child.pid();
        // After a panic the watchdog is right to finish the run; a watchdog that has exited gets no signal.
        if std::thread::panicking() || self.watchdog.child.signal(Signal::TERM).is_err() {
            return;
        }
        let reap = move || {
            drop(host::process::reap_child(watchdog));
            orphans::forget(watchdog);
        };
        // Without a thread it stays a zombie until this process exits.
        drop(std::thread::Builder::new().name("heeler-reaper".to_owned()).spawn(reap));
    }
}

impl Worker {
    fn is_dying(&self) -> bool {
        self.dying_until.is_some()
    }
}

/// Waits for a process's exit; forever if it can't be watched, so that only the deadline applies.
async fn ended(end: Option<&ProcessEnd>) {
    match end {
        Some(end) => end.wait().await,
        None => pending().await,
    }
}

/// Starts the first watchdog; retries while the system temporarily has no process to spare.
async fn first_watchdog(socket: &std::path::Path, is_output_shared: bool) -> Result<Child, SpawnError> {
    let deadline = Instant::now() + SPAWN_PATIENCE;
    loop {
        match spawn_watchdog(socket, is_output_shared) {
            Err(SpawnError::Create { source, .. })
                if source.kind() == std::io::ErrorKind::WouldBlock && Instant::now() < deadline =>
            {
                tokio::time::sleep(SPAWN_PAUSE).await;
            }
            outcome => return outcome,
        }
    }
}

fn spawn_watchdog(socket: &std::path::Path, is_output_shared: bool) -> Result<Child, SpawnError> {
    let mut spawn = Spawn::new(host::process::own_image());
    spawn.args = vec![OsString::from("__watchdog"), socket.as_os_str().to_owned()];
    spawn.stdout = if is_output_shared { Stream::Inherit } else { Stream::Null };
    let child = host::fail::at("pool.watchdog")
        .map_err(|source| SpawnError::Create { program: host::process::own_image(), source })
        .and_then(|()| host::spawn::spawn(spawn))?;
    orphans::register(child.pid());
    Ok(child)
}
