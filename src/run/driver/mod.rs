//! Drives one run: passes events to the model and executes the actions that it returns. No decision is made
//! here.
//!
//! - `news`: messages of workers and of the watchdog.
//! - `orders`: actions that the model returns.
//!
//! The driver waits for nothing by itself: the owner of the pool passes it the events of its run.

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

/// Time limit for a worker to end a cancelled lease, beyond a test's grace period.
const CANCEL_DEADLINE: Duration = Duration::from_secs(5);
/// Time limit for reading a journal.
const JOURNAL_DEADLINE: Duration = Duration::from_secs(10);
/// Time limit for a drain or a finish, beyond the client's own limits.
const STAGE_SLACK: Duration = Duration::from_secs(15);

/// Logged as the reason when the coordinator finishes the run in place of the watchdog.
const LATE: &str = "it did not finish in time";

/// The result of a run.
#[derive(Debug)]
pub struct RunOutcome {
    /// The ledger of all tests.
    pub ledger: Ledger,
    /// Why no more tests were leased, if the run was stopped early.
    pub stopped_by: Option<model::NotRun>,
    /// Durations of tests that ended, for the history.
    pub durations: Vec<(TestId, Duration)>,
    /// Tests during which a process died.
    pub crashed: BTreeSet<TestId>,
    /// Resource usage of its processes.
    pub costs: Costs,
    /// Number of workers that died.
    pub worker_deaths: usize,
    /// Number of programs with failures outside any test.
    pub charged_programs: usize,
    /// Proof level of the completion's delivery to the client.
    pub proof: Proof,
    /// The result member of the response.
    pub result: RunResult,
}

/// A test whose process is stopped and waits for a debugger.
#[derive(Debug, Clone)]
pub struct Standing {
    /// The worker that runs the process.
    pub worker: WorkerId,
    /// The lease that the test belongs to.
    pub lease: LeaseId,
    pub test: TestIndex,
    /// Process id of the test.
    pub pid: u32,
    /// Command that a debugger can launch instead.
    pub debuggee: Option<Debuggee>,
}

/// One run, from its first lease to its completion.
pub struct Driver {
    plan: RunPlan,
    client: link::Outbox,
    run: Run,
    actions: VecDeque<Action>,
    /// Maximum number of leases that the run may have open.
    share: usize,
    /// Workers that the run has requested and the scheduler has not collected yet.
    asked: usize,
    /// Number of leases granted so far.
    served: u64,
    /// The program of each open lease.
    leases: BTreeMap<LeaseId, usize>,
    held: BTreeMap<TestIndex, HeldBack>,
    charges: Charges,
    /// Attachments of tests, which are sent with the run as well, and leaked processes.
    result: RunResult,
    dumps: DumpBudget,
    /// Dead workers whose journals are being read: the position up to which their results were forwarded, and
    /// the deadline.
    journals: BTreeMap<WorkerId, (u64, Instant)>,
    /// The finish request sent to the watchdog, kept so that it can be sent again to a replacement.
    finish: Option<Box<Finish>>,
    stage_until: Option<(Stage, Instant)>,
    cancel_until: Option<Instant>,
    /// Deadline of the whole run (`run-timeout`).
    run_until: Option<Instant>,
    proof: Proof,
    durations: Vec<(TestId, Duration)>,
    crashed: BTreeSet<TestId>,
    costs: Costs,
    /// The test that each worker runs.
    in_flight: BTreeMap<WorkerId, TestIndex>,
    /// Tests that wait for a debugger, until the scheduler collects them.
    standing: Vec<Standing>,
    /// Leases whose processes were launched by debuggers, until the scheduler collects them.
    launched: Vec<(WorkerId, LeaseId)>,
    worker_deaths: usize,
    is_complete: bool,
    /// The manifest was written to the run's directory.
    has_manifest: bool,
}

impl Driver {
    /// Begins a run. It has no workers yet, and a share of 0 slots.
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

    /// Returns the slots that the run could use.
    #[must_use]
    pub fn demand(&self) -> Demand {
        Demand { wanted: self.run.wanted_leases(), served: self.served }
    }

    /// Returns the number of open leases.
    #[must_use]
    pub fn leases_in_hand(&self) -> usize {
        self.run.leases_in_hand()
    }

    /// Returns whether the death of this worker affects this run.
    #[must_use]
    pub fn has_to_do_with(&self, worker: WorkerId) -> bool {
        self.run.has_to_do_with(to_model(worker))
    }

    /// Sets the maximum number of open leases.
    pub fn share(&mut self, slots: usize) {
        if self.share != slots {
            self.share = slots;
            self.feed(Event::Share(slots));
        }
    }

    /// Adds an idle worker to the run.
    pub fn give(&mut self, worker: WorkerId) {
        self.feed(Event::WorkerReady(to_model(worker)));
    }

    /// Reports to the run that a worker it requested did not start.
    pub async fn not_started(&mut self, worker: WorkerId, error: &str) {
        self.log(LogLevel::Warning, format!("worker {worker} could not be started: {error}")).await;
        self.feed(Event::WorkerNotStarted);
    }

    /// Removes the idle workers from the run and returns them.
    pub fn take_idle(&mut self) -> Vec<WorkerId> {
        let idle = self.run.idle_workers().to_vec();
        for worker in &idle {
            self.feed(Event::WorkerTaken(*worker));
        }
        idle.into_iter().map(from_model).collect()
    }

    /// Returns the number of workers that the run has requested since the last call.
    pub fn take_asked(&mut self) -> usize {
        std::mem::take(&mut self.asked)
    }

    /// Returns the tests that wait for a debugger, each once.
    pub fn take_standing(&mut self) -> Vec<Standing> {
        std::mem::take(&mut self.standing)
    }

    /// Returns the leases whose processes were launched by debuggers, each once.
    pub fn take_launched(&mut self) -> Vec<(WorkerId, LeaseId)> {
        std::mem::take(&mut self.launched)
    }

    /// Returns whether this worker holds the lease.
    #[must_use]
    pub fn is_leased(&self, worker: WorkerId, lease: LeaseId) -> bool {
        let is_alive = !self.journals.contains_key(&worker);
        is_alive
            && self.leases.contains_key(&lease)
            && self.run.leasing_workers().any(|one| one == to_model(worker))
    }

    /// Cancels the run: running tests are cancelled, the rest is reported as not run.
    pub fn cancel(&mut self) {
        self.feed(Event::Cancel);
    }

    /// Returns whether the completion has been sent.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns the plan and the result of the run.
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

    /// Returns when [`Driver::expired`] must be called if no event comes before.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let journals = self.journals.values().map(|(_, deadline)| *deadline);
        let stage = self.stage_until.map(|(_, deadline)| deadline);
        journals.chain(stage).chain(self.cancel_until).chain(self.run_until).min()
    }

    fn feed(&mut self, event: Event) {
        self.actions.extend(self.run.handle(event));
    }

    /// Handles expired deadlines.
    ///
    /// Cancel safe: no, because a deadline is cleared before its action is complete.
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
            // The watchdog can't even be killed.
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

    /// Writes a message about one test to the client's log.
    ///
    /// Cancel safe: no, because only a part may be sent.
    pub async fn log_of(&self, test: TestIndex, level: LogLevel, message: String) {
        self.client_log().line(Some(test), level, message).await;
    }

    async fn log(&self, level: LogLevel, message: String) {
        self.client_log().line(None, level, message).await;
    }
}
