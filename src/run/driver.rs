//! Drives one run: waits for events, lets the model decide, does what it says. No decision is made here.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use model::{
    HeldBy, LeaseId, TestId, WorkerId as ModelWorker,
    ledger::Ledger,
    run::{Action, Event, Lease as ModelLease, Run, Stage},
};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};
use wire::{
    control::{
        EvidenceFile, Finish, FromWatchdog, FromWorker, JournalledResult, Lease, LeasedTest, OsBytes, Proof,
        Report, Resend, TestIndex, TestLimits, ToWatchdog, ToWorker, WatchPlan, WorkerId,
    },
    mtp::{Attachment, LogLevel, RunResult},
};

use super::{
    Costs, RunPlan,
    budget::DumpBudget,
    convert::{charge, end_of, from_model, outcome_of, to_model},
    last_resort,
    log::ClientLog,
    manifest,
    told::{self, Charges, HeldBack},
};
use crate::pool::{Pool, PoolEvent};

/// Beyond a test's grace period, what a worker may take to end a cancelled lease.
const CANCEL_DEADLINE: Duration = Duration::from_secs(5);
/// What reading a journal may take.
const JOURNAL_DEADLINE: Duration = Duration::from_secs(10);
/// Beyond the client's own limits, what a drain or a finish may take.
const STAGE_SLACK: Duration = Duration::from_secs(15);
/// What stopping all test processes may take.
const PAUSE_DEADLINE: Duration = Duration::from_millis(500);

/// What a session wants of a run in hand.
#[derive(Debug)]
pub enum RunCommand {
    /// End it.
    Cancel,
    /// Stop all test processes; the answer comes when they stand still.
    Pause(oneshot::Sender<()>),
    /// Let them go on.
    Resume,
}

/// How a run ended.
#[derive(Debug)]
pub struct RunOutcome {
    /// The books.
    pub ledger: Ledger,
    /// Why nothing was handed out any more, if so.
    pub stopped_by: Option<model::NotRun>,
    /// Durations of tests that ended, for the history.
    pub durations: Vec<(TestId, Duration)>,
    /// Tests under which a process died.
    pub crashed: BTreeSet<TestId>,
    /// What its processes took.
    pub costs: Costs,
    /// Workers that died.
    pub worker_deaths: usize,
    /// Programs whose processes ended badly outside any test.
    pub charged_programs: usize,
    /// How sure we are that the client has the completion.
    pub proof: Proof,
    /// What the request is answered with.
    pub result: RunResult,
}

/// Drives a run to its completion, which has been sent when this returns.
///
/// Cancel safe: no, because the run would be left without its completion; send [`RunCommand::Cancel`].
pub async fn drive(
    pool: &mut Pool,
    plan: &RunPlan,
    client: &link::Outbox,
    commands: &mut mpsc::Receiver<RunCommand>,
) -> RunOutcome {
    pool.begin_run();
    let ready: Vec<_> = pool.ready_workers().into_iter().map(to_model).collect();
    let mut run = Run::new(plan.model.clone());
    let actions = run.begin(&ready).into();
    let mut driver = Driver {
        pool,
        plan,
        log: ClientLog { plan, client },
        run,
        actions,
        leases: BTreeMap::new(),
        held: BTreeMap::new(),
        charges: Charges::default(),
        result: RunResult::default(),
        dumps: DumpBudget::default(),
        journals: BTreeMap::new(),
        pausing: None,
        finish: None,
        stage_until: None,
        cancel_until: None,
        run_until: plan.time_limit.map(|limit| Instant::now() + limit),
        proof: Proof::None,
        durations: Vec::new(),
        crashed: BTreeSet::new(),
        costs: Costs::default(),
        in_flight: BTreeMap::new(),
        worker_deaths: 0,
        is_complete: false,
    };
    if let Err(error) = manifest::write(plan) {
        let text =
            format!("the run's manifest could not be written, so it can't be finished without us: {error}");
        driver.log(LogLevel::Warning, text).await;
    }
    driver.tell_begin().await;
    driver.act().await;
    while !driver.is_complete {
        driver.step(commands).await;
        driver.act().await;
    }
    RunOutcome {
        stopped_by: driver.run.stopped_by(),
        ledger: driver.run.ledger().clone(),
        durations: driver.durations,
        crashed: driver.crashed,
        result: RunResult { largest: driver.costs.largest(plan), ..driver.result },
        costs: driver.costs,
        worker_deaths: driver.worker_deaths,
        charged_programs: driver.charges.programs(),
        proof: driver.proof,
    }
}

struct Driver<'a> {
    pool: &'a mut Pool,
    plan: &'a RunPlan,
    log: ClientLog<'a>,
    run: Run,
    actions: VecDeque<Action>,
    /// The programs of leases in hand.
    leases: BTreeMap<wire::control::LeaseId, usize>,
    held: BTreeMap<TestIndex, HeldBack>,
    charges: Charges,
    /// Files of tests' evidence, told with the run as well, and what tests left behind.
    result: RunResult,
    dumps: DumpBudget,
    /// Dead workers whose journals are being read: what was relayed of them, and until when to wait.
    journals: BTreeMap<WorkerId, (u64, Instant)>,
    /// Workers whose test processes are being stopped, and whom to tell.
    pausing: Option<(BTreeSet<WorkerId>, oneshot::Sender<()>, Instant)>,
    /// What the finisher was told, to be told again to its replacement.
    finish: Option<Box<Finish>>,
    stage_until: Option<(Stage, Instant)>,
    cancel_until: Option<Instant>,
    /// When the run's own time is up.
    run_until: Option<Instant>,
    proof: Proof,
    durations: Vec<(TestId, Duration)>,
    crashed: BTreeSet<TestId>,
    costs: Costs,
    /// The test that each worker runs.
    in_flight: BTreeMap<WorkerId, TestIndex>,
    worker_deaths: usize,
    is_complete: bool,
}

impl Driver<'_> {
    async fn tell_begin(&mut self) {
        let (run, run_dir) = (self.plan.run.clone(), OsBytes::from(self.plan.run_dir.as_path()));
        let has_attachments_stream = self.plan.has_attachments_stream;
        self.pool.tell_watchdog(&ToWatchdog::BeginRun { run, run_dir, has_attachments_stream }).await;
    }

    async fn step(&mut self, commands: &mut mpsc::Receiver<RunCommand>) {
        let deadline = self.next_deadline();
        tokio::select! {
            biased;
            command = commands.recv() => match command {
                Some(command) => self.command(command).await,
                // The session is gone, and the client with it.
                None => self.feed(Event::Cancel),
            },
            event = self.pool.next() => self.pool_event(event).await,
            () = tokio::time::sleep_until(deadline) => self.expired(Instant::now()).await,
        }
    }

    fn feed(&mut self, event: Event) {
        self.actions.extend(self.run.handle(event));
    }

    fn next_deadline(&self) -> Instant {
        let far = Instant::now() + Duration::from_secs(3600);
        let journals = self.journals.values().map(|(_, deadline)| *deadline);
        let stage = self.stage_until.map(|(_, deadline)| deadline);
        let pausing = self.pausing.as_ref().map(|(_, _, deadline)| *deadline);
        journals
            .chain(stage)
            .chain(self.cancel_until)
            .chain(self.run_until)
            .chain(pausing)
            .min()
            .unwrap_or(far)
    }

    async fn command(&mut self, command: RunCommand) {
        match command {
            RunCommand::Cancel => self.feed(Event::Cancel),
            RunCommand::Pause(done) => {
                let workers: BTreeSet<_> = self.run.awaited_workers().into_iter().map(from_model).collect();
                for worker in &workers {
                    self.pool.tell(*worker, &ToWorker::Pause).await;
                }
                self.pausing = Some((workers, done, Instant::now() + PAUSE_DEADLINE));
                self.check_pause();
            }
            RunCommand::Resume => {
                for worker in self.run.awaited_workers() {
                    self.pool.tell(from_model(worker), &ToWorker::Resume).await;
                }
            }
        }
    }

    fn check_pause(&mut self) {
        let is_done = self
            .pausing
            .as_ref()
            .is_some_and(|(workers, _, deadline)| workers.is_empty() || *deadline <= Instant::now());
        if is_done && let Some((_, done, _)) = self.pausing.take() {
            // Whoever asked may be gone.
            let _gone = done.send(());
        }
    }

    async fn pool_event(&mut self, event: PoolEvent) {
        match event {
            PoolEvent::WorkerReady(worker) => self.feed(Event::WorkerReady(to_model(worker))),
            PoolEvent::WorkerNotStarted { worker, error } => {
                self.log(LogLevel::Warning, format!("worker {worker} could not be started: {error}")).await;
                self.feed(Event::WorkerNotStarted);
            }
            PoolEvent::Worker(worker, message) => self.worker(worker, message).await,
            PoolEvent::WorkerGone { worker, relayed } => self.worker_gone(worker, relayed).await,
            PoolEvent::Watchdog(message) => self.watchdog(message).await,
            PoolEvent::WatchdogReplaced => self.watchdog_replaced().await,
            PoolEvent::WatchdogLost(error) => self.finish_ourselves(&error.to_string()).await,
        }
    }

    async fn worker(&mut self, worker: WorkerId, message: FromWorker) {
        match message {
            FromWorker::Reports { lease, reports } => {
                for report in reports {
                    self.report(worker, lease, report);
                }
            }
            FromWorker::LeaseEnded { lease, end, start_us } => {
                let program = self.leases.remove(&lease);
                let start = start_us.map(Duration::from_micros);
                if let (Some(program), Some(start)) = (program, start) {
                    self.costs.started(program, start);
                }
                if let (Some(program), Some(message)) = (program, charge(&end)) {
                    self.charges.add(program, message);
                }
                let lease = LeaseId(lease.0);
                self.feed(Event::LeaseEnded { worker: to_model(worker), lease, end: end_of(&end), start });
            }
            FromWorker::Drained { run, proof, position } if run == self.plan.run => {
                self.log.proof(&format!("worker {worker}"), proof).await;
                let proven = if proof.is_enough() { position } else { 0 };
                self.feed(Event::Drained { worker: to_model(worker), proven });
            }
            FromWorker::Paused => {
                if let Some((workers, _, _)) = &mut self.pausing {
                    workers.remove(&worker);
                }
                self.check_pause();
            }
            FromWorker::Log { run, lines } => self.log.lines(run.as_deref(), lines).await,
            FromWorker::Drained { .. } | FromWorker::Discovered { .. } | FromWorker::NotDiscovered { .. } => {
            }
        }
    }

    fn report(&mut self, worker: WorkerId, lease: wire::control::LeaseId, report: Report) {
        let program = self.leases.get(&lease).copied();
        let lease = LeaseId(lease.0);
        match report {
            Report::Started(test) => {
                self.in_flight.insert(worker, test);
                self.feed(Event::Started { lease, test: TestId(test.0) });
            }
            Report::Settled { test, state, duration_us, position } => {
                let duration = Duration::from_micros(duration_us);
                self.durations.push((TestId(test.0), duration));
                self.feed(Event::Settled {
                    worker: to_model(worker),
                    test: TestId(test.0),
                    outcome: outcome_of(state),
                    duration,
                    position,
                });
            }
            Report::Attached { files, .. } => {
                self.dumps.count(&files);
                let attachment = |file: EvidenceFile| Attachment::file(&file.path, &file.description);
                self.result.attachments.extend(files.into_iter().map(attachment));
            }
            Report::Ended { test, tests, usage } => self.costs.ended(program, (tests, test), usage),
            Report::Leaked { tests, processes } => {
                self.result.leaks.extend(told::leak(self.plan, (program, &tests), &processes));
            }
            Report::Failed { test, attempt } => {
                self.dumps.count_held(&attempt);
                self.held.entry(test).or_default().attempts.push(*attempt);
                self.feed(Event::Held { lease, test: TestId(test.0), by: HeldBy::Retry });
            }
            Report::Died { test, attempt } => {
                self.dumps.count_held(&attempt);
                self.crashed.insert(TestId(test.0));
                self.held.entry(test).or_default().death = Some(*attempt);
                self.feed(Event::Held { lease, test: TestId(test.0), by: HeldBy::LoneRun });
            }
        }
    }

    async fn worker_gone(&mut self, worker: WorkerId, relayed: u64) {
        if let Some((workers, _, _)) = &mut self.pausing {
            workers.remove(&worker);
        }
        self.check_pause();
        self.worker_deaths += 1;
        let message = format!("worker {worker} died; what it had not settled is run again");
        self.log.line(self.in_flight.remove(&worker), LogLevel::Warning, message).await;
        self.journals.insert(worker, (relayed, Instant::now() + JOURNAL_DEADLINE));
        self.ask_for_journal(worker).await;
    }

    async fn ask_for_journal(&mut self, worker: WorkerId) {
        let (run, run_dir) = (self.plan.run.clone(), OsBytes::from(self.plan.run_dir.as_path()));
        self.pool.tell_watchdog(&ToWatchdog::ReadJournal { run, run_dir, worker }).await;
    }

    async fn watchdog(&mut self, message: FromWatchdog) {
        match message {
            FromWatchdog::Journal { run, worker, settled, damage } if run == self.plan.run => {
                if let Some(damage) = damage {
                    let text =
                        format!("the journal of worker {worker} could not be read to its end: {damage}");
                    self.log(LogLevel::Warning, text).await;
                }
                self.worker_lost(worker, &settled);
            }
            FromWatchdog::Finished { run, proof, soft_errors, .. } if run == self.plan.run => {
                for error in soft_errors {
                    self.log(LogLevel::Warning, error).await;
                }
                self.log.proof("the watchdog", proof).await;
                self.proof = proof;
                self.feed(Event::Finished);
            }
            FromWatchdog::Journal { .. }
            | FromWatchdog::Finished { .. }
            | FromWatchdog::WorkerNotStarted { .. }
            | FromWatchdog::WorkerEnded { .. } => {}
        }
    }

    fn worker_lost(&mut self, worker: WorkerId, settled: &[JournalledResult]) {
        let Some((relayed, _)) = self.journals.remove(&worker) else { return };
        let settled = settled
            .iter()
            .map(|result| {
                let duration = Duration::from_micros(result.duration_us);
                (TestId(result.test.0), outcome_of(result.state), duration)
            })
            .collect();
        self.feed(Event::WorkerLost { worker: to_model(worker), proven: relayed, settled });
    }

    async fn watchdog_replaced(&mut self) {
        self.log(
            LogLevel::Warning,
            "the watchdog died and was replaced; its workers went with it".to_owned(),
        )
        .await;
        if let Err(error) = self.pool.await_replacement().await {
            self.finish_ourselves(&error.to_string()).await;
            return;
        }
        for worker in self.journals.keys().copied().collect::<Vec<_>>() {
            self.ask_for_journal(worker).await;
        }
        if self.finish.is_none() {
            self.tell_begin().await;
        }
        if let Some(finish) = self.finish.clone() {
            self.pool.tell_watchdog(&ToWatchdog::Finish(finish)).await;
        }
    }

    /// Without a watchdog there are no workers; what is left to do is done here, on the main connection.
    async fn finish_ourselves(&mut self, why: &str) {
        self.log(LogLevel::Error, format!("the run is ended without a watchdog: {why}")).await;
        let (mut run, held, charges) = (self.run.clone(), &self.held, &self.charges);
        // First the cancel: what a lost worker gives back must not be handed to the next one.
        let _actions = run.handle(Event::Cancel);
        for worker in run.awaited_workers() {
            let settled = last_resort::settled(&self.plan.run_dir, from_model(worker));
            let settled = settled
                .into_iter()
                .map(|one| {
                    (TestId(one.test.0), outcome_of(one.state), Duration::from_micros(one.duration_us))
                })
                .collect();
            let _actions = run.handle(Event::WorkerLost { worker, proven: 0, settled });
        }
        let told = run.ledger().told();
        let mut nodes: Vec<_> = told
            .into_iter()
            .map(|(test, told)| told::node(self.plan, test, told, held.get(&TestIndex(test.0))))
            .collect();
        nodes.extend(charges.nodes(self.plan));
        let resend = run.ledger().unproven().into_iter().map(|(worker, proven)| (from_model(worker), proven));
        last_resort::finish(self.plan, self.log.client, resend.collect(), &nodes).await;
        self.run = run;
        self.proof = Proof::Ordered;
        self.actions.clear();
        self.is_complete = true;
    }

    async fn expired(&mut self, now: Instant) {
        self.check_pause();
        let late: Vec<_> =
            self.journals.iter().filter(|(_, (_, deadline))| *deadline <= now).map(|(id, _)| *id).collect();
        for worker in late {
            self.log(LogLevel::Warning, format!("the journal of worker {worker} was not read in time")).await;
            let settled = last_resort::settled(&self.plan.run_dir, worker);
            self.worker_lost(worker, &settled);
        }
        if self.run_until.is_some_and(|deadline| deadline <= now) {
            self.run_until = None;
            self.log(LogLevel::Warning, "the run's time is up (run-timeout)".to_owned()).await;
            self.feed(Event::TimeIsUp);
        }
        if self.cancel_until.is_some_and(|deadline| deadline <= now) {
            self.cancel_until = None;
            for worker in self.run.awaited_workers() {
                self.pool.kill(from_model(worker)).await;
            }
        }
        if let Some((stage, deadline)) = self.stage_until
            && deadline <= now
        {
            self.stage_until = None;
            self.stage_expired(stage).await;
        }
    }

    async fn stage_expired(&mut self, stage: Stage) {
        match stage {
            Stage::Draining => {
                for worker in self.run.awaited_workers() {
                    let text = format!("worker {} did not drain in time and is killed", worker.0);
                    self.log(LogLevel::Warning, text).await;
                    self.pool.kill(from_model(worker)).await;
                }
            }
            Stage::Finishing => self.finish_ourselves("it did not finish in time").await,
            Stage::Running | Stage::Completed => {}
        }
    }

    async fn act(&mut self) {
        while let Some(action) = self.actions.pop_front() {
            match action {
                Action::StartWorker => self.pool.start_worker().await,
                Action::Lease(lease) => self.lease(*lease).await,
                Action::CancelLease(worker) => {
                    let grace = Duration::from_millis(self.plan.limits.grace_ms);
                    self.cancel_until.get_or_insert(Instant::now() + grace + CANCEL_DEADLINE);
                    let cancel = ToWorker::Cancel { grace_ms: self.plan.limits.grace_ms };
                    self.pool.tell(from_model(worker), &cancel).await;
                }
                Action::Drain(worker) => {
                    self.set_stage(Stage::Draining);
                    self.pool.tell(from_model(worker), &ToWorker::Drain { run: self.plan.run.clone() }).await;
                }
                Action::Finish { resend, told } => self.finish(&resend, &told).await,
                Action::Complete => self.is_complete = true,
            }
        }
    }

    fn set_stage(&mut self, stage: Stage) {
        if self.stage_until.is_none_or(|(earlier, _)| earlier != stage) {
            let limits = self.plan.delivery;
            let waits = limits.connect_ms + limits.stall_ms + 8 * limits.drain_ms;
            self.stage_until = Some((stage, Instant::now() + Duration::from_millis(waits) + STAGE_SLACK));
        }
    }

    async fn lease(&mut self, lease: ModelLease) {
        let program = lease.batch.program.index();
        let mut tests: Vec<_> = lease
            .batch
            .tests
            .iter()
            .zip(&lease.is_failure_held)
            .map(|(test, is_failure_held)| self.leased(*test, *is_failure_held))
            .collect();
        tests.sort_by_key(|test| self.plan.tests[test.test.0 as usize].place);
        let wire = Lease {
            lease: wire::control::LeaseId(lease.lease.0),
            run: self.plan.run.clone(),
            run_dir: OsBytes::from(self.plan.run_dir.as_path()),
            program: self.plan.programs[program].clone(),
            tests,
            limits: TestLimits {
                memory_bytes: self.plan.memory_limit(&lease.batch.tests),
                ..self.plan.limits
            },
            watch: self.watch(&lease.batch.tests),
            is_alone: lease.batch.is_alone,
            is_output_shown: self.plan.is_output_shown,
        };
        self.leases.insert(wire.lease, program);
        if let [only] = wire.tests.as_slice() {
            self.in_flight.insert(from_model(lease.worker), only.test);
        }
        self.pool.tell(from_model(lease.worker), &ToWorker::Lease(Box::new(wire))).await;
    }

    /// A death that is checked alone has left its dump already.
    fn watch(&self, tests: &[TestId]) -> WatchPlan {
        let mut watch = self.dumps.watch(self.plan, tests);
        let has_dump = |test: &TestId| {
            let death = self.held.get(&TestIndex(test.0)).and_then(|held| held.death.as_ref());
            death.is_some_and(|death| death.evidence.is_some())
        };
        watch.dumps.crash &= !tests.iter().any(has_dump);
        watch
    }

    fn leased(&self, test: TestId, is_failure_held: bool) -> LeasedTest {
        let selected = &self.plan.tests[test.index()];
        let held = self.held.get(&TestIndex(test.0)).cloned().unwrap_or_default();
        LeasedTest {
            test: TestIndex(test.0),
            listed: selected.listed.clone(),
            uid: selected.uid.clone(),
            timeout_ms: selected
                .timeout
                .map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)),
            silence_ms: selected.silence.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
            attempts: held.attempts,
            death: held.death,
            is_failure_held,
        }
    }

    async fn finish(&mut self, resend: &[(ModelWorker, u64)], told: &[(TestId, model::Told)]) {
        self.set_stage(Stage::Finishing);
        let mut nodes: Vec<_> = told
            .iter()
            .map(|(test, told)| told::node(self.plan, *test, *told, self.held.get(&TestIndex(test.0))))
            .collect();
        nodes.extend(self.charges.nodes(self.plan));
        for (test, told) in told {
            let held = self.held.get(&TestIndex(test.0));
            self.result.attachments.extend(held.iter().flat_map(|held| told::attachments(*told, held)));
        }
        let finish = Box::new(Finish {
            run: self.plan.run.clone(),
            run_dir: OsBytes::from(self.plan.run_dir.as_path()),
            resend: resend
                .iter()
                .map(|(worker, proven)| Resend { worker: from_model(*worker), proven: *proven })
                .collect(),
            told: nodes,
            attachments: self.result.attachments.clone(),
            has_attachments_stream: self.plan.has_attachments_stream,
        });
        self.finish = Some(finish.clone());
        self.pool.tell_watchdog(&ToWatchdog::Finish(finish)).await;
    }

    async fn log(&self, level: LogLevel, message: String) {
        self.log.line(None, level, message).await;
    }
}
