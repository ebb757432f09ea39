//! The session's watchdog: one event loop over the coordinator's messages, worker exits and running finishes.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    path::Path,
    process::ExitCode,
    time::Duration,
};

use host::{lock::LifeLock, process};
use link::{
    LinkError,
    control::{ControlReceiver, ControlSender, ReceiveError, Received},
    local,
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    task::{JoinError, JoinSet},
    time::{Instant, Interval, MissedTickBehavior, interval, sleep_until, timeout},
};
use wire::{
    control::{Finish, FromWatchdog, Join, OsBytes, ToWatchdog, WorkerId},
    manifest::WATCHDOG_LOCK,
};

use crate::{
    alone::{self, OpenRun},
    deliver::Deliverer,
    errors::chain,
    journals,
    workers::Workers,
};

/// How long the watchdog tries to join. The coordinator listens before it starts the watchdog.
const JOIN_LIMIT: Duration = Duration::from_secs(10);
/// Interval between checks for orphans, because reparenting raises no signal.
const LOOK: Duration = Duration::from_millis(500);
/// How long the watchdog waits for its descendants to exit. All of them are killed at once and gone in
/// milliseconds. On a machine so busy that killed processes wait for a processor, waiting is better than
/// leaving a process behind; only a process that hangs in the kernel needs all of this time.
const CLEAR_LIMIT: Duration = Duration::from_secs(5);
/// How long a client may take to receive the end of an orphaned run. The watchdog then gives up, because no
/// other process is left that needs it.
const ALONE_LIMIT: Duration = Duration::from_secs(30);
/// How long workers that were ordered to exit may take to close their connections to the client cleanly.
const LEAVE_GRACE: Duration = Duration::from_millis(300);

/// The error that kept a watchdog from serving.
#[derive(Debug, thiserror::Error)]
enum SessionError {
    #[error("prepare the watchdog's process")]
    Prepare(#[source] io::Error),
    #[error("join the coordinator")]
    Connect(#[source] local::ConnectError),
    #[error("introduce the watchdog to the coordinator")]
    Join(#[source] link::Closed),
}

/// How a session ends for its watchdog.
enum End {
    /// The coordinator ordered it.
    Leave,
    /// The coordinator is gone.
    Alone,
    /// The coordinator or the watchdog has a bug. The coordinator may be alive, and may start another
    /// watchdog.
    Failed,
}

/// Runs as the watchdog of the coordinator that listens at `socket_path`, until ordered to exit or orphaned.
#[must_use]
pub fn main(socket_path: &Path) -> ExitCode {
    process::set_name(c"heeler-watchdog");
    process::ignore_terminal_signals();
    let outcome = prepare().map_err(SessionError::Prepare).and_then(|runtime| {
        let outcome = runtime.block_on(run(socket_path));
        // A journal on a hung disk blocks a thread of the runtime; the exit does not wait for it.
        runtime.shutdown_background();
        outcome
    });
    match outcome {
        Ok(End::Leave) => {
            // The coordinator removes it too, but may be killed before.
            remove_socket(socket_path);
            ExitCode::SUCCESS
        }
        Ok(End::Alone) => {
            remove_socket(socket_path);
            ExitCode::FAILURE
        }
        Ok(End::Failed) => ExitCode::FAILURE,
        Err(error) => {
            tracing::error!(error = chain(&error), "the watchdog failed");
            if host::dirs::is_deserted(socket_path) {
                remove_socket(socket_path);
            }
            ExitCode::FAILURE
        }
    }
}

fn prepare() -> io::Result<tokio::runtime::Runtime> {
    process::become_subreaper()?;
    // Removes the control groups of sessions that were killed as a whole.
    host::cgroup::sweep();
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// Removes what a killed coordinator left behind: its socket, and the session's directory with all scratch
/// files.
fn remove_socket(path: &Path) {
    let _missing = std::fs::remove_file(path);
    let is_ours = |directory: &&Path| {
        directory.file_name().is_some_and(|name| name.to_string_lossy().starts_with("heeler-"))
    };
    match path.parent() {
        Some(directory) if is_ours(&directory) => {
            if let Err(error) = std::fs::remove_dir_all(directory)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!(directory = %directory.display(), %error, "the session's directory stays");
            }
        }
        // The path was chosen by another party, so the directory is removed only if it is empty.
        Some(directory) => drop(std::fs::remove_dir(directory)),
        None => {}
    }
}

async fn run(socket_path: &Path) -> Result<End, SessionError> {
    host::fail::pass("watchdog.join");
    let deaths = signal(SignalKind::child()).map_err(SessionError::Prepare)?;
    let terms = signal(SignalKind::terminate()).map_err(SessionError::Prepare)?;
    // The coordinator's death is noticed by the end of the connection, or because no process listens. It must
    // not kill the watchdog, which has to kill its descendants and to remove the socket.
    process::outlive_parent().map_err(SessionError::Prepare)?;
    let deadline = Instant::now() + JOIN_LIMIT;
    let stream = local::connect(socket_path, deadline).await.map_err(SessionError::Connect)?;
    let (control, receiver, _writer) = link::control::open(stream);
    control.send(&Join::Watchdog { pid: std::process::id() }).await.map_err(SessionError::Join)?;
    host::fail::pass("watchdog.joined");
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let session = Session {
        socket_path,
        control,
        receiver,
        deaths,
        look,
        workers: Workers::default(),
        deliverer: DelivererPlace::Unwelcomed,
        open: Vec::new(),
        locks: BTreeMap::new(),
        waiting: VecDeque::new(),
        tasks: JoinSet::new(),
        outgoing: VecDeque::new(),
    };
    Ok(session.serve(terms).await)
}

struct Session<'a> {
    socket_path: &'a Path,
    control: ControlSender,
    receiver: ControlReceiver,
    deaths: Signal,
    look: Interval,
    workers: Workers,
    deliverer: DelivererPlace,
    /// The open runs, to be finished if the coordinator dies; as many as the coordinator has requests.
    open: Vec<OpenRun>,
    /// Locks on disk which mark that open and finishing runs still have a live watchdog.
    locks: BTreeMap<String, LifeLock>,
    /// Finishes that wait for the running one. A coordinator has few runs at once.
    waiting: VecDeque<Box<Finish>>,
    tasks: JoinSet<Done>,
    /// Messages not sent yet; at most one for each worker, request and run.
    outgoing: VecDeque<FromWatchdog>,
}

enum DelivererPlace {
    Unwelcomed,
    Here(Box<Deliverer>),
    /// Moved into a task that sends a finish.
    Away,
}

/// The result of a task.
enum Done {
    Finish(Box<Deliverer>, FromWatchdog),
    Journal(FromWatchdog),
}

enum Event {
    Told(Result<Option<Received<ToWatchdog>>, ReceiveError>),
    Term,
    Death,
    Look,
    Done(Result<Done, JoinError>),
    Sent(Result<(), link::Closed>),
}

impl Session<'_> {
    /// Runs the event loop until the session ends. `terms` receives SIGTERM from a live coordinator that has
    /// given up its client: then the control connection may be full.
    async fn serve(mut self, mut terms: Signal) -> End {
        loop {
            let event = self.next(&mut terms).await;
            if let Some(end) = self.handle(event) {
                self.leave(&end, &mut terms).await;
                return end;
            }
        }
    }

    async fn next(&mut self, terms: &mut Signal) -> Event {
        let front = self.outgoing.front();
        tokio::select! {
            biased;
            _ = terms.recv() => Event::Term,
            _ = self.deaths.recv() => Event::Death,
            told = self.receiver.next() => Event::Told(told),
            Some(done) = self.tasks.join_next() => Event::Done(done),
            sent = send_front(&self.control, front), if front.is_some() => Event::Sent(sent),
            _ = self.look.tick() => Event::Look,
        }
    }

    fn handle(&mut self, event: Event) -> Option<End> {
        match event {
            Event::Told(Ok(Some(Received::Message(message)))) => return self.obey(message),
            Event::Told(
                Ok(None) | Err(ReceiveError::Link(LinkError::Read(_) | LinkError::CutOff { .. })),
            ) => return Some(End::Alone),
            Event::Told(Ok(Some(Received::Relay { .. }))) => {
                tracing::error!("the coordinator sent a relayed frame");
                return Some(End::Failed);
            }
            Event::Told(Err(error)) => {
                tracing::error!(error = chain(&error), "the coordinator cannot be understood");
                return Some(End::Failed);
            }
            Event::Term => return Some(End::Leave),
            Event::Death | Event::Look => self.outgoing.extend(self.workers.settle()),
            Event::Done(Ok(Done::Journal(answer))) => self.outgoing.push_back(answer),
            Event::Done(Ok(Done::Finish(deliverer, finished))) => {
                self.deliverer = DelivererPlace::Here(deliverer);
                if let FromWatchdog::Finished { run, .. } = &finished {
                    self.locks.remove(run);
                }
                self.outgoing.push_back(finished);
                self.finish_next();
            }
            // A lost finish would hang its run; after this watchdog exits, the coordinator starts another
            // one.
            Event::Done(Err(error)) => {
                tracing::error!(%error, "a task of the watchdog failed");
                return Some(End::Failed);
            }
            Event::Sent(Ok(())) => drop(self.outgoing.pop_front()),
            Event::Sent(Err(_)) => return Some(End::Alone),
        }
        None
    }

    fn obey(&mut self, message: ToWatchdog) -> Option<End> {
        match message {
            ToWatchdog::Welcome { callback, limits } => {
                let deliverer = Deliverer::new(self.control.clone(), callback, limits);
                self.deliverer = DelivererPlace::Here(Box::new(deliverer));
            }
            ToWatchdog::StartWorker { worker } => self.start(worker),
            ToWatchdog::KillWorker { worker } => self.workers.kill(worker),
            ToWatchdog::BeginRun { run, run_dir, has_attachments_stream, plan } => {
                self.lock(&run, &run_dir);
                self.open.retain(|open| open.run != run);
                self.open.push(OpenRun { run, run_dir, has_attachments_stream, plan });
            }
            ToWatchdog::ReadJournal { run, run_dir, worker } => {
                self.tasks.spawn(async move { Done::Journal(journals::answer(run, run_dir, worker).await) });
            }
            ToWatchdog::Finish(finish) => {
                self.open.retain(|open| open.run != finish.run);
                self.waiting.push_back(finish);
                self.finish_next();
            }
            ToWatchdog::Leave => return Some(End::Leave),
        }
        None
    }

    /// Takes the lock on disk which shows that a live watchdog is responsible for the run.
    fn lock(&mut self, run: &str, run_dir: &OsBytes) {
        // A second lock would block on the first one.
        if self.locks.contains_key(run) {
            return;
        }
        match LifeLock::take(&run_dir.as_path().join(WATCHDOG_LOCK)) {
            Ok(lock) => drop(self.locks.insert(run.to_owned(), lock)),
            Err(error) => tracing::warn!(run, %error, "nobody can see that the run is minded"),
        }
    }

    fn start(&mut self, worker: WorkerId) {
        if let Err(error) = self.workers.start(worker, self.socket_path) {
            let error = chain(&error);
            self.outgoing.push_back(FromWatchdog::WorkerNotStarted { worker, error });
        }
    }

    /// Starts the next finish, if there is one and the deliverer is free.
    fn finish_next(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        match std::mem::replace(&mut self.deliverer, DelivererPlace::Away) {
            DelivererPlace::Here(mut deliverer) => {
                let finish = self.waiting.pop_front().expect("checked above");
                self.tasks.spawn(async move {
                    let finished = deliverer.finish(&finish).await;
                    Done::Finish(deliverer, finished)
                });
            }
            other => self.deliverer = other,
        }
    }

    /// Terminates all descendants and closes the connection to the client.
    async fn leave(mut self, end: &End, terms: &mut Signal) {
        host::fail::pass("watchdog.leave");
        let deadline = Instant::now() + CLEAR_LIMIT;
        if matches!(end, End::Leave) {
            self.clear(Instant::now() + LEAVE_GRACE).await;
        }
        self.workers.kill_all();
        self.clear(deadline).await;
        // A killed guard has not removed its control group.
        host::cgroup::sweep();
        if matches!(end, End::Alone) {
            tokio::select! {
                biased;
                // The end of the connection may be noticed before the SIGTERM that makes the exit an orderly
                // one.
                _ = terms.recv() => return,
                () = self.finish_alone() => {}
            }
        }
        if let DelivererPlace::Here(deliverer) = self.deliverer {
            // Everything sent is proven or reported as unproven by now; closing cleanly is a courtesy.
            let _late = timeout(LEAVE_GRACE, deliverer.close()).await;
        }
    }

    /// Sends the due updates of all open runs after the coordinator has died, if a callback port was offered.
    /// All workers are gone by now.
    async fn finish_alone(&mut self) {
        let finish_in_hand = async {
            while let Some(done) = self.tasks.join_next().await {
                if let Ok(Done::Finish(deliverer, _finished)) = done {
                    return Some(deliverer);
                }
            }
            None
        };
        let deliverer = match std::mem::replace(&mut self.deliverer, DelivererPlace::Unwelcomed) {
            DelivererPlace::Here(deliverer) => Some(deliverer),
            DelivererPlace::Away => timeout(ALONE_LIMIT, finish_in_hand).await.ok().flatten(),
            DelivererPlace::Unwelcomed => None,
        };
        let Some(mut deliverer) = deliverer else { return };
        deliverer.lose_relay();
        let due = self.waiting.drain(..).map(|finish| *finish).chain(self.open.drain(..).map(alone::finish));
        for finish in due {
            if !deliverer.has_own_way() {
                return;
            }
            if timeout(ALONE_LIMIT, deliverer.finish(&finish)).await.is_err() {
                tracing::warn!(run = finish.run, "the client did not take the rest of its run in time");
            }
        }
        self.deliverer = DelivererPlace::Here(deliverer);
    }

    /// Waits until there are no descendants, at most until the deadline.
    async fn clear(&mut self, deadline: Instant) {
        loop {
            drop(self.workers.settle());
            if !process::has_children() {
                return;
            }
            tokio::select! {
                _ = self.deaths.recv() => {}
                _ = self.look.tick() => {}
                () = sleep_until(deadline) => return,
            }
        }
    }
}

async fn send_front(control: &ControlSender, front: Option<&FromWatchdog>) -> Result<(), link::Closed> {
    match front {
        Some(message) => control.send(message).await,
        None => Ok(()),
    }
}
