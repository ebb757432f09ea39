//! Drives one run: takes in what happens, lets the model decide, does what it says. No decision is made here.
//!
//! - `news`: what workers and the watchdog say.
//! - `orders`: what the model wants done.
//!
//! The driver waits for nothing by itself: whoever owns the pool hands it what concerns its run.

mod news;
mod orders;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use model::{
    TestId,
    ledger::Ledger,
    run::{Action, Event, Run, Stage},
    share::Demand,
};
use tokio::time::Instant;
use wire::{
    control::{Debuggee, Finish, LeaseId, Proof, TestIndex, WorkerId},
    mtp::{LogLevel, RunResult},
};

use super::{
    Costs, RunPlan,
    budget::DumpBudget,
    convert::{from_model, to_model},
    log::ClientLog,
    manifest,
    told::{Charges, HeldBack},
};
use crate::pool::Pool;

/// Beyond a test's grace period, what a worker may take to end a cancelled lease.
const CANCEL_DEADLINE: Duration = Duration::from_secs(5);
/// What reading a journal may take.
const JOURNAL_DEADLINE: Duration = Duration::from_secs(10);
/// Beyond the client's own limits, what a drain or a finish may take.
const STAGE_SLACK: Duration = Duration::from_secs(15);

/// Why a coordinator takes a watchdog's place that has died.
const LATE: &str = "it did not finish in time";

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

/// A test whose process stands for a debugger.
#[derive(Debug, Clone)]
pub struct Standing {
    /// Whose process it is.
    pub worker: WorkerId,
    /// For which lease.
    pub lease: LeaseId,
    /// The test.
    pub test: TestIndex,
    /// The process.
    pub pid: u32,
    /// What a debugger can launch instead.
    pub debuggee: Option<Debuggee>,
}

/// One run, from its first lease to its completion.
pub struct Driver {
    plan: RunPlan,
    client: link::Outbox,
    run: Run,
    actions: VecDeque<Action>,
    /// So many leases the run may have in hand.
    share: usize,
    /// Workers that the run would like to have started.
    asked: usize,
    /// Leases that were handed out so far.
    served: u64,
    /// The programs of leases in hand.
    leases: BTreeMap<LeaseId, usize>,
    held: BTreeMap<TestIndex, HeldBack>,
    charges: Charges,
    /// Files of tests' evidence, told with the run as well, and what tests left behind.
    result: RunResult,
    dumps: DumpBudget,
    /// Dead workers whose journals are being read: what was relayed of them, and until when to wait.
    journals: BTreeMap<WorkerId, (u64, Instant)>,
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
    /// Tests that stand for a debugger, until somebody is told.
    standing: Vec<Standing>,
    /// Leases whose processes debuggers have launched, not yet taken note of.
    launched: Vec<(WorkerId, LeaseId)>,
    worker_deaths: usize,
    is_complete: bool,
    /// What is to run stands in the run's directory.
    has_manifest: bool,
}

impl Driver {
    /// Begins a run. It has no workers and no share of the slots yet.
    ///
    /// Cancel safe: no, because a run that has begun must be completed.
    pub async fn begin(pool: &mut Pool, plan: RunPlan, client: link::Outbox) -> Self {
        let mut run = Run::new(plan.model.clone());
        let mut actions: VecDeque<_> = run.handle(Event::Share(0)).into();
        actions.extend(run.begin(&[]));
        let mut driver = Self {
            run,
            actions,
            share: 0,
            asked: 0,
            served: 0,
            leases: BTreeMap::new(),
            held: BTreeMap::new(),
            charges: Charges::default(),
            result: RunResult::default(),
            dumps: DumpBudget::default(),
            journals: BTreeMap::new(),
            finish: None,
            stage_until: None,
            cancel_until: None,
            run_until: plan.time_limit.map(|limit| Instant::now() + limit),
            proof: Proof::None,
            durations: Vec::new(),
            crashed: BTreeSet::new(),
            costs: Costs::default(),
            in_flight: BTreeMap::new(),
            standing: Vec::new(),
            launched: Vec::new(),
            worker_deaths: 0,
            is_complete: false,
            has_manifest: true,
            plan,
            client,
        };
        if let Err(error) = manifest::write(&driver.plan) {
            driver.has_manifest = false;
            let text = format!(
                "the run's manifest could not be written, so it can't be reported or gone on with later: {error}"
            );
            driver.log(LogLevel::Warning, text).await;
        }
        driver.tell_begin(pool).await;
        host::fail::pass("run.begun");
        driver
    }

    /// Returns the client's id of the run.
    #[must_use]
    pub fn run_id(&self) -> &str {
        &self.plan.run
    }

    /// Returns what the run could use of the slots.
    #[must_use]
    pub fn demand(&self) -> Demand {
        Demand { wanted: self.run.wanted_leases(), served: self.served }
    }

    /// Returns how many leases are in workers' hands.
    #[must_use]
    pub fn leases_in_hand(&self) -> usize {
        self.run.leases_in_hand()
    }

    /// Returns whether the death of this worker is anything to this run.
    #[must_use]
    pub fn has_to_do_with(&self, worker: WorkerId) -> bool {
        self.run.has_to_do_with(to_model(worker))
    }

    /// Lets the run have so many leases in hand.
    pub fn share(&mut self, slots: usize) {
        if self.share != slots {
            self.share = slots;
            self.feed(Event::Share(slots));
        }
    }

    /// Gives the run a worker that has nothing to do.
    pub fn give(&mut self, worker: WorkerId) {
        self.feed(Event::WorkerReady(to_model(worker)));
    }

    /// Tells the run that a worker that it asked for does not come.
    pub async fn not_started(&mut self, worker: WorkerId, error: &str) {
        self.log(LogLevel::Warning, format!("worker {worker} could not be started: {error}")).await;
        self.feed(Event::WorkerNotStarted);
    }

    /// Takes away the workers that have nothing to do here.
    pub fn take_idle(&mut self) -> Vec<WorkerId> {
        let idle = self.run.idle_workers().to_vec();
        for worker in &idle {
            self.feed(Event::WorkerTaken(*worker));
        }
        idle.into_iter().map(from_model).collect()
    }

    /// Returns how many workers the run has asked for since the last time.
    pub fn take_asked(&mut self) -> usize {
        std::mem::take(&mut self.asked)
    }

    /// Takes away the tests that stand for a debugger, each told once.
    pub fn take_standing(&mut self) -> Vec<Standing> {
        std::mem::take(&mut self.standing)
    }

    /// Takes away the leases whose processes debuggers have launched, each told once.
    pub fn take_launched(&mut self) -> Vec<(WorkerId, LeaseId)> {
        std::mem::take(&mut self.launched)
    }

    /// Returns whether a lease is in this worker's hands.
    #[must_use]
    pub fn is_leased(&self, worker: WorkerId, lease: LeaseId) -> bool {
        let is_alive = !self.journals.contains_key(&worker);
        is_alive
            && self.leases.contains_key(&lease)
            && self.run.leasing_workers().any(|one| one == to_model(worker))
    }

    /// Ends the run: what runs is cancelled, the rest is told as not run.
    pub fn cancel(&mut self) {
        self.feed(Event::Cancel);
    }

    /// Returns whether the completion has been sent.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns the plan and how the run ended.
    #[must_use]
    pub fn into_outcome(self) -> (RunPlan, RunOutcome) {
        let outcome = RunOutcome {
            stopped_by: self.run.stopped_by(),
            ledger: self.run.ledger().clone(),
            durations: self.durations,
            crashed: self.crashed,
            result: RunResult { largest: self.costs.largest(&self.plan), ..self.result },
            costs: self.costs,
            worker_deaths: self.worker_deaths,
            charged_programs: self.charges.programs(),
            proof: self.proof,
        };
        (self.plan, outcome)
    }

    /// Returns when [`Driver::expired`] is to be called, if nothing happens before.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let journals = self.journals.values().map(|(_, deadline)| *deadline);
        let stage = self.stage_until.map(|(_, deadline)| deadline);
        journals.chain(stage).chain(self.cancel_until).chain(self.run_until).min()
    }

    fn feed(&mut self, event: Event) {
        self.actions.extend(self.run.handle(event));
    }

    /// Does what is due at deadlines.
    ///
    /// Cancel safe: no, because what was due is due no more.
    pub async fn expired(&mut self, pool: &mut Pool, now: Instant) {
        let late: Vec<_> =
            self.journals.iter().filter(|(_, (_, deadline))| *deadline <= now).map(|(id, _)| *id).collect();
        for worker in late {
            self.log(LogLevel::Warning, format!("the journal of worker {worker} was not read in time")).await;
            let settled = super::last_resort::settled(&self.plan.run_dir.path, worker);
            self.worker_lost(worker, &settled);
        }
        if self.run_until.is_some_and(|deadline| deadline <= now) {
            self.run_until = None;
            self.log(LogLevel::Warning, "the run's time is up (run-timeout)".to_owned()).await;
            self.feed(Event::TimeIsUp);
        }
        if self.cancel_until.is_some_and(|deadline| deadline <= now) {
            self.cancel_until = None;
            for worker in self.run.leasing_workers() {
                pool.kill(from_model(worker)).await;
            }
        }
        if let Some((stage, deadline)) = self.stage_until
            && deadline <= now
        {
            self.stage_until = None;
            self.stage_expired(pool, stage).await;
        }
    }

    async fn stage_expired(&mut self, pool: &mut Pool, stage: Stage) {
        match stage {
            Stage::Draining => {
                for worker in self.run.awaited_workers() {
                    let text = format!("worker {} did not drain in time and is killed", worker.0);
                    self.log(LogLevel::Warning, text).await;
                    pool.kill(from_model(worker)).await;
                }
            }
            // It cannot even be killed.
            Stage::Finishing if self.run.is_finisher_given_up() => self.finish_ourselves(LATE).await,
            Stage::Finishing => {
                let text = "the watchdog did not finish the run in time and is killed".to_owned();
                self.log(LogLevel::Warning, text).await;
                self.stage_until = Some((Stage::Finishing, Instant::now() + STAGE_SLACK));
                self.feed(Event::FinisherLate);
            }
            Stage::Running | Stage::Completed => {}
        }
    }

    fn client_log(&self) -> ClientLog<'_> {
        ClientLog { plan: &self.plan, client: &self.client }
    }

    /// Says something about one test in the client's log.
    ///
    /// Cancel safe: no, because a part may be sent.
    pub async fn log_of(&self, test: TestIndex, level: LogLevel, message: String) {
        self.client_log().line(Some(test), level, message).await;
    }

    async fn log(&self, level: LogLevel, message: String) {
        self.client_log().line(None, level, message).await;
    }
}
