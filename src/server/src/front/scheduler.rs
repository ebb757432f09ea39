//! Scheduler of a session's requests, which run concurrently: owns the catalogue and the pool, and shares the
//! slots among runs.
//!
//! One loop waits for all events: session commands, processes, deadlines. After each event [`Scheduler::run_pending_actions`]
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
use heeler_protocol::{
    control::{CallbackAddress, FromWatchdog, FromWorker, LogLine, ToWorker, WorkerId},
    mtp::{LogForm, LogLevel, LogMessage, log_frames},
    rpc::{RequestId, RpcError, code},
};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until},
};

pub(in crate::front) use debugger::ClientResponse;
use debugger::DebuggerRequests;
use jobs::{JobKey, JobProgress};
pub(in crate::front) use jobs::{JobKind, RequestJob};

use crate::discovery::{Catalogue, ProgramLister, ProgramSource};
use crate::pool::{PoolError, PoolEvent, PoolOptions, WorkerPool};
use crate::run::ReportWriter;
use heeler_config::{CaptureStrategy, ResolvedSettings};
use heeler_run_store::{self, Provenance};

/// Maximum wait for all test processes to stop.
const PAUSE_DEADLINE: Duration = Duration::from_millis(500);

/// Parameters of a scheduler.
pub(super) struct SchedulerOptions {
    pub(super) settings: Arc<ResolvedSettings>,
    pub(super) sources: Vec<ProgramSource>,
    pub(super) callback: Option<CallbackAddress>,
    pub(super) has_attachments_stream: bool,
    pub(super) log_form: LogForm,
    pub(super) client: heeler_transport::Outbox,
    /// The client's responses to requests that the server sent.
    pub(super) client_responses: mpsc::Receiver<ClientResponse>,
    /// The client attaches and launches debuggers on request.
    pub(super) has_debugger: bool,
    /// Every run is a debug run.
    pub(super) is_debug: bool,
    /// Recorded with each run: how it was started.
    pub(super) provenance: Provenance,
    /// Writes the report files of completed runs.
    pub(super) reports: ReportWriter,
}

/// A command from the session to its scheduler.
pub(super) enum SchedulerCommand {
    /// Starts a request.
    Start(RequestJob),
    /// Cancels the request with this id.
    Cancel(RequestId),
    /// Stops all test processes; answered once they are stopped.
    Pause(oneshot::Sender<()>),
    /// Lets stopped test processes continue.
    Resume,
}

/// An expired deadline is handled after at most this many queued pool events, so that an event that already
/// arrived can still satisfy it; fewer events than this can be queued at that time.
const EVENTS_BEFORE_DEADLINE: u32 = 1024;

/// Number of pool events handled since other events had their turn: a flood of pool events must not starve
/// the others.
#[derive(Default)]
struct Fairness {
    events_since_discovery_update: u32,
    /// Counts only while a deadline has expired.
    events_since_deadline: u32,
}

/// Executes the requests of one session.
pub(in crate::front) struct Scheduler {
    settings: Arc<ResolvedSettings>,
    catalogue: Catalogue,
    callback: Option<CallbackAddress>,
    has_attachments_stream: bool,
    log_form: LogForm,
    client: heeler_transport::Outbox,
    provenance: Provenance,
    reports: ReportWriter,
    debuggers: DebuggerRequests,
    pool: Option<WorkerPool>,
    /// In order of arrival.
    jobs: BTreeMap<JobKey, JobProgress>,
    next_job: u64,
    lister: Option<ProgramLister>,
    /// Workers that are not assigned to a run or to the listing.
    idle_workers: Vec<WorkerId>,
    /// Requesters of workers that have not joined yet, in order; `None` is the listing.
    worker_requests: VecDeque<Option<JobKey>>,
    /// Workers that are being stopped, the channel that reports the end of the pause, and the deadline.
    pausing: Option<(BTreeSet<WorkerId>, oneshot::Sender<()>, Instant)>,
    fairness: Fairness,
    /// Ids of requests that were responded to, for the session.
    finished_requests: mpsc::Sender<RequestId>,
}

enum SchedulerEvent {
    Command(SchedulerCommand),
    /// The client has responded to a request of the server.
    ClientResponse(ClientResponse),
    /// The session has closed its command channel.
    CommandsClosed,
    Pool(PoolEvent),
    Deadline,
    /// A discovery has more tests to send.
    SendDiscoveryUpdates,
}

impl Scheduler {
    pub(super) fn new(options: SchedulerOptions, finished_requests: mpsc::Sender<RequestId>) -> Self {
        Self {
            catalogue: Catalogue::new(options.sources),
            settings: options.settings,
            callback: options.callback,
            has_attachments_stream: options.has_attachments_stream,
            log_form: options.log_form,
            client: options.client,
            provenance: options.provenance,
            reports: options.reports,
            debuggers: DebuggerRequests::new(
                options.client_responses,
                (options.has_debugger, options.is_debug),
            ),
            pool: None,
            jobs: BTreeMap::new(),
            next_job: 0,
            lister: None,
            idle_workers: Vec::new(),
            worker_requests: VecDeque::new(),
            pausing: None,
            fairness: Fairness::default(),
            finished_requests,
        }
    }

    /// Runs jobs until the session has no more, reports the end of each, then shuts the pool down.
    ///
    /// Cancel safe: no, because jobs in progress would be left without a response; but dropping it ends all
    /// processes.
    pub(super) async fn run(mut self, commands: mpsc::Receiver<SchedulerCommand>) {
        let mut commands = Some(commands);
        while commands.is_some() || !self.jobs.is_empty() {
            match self.next_event(&mut commands).await {
                SchedulerEvent::Command(command) => self.on_command(command).await,
                SchedulerEvent::ClientResponse(answer) => self.on_client_response(answer).await,
                SchedulerEvent::CommandsClosed => commands = None,
                SchedulerEvent::Pool(event) => {
                    self.fairness.events_since_discovery_update =
                        self.fairness.events_since_discovery_update.saturating_add(1);
                    self.fairness.events_since_deadline =
                        self.fairness.events_since_deadline.saturating_add(1);
                    self.on_pool_event(event).await;
                }
                SchedulerEvent::Deadline => {
                    self.fairness.events_since_deadline = 0;
                    self.on_deadline(Instant::now()).await;
                }
                SchedulerEvent::SendDiscoveryUpdates => {
                    self.fairness.events_since_discovery_update = 0;
                    self.send_discovery_updates().await;
                }
            }
            self.run_pending_actions().await;
        }
        if let Some(pool) = self.pool.take() {
            pool.shut_down().await;
        }
    }

    async fn next_event(
        &mut self,
        commands: &mut Option<mpsc::Receiver<SchedulerCommand>>,
    ) -> SchedulerEvent {
        let deadline = self.next_deadline();
        let has_to_tell = self.jobs.values().any(JobProgress::is_sending_tests);
        let is_tellers_turn = has_to_tell && self.fairness.events_since_discovery_update > 0;
        if deadline.is_none_or(|deadline| deadline > Instant::now()) {
            self.fairness.events_since_deadline = 0;
        }
        let is_late = self.fairness.events_since_deadline >= EVENTS_BEFORE_DEADLINE;
        let command = async {
            match commands {
                Some(commands) => commands.recv().await,
                None => pending().await,
            }
        };
        let event = async {
            match &mut self.pool {
                Some(pool) => pool.next_event().await,
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
            command = command => command.map_or(SchedulerEvent::CommandsClosed, SchedulerEvent::Command),
            answer = self.debuggers.next_response() => SchedulerEvent::ClientResponse(answer),
            () = std::future::ready(()), if is_late => SchedulerEvent::Deadline,
            () = std::future::ready(()), if is_tellers_turn => SchedulerEvent::SendDiscoveryUpdates,
            event = event => SchedulerEvent::Pool(event),
            () = expired => SchedulerEvent::Deadline,
            () = std::future::ready(()), if has_to_tell => SchedulerEvent::SendDiscoveryUpdates,
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let pausing = self.pausing.as_ref().map(|(_, _, deadline)| *deadline);
        let debuggers = self.debuggers.next_deadline();
        self.jobs.values().filter_map(JobProgress::next_deadline).chain(pausing).chain(debuggers).min()
    }

    async fn on_command(&mut self, command: SchedulerCommand) {
        match command {
            SchedulerCommand::Start(job) => self.start_job(job).await,
            SchedulerCommand::Cancel(id) => self.cancel_job(&id).await,
            SchedulerCommand::Pause(done) => self.pause(done).await,
            SchedulerCommand::Resume => self.resume().await,
        }
    }

    async fn on_pool_event(&mut self, event: PoolEvent) {
        match event {
            PoolEvent::WorkerReady(worker) => self.idle_workers.push(worker),
            PoolEvent::WorkerNotStarted { worker, error } => self.on_worker_not_started(worker, &error).await,
            PoolEvent::WorkerMessage(worker, FromWorker::Paused) => self.on_worker_paused(worker),
            PoolEvent::WorkerMessage(worker, message) => self.on_worker_message(worker, message).await,
            PoolEvent::WorkerDied { worker, forwarded: relayed } => {
                self.on_worker_died(worker, &relayed).await
            }
            PoolEvent::WatchdogMessage(message) => self.on_watchdog_message(message).await,
            PoolEvent::WatchdogReplaced => self.on_watchdog_replaced().await,
            PoolEvent::WatchdogLost(error) => self.on_watchdog_lost(&error).await,
        }
    }

    async fn on_worker_message(&mut self, worker: WorkerId, message: FromWorker) {
        let Some(pool) = &self.pool else { return };
        match &message {
            FromWorker::Discovered { .. } | FromWorker::NotDiscovered { .. } => {
                let is_free = self
                    .lister
                    .as_mut()
                    .is_some_and(|lister| lister.on_worker_message(&mut self.catalogue, worker, message));
                self.idle_workers.extend(is_free.then_some(worker));
                return;
            }
            FromWorker::Drained { run, .. } | FromWorker::Log { run: Some(run), .. } => {
                let run = run.clone();
                self.forward_to_run(&run, worker, message).await;
                return;
            }
            FromWorker::LeaseEvents { .. }
            | FromWorker::LeaseEnded { .. }
            | FromWorker::Paused
            | FromWorker::Log { run: None, .. } => {}
        }
        match (pool.assigned_run(worker).map(str::to_owned), message) {
            (Some(run), message) => self.forward_to_run(&run, worker, message).await,
            (None, FromWorker::Log { lines, .. }) => {
                for LogLine { level, message, .. } in lines {
                    self.log(level, message).await;
                }
            }
            // The lease's run is over.
            (None, _) => {}
        }
    }

    async fn forward_to_run(&mut self, run: &str, worker: WorkerId, message: FromWorker) {
        if matches!(message, FromWorker::LeaseEnded { .. }) {
            // Recompute the shares before the run leases its next batch: another run may be entitled to the
            // slot.
            let _shares = self.update_shares();
        }
        if let Some(driver) = self.driver_for_run(run) {
            driver.on_worker_message(worker, message).await;
        }
    }

    async fn on_watchdog_message(&mut self, message: FromWatchdog) {
        let run = match &message {
            FromWatchdog::Journal { run, .. }
            | FromWatchdog::Completing { run }
            | FromWatchdog::Finished { run, .. } => run.clone(),
            FromWatchdog::WorkerNotStarted { .. } | FromWatchdog::WorkerEnded { .. } => return,
        };
        if let Some(driver) = self.driver_for_run(&run) {
            driver.on_watchdog_message(message).await;
        }
    }

    async fn on_worker_died(&mut self, worker: WorkerId, relayed: &BTreeMap<String, u64>) {
        self.idle_workers.retain(|one| *one != worker);
        self.on_worker_paused(worker);
        if let Some(lister) = &mut self.lister {
            lister.on_worker_died(&mut self.catalogue, worker);
        }
        let Some(pool) = &mut self.pool else { return };
        for driver in self.jobs.values_mut().filter_map(JobProgress::driver) {
            if driver.is_affected_by(worker) {
                let relayed = relayed.get(driver.run_id()).copied().unwrap_or(0);
                driver.on_worker_died(pool, worker, relayed).await;
            }
        }
    }

    async fn on_watchdog_replaced(&mut self) {
        let Some(pool) = &mut self.pool else { return };
        if let Err(error) = pool.await_replacement().await {
            self.on_watchdog_lost(&error).await;
            return;
        }
        for driver in self.jobs.values_mut().filter_map(JobProgress::driver) {
            driver.on_watchdog_replaced(pool).await;
        }
    }

    /// Ends listing and runs: without a watchdog there are no workers. The next request may start a new pool.
    async fn on_watchdog_lost(&mut self, error: &PoolError) {
        let why = heeler_core::error_chain(error);
        if let Some(lister) = &mut self.lister {
            lister.fail_remaining(&mut self.catalogue, &why);
        }
        for driver in self.jobs.values_mut().filter_map(JobProgress::driver) {
            driver.finish_without_watchdog(&why).await;
        }
        self.idle_workers.clear();
        self.worker_requests.clear();
        self.end_pause();
        self.pool = None;
    }

    async fn pause(&mut self, done: oneshot::Sender<()>) {
        let mut waits = BTreeSet::new();
        if let Some(pool) = &mut self.pool {
            for worker in pool.ready_workers() {
                pool.send_to_worker(worker, &ToWorker::Pause).await;
                waits.insert(worker);
            }
        }
        self.pausing = Some((waits, done, Instant::now() + PAUSE_DEADLINE));
        self.check_pause();
    }

    async fn resume(&mut self) {
        let Some(pool) = &mut self.pool else { return };
        for worker in pool.ready_workers() {
            pool.send_to_worker(worker, &ToWorker::Resume).await;
        }
    }

    fn on_worker_paused(&mut self, worker: WorkerId) {
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

    async fn on_deadline(&mut self, now: Instant) {
        self.check_pause();
        self.on_debugger_deadline(now).await;
        let Some(pool) = &mut self.pool else { return };
        for driver in self.jobs.values_mut().filter_map(JobProgress::driver) {
            driver.on_deadline(pool, now).await;
        }
    }

    /// Executes the pending actions of every run until none is left.
    async fn run_pending_actions(&mut self) {
        loop {
            self.finish_listing().await;
            // Shares come first, even if no worker is idle: a run with a share of 0 requests no workers.
            let _shares = self.update_shares();
            if let Some(pool) = &mut self.pool {
                for driver in self.jobs.values_mut().filter_map(JobProgress::driver) {
                    driver.execute_actions(pool).await;
                }
            }
            self.drop_launched_requests();
            self.request_debuggers().await;
            self.reclaim();
            let has_given = self.assign_idle().await;
            let has_ended = self.complete_runs().await;
            if !has_given && !has_ended {
                break;
            }
        }
        self.cancel_stale_debugger_requests().await;
        self.start_workers().await;
    }

    async fn start_pool(&mut self) -> Result<(), RpcError> {
        if self.pool.is_some() {
            return Ok(());
        }
        let options = PoolOptions {
            callback: self.callback.clone(),
            limits: crate::run::delivery_limits(&self.settings),
            client: self.client.clone(),
            is_output_shared: self.settings.run.capture == CaptureStrategy::Shown,
        };
        let pool = WorkerPool::start(options).await.map_err(|error| {
            RpcError::new(code::INTERNAL_ERROR, format!("failed to {}", heeler_core::error_chain(&error)))
        })?;
        self.pool = Some(pool);
        Ok(())
    }

    pub(in crate::front) fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    pub(in crate::front) fn settings(&self) -> &ResolvedSettings {
        &self.settings
    }

    pub(in crate::front) fn debuggers(&self) -> &DebuggerRequests {
        &self.debuggers
    }

    pub(in crate::front) fn has_attachments_stream(&self) -> bool {
        self.has_attachments_stream
    }

    pub(in crate::front) fn log_form(&self) -> LogForm {
        self.log_form
    }

    pub(in crate::front) fn runs_dir(&self) -> PathBuf {
        self.settings.state_dir.join(heeler_run_store::DIR_NAME)
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
