//! The scheduler's loop: waits for client commands, processes and deadlines. After each event,
//! [`Scheduler::run_pending_actions`] executes the pending actions of every run, grants idle workers to the
//! least served run, and reports complete runs.

mod commands;

use std::future::pending;

use heeler_core::{Slots, batching::SHARED_BATCH_LIMIT};
use heeler_protocol::control::{ClientId, FromWatchdog, FromWorker, RunKey, WorkerId};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};

use super::{
    SchedulerHandle, SchedulerOptions, SchedulerTask,
    builds::FinishedBuild,
    clients::Clients,
    handle::{ClientCommand, NewClient},
    listing::Catalogues,
    machine_budget::{MachineBudget, MachineWaitReport, OwnDemand},
    memory_pressure::MemoryPressure,
    runs::Runs,
    slots::{SlotShares, SlotUser, UserKey, slot_users, slots_in_use},
};
use crate::pool::{DeadSenderProof, PoolError, PoolEvent, PoolOptions, WorkerPool, WorkerUser};
use crate::run::SlotGrant;

/// Maximum number of queued pool events that are handled before an expired deadline, because an event that
/// has already arrived may still meet the deadline. The queue's capacity is smaller.
const EVENTS_BEFORE_DEADLINE: u32 = 1024;
/// Maximum number of workers to start while programs are being listed. A run of few tests on many slots needs
/// no more.
const EARLY_WORKERS: usize = 8;

/// Executes the requests of all clients.
pub(super) struct Scheduler {
    options: SchedulerOptions,
    registrations: mpsc::Receiver<NewClient>,
    clients: Clients,
    catalogues: Catalogues,
    pool: Option<WorkerPool>,
    runs: Runs,
    slots: SlotShares,
    budget: MachineBudget,
    memory: MemoryPressure,
    machine_wait: MachineWaitReport,
    /// Number of pool events handled since a deadline expired.
    events_since_deadline: u32,
}

enum SchedulerEvent {
    Register(NewClient),
    /// All scheduler handles are dropped.
    NoMoreClients,
    Command(ClientId, Option<ClientCommand>),
    Pool(PoolEvent),
    BuildFinished(FinishedBuild),
    Deadline,
}

impl SchedulerHandle {
    /// Starts a scheduler. No processes start before a client's first request.
    #[must_use]
    pub fn start(options: SchedulerOptions) -> (Self, SchedulerTask) {
        let (handle, registrations) = Self::new();
        (handle, SchedulerTask::spawn(Scheduler::new(options, registrations).run()))
    }
}

impl Scheduler {
    fn new(options: SchedulerOptions, registrations: mpsc::Receiver<NewClient>) -> Self {
        Self {
            slots: SlotShares::new(options.slots),
            budget: MachineBudget::new(options.slots, options.machine, options.has_concurrent_runs),
            memory: MemoryPressure::default(),
            machine_wait: MachineWaitReport::default(),
            options,
            registrations,
            clients: Clients::default(),
            catalogues: Catalogues::default(),
            pool: None,
            runs: Runs::default(),
            events_since_deadline: 0,
        }
    }

    /// Runs until all handles are dropped and all clients have left, then shuts the pool down.
    ///
    /// Cancel safe: no, because runs in progress would be left without an end. Dropping the future ends all
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
                SchedulerEvent::BuildFinished(finished) => self.catalogues.on_build_finished(finished),
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
        self.budget.leave();
        self.catalogues.finish_builds().await;
    }

    async fn next_event(&mut self, is_open: bool) -> SchedulerEvent {
        let deadlines = [
            self.runs.next_deadline(),
            self.clients.next_pause_deadline(),
            self.budget.next_look(),
            self.memory.next_look(),
        ];
        let deadline = deadlines.into_iter().flatten().min();
        // Count pool events only while a deadline has expired.
        if deadline.is_none_or(|deadline| deadline > Instant::now()) {
            self.events_since_deadline = 0;
        }
        let is_late = self.events_since_deadline >= EVENTS_BEFORE_DEADLINE;
        if is_late {
            return SchedulerEvent::Deadline;
        }
        let Self { pool, clients, registrations, catalogues, .. } = self;
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
        // Pool events come before an expired deadline, which they may still satisfy.
        let of_processes = async {
            tokio::select! {
                biased;
                event = of_pool => SchedulerEvent::Pool(event),
                () = expired => SchedulerEvent::Deadline,
            }
        };
        // Polled in random order, so that a flood of one kind of event does not starve the others.
        tokio::select! {
            client = registrations.recv(), if is_open => {
                client.map_or(SchedulerEvent::NoMoreClients, SchedulerEvent::Register)
            }
            (client, command) = clients.next_command() => SchedulerEvent::Command(client, command),
            finished = catalogues.next_build() => SchedulerEvent::BuildFinished(finished),
            event = of_processes => event,
        }
    }

    async fn on_pool_event(&mut self, event: PoolEvent) {
        match event {
            // The next grant takes these workers into account.
            PoolEvent::WorkerReady | PoolEvent::WorkerBlocked => {}
            PoolEvent::WorkerNotStarted { worker, user, error } => {
                self.on_worker_not_started(worker, user, &error)
            }
            PoolEvent::WorkerMessage(worker, FromWorker::Paused) => self.clients.on_worker_paused(worker),
            PoolEvent::WorkerMessage(worker, message) => self.on_worker_message(worker, message),
            PoolEvent::WorkerDied { worker, is_lost_with_watchdog, proven } => {
                if is_lost_with_watchdog {
                    self.runs.drivers_mut().for_each(|driver| driver.on_watchdog_died(worker));
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
                    pool.release(worker, finished.waiting_process);
                }
                return;
            }
            FromWorker::Drained { run, .. } => Some(run.clone()),
            FromWorker::Log { client, run: Some(run), .. } => Some(RunKey::new(*client, run.clone())),
            FromWorker::Log { client, run: None, lines } => return self.clients.log(*client, lines),
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
            // Recompute the shares before the run leases its next batch, because another run may be entitled
            // to the slot.
            self.update_shares();
        }
        if let Some(driver) = run.and_then(|run| self.runs.keyed_mut(&run)) {
            driver.on_worker_message(worker, message);
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
        if let Some(driver) = self.runs.keyed_mut(&run) {
            driver.on_watchdog_message(message);
        }
    }

    async fn on_worker_died(&mut self, worker: WorkerId, proven: &DeadSenderProof) {
        self.clients.on_worker_paused(worker);
        self.catalogues.on_worker_died(worker);
        let Some(pool) = &mut self.pool else { return };
        for driver in self.runs.drivers_mut() {
            if driver.model().state().involves(worker) {
                driver.on_worker_died(pool, worker, proven).await;
            }
        }
    }

    async fn on_watchdog_replaced(&mut self, proven: &DeadSenderProof) {
        let Some(pool) = &mut self.pool else { return };
        if let Err(error) = pool.await_watchdog().await {
            self.on_watchdog_lost(&error, proven);
            return;
        }
        for driver in self.runs.drivers_mut() {
            driver.on_watchdog_replaced(pool, proven).await;
        }
    }

    /// Ends all listings and runs, because workers cannot run without a watchdog. The next request may start
    /// a new pool.
    fn on_watchdog_lost(&mut self, error: &PoolError, proven: &DeadSenderProof) {
        let why = format!("failed to {}", heeler_core::error_chain(error));
        self.catalogues.fail_all(&why);
        self.runs.drivers_mut().for_each(|driver| driver.on_watchdog_lost(&why, proven));
        self.clients.end_pauses();
        self.pool = None;
    }

    /// Reports a worker that did not start to the listing or run that requested it.
    fn on_worker_not_started(&mut self, worker: WorkerId, user: Option<WorkerUser>, error: &str) {
        match user {
            None => tracing::warn!(%worker, error, "failed to start a worker"),
            Some(WorkerUser::Listing(place)) => {
                let slots = self.options.slots;
                let is_worker_ready =
                    self.pool.as_ref().is_some_and(|pool| !pool.workers().ready().is_empty());
                self.catalogues.on_start_failed(place, slots, is_worker_ready, error);
            }
            Some(WorkerUser::Run(key)) => {
                if let Some(driver) = self.runs.keyed_mut(&key) {
                    driver.on_worker_not_started(worker, error);
                }
            }
        }
    }

    async fn on_deadline(&mut self, now: Instant) {
        self.clients.check_pauses();
        let Some(pool) = &mut self.pool else { return };
        for driver in self.runs.drivers_mut() {
            driver.on_deadline(pool, now).await;
        }
    }

    /// Executes the pending actions of every run until none is left.
    async fn run_pending_actions(&mut self) {
        loop {
            self.catalogues.finish_listings(&self.clients);
            self.list_built().await;
            // Compute shares even if no worker is idle: a run with a share of 0 requests no workers.
            self.update_shares();
            if let Some(pool) = &mut self.pool {
                for driver in self.runs.drivers_mut() {
                    driver.execute_actions(pool).await;
                }
            }
            self.runs.report_debuggees(&self.clients);
            self.runs.report_waits(&self.clients);
            let has_granted = self.grant_idle_workers().await;
            let has_ended = self.complete_runs();
            if !has_granted && !has_ended {
                break;
            }
        }
        self.remove_left_clients().await;
        self.start_workers().await;
        self.machine_wait.report(self.budget.wait(), &self.clients);
    }

    /// Computes each user's share and passes it to the runs. Returns all users with their shares.
    fn update_shares(&mut self) -> Vec<SlotUser> {
        let mut users = slot_users(&self.clients, &self.catalogues, &self.runs, self.pool.as_ref());
        let in_use = slots_in_use(&users);
        let limit = self.slot_limit(in_use);
        self.slots.limit(limit);
        let spare = self.slots.divide(&mut users);
        let own = self.machine_demand(&users, in_use);
        self.slots.make_available(self.budget.update(own, Instant::now()));
        let is_shared = self.options.has_concurrent_runs || self.budget.has_rivals();
        for user in &mut users {
            if let UserKey::Run(number) = user.key
                && let Some(driver) = self.runs.numbered_mut(number)
            {
                driver.set_slots(SlotGrant {
                    share: user.share,
                    spare,
                    available: self.options.machine.map(|_| self.slots.available_to(user, in_use)),
                    batch_limit: is_shared.then_some(SHARED_BATCH_LIMIT),
                });
                user.can_use_worker = driver.model().state().can_use_worker();
            }
        }
        users
    }

    /// Returns the slots of the machine that all users together need.
    fn machine_demand(&self, users: &[SlotUser], in_use: Slots) -> OwnDemand {
        let wanted = users.iter().map(|user| user.share).sum();
        let next_weight = |user: &SlotUser| match user.key {
            UserKey::Listing(_) => Slots::ONE,
            UserKey::Run(number) => self.runs.numbered(number).map_or(Slots::ONE, |driver| {
                let state = driver.model().state();
                state.least_slots().saturating_sub(state.slots_taken())
            }),
        };
        // Without other coordinators, all slots that a heavy lease needs are there.
        let users = users.iter().filter(|user| self.budget.has_rivals() && user.wants_more());
        let least = match users.map(next_weight).min() {
            Some(weight) if weight > Slots::ONE => in_use.saturating_add(weight),
            Some(_) | None => Slots::NONE,
        };
        OwnDemand { wanted, least, in_use }
    }

    /// Grants each idle worker to the next user in line. Returns whether any was granted. The loop ends
    /// because a user below its share that can use a worker either uses it or reduces its demand.
    async fn grant_idle_workers(&mut self) -> bool {
        let mut has_granted = false;
        while self.pool.as_ref().is_some_and(|pool| pool.workers().has_idle()) {
            let users = self.update_shares();
            let Some(user) = self.slots.next_in_line(users) else { break };
            let for_listing = matches!(user.key, UserKey::Listing(_));
            let idle = self.pool.as_ref().and_then(|pool| pool.workers().preferred_idle(for_listing));
            let Some(worker) = idle else { break };
            self.slots.on_granted(&user);
            self.grant(user.key, worker).await;
            has_granted = true;
        }
        has_granted
    }

    /// Returns the slots that all users may occupy: one while the machine is short of memory. Tells the runs
    /// when that begins.
    fn slot_limit(&mut self, in_use: Slots) -> Slots {
        let was_short = self.memory.is_short();
        self.memory.look(in_use, Instant::now());
        if !self.memory.is_short() {
            return self.budget.limit();
        }
        if !was_short {
            let text = "this machine is short of memory; tests run one at a time until it is not";
            self.runs.drivers_mut().for_each(|driver| driver.warn(text));
        }
        self.budget.limit().min(Slots::ONE)
    }

    async fn grant(&mut self, key: UserKey, worker: WorkerId) {
        let Some(pool) = &mut self.pool else { return };
        match key {
            UserKey::Listing(place) => {
                // A process that waits on this worker is ended before the next listing.
                let _ended = pool.grant(worker, WorkerUser::Listing(place));
                let upcoming_run = self.options.upcoming_run.as_deref();
                self.catalogues.assign(pool, place, worker, upcoming_run).await;
            }
            UserKey::Run(number) => {
                if let Some(driver) = self.runs.numbered_mut(number) {
                    let waiting = pool.grant(worker, WorkerUser::Run(driver.key().clone()));
                    driver.on_worker_granted(worker, waiting.as_deref());
                    driver.execute_actions(pool).await;
                }
            }
        }
    }

    /// Starts the requested workers.
    async fn start_workers(&mut self) {
        let slots = self.options.slots;
        let Some(pool) = &mut self.pool else { return };
        // Listing requests are recomputed on each call, so remove the old ones.
        pool.clear_listing_requests();
        for (place, lister) in self.catalogues.listers() {
            let for_listing = lister.demand().wanted.0.min(slots).saturating_sub(lister.running_jobs());
            let for_run = if self.options.starts_workers_early { slots.min(EARLY_WORKERS) } else { 0 };
            let for_run = for_run.saturating_sub(pool.workers().ready().len());
            pool.request_workers(&WorkerUser::Listing(place), for_listing.max(for_run));
        }
        pool.start_requested().await;
    }

    /// Starts the pool if there is none, or if an idle pool has lost its directory. Returns why it can't be
    /// started.
    async fn start_pool(&mut self) -> Result<(), String> {
        let is_used = !self.runs.is_empty() || self.catalogues.listers().next().is_some();
        // A cleaner of temporary files may have removed the pool's directory.
        match self.pool.take_if(|pool| !is_used && !pool.has_directory()) {
            Some(pool) => {
                tracing::warn!("restarting all workers: their temporary directory was removed");
                pool.shut_down().await;
            }
            None if self.pool.is_some() => return Ok(()),
            None => {}
        }
        let options = PoolOptions {
            program: self.options.program.clone(),
            clients: self.clients.sinks(),
            slots: self.options.slots,
            worker_stdout: self.options.worker_stdout,
            machine_slots: self.budget.join(),
        };
        let pool = WorkerPool::start(options)
            .await
            .map_err(|error| format!("failed to {}", heeler_core::error_chain(&error)))?;
        self.pool = Some(pool);
        Ok(())
    }
}
