//! The scheduler's loop: waits for commands of clients, for processes and for deadlines. After each event
//! [`Scheduler::run_pending_actions`] lets every run execute its pending actions, grants idle workers to the
//! run that was served least, and reports what is complete.

use std::{collections::BTreeMap, future::pending, time::Duration};

use heeler_core::fair_share::GrantRule;
use heeler_protocol::control::{ClientId, FromWatchdog, FromWorker, LogLine, RunKey, WorkerId};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};

use super::{
    ClientLogLine, SchedulerOptions,
    builds::{FinishedBuild, RunningBuilds},
    clients::{ClientEntry, next_command},
    handle::{ClientCommand, NewClient},
    listing::Catalogues,
    runs::{RunEntry, RunNumber},
};
use crate::pool::{ClientSinks, DeadSenderProof, PoolError, PoolEvent, PoolOptions, WorkerPool};

/// Maximum wait for all test processes of a client to stop.
pub(super) const PAUSE_DEADLINE: Duration = Duration::from_millis(500);

/// An expired deadline is handled after at most this many queued pool events, so that an event that already
/// arrived can still satisfy it; fewer events than this can be queued at that time.
const EVENTS_BEFORE_DEADLINE: u32 = 1024;

/// Executes the requests of all clients.
pub(super) struct Scheduler {
    pub(super) options: SchedulerOptions,
    registrations: mpsc::Receiver<NewClient>,
    pub(super) clients: BTreeMap<ClientId, ClientEntry>,
    pub(super) next_client: u32,
    /// The client whose command was handled last.
    pub(super) last_client: ClientId,
    pub(super) sinks: ClientSinks,
    pub(super) catalogues: Catalogues,
    pub(super) builds: RunningBuilds,
    pub(super) pool: Option<WorkerPool>,
    /// In order of arrival.
    pub(super) runs: BTreeMap<RunNumber, RunEntry>,
    pub(super) next_run: u64,
    /// The rule for the next grant of an idle worker.
    pub(super) grant_rule: GrantRule,
    /// Number of pool events handled while a deadline has expired.
    events_since_deadline: u32,
}

enum SchedulerEvent {
    Register(NewClient),
    /// All handles are dropped.
    NoMoreClients,
    Command(ClientId, Option<ClientCommand>),
    Pool(PoolEvent),
    BuildFinished(FinishedBuild),
    Deadline,
}

impl Scheduler {
    pub(super) fn new(options: SchedulerOptions, registrations: mpsc::Receiver<NewClient>) -> Self {
        Self {
            options,
            registrations,
            clients: BTreeMap::new(),
            next_client: 1,
            last_client: ClientId(0),
            sinks: ClientSinks::default(),
            catalogues: Catalogues::default(),
            builds: RunningBuilds::default(),
            pool: None,
            runs: BTreeMap::new(),
            next_run: 0,
            grant_rule: GrantRule::default(),
            events_since_deadline: 0,
        }
    }

    /// Runs until all handles are dropped and all clients have left, then shuts the pool down.
    ///
    /// Cancel safe: no, because runs in progress would be left without an end; but dropping it ends all
    /// processes.
    pub(super) async fn run(mut self) {
        let mut is_open = true;
        while is_open || !self.clients.is_empty() {
            match self.next_event(is_open).await {
                SchedulerEvent::Register(client) => self.add_client(client),
                SchedulerEvent::NoMoreClients => is_open = false,
                SchedulerEvent::Command(client, command) => self.on_command(client, command).await,
                SchedulerEvent::Pool(event) => {
                    self.events_since_deadline = self.events_since_deadline.saturating_add(1);
                    self.on_pool_event(event).await;
                }
                SchedulerEvent::BuildFinished(finished) => self.on_build_finished(finished),
                SchedulerEvent::Deadline => {
                    self.events_since_deadline = 0;
                    self.on_deadline(Instant::now()).await;
                }
            }
            self.run_pending_actions().await;
        }
        if let Some(pool) = self.pool.take() {
            pool.shut_down().await;
        }
        self.builds.finish().await;
    }

    async fn next_event(&mut self, is_open: bool) -> SchedulerEvent {
        let deadline = self.next_deadline();
        if deadline.is_none_or(|deadline| deadline > Instant::now()) {
            self.events_since_deadline = 0;
        }
        let is_late = self.events_since_deadline >= EVENTS_BEFORE_DEADLINE;
        if is_late {
            return SchedulerEvent::Deadline;
        }
        let Self { pool, clients, registrations, last_client, builds, .. } = self;
        let of_pool = async {
            match pool {
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
        let of_processes = async {
            tokio::select! {
                biased;
                event = of_pool => SchedulerEvent::Pool(event),
                () = expired => SchedulerEvent::Deadline,
            }
        };
        // In random order, so that a flood of one kind of event does not keep the others waiting.
        tokio::select! {
            client = registrations.recv(), if is_open => {
                client.map_or(SchedulerEvent::NoMoreClients, SchedulerEvent::Register)
            }
            (client, command) = next_command(clients, *last_client) => SchedulerEvent::Command(client, command),
            finished = builds.next_finished() => SchedulerEvent::BuildFinished(finished),
            event = of_processes => event,
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let pauses =
            self.clients.values().filter_map(|entry| entry.pausing.as_ref()).map(|pause| pause.deadline);
        self.runs.values().filter_map(|run| run.driver.next_deadline()).chain(pauses).min()
    }

    async fn on_pool_event(&mut self, event: PoolEvent) {
        match event {
            // The next grant takes them into account.
            PoolEvent::WorkerReady | PoolEvent::WorkerBlocked => {}
            PoolEvent::WorkerNotStarted { worker, user, error } => {
                self.on_worker_not_started(worker, user, &error)
            }
            PoolEvent::WorkerMessage(worker, FromWorker::Paused) => self.on_worker_paused(worker),
            PoolEvent::WorkerMessage(worker, message) => self.on_worker_message(worker, message),
            PoolEvent::WorkerDied { worker, is_lost_with_watchdog, proven } => {
                if is_lost_with_watchdog {
                    self.drivers_mut().for_each(|driver| driver.on_watchdog_died(worker));
                }
                self.on_worker_died(worker, &proven).await;
            }
            PoolEvent::WatchdogMessage(message) => self.on_watchdog_message(message),
            PoolEvent::WatchdogReplaced { proven } => self.on_watchdog_replaced(&proven).await,
            PoolEvent::WatchdogLost { error, proven } => self.on_watchdog_lost(&error, &proven),
        }
    }

    fn on_worker_message(&mut self, worker: WorkerId, message: FromWorker) {
        let run = match &message {
            FromWorker::Discovered { .. } | FromWorker::NotDiscovered { .. } => {
                if let Some(finished) = self.catalogues.on_worker_message(worker, message)
                    && let Some(pool) = &mut self.pool
                {
                    pool.release_listing(worker, finished.waiting_process);
                }
                return;
            }
            FromWorker::Drained { run, .. } => Some(run.clone()),
            FromWorker::Log { client, run: Some(run), .. } => Some(RunKey::new(*client, run.clone())),
            FromWorker::Log { client, run: None, lines } => return self.log_for_client(*client, lines),
            // A lease whose run is over has no assigned run.
            FromWorker::LeaseEvents { .. }
            | FromWorker::LeaseIdle { .. }
            | FromWorker::LeaseEnded { .. }
            | FromWorker::Paused
            | FromWorker::Blocked { .. } => {
                self.pool.as_ref().and_then(|pool| pool.workers().assigned_run(worker)).cloned()
            }
        };
        if matches!(message, FromWorker::LeaseIdle { .. } | FromWorker::LeaseEnded { .. }) {
            // Recompute the shares before the run leases its next batch: another run may be entitled to the
            // slot.
            let _shares = self.update_shares();
        }
        if let Some(driver) = run.and_then(|run| self.run_mut(&run)) {
            driver.on_worker_message(worker, message);
        }
    }

    fn log_for_client(&self, client: ClientId, lines: &[LogLine]) {
        if let Some(entry) = self.clients.get(&client) {
            let line = |one: &LogLine| ClientLogLine::new(one.level, one.message.clone());
            entry.events.log(None, lines.iter().map(line).collect());
        }
    }

    fn on_watchdog_message(&mut self, message: FromWatchdog) {
        let run = match &message {
            FromWatchdog::Journal { run, .. }
            | FromWatchdog::Completing { run }
            | FromWatchdog::Finished { run, .. } => run.clone(),
            FromWatchdog::WorkerNotStarted { .. }
            | FromWatchdog::WorkerEnded { .. }
            | FromWatchdog::Relaying { .. } => return,
        };
        if let Some(driver) = self.run_mut(&run) {
            driver.on_watchdog_message(message);
        }
    }

    async fn on_worker_died(&mut self, worker: WorkerId, proven: &DeadSenderProof) {
        self.on_worker_paused(worker);
        self.catalogues.on_worker_died(worker);
        let Some(pool) = &mut self.pool else { return };
        for run in self.runs.values_mut() {
            if run.driver.model().state().involves(worker) {
                run.driver.on_worker_died(pool, worker, proven).await;
            }
        }
    }

    async fn on_watchdog_replaced(&mut self, proven: &DeadSenderProof) {
        let Some(pool) = &mut self.pool else { return };
        if let Err(error) = pool.await_watchdog().await {
            self.on_watchdog_lost(&error, proven);
            return;
        }
        for run in self.runs.values_mut() {
            run.driver.on_watchdog_replaced(pool, proven).await;
        }
    }

    /// Ends listings and runs: without a watchdog there are no workers. The next request may start a new
    /// pool.
    fn on_watchdog_lost(&mut self, error: &PoolError, proven: &DeadSenderProof) {
        let why = heeler_core::error_chain(error);
        self.catalogues.fail_all(&why);
        self.drivers_mut().for_each(|driver| driver.on_watchdog_lost(&why, proven));
        self.end_pauses();
        self.pool = None;
    }

    async fn on_deadline(&mut self, now: Instant) {
        self.check_pauses();
        let Some(pool) = &mut self.pool else { return };
        for run in self.runs.values_mut() {
            run.driver.on_deadline(pool, now).await;
        }
    }

    /// Executes the pending actions of every run until none is left.
    async fn run_pending_actions(&mut self) {
        loop {
            self.finish_listings();
            self.finish_builds().await;
            // Shares come first, even if no worker is idle: a run with a share of 0 requests no workers.
            let _shares = self.update_shares();
            if let Some(pool) = &mut self.pool {
                for run in self.runs.values_mut() {
                    run.driver.execute_actions(pool).await;
                }
            }
            self.report_debuggees();
            let has_granted = self.grant_idle_workers().await;
            let has_ended = self.complete_runs();
            if !has_granted && !has_ended {
                break;
            }
        }
        self.remove_left_clients().await;
        self.start_workers().await;
    }

    /// Starts the pool if there is none, or none that can go on; returns why it can't be started.
    pub(super) async fn start_pool(&mut self) -> Result<(), String> {
        let is_used = !self.runs.is_empty() || self.catalogues.listers().next().is_some();
        // A cleaner of temporary files may have removed the directory of the pool.
        match self.pool.take_if(|pool| !is_used && !pool.has_directory()) {
            Some(pool) => {
                tracing::warn!("all processes are started again, because their directory is gone");
                pool.shut_down().await;
            }
            None if self.pool.is_some() => return Ok(()),
            None => {}
        }
        let options = PoolOptions {
            program: self.options.program.clone(),
            clients: self.sinks.clone(),
            slots: self.options.slots,
            worker_stdout: self.options.worker_stdout,
        };
        let pool = WorkerPool::start(options)
            .await
            .map_err(|error| format!("failed to {}", heeler_core::error_chain(&error)))?;
        self.pool = Some(pool);
        Ok(())
    }
}
