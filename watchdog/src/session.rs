//! The coordinator's watchdog: one event loop over the coordinator's messages, worker exits and running
//! finishes.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    path::Path,
    process::ExitCode,
    time::Duration,
};

use heeler_protocol::{
    control::{
        ClientId, ClientRoute, FinishRequest, FromWatchdog, JoinMessage, OsText, RunKey, StreamSender,
        ToWatchdog, WorkerId,
    },
    manifest::WATCHDOG_LOCK,
};
use heeler_sys::{liveness_lock::LivenessLock, process};
use heeler_transport::{
    LinkError,
    callback::{HeldStreams, SettledStream, StreamHolder, StreamHolders},
    control::{ControlReceiver, ControlSender, ReceiveError, ReceivedPacket, WatchedPacket},
    local,
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    task::{JoinError, JoinSet},
    time::{Instant, Interval, MissedTickBehavior, interval, sleep_until, timeout, timeout_at},
};

use crate::client_finishers::{ClientFinishers, OrphanLimits, SentFinish, send_finish};
use crate::coordinator_process::CoordinatorProcess;
use crate::finisher::RunFinisher;
use crate::journal_reader;
use crate::orphaned_run::{self, UnfinishedRun};
use crate::unwritten_finishes::{UnwrittenFinish, UnwrittenFinishes};
use crate::workers::WorkerProcesses;
use heeler_core::error_chain;

/// Time limit for joining. The coordinator is already listening when it starts the watchdog.
const JOIN_LIMIT: Duration = Duration::from_secs(10);
/// Interval for checking for orphans. Needed because reparenting raises no signal.
const ORPHAN_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Time limit for descendants to exit. They are all killed at once, and normally gone within milliseconds. On
/// a machine so busy that killed processes wait for a CPU, waiting is better than leaving a process behind.
/// Only a process that hangs in the kernel uses up this time.
const KILL_LIMIT: Duration = Duration::from_secs(5);
/// Time limit for a client to receive the end of an orphaned run. The watchdog then gives up, because no
/// other process needs the watchdog.
const ORPHANED_FINISH_LIMIT: Duration = Duration::from_secs(30);
/// Time for workers that were ordered to exit to close their client connections cleanly.
const EXIT_GRACE: Duration = Duration::from_millis(300);

/// Why a watchdog could not serve.
#[derive(Debug, thiserror::Error)]
enum WatchdogSessionError {
    #[error("cannot set up the watchdog process")]
    Prepare(#[source] io::Error),
    #[error("cannot connect to the coordinator")]
    Connect(#[source] local::ConnectError),
    #[error("cannot register with the coordinator")]
    Join(#[source] heeler_transport::LinkClosed),
}

/// Why a session ended.
enum WatchdogExit {
    /// The coordinator ordered the exit.
    Ordered,
    /// The coordinator is gone.
    Orphaned,
    /// The coordinator or the watchdog has a bug. The coordinator may be alive, and may start another
    /// watchdog.
    Failed,
}

/// Runs as the watchdog of the coordinator listening at `socket_path`, until ordered to exit or orphaned.
#[must_use]
pub fn main(socket_path: &Path) -> ExitCode {
    process::set_name(c"heeler-watchdog");
    process::ignore_terminal_signals();
    let outcome = prepare().map_err(WatchdogSessionError::Prepare).and_then(|runtime| {
        let outcome = runtime.block_on(run(socket_path));
        // Do not wait for runtime threads: one may be blocked by a journal on a hung disk.
        runtime.shutdown_background();
        outcome
    });
    match outcome {
        Ok(WatchdogExit::Ordered) => {
            // The coordinator removes the socket too, but may be killed before.
            remove_socket(socket_path);
            ExitCode::SUCCESS
        }
        Ok(WatchdogExit::Orphaned) => {
            remove_socket(socket_path);
            ExitCode::FAILURE
        }
        Ok(WatchdogExit::Failed) => ExitCode::FAILURE,
        Err(error) => {
            tracing::error!(error = error_chain(&error), "the watchdog failed");
            if heeler_sys::dirs::is_stale_socket(socket_path) {
                remove_socket(socket_path);
            }
            ExitCode::FAILURE
        }
    }
}

fn prepare() -> io::Result<tokio::runtime::Runtime> {
    process::become_subreaper()?;
    // Left by sessions that were killed as a whole.
    heeler_sys::cgroup::remove_stale_leaves();
    heeler_transport::runtime::build(&mut tokio::runtime::Builder::new_current_thread())
}

/// Removes the remains of a killed coordinator: its socket, and the session's directory with all scratch
/// files.
fn remove_socket(path: &Path) {
    let _missing = std::fs::remove_file(path);
    let is_ours = |directory: &&Path| {
        directory.file_name().is_some_and(|name| name.to_string_lossy().starts_with("heeler-"))
    };
    match path.parent() {
        Some(directory) if is_ours(&directory) => {
            let temporary = heeler_sys::dirs::session_temporary_dir(directory);
            for directory in [temporary.as_path(), directory].into_iter().filter(is_ours) {
                if let Err(error) = std::fs::remove_dir_all(directory)
                    && error.kind() != io::ErrorKind::NotFound
                {
                    tracing::warn!(directory = %directory.display(), %error, "cannot remove the session directory");
                }
            }
        }
        // Somebody else chose this path, so remove the directory only if it is empty.
        Some(directory) => drop(std::fs::remove_dir(directory)),
        None => {}
    }
}

async fn run(socket_path: &Path) -> Result<WatchdogExit, WatchdogSessionError> {
    heeler_sys::fail::pass("watchdog.join");
    let deaths = signal(SignalKind::child()).map_err(WatchdogSessionError::Prepare)?;
    let terms = signal(SignalKind::terminate()).map_err(WatchdogSessionError::Prepare)?;
    // The watchdog notices the coordinator's death by the end of the connection, or because its socket has no
    // listener. That death must not kill the watchdog, which has to kill its descendants and remove the
    // socket.
    process::clear_parent_death_signal().map_err(WatchdogSessionError::Prepare)?;
    // Look up the parent first: after the coordinator's death, another process is the parent.
    let coordinator = CoordinatorProcess::of_parent();
    let deadline = Instant::now() + JOIN_LIMIT;
    let stream = local::connect(socket_path, deadline).await.map_err(WatchdogSessionError::Connect)?;
    let (control, receiver, _writer) = heeler_transport::control::open(stream);
    control
        .send(&JoinMessage::Watchdog { pid: std::process::id() })
        .await
        .map_err(WatchdogSessionError::Join)?;
    heeler_sys::fail::pass("watchdog.joined");
    let held = HeldStreams::listen(&StreamHolder::Watchdog.socket_path(socket_path, std::process::id()));
    let held_streams = held
        .inspect_err(|error| tracing::warn!(%error, "results may be sent twice if the coordinator is killed"))
        .ok();
    let mut look = interval(ORPHAN_CHECK_INTERVAL);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let session = WatchdogSession {
        socket_path,
        coordinator,
        control,
        receiver,
        child_signals: deaths,
        orphan_check: look,
        workers: WorkerProcesses::default(),
        finishers: ClientFinishers::default(),
        open_runs: Vec::new(),
        unwritten: UnwrittenFinishes::default(),
        locks: BTreeMap::new(),
        tasks: JoinSet::new(),
        outgoing: VecDeque::new(),
        held_streams,
    };
    Ok(session.serve(terms).await)
}

struct WatchdogSession<'a> {
    socket_path: &'a Path,
    coordinator: CoordinatorProcess,
    control: ControlSender,
    receiver: ControlReceiver,
    child_signals: Signal,
    orphan_check: Interval,
    workers: WorkerProcesses,
    finishers: ClientFinishers,
    /// Open runs, which are finished if the coordinator dies. At most one for each request to the
    /// coordinator.
    open_runs: Vec<UnfinishedRun>,
    /// Relayed finishes that the coordinator has not written yet.
    unwritten: UnwrittenFinishes,
    /// Locks on disk, which show that open and finishing runs still have a live watchdog.
    locks: BTreeMap<RunKey, LivenessLock>,
    tasks: JoinSet<WatchdogTaskResult>,
    /// Messages not sent yet. At most one per worker, request and run.
    outgoing: VecDeque<FromWatchdog>,
    /// Duplicates of the workers' connections to clients, including dead workers. Needed if the coordinator
    /// dies. `None` if they cannot be received.
    held_streams: Option<HeldStreams>,
}

enum WatchdogTaskResult {
    Finish(SentFinish),
    Journal(FromWatchdog),
    /// The connection to a client that has left is closed.
    Closed,
}

enum WatchdogSessionEvent {
    Message(Result<Option<WatchedPacket<ToWatchdog>>, ReceiveError>),
    TermSignal,
    ChildExited,
    OrphanCheck,
    TaskFinished(Result<WatchdogTaskResult, JoinError>),
    Sent(Result<(), heeler_transport::LinkClosed>),
}

impl WatchdogSession<'_> {
    /// Runs the event loop until the session ends. `terms`: receives SIGTERM from a coordinator that has
    /// given up on its client, because the control connection may be full then.
    async fn serve(mut self, mut terms: Signal) -> WatchdogExit {
        loop {
            let event = self.next_event(&mut terms).await;
            if let Some(end) = self.handle(event) {
                self.shut_down(&end, &mut terms).await;
                return end;
            }
        }
    }

    async fn next_event(&mut self, terms: &mut Signal) -> WatchdogSessionEvent {
        let front = self.outgoing.front();
        tokio::select! {
            biased;
            _ = terms.recv() => WatchdogSessionEvent::TermSignal,
            _ = self.child_signals.recv() => WatchdogSessionEvent::ChildExited,
            received = self.receiver.next_or_silence(|| self.coordinator.is_stopped()) => WatchdogSessionEvent::Message(received),
            Some(done) = self.tasks.join_next() => WatchdogSessionEvent::TaskFinished(done),
            sent = send_first(&self.control, front), if front.is_some() => WatchdogSessionEvent::Sent(sent),
            _ = self.orphan_check.tick() => WatchdogSessionEvent::OrphanCheck,
        }
    }

    fn handle(&mut self, event: WatchdogSessionEvent) -> Option<WatchdogExit> {
        match event {
            WatchdogSessionEvent::Message(Ok(Some(WatchedPacket::Packet(ReceivedPacket::Message(
                message,
            ))))) => {
                return self.handle_message(message);
            }
            WatchdogSessionEvent::Message(Ok(Some(WatchedPacket::Silence(step)))) => {
                self.coordinator.on_silence(step);
            }
            WatchdogSessionEvent::Message(
                Ok(None) | Err(ReceiveError::Link(LinkError::Read(_) | LinkError::CutOff { .. })),
            ) => return Some(WatchdogExit::Orphaned),
            WatchdogSessionEvent::Message(Ok(Some(WatchedPacket::Packet(ReceivedPacket::Forward {
                ..
            })))) => {
                tracing::error!("unexpected relayed frame from the coordinator");
                return Some(WatchdogExit::Failed);
            }
            WatchdogSessionEvent::Message(Err(error)) => {
                tracing::error!(error = error_chain(&error), "invalid message from the coordinator");
                return Some(WatchdogExit::Failed);
            }
            WatchdogSessionEvent::TermSignal => return Some(WatchdogExit::Ordered),
            WatchdogSessionEvent::ChildExited | WatchdogSessionEvent::OrphanCheck => {
                self.outgoing.extend(self.workers.collect_exits())
            }
            WatchdogSessionEvent::TaskFinished(Ok(WatchdogTaskResult::Journal(answer))) => {
                self.outgoing.push_back(answer)
            }
            WatchdogSessionEvent::TaskFinished(Ok(WatchdogTaskResult::Finish(sent))) => {
                self.on_finish_sent(sent)
            }
            WatchdogSessionEvent::TaskFinished(Ok(WatchdogTaskResult::Closed)) => {}
            // A lost finish would hang its run. After this watchdog exits, the coordinator starts another
            // one.
            WatchdogSessionEvent::TaskFinished(Err(error)) => {
                tracing::error!(%error, "a task of the watchdog panicked");
                return Some(WatchdogExit::Failed);
            }
            WatchdogSessionEvent::Sent(Ok(())) => drop(self.outgoing.pop_front()),
            WatchdogSessionEvent::Sent(Err(_)) => return Some(WatchdogExit::Orphaned),
        }
        None
    }

    fn on_finish_sent(&mut self, sent: SentFinish) {
        self.locks.remove(&sent.finish.run);
        self.outgoing.push_back(sent.report.clone());
        let (finisher, unwritten) = sent.into_unwritten();
        let client = finisher.client();
        match self.finishers.put_back(finisher) {
            // The client has left.
            Some(unused) => self.close_finisher(unused),
            None => {
                if let Some(finish) = unwritten {
                    self.unwritten.add(*finish);
                }
                self.start_next_finish(client);
            }
        }
    }

    fn handle_message(&mut self, message: ToWatchdog) -> Option<WatchdogExit> {
        match message {
            ToWatchdog::StartWorker { worker } => self.start_worker(worker),
            ToWatchdog::KillWorker { worker } => self.workers.kill(worker),
            ToWatchdog::BeginRun { run, route, run_dir, has_attachments_stream, plan, client_members } => {
                self.lock_run(&run, &run_dir);
                self.add_finisher(run.client, &route);
                self.open_runs.retain(|open| open.run != run);
                self.open_runs.push(UnfinishedRun {
                    run,
                    route,
                    run_dir,
                    has_attachments_stream,
                    plan: plan.map(|plan| *plan),
                    client_members,
                    handled: BTreeMap::new(),
                });
            }
            ToWatchdog::StreamsHandled { run, positions } => {
                if let Some(open) = self.open_runs.iter_mut().find(|open| open.run == run) {
                    open.handled.extend(positions.iter().map(|one| (one.worker, one.position)));
                }
            }
            ToWatchdog::ReadJournal { run, run_dir, worker } => {
                self.tasks.spawn(async move {
                    WatchdogTaskResult::Journal(journal_reader::journal_report(run, run_dir, worker).await)
                });
            }
            ToWatchdog::Finish(finish) => {
                self.open_runs.retain(|open| open.run != finish.run);
                let client = finish.run.client;
                self.add_finisher(client, &finish.route);
                self.finishers.queue(finish);
                self.start_next_finish(client);
            }
            ToWatchdog::FrameForwarded { client } => self.finishers.confirm_frame(client),
            ToWatchdog::RelayWritten { run, written } => self.unwritten.on_written(&run, written),
            ToWatchdog::EndClient { client } => {
                if let Some(held) = &self.held_streams {
                    held.drop_client(client);
                }
                self.open_runs.retain(|open| open.run.client != client);
                self.unwritten.end_client(client);
                self.locks.retain(|run, _| run.client != client);
                if let Some(unused) = self.finishers.end_client(client) {
                    self.close_finisher(unused);
                }
            }
            ToWatchdog::Suspend => self.coordinator.is_suspended = true,
            ToWatchdog::Resume => self.coordinator.is_suspended = false,
            ToWatchdog::Exit => return Some(WatchdogExit::Ordered),
        }
        None
    }

    fn add_finisher(&mut self, client: ClientId, route: &ClientRoute) {
        let coordinator = StreamHolder::Coordinator.socket_path(self.socket_path, std::process::id());
        let holders = StreamHolders { sender: StreamSender::Watchdog, client, sockets: vec![coordinator] };
        self.finishers.add(holders, route, &self.control);
    }

    /// Takes the lock on disk that shows that a live watchdog is responsible for the run.
    fn lock_run(&mut self, run: &RunKey, run_dir: &OsText) {
        // A second lock would block on the first one.
        if self.locks.contains_key(run) {
            return;
        }
        match LivenessLock::acquire(&run_dir.as_path().join(WATCHDOG_LOCK)) {
            Ok(lock) => drop(self.locks.insert(run.clone(), lock)),
            Err(error) => {
                tracing::warn!(
                    run = run.id,
                    %error,
                    "cannot lock the run, which looks interrupted until it is finished"
                )
            }
        }
    }

    fn start_worker(&mut self, worker: WorkerId) {
        if let Err(error) = self.workers.start(worker, self.socket_path) {
            let error = error_chain(&error);
            self.outgoing.push_back(FromWatchdog::WorkerNotStarted { worker, error });
        }
    }

    /// Starts the client's next finish, if there is one and the client's finisher is free.
    fn start_next_finish(&mut self, client: ClientId) {
        if let Some((finisher, finish)) = self.finishers.take_next(client) {
            self.tasks.spawn(async move { WatchdogTaskResult::Finish(send_finish(finisher, finish).await) });
        }
    }

    /// Closes the connection to a client that has left.
    fn close_finisher(&mut self, finisher: Box<RunFinisher>) {
        self.tasks.spawn(async move {
            let _late = timeout(EXIT_GRACE, finisher.close()).await;
            WatchdogTaskResult::Closed
        });
    }

    /// Kills all descendants, and closes the connections to clients or finishes orphaned runs.
    async fn shut_down(mut self, end: &WatchdogExit, terms: &mut Signal) {
        heeler_sys::fail::pass("watchdog.leave");
        let deadline = Instant::now() + KILL_LIMIT;
        if matches!(end, WatchdogExit::Ordered) {
            self.wait_until_childless(Instant::now() + EXIT_GRACE).await;
        }
        self.workers.kill_all();
        self.wait_until_childless(deadline).await;
        // A killed guard has not removed its control group.
        heeler_sys::cgroup::remove_stale_leaves();
        if matches!(end, WatchdogExit::Orphaned) {
            tokio::select! {
                biased;
                // The end of the connection may be noticed before the SIGTERM that makes this an orderly
                // exit.
                _ = terms.recv() => {}
                () = self.finish_orphaned_runs() => {}
            }
            return;
        }
        self.finishers.close_all(EXIT_GRACE).await;
    }

    /// Sends the due updates of all open runs to clients with a callback port, after the coordinator has
    /// died. All workers are already gone.
    async fn finish_orphaned_runs(&mut self) {
        let finishers = std::mem::take(&mut self.finishers);
        finishers.close_relays();
        let settled = settle_streams(self.held_streams.take()).await;
        let on_stream = |run: &RunKey, worker| {
            let stream = settled.get(&(StreamSender::Worker(worker), run.client));
            stream.and_then(|stream| stream.positions.get(&run.id)).copied().unwrap_or(0)
        };
        let unwritten = |UnwrittenFinish { finish, written }| {
            let run = finish.run.clone();
            orphaned_run::unwritten_finish(finish, written, |worker| on_stream(&run, worker))
        };
        // Collect the finishes to send, by client.
        let mut due: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for finish in self.unwritten.take().into_iter().map(unwritten) {
            due.entry(finish.run.client).or_default().push(finish);
        }
        for open in self.open_runs.drain(..) {
            let (run, handled) = (open.run.clone(), open.handled.clone());
            let proven = |worker| handled.get(&worker).copied().unwrap_or(0).max(on_stream(&run, worker));
            let finish = orphaned_run::finish(open, proven);
            due.entry(finish.run.client).or_default().push(finish);
        }
        // Send it. Finishers in use become available when their current finish ends.
        let tasks = &mut self.tasks;
        let busy = async move |take: &mut dyn FnMut(Box<RunFinisher>, Option<FinishRequest>)| {
            let deadline = Instant::now() + ORPHANED_FINISH_LIMIT;
            while let Ok(Some(done)) = timeout_at(deadline, tasks.join_next()).await {
                if let Ok(WatchdogTaskResult::Finish(sent)) = done {
                    let (finisher, finish) = sent.into_unwritten();
                    take(
                        finisher,
                        finish.map(|finish| unwritten(UnwrittenFinish { finish: *finish, written: None })),
                    );
                }
            }
        };
        let limits = OrphanLimits { finish: ORPHANED_FINISH_LIMIT, close: EXIT_GRACE };
        finishers.finish_orphaned(due, busy, limits).await;
    }

    /// Waits until all descendants are gone, or the deadline passes.
    async fn wait_until_childless(&mut self, deadline: Instant) {
        loop {
            drop(self.workers.collect_exits());
            if !process::has_children() {
                return;
            }
            tokio::select! {
                _ = self.child_signals.recv() => {}
                _ = self.orphan_check.tick() => {}
                () = sleep_until(deadline) => return,
            }
        }
    }
}

/// Completes the connections of all workers, which are dead.
async fn settle_streams(held: Option<HeldStreams>) -> BTreeMap<(StreamSender, ClientId), SettledStream> {
    let streams = held.map(|held| held.take_all()).unwrap_or_default();
    let settling: JoinSet<_> = streams
        .into_iter()
        .map(|(sender, held)| async move {
            let settled = held.settle(StreamHolder::Watchdog).await;
            ((sender, settled.client), settled)
        })
        .collect();
    settling.join_all().await.into_iter().collect()
}

async fn send_first(
    control: &ControlSender,
    front: Option<&FromWatchdog>,
) -> Result<(), heeler_transport::LinkClosed> {
    match front {
        Some(message) => control.send(message).await,
        None => Ok(()),
    }
}
