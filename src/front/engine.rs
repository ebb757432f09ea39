//! Does a session's requests, as many at the same time as come: owns the catalogue and the pool, and shares the slots.
//!
//! One loop waits for everything: commands of the session, processes, deadlines. After each event [`Engine::settle`] lets
//! every run do what follows for it, gives idle workers to whoever has had least, and answers what has ended.

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

/// What stopping all test processes may take.
const PAUSE_DEADLINE: Duration = Duration::from_millis(500);

/// How an engine is made.
pub(super) struct EngineOptions {
    pub(super) settings: Arc<Settings>,
    pub(super) sources: Vec<ProgramSource>,
    pub(super) callback: Option<CallbackAddress>,
    pub(super) has_attachments_stream: bool,
    pub(super) log_form: LogForm,
    pub(super) client: link::Outbox,
    /// What the client answers to requests of ours.
    pub(super) answers: mpsc::Receiver<Answer>,
    /// The client attaches and launches debuggers when it is asked to.
    pub(super) has_debugger: bool,
    /// Every run is for debuggers.
    pub(super) is_debug: bool,
    /// Where the runs come from.
    pub(super) provenance: Provenance,
}

/// What a session wants of its engine.
pub(super) enum Command {
    /// Do this.
    Start(Job),
    /// End what was asked for by this request.
    Cancel(RequestId),
    /// Stop all test processes; answered when they stand still.
    Pause(oneshot::Sender<()>),
    /// Let them go on.
    Resume,
}

/// A deadline that has passed is heard behind so many events of the pool at the latest. What had come before it passed may
/// be what it waits for, and that is less than this.
const EVENTS_FIRST: u32 = 1024;

/// How many events of the pool were heard since others had their turn: under a flood of them nobody waits for ever.
#[derive(Default)]
struct Turns {
    since_told: u32,
    /// Counted while a deadline has passed.
    since_deadline: u32,
}

/// A session's doer of requests.
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
    /// By the order of their coming.
    jobs: BTreeMap<JobKey, Work>,
    next_job: u64,
    lister: Option<Lister>,
    /// Workers that nobody has anything for.
    idle: Vec<WorkerId>,
    /// Who asked for workers that are not there yet, in order; `None` is the lister.
    asked: VecDeque<Option<JobKey>>,
    /// Workers that are being stopped, whom to tell, and until when to wait.
    pausing: Option<(BTreeSet<WorkerId>, oneshot::Sender<()>, Instant)>,
    turns: Turns,
    /// Requests that are answered, to be told to the session.
    done: mpsc::Sender<RequestId>,
}

enum Next {
    Command(Command),
    /// The client has answered a request of ours.
    Answer(Answer),
    /// The session has no more.
    NoMoreCommands,
    Pool(PoolEvent),
    Deadline,
    /// A discovery has more to tell.
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

    /// Does jobs until there are no more, tells each one's end, then ends the pool.
    ///
    /// Cancel safe: no, because jobs in hand would be left without an answer; but dropping it ends all processes.
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
            // A lease of a run that is over.
            (None, _) => {}
        }
    }

    async fn hear_of_run(&mut self, run: &str, worker: WorkerId, message: FromWorker) {
        if matches!(message, FromWorker::LeaseEnded { .. }) {
            // Before the run hands out the next batch, the others may have a right to the slot.
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

    /// Without a watchdog there are no workers. The next request may try anew.
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
            // Whoever asked may be gone.
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

    /// Lets every run do what follows for it, until nothing follows any more.
    async fn settle(&mut self) {
        loop {
            self.end_listing().await;
            // Before anything else, also where no worker is idle: a run without a share asks for none.
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
        // A client that is gone is noticed by the session's reader.
        let _closed = self.client.send(frame).await;
    }

    pub(in crate::front) async fn log(&self, level: LogLevel, message: String) {
        for frame in log_frames(self.log_form, None, vec![LogMessage::new(level, message)]) {
            self.send(frame).await;
        }
    }
}
