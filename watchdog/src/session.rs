//! The session's watchdog: one loop that waits for the coordinator, for deaths and for finishes in hand.

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

/// The coordinator listens before it starts us.
const JOIN_LIMIT: Duration = Duration::from_secs(10);
/// An orphan comes to us without a signal; so often we look for some.
const LOOK: Duration = Duration::from_millis(500);
/// All below is killed at once and gone in milliseconds. On a machine so busy that the dead wait for their turn it is
/// better to stay than to leave something behind; only what hangs in the kernel needs all of this.
const CLEAR_LIMIT: Duration = Duration::from_secs(5);
/// A client that does not take the end of its run by then is not waited for: nobody else is left who could want us.
const ALONE_LIMIT: Duration = Duration::from_secs(30);
/// Workers that were told to leave close their connections to the client in good order.
const LEAVE_GRACE: Duration = Duration::from_millis(300);

/// Why a watchdog could not serve.
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
    /// The coordinator wished it.
    Leave,
    /// The coordinator is gone.
    Alone,
    /// One of us has a bug; the coordinator may live and start another watchdog.
    Failed,
}

/// Runs as the watchdog of the coordinator that listens at `socket_path`, until told to leave or left alone.
#[must_use]
pub fn main(socket_path: &Path) -> ExitCode {
    process::set_name(c"heeler-watchdog");
    process::ignore_terminal_signals();
    let outcome = prepare().map_err(SessionError::Prepare).and_then(|runtime| {
        let outcome = runtime.block_on(run(socket_path));
        // A journal on a hung disk keeps a thread of the runtime; nobody waits for it.
        runtime.shutdown_background();
        outcome
    });
    match outcome {
        Ok(End::Leave) => {
            // The coordinator does that, too; it may be killed before it comes to it.
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
    // What a session left that was killed as a whole.
    host::cgroup::sweep();
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// Removes what a coordinator that was killed could not: its socket, and the session's directory with all scratch files.
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
        // Someone else's choice of a place: only what is empty goes.
        Some(directory) => drop(std::fs::remove_dir(directory)),
        None => {}
    }
}

async fn run(socket_path: &Path) -> Result<End, SessionError> {
    host::fail::pass("watchdog.join");
    let deaths = signal(SignalKind::child()).map_err(SessionError::Prepare)?;
    let terms = signal(SignalKind::terminate()).map_err(SessionError::Prepare)?;
    // The coordinator's death is seen as the end of the connection, or nobody listens for one. It must not kill the
    // watchdog, which has to clear away what is below, and the socket.
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
    /// The runs in hand, to be finished should the coordinator die; as many as the coordinator has requests.
    open: Vec<OpenRun>,
    /// They say that the runs in hand, and those being finished, are not left alone yet.
    locks: BTreeMap<String, LifeLock>,
    /// Finishes that come while one is in hand. A coordinator has few runs at once.
    waiting: VecDeque<Box<Finish>>,
    tasks: JoinSet<Done>,
    /// What could not be sent at once; at most one message for each worker, question and run.
    outgoing: VecDeque<FromWatchdog>,
}

enum DelivererPlace {
    Unwelcomed,
    Here(Box<Deliverer>),
    /// In a task, with a finish.
    Away,
}

/// What a task brings back.
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
    /// `terms` is the word of a coordinator that lives and has given up its client: the connection may be full.
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
            // A finish without an answer would hang its run; without us the coordinator starts another watchdog.
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

    /// Says on disk that somebody minds the run.
    fn lock(&mut self, run: &str, run_dir: &OsBytes) {
        // A second lock would wait for the first one.
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

    /// Begins the next finish if there is one and the deliverer is free.
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

    /// Ends what is below, and lets go of the client.
    async fn leave(mut self, end: &End, terms: &mut Signal) {
        host::fail::pass("watchdog.leave");
        let deadline = Instant::now() + CLEAR_LIMIT;
        if matches!(end, End::Leave) {
            self.clear(Instant::now() + LEAVE_GRACE).await;
        }
        self.workers.kill_all();
        self.clear(deadline).await;
        // A guard that was killed has not removed its group.
        host::cgroup::sweep();
        if matches!(end, End::Alone) {
            tokio::select! {
                biased;
                // The end of the connection may be seen before the word that it is wished.
                _ = terms.recv() => return,
                () = self.finish_alone() => {}
            }
        }
        if let DelivererPlace::Here(deliverer) = self.deliverer {
            // What was sent is proven or named as unproven by now; this is politeness.
            let _late = timeout(LEAVE_GRACE, deliverer.close()).await;
        }
    }

    /// The coordinator has died, and everything below with it: what it owes the client is sent by us, if there is a way.
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

    /// Waits until nothing is below, at most until the deadline.
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
