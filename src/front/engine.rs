//! Scheduler of a session's requests, which run concurrently: owns the catalogue and the pool, and shares the
//! slots among runs.
//!
//! One loop waits for all events: session commands, processes, deadlines. After each event [`Engine::settle`]
//! lets every run execute its pending actions, assigns idle workers to the run that was served least, and
//! responds to requests that are complete.

mod debugger;
mod jobs;
mod slots;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    future::pending,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until},
};
use wire::{
    control::{CallbackAddress, FromWatchdog, FromWorker, LogLine, ToWorker, WorkerId},
    mtp::{LogForm, LogLevel, LogMessage, log_frames},
    rpc::{RequestId, RpcError, code},
};

pub(in crate::front) use debugger::Answer;
use debugger::Debuggers;
pub(in crate::front) use jobs::{Job, JobKind};
use jobs::{JobKey, Work};

use crate::{
    config::{Capture, Settings},
    discover::{Catalogue, Lister, ProgramSource},
    pool::{Pool, PoolError, PoolEvent, PoolOptions},
    runs::{self, Provenance},
};

/// Maximum wait for all test processes to stop.
const PAUSE_DEADLINE: Duration = Duration::from_millis(500);

/// Parameters of a scheduler.
pub(super) struct EngineOptions {
    pub(super) settings: Arc<Settings>,
    pub(super) sources: Vec<ProgramSource>,
    pub(super) callback: Option<CallbackAddress>,
    pub(super) has_attachments_stream: bool,
    pub(super) log_form: LogForm,
    pub(super) client: link::Outbox,
    /// The client's responses to requests that the server sent.
    pub(super) answers: mpsc::Receiver<Answer>,
    /// The client attaches and launches debuggers on request.
    pub(super) has_debugger: bool,
    /// Every run is a debug run.
    pub(super) is_debug: bool,
    /// Recorded with each run: how it was started.
    pub(super) provenance: Provenance,
}

/// A command from the session to its scheduler.
pub(super) enum Command {
    /// Starts a request.
    Start(Job),
    /// Cancels the request with this id.
    Cancel(RequestId),
    /// Stops all test processes; answered once they are stopped.
    Pause(oneshot::Sender<()>),
    /// Lets stopped test processes continue.
    Resume,
}

/// An expired deadline is handled after at most this many queued pool events, so that an event that already
/// arrived can still satisfy it; fewer events than this can be queued at that time.
const EVENTS_FIRST: u32 = 1024;

/// Number of pool events handled since other events had their turn: a flood of pool events must not starve
/// the others.
#[derive(Default)]
struct Turns {
    since_told: u32,
    /// Counts only while a deadline has expired.
    since_deadline: u32,
}

/// Executes the requests of one session.
pub(in crate::front) struct Engine {
    settings: Arc<Settings>,
    catalogue: Catalogue,
    callback: Option<CallbackAddress>,
    has_attachments_stream: bool,
    log_form: LogForm,
    client: link::Outbox,
    provenance: Provenance,
    debuggers: Debuggers,
    pool: Option<Pool>,
    /// In order of arrival.
    jobs: BTreeMap<JobKey, Work>,
    next_job: u64,
    lister: Option<Lister>,
    /// Workers that are not assigned to a run or to the listing.
    idle: Vec<WorkerId>,
    /// Requesters of workers that have not joined yet, in order; `None` is the listing.
    asked: VecDeque<Option<JobKey>>,
    /// Workers that are being stopped, the channel that reports the end of the pause, and the deadline.
    pausing: Option<(BTreeSet<WorkerId>, oneshot::Sender<()>, Instant)>,
    turns: Turns,
    /// Ids of requests that were responded to, for the session.
    done: mpsc::Sender<RequestId>,
}

enum Next {
    Command(Command),
    /// The client has responded to a request of the server.
    Answer(Answer),
    /// The session has closed its command channel.
    NoMoreCommands,
    Pool(PoolEvent),
    Deadline,
    /// A discovery has more tests to send.
    Tell,
}

impl Engine {
    pub(super) fn new(options: EngineOptions, done: mpsc::Sender<RequestId>) -> Self {
        Self {
            catalogue: Catalogue::new(options.sources),
            settings: options.settings,
            callback: options.callback,
            has_attachments_stream: options.has_attachments_stream,
            log_form: options.log_form,
            client: options.client,
            provenance: options.provenance,
            debuggers: Debuggers::new(options.answers, (options.has_debugger, options.is_debug)),
            pool: None,
            jobs: BTreeMap::new(),
            next_job: 0,
            lister: None,
            idle: Vec::new(),
            asked: VecDeque::new(),
            pausing: None,
            turns: Turns::default(),
            done,
        }
    }

    /// Runs jobs until the session has no more, reports the end of each, then shuts the pool down.
    ///
    /// Cancel safe: no, because jobs in progress would be left without a response; but dropping it ends all
    /// processes.
    pub(super) async fn work(mut self, commands: mpsc::Receiver<Command>) {
        let mut commands = Some(commands);
        while commands.is_some() || !self.jobs.is_empty() {
            match self.next(&mut commands).await {
                Next::Command(command) => self.command(command).await,
                Next::Answer(answer) => self.client_answered(answer).await,
                Next::NoMoreCommands => commands = None,
                Next::Pool(event) => {
                    self.turns.since_told = self.turns.since_told.saturating_add(1);
                    self.turns.since_deadline = self.turns.since_deadline.saturating_add(1);
                    self.pool_event(event).await;
                }
                Next::Deadline => {
                    self.turns.since_deadline = 0;
                    self.expired(Instant::now()).await;
                }
                Next::Tell => {
                    self.turns.since_told = 0;
                    self.tell().await;
                }
            }
            self.settle().await;
        }
        if let Some(pool) = self.pool.take() {
            pool.leave().await;
        }
    }

    async fn next(&mut self, commands: &mut Option<mpsc::Receiver<Command>>) -> Next {
        let deadline = self.next_deadline();
        let has_to_tell = self.jobs.values().any(Work::has_to_tell);
        let is_tellers_turn = has_to_tell && self.turns.since_told > 0;
        if deadline.is_none_or(|deadline| deadline > Instant::now()) {
            self.turns.since_deadline = 0;
        }
        let is_late = self.turns.since_deadline >= EVENTS_FIRST;
        let command = async {
            match commands {
                Some(commands) => commands.recv().await,
                None => pending().await,
            }
        };
        let event = async {
            match &mut self.pool {
                Some(pool) => pool.next().await,
                None => pending().await,
            }
        };
        let expired = async {
            match deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            command = command => command.map_or(Next::NoMoreCommands, Next::Command),
            answer = self.debuggers.answered() => Next::Answer(answer),
            () = std::future::ready(()), if is_late => Next::Deadline,
            () = std::future::ready(()), if is_tellers_turn => Next::Tell,
            event = event => Next::Pool(event),
            () = expired => Next::Deadline,
            () = std::future::ready(()), if has_to_tell => Next::Tell,
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let pausing = self.pausing.as_ref().map(|(_, _, deadline)| *deadline);
        let debuggers = self.debuggers.next_deadline();
        self.jobs.values().filter_map(Work::next_deadline).chain(pausing).chain(debuggers).min()
    }

    async fn command(&mut self, command: Command) {
        match command {
            Command::Start(job) => self.start(job).await,
            Command::Cancel(id) => self.cancel(&id).await,
            Command::Pause(done) => self.pause(done).await,
            Command::Resume => self.resume().await,
        }
    }

    async fn pool_event(&mut self, event: PoolEvent) {
        match event {
            PoolEvent::WorkerReady(worker) => self.idle.push(worker),
            PoolEvent::WorkerNotStarted { worker, error } => self.not_started(worker, &error).await,
            PoolEvent::Worker(worker, FromWorker::Paused) => self.stands_still(worker),
            PoolEvent::Worker(worker, message) => self.hear(worker, message).await,
            PoolEvent::WorkerGone { worker, relayed } => self.worker_gone(worker, &relayed).await,
            PoolEvent::Watchdog(message) => self.hear_watchdog(message).await,
            PoolEvent::WatchdogReplaced => self.watchdog_replaced().await,
            PoolEvent::WatchdogLost(error) => self.without_watchdog(&error).await,
        }
    }

    async fn hear(&mut self, worker: WorkerId, message: FromWorker) {
        let Some(pool) = &self.pool else { return };
        match &message {
            FromWorker::Discovered { .. } | FromWorker::NotDiscovered { .. } => {
                let is_free = self
                    .lister
                    .as_mut()
                    .is_some_and(|lister| lister.hear(&mut self.catalogue, worker, message));
                self.idle.extend(is_free.then_some(worker));
                return;
            }
            FromWorker::Drained { run, .. } | FromWorker::Log { run: Some(run), .. } => {
                let run = run.clone();
                self.hear_of_run(&run, worker, message).await;
                return;
            }
            FromWorker::Reports { .. }
            | FromWorker::LeaseEnded { .. }
            | FromWorker::Paused
            | FromWorker::Log { run: None, .. } => {}
        }
        match (pool.serves(worker).map(str::to_owned), message) {
            (Some(run), message) => self.hear_of_run(&run, worker, message).await,
            (None, FromWorker::Log { lines, .. }) => {
                for LogLine { level, message, .. } in lines {
                    self.log(level, message).await;
                }
            }
            // The lease's run is over.
            (None, _) => {}
        }
    }

    async fn hear_of_run(&mut self, run: &str, worker: WorkerId, message: FromWorker) {
        if matches!(message, FromWorker::LeaseEnded { .. }) {
            // Recompute the shares before the run leases its next batch: another run may be entitled to the
            // slot.
            let _shares = self.share_out();
        }
        if let Some(driver) = self.driver_of(run) {
            driver.worker(worker, message).await;
        }
    }

    async fn hear_watchdog(&mut self, message: FromWatchdog) {
        let run = match &message {
            FromWatchdog::Journal { run, .. }
            | FromWatchdog::Completing { run }
            | FromWatchdog::Finished { run, .. } => run.clone(),
            FromWatchdog::WorkerNotStarted { .. } | FromWatchdog::WorkerEnded { .. } => return,
        };
        if let Some(driver) = self.driver_of(&run) {
            driver.watchdog(message).await;
        }
    }

    async fn worker_gone(&mut self, worker: WorkerId, relayed: &BTreeMap<String, u64>) {
        self.idle.retain(|one| *one != worker);
        self.stands_still(worker);
        if let Some(lister) = &mut self.lister {
            lister.worker_gone(&mut self.catalogue, worker);
        }
        let Some(pool) = &mut self.pool else { return };
        for driver in self.jobs.values_mut().filter_map(Work::driver) {
            if driver.has_to_do_with(worker) {
                let relayed = relayed.get(driver.run_id()).copied().unwrap_or(0);
                driver.worker_gone(pool, worker, relayed).await;
            }
        }
    }

    async fn watchdog_replaced(&mut self) {
        let Some(pool) = &mut self.pool else { return };
        if let Err(error) = pool.await_replacement().await {
            self.without_watchdog(&error).await;
            return;
        }
        for driver in self.jobs.values_mut().filter_map(Work::driver) {
            driver.watchdog_replaced(pool).await;
        }
    }

    /// Ends listing and runs: without a watchdog there are no workers. The next request may start a new pool.
    async fn without_watchdog(&mut self, error: &PoolError) {
        let why = crate::error_chain(error);
        if let Some(lister) = &mut self.lister {
            lister.without_workers(&mut self.catalogue, &why);
        }
        for driver in self.jobs.values_mut().filter_map(Work::driver) {
            driver.finish_ourselves(&why).await;
        }
        self.idle.clear();
        self.asked.clear();
        self.end_pause();
        self.pool = None;
    }

    async fn pause(&mut self, done: oneshot::Sender<()>) {
        let mut waits = BTreeSet::new();
        if let Some(pool) = &mut self.pool {
            for worker in pool.ready_workers() {
                pool.tell(worker, &ToWorker::Pause).await;
                waits.insert(worker);
            }
        }
        self.pausing = Some((waits, done, Instant::now() + PAUSE_DEADLINE));
        self.check_pause();
    }

    async fn resume(&mut self) {
        let Some(pool) = &mut self.pool else { return };
        for worker in pool.ready_workers() {
            pool.tell(worker, &ToWorker::Resume).await;
        }
    }

    fn stands_still(&mut self, worker: WorkerId) {
        if let Some((workers, _, _)) = &mut self.pausing {
            workers.remove(&worker);
        }
        self.check_pause();
    }

    fn check_pause(&mut self) {
        let is_done = self
            .pausing
            .as_ref()
            .is_some_and(|(workers, _, deadline)| workers.is_empty() || *deadline <= Instant::now());
        if is_done {
            self.end_pause();
        }
    }

    fn end_pause(&mut self) {
        if let Some((_, done, _)) = self.pausing.take() {
            // The requester may be gone.
            let _gone = done.send(());
        }
    }

    async fn expired(&mut self, now: Instant) {
        self.check_pause();
        self.debuggers_expired(now).await;
        let Some(pool) = &mut self.pool else { return };
        for driver in self.jobs.values_mut().filter_map(Work::driver) {
            driver.expired(pool, now).await;
        }
    }

    /// Executes the pending actions of every run until none is left.
    async fn settle(&mut self) {
        loop {
            self.end_listing().await;
            // Shares come first, even if no worker is idle: a run with a share of 0 requests no workers.
            let _shares = self.share_out();
            if let Some(pool) = &mut self.pool {
                for driver in self.jobs.values_mut().filter_map(Work::driver) {
                    driver.act(pool).await;
                }
            }
            self.note_launched();
            self.ask_for_debuggers().await;
            self.collect();
            let has_given = self.give().await;
            let has_ended = self.end_jobs().await;
            if !has_given && !has_ended {
                break;
            }
        }
        self.withdraw_requests().await;
        self.start_workers().await;
    }

    async fn start_pool(&mut self) -> Result<(), RpcError> {
        if self.pool.is_some() {
            return Ok(());
        }
        let options = PoolOptions {
            callback: self.callback.clone(),
            limits: crate::run::delivery(&self.settings),
            client: self.client.clone(),
            is_output_shared: self.settings.run.capture == Capture::Shown,
        };
        let pool = Pool::start(options).await.map_err(|error| {
            RpcError::new(code::INTERNAL_ERROR, format!("failed to {}", crate::error_chain(&error)))
        })?;
        self.pool = Some(pool);
        Ok(())
    }

    pub(in crate::front) fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    pub(in crate::front) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(in crate::front) fn debuggers(&self) -> &Debuggers {
        &self.debuggers
    }

    pub(in crate::front) fn has_attachments_stream(&self) -> bool {
        self.has_attachments_stream
    }

    pub(in crate::front) fn log_form(&self) -> LogForm {
        self.log_form
    }

    pub(in crate::front) fn runs_dir(&self) -> PathBuf {
        self.settings.state_dir.join(runs::DIR_NAME)
    }

    pub(in crate::front) fn provenance(&self) -> &Provenance {
        &self.provenance
    }

    pub(in crate::front) async fn send(&self, frame: Bytes) {
        // The session's reader notices a client that is gone.
        let _closed = self.client.send(frame).await;
    }

    pub(in crate::front) async fn log(&self, level: LogLevel, message: String) {
        for frame in log_frames(self.log_form, None, vec![LogMessage::new(level, message)]) {
            self.send(frame).await;
        }
    }
}
