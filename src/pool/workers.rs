//! The pool: starts the watchdog, has it start workers, and tells who comes, speaks and goes.

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

/// A process that has not joined by then does not come.
const START_DEADLINE: Duration = Duration::from_secs(20);
/// So long a machine without processes is asked for the first watchdog.
const SPAWN_PATIENCE: Duration = Duration::from_secs(2);
/// Between two such questions.
const SPAWN_PAUSE: Duration = Duration::from_millis(50);
/// Between the two signs of a worker's death: its connection's end, and the watchdog's word.
const DEATH_DEADLINE: Duration = Duration::from_secs(5);
/// A control message that a process does not take by then won't be taken.
const SEND_DEADLINE: Duration = Duration::from_secs(10);
/// What a dying process tree may take, before we stop looking.
const LEAVE_DEADLINE: Duration = Duration::from_secs(2);
/// A watchdog that dies more often is not replaced any more.
const WATCHDOGS: u32 = 4;
/// Events waiting for the driver: enough that a burst of small reports does not stop workers, few enough to bound memory
/// (a report packet carries what one read of a test's output held).
const EVENTS_WAITING: usize = 64;

/// How a pool is made.
#[derive(Debug, Clone)]
pub struct PoolOptions {
    /// Where workers and watchdog report; `None` relays through `client`.
    pub callback: Option<CallbackAddress>,
    /// How long to wait for a client.
    pub limits: DeliveryLimits,
    /// The main connection's outbox, for relayed frames.
    pub client: link::Outbox,
    /// Whether our standard output is the workers' too (for output that is not captured).
    pub is_output_shared: bool,
}

/// Why there is no pool.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// No directory for the control socket.
    #[error("prepare a directory for the control socket")]
    Directory(#[source] host::dirs::DirError),
    /// No socket in it.
    #[error("listen for workers on {path}")]
    Listen {
        /// Where.
        path: PathBuf,
        /// Why.
        source: local::BindError,
    },
    /// The watchdog could not be started.
    #[error("start the watchdog")]
    Spawn(#[source] SpawnError),
    /// The watchdog does not come.
    #[error("have the watchdog join within {} s", START_DEADLINE.as_secs())]
    NoWatchdog,
    /// It died too often.
    #[error("keep a watchdog alive: {WATCHDOGS} of them died")]
    TooManyWatchdogs,
}

/// What the pool tells its driver.
#[derive(Debug)]
pub enum PoolEvent {
    /// A worker is there.
    WorkerReady(WorkerId),
    /// A worker that was asked for does not come.
    WorkerNotStarted {
        /// Which.
        worker: WorkerId,
        /// Why.
        error: String,
    },
    /// A worker speaks.
    Worker(WorkerId, FromWorker),
    /// A worker is gone, and everything that it had sent is read.
    WorkerGone {
        /// Which.
        worker: WorkerId,
        /// By run, the position of the last frame of its that was passed on to the client's connection.
        relayed: BTreeMap<String, u64>,
    },
    /// The watchdog speaks.
    Watchdog(FromWatchdog),
    /// The watchdog died; another one is there. Its workers go with it.
    WatchdogReplaced,
    /// The watchdog died, and none can be had any more.
    WatchdogLost(PoolError),
}

struct Worker {
    pid: Pid,
    sender: ControlSender,
    /// The position of the last frame passed on, of the run that it serves.
    relayed: Arc<AtomicU64>,
    /// The run of its last lease.
    serves: Option<String>,
    /// Positions of the runs that it served before, as long as they go on.
    relayed_before: BTreeMap<String, u64>,
    /// Its connection has ended.
    has_left: bool,
    /// The watchdog has told its end, or is gone itself.
    has_ended: bool,
    /// When one sign of death must have become two.
    dying_until: Option<Instant>,
}

struct Watchdog {
    child: Child,
    sender: Option<ControlSender>,
}

/// The session's processes.
pub struct Pool {
    socket_dir: host::dirs::SocketDir,
    is_output_shared: bool,
    raw: mpsc::Receiver<Raw>,
    workers: BTreeMap<WorkerId, Worker>,
    starting: BTreeMap<WorkerId, Instant>,
    watchdog: Watchdog,
    watchdogs: u32,
    next_worker: u32,
    /// Events that were found together with another one.
    found: std::collections::VecDeque<PoolEvent>,
    /// The acceptor; it ends with the receiver above.
    _tasks: JoinSet<()>,
}

impl Pool {
    /// Starts the watchdog and waits until it has joined.
    ///
    /// # Errors
    /// What could not be had.
    ///
    /// Cancel safe: yes, because a watchdog that nobody waits for sees the end of its connection and leaves.
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

    /// Waits until the watchdog has joined; one that dies before is replaced.
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
                // Before it has joined, no connection's end tells of its death.
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
        // Who was asked for while there was no watchdog is not known to this one.
        for worker in self.starting.keys().copied().collect::<Vec<_>>() {
            self.starting.insert(worker, Instant::now() + START_DEADLINE);
            self.tell_watchdog(&ToWatchdog::StartWorker { worker }).await;
        }
        Ok(())
    }

    /// Starts the watchdog that follows on a dead one.
    fn next_watchdog(&mut self) -> Result<(), PoolError> {
        if self.watchdogs >= WATCHDOGS {
            return Err(PoolError::TooManyWatchdogs);
        }
        self.watchdogs += 1;
        let path = self.socket_dir.path().join("control");
        self.watchdog.child = spawn_watchdog(&path, self.is_output_shared).map_err(PoolError::Spawn)?;
        Ok(())
    }

    /// Returns the workers that are there.
    #[must_use]
    pub fn ready_workers(&self) -> Vec<WorkerId> {
        self.workers.iter().filter(|(_, worker)| !worker.is_dying()).map(|(id, _)| *id).collect()
    }

    /// Returns whether a worker is there and no sign of its death has been seen.
    #[must_use]
    pub fn is_ready(&self, worker: WorkerId) -> bool {
        self.workers.get(&worker).is_some_and(|link| !link.is_dying())
    }

    /// Returns how many workers are there or on their way.
    #[must_use]
    pub fn worker_count(&self) -> usize {
        self.workers.len() + self.starting.len()
    }

    /// Returns how many workers are on their way.
    #[must_use]
    pub fn starting_count(&self) -> usize {
        self.starting.len()
    }

    /// Notes that a worker without a lease serves a run from now on: positions are counted from 1 in each, and all frames
    /// of the run that it served before have passed, because they come before the end of its lease.
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

    /// Forgets a run that is over.
    pub fn end_run(&mut self, run: &str) {
        for link in self.workers.values_mut() {
            link.relayed_before.remove(run);
            if link.serves.as_deref() == Some(run) {
                link.serves = None;
            }
        }
    }

    /// Asks for one more worker; [`PoolEvent::WorkerReady`] or [`PoolEvent::WorkerNotStarted`] answers.
    ///
    /// Cancel safe: no, because the number is given away before the watchdog knows it.
    pub async fn start_worker(&mut self) {
        let worker = WorkerId(self.next_worker);
        self.next_worker += 1;
        self.starting.insert(worker, Instant::now() + START_DEADLINE);
        self.tell_watchdog(&ToWatchdog::StartWorker { worker }).await;
    }

    /// Sends a message to a worker. One that does not take it is killed, which its death tells.
    ///
    /// Cancel safe: no, because the message may be queued or not.
    pub async fn tell(&mut self, worker: WorkerId, message: &ToWorker) {
        let Some(link) = self.workers.get(&worker) else { return };
        let sender = link.sender.clone();
        match tokio::time::timeout(SEND_DEADLINE, sender.send(message)).await {
            Ok(Ok(())) => {}
            // Its end is on the way.
            Ok(Err(_closed)) => {}
            Err(_elapsed) => {
                tracing::warn!(%worker, "a worker takes no messages and is killed");
                self.kill(worker).await;
            }
        }
    }

    /// Has a worker and everything below it killed; its death tells.
    ///
    /// Cancel safe: no, as [`Pool::tell_watchdog`].
    pub async fn kill(&mut self, worker: WorkerId) {
        self.tell_watchdog(&ToWatchdog::KillWorker { worker }).await;
        if let Some(link) = self.workers.get_mut(&worker) {
            link.dying_until.get_or_insert(Instant::now() + DEATH_DEADLINE);
        }
    }

    /// Sends a message to the watchdog. One that takes nothing is killed, which its death tells.
    ///
    /// Cancel safe: no, because the message may be queued or not.
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
    /// Cancel safe: yes, because what was read is kept in the pool until it is returned.
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
                // Who has not killed it by now never will, and what is not dead may still speak. It dies with the watchdog.
                tracing::warn!(%worker, "the watchdog does not end a worker in time and is killed");
                self.kill_watchdog();
                self.postpone_death(worker, now);
            } else {
                self.bury(worker);
            }
        }
    }

    /// Whether a worker's process runs, though nobody may hear it. Its number alone proves nothing, its parent does.
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

    /// A worker is gone once its connection has ended, so that nothing it said is missed, and the watchdog has told its
    /// end, so that nothing it started is left.
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

    /// Waits until a watchdog that was replaced has joined.
    ///
    /// # Errors
    /// It does not.
    ///
    /// Cancel safe: yes, as [`Pool::next`].
    pub async fn await_replacement(&mut self) -> Result<(), PoolError> {
        self.await_watchdog().await
    }

    /// Ends everything: workers and watchdog are asked to leave, and killed when they don't.
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

/// A pool that is given up without [`Pool::leave`], because its client is gone: the watchdog is told to leave, or it
/// would take the end of its connection for our death and finish the run for a client that nobody has any more.
impl Drop for Pool {
    fn drop(&mut self) {
        let watchdog = self.watchdog.child.pid();
        // After a panic it is right to see to the rest of the run; one that has left is told nothing.
        if std::thread::panicking() || self.watchdog.child.signal(Signal::TERM).is_err() {
            return;
        }
        let reap = move || {
            drop(host::process::reap_child(watchdog));
            orphans::forget(watchdog);
        };
        // Without a thread it stays a zombie until this process ends.
        drop(std::thread::Builder::new().name("heeler-reaper".to_owned()).spawn(reap));
    }
}

impl Worker {
    fn is_dying(&self) -> bool {
        self.dying_until.is_some()
    }
}

/// Waits for a process's end; for ever where it can't be watched, so that the deadline is all there is.
async fn ended(end: Option<&ProcessEnd>) {
    match end {
        Some(end) => end.wait().await,
        None => pending().await,
    }
}

/// Starts a watchdog; a machine that has no process to give for a moment is asked again.
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
