//! Drives one run from its first lease to its completion. The driver passes messages, deadlines and worker
//! deaths to the model as events, and executes the actions that the model returns; it makes no decisions. The
//! driver never waits for messages itself: the owner of the pool passes it the events of its run.
//!
//! - `actions`: actions that the model returns.
//! - `model`: the model with its pending actions.
//! - `requested_run`: the run as requested by its client, and the messages built from it.
//! - `findings`: reports from workers that the model does not need.
//! - `delivery`: which results the client is proven to have received.
//! - `lost_journals`: journals of dead workers.
//! - `timers`: deadlines.
//! - `debuggees`: tests that wait for a debugger.
//! - `wait_reports`: what tests wait for.
//! - `outcome`: the result of the run.

mod actions;
mod debuggees;
mod delivery;
mod findings;
mod lost_journals;
mod model;
mod outcome;
mod requested_run;
mod timers;
mod wait_reports;

use std::time::Duration;

use heeler_core::{
    TestId,
    client_progress::OverdueDecision,
    fair_share::has_priority,
    run::{FinisherTask, RunEvent, RunStage},
};
use heeler_protocol::{
    control::{
        FromWatchdog, FromWorker, JournalledResult, LeaseEnd, LeaseEvent, LeaseId, ProofLevel, RunKey,
        StreamPosition, TestProgram, ToWatchdog, ToWorker, WorkerId,
    },
    mtp::LogLevel,
};
use heeler_recovery::JournalFile;
use tokio::time::Instant;

use self::{
    debuggees::DebuggeeReports,
    delivery::RunDelivery,
    findings::RunFindings,
    lost_journals::LostJournals,
    model::RunModel,
    requested_run::{RequestedRun, STAGE_SLACK},
    timers::{ExpiredTimer, RunTimers},
    wait_reports::WaitReports,
};
use crate::pool::{DeadSenderProof, WorkerPool};
use crate::run::{PlannedTests, RunPlan, RunWait, neighbours::LeaseNeighbours};

pub(crate) use self::debuggees::WaitingDebuggee;
pub(crate) use self::model::SlotGrant;
pub use self::outcome::RunOutcome;
pub(crate) use self::requested_run::DriverClient;

/// Reason to log when the coordinator finishes the run in place of the watchdog.
const FINISH_TIMED_OUT: &str = "the watchdog did not finish it in time";

/// One run.
pub(crate) struct RunDriver {
    requested: RequestedRun,
    model: RunModel,
    timers: RunTimers,
    /// The open leases, with their workers and programs.
    leases: LeaseNeighbours,
    findings: RunFindings,
    delivery: RunDelivery,
    journals: LostJournals,
    /// Tests that wait for a debugger, until the scheduler collects them.
    debuggees: DebuggeeReports,
    waits: WaitReports,
    is_complete: bool,
}

impl RunDriver {
    /// Begins a run with no workers and a share of 0 slots.
    ///
    /// Cancel safe: no, because a run that has begun must be completed.
    pub(crate) async fn begin(pool: &mut WorkerPool, plan: RunPlan, client: DriverClient) -> Self {
        let requested = RequestedRun::new(plan, client);
        let plan = requested.plan();
        let mut driver = Self {
            model: RunModel::begin(plan.model.clone()),
            timers: RunTimers::new(plan.time_limit),
            leases: LeaseNeighbours::default(),
            findings: RunFindings::of_listings(plan),
            delivery: RunDelivery::new(requested.has_callback()),
            journals: LostJournals::default(),
            debuggees: DebuggeeReports::default(),
            waits: WaitReports::new(requested.has_typed_updates() && plan.model.may_wait()),
            is_complete: false,
            requested,
        };
        driver.requested.write_manifest();
        driver.requested.log_known_conflicts();
        pool.send_to_watchdog_flushed(&driver.requested.announcement()).await;
        heeler_sys::fail::pass("run.begun");
        driver
    }

    pub(crate) fn key(&self) -> &RunKey {
        self.requested.key()
    }

    pub(crate) fn model(&self) -> &RunModel {
        &self.model
    }

    /// Returns whether this run's next lease takes precedence over leases of other runs.
    pub(crate) fn has_priority(&self) -> bool {
        has_priority(self.requested.plan().tests.len(), self.model.leases_granted())
    }

    /// Sets the slots of the run.
    pub(crate) fn set_slots(&mut self, slots: SlotGrant) {
        self.model.set_slots(slots);
    }

    /// Handles the grant of a worker: the run leases a batch to the worker or releases it. `waiting` is the
    /// program whose process on that worker is waiting for a lease.
    pub(crate) fn on_worker_granted(&mut self, worker: WorkerId, waiting: Option<&TestProgram>) {
        let plan = self.requested.plan();
        let place = waiting.and_then(|waiting| plan.programs.iter().position(|one| **one == *waiting));
        if let Some(program) = place.and_then(|place| plan.model_program(place)) {
            self.model.apply(RunEvent::ProcessWaiting { worker, program });
        }
        self.model.apply(RunEvent::WorkerGranted(worker));
    }

    /// Handles the failure to start a worker that the run requested.
    pub(crate) fn on_worker_not_started(&mut self, worker: WorkerId, error: &str) {
        self.requested.log(LogLevel::Warning, format!("failed to start worker {worker}: {error}"));
        self.model.apply(RunEvent::WorkerNotStarted);
    }

    /// Adds a warning to the client's log.
    pub(crate) fn warn(&self, text: &str) {
        self.requested.log(LogLevel::Warning, text.to_owned());
    }

    /// Takes the debuggee changes since the last call.
    pub(crate) fn take_debuggee_reports(&mut self) -> DebuggeeReports {
        std::mem::take(&mut self.debuggees)
    }

    /// Returns what the tests wait for, if that has changed since the last call.
    pub(crate) fn take_waits(&mut self) -> Option<Vec<RunWait>> {
        let plan = self.requested.plan();
        let waits = self.waits.take()?;
        Some(waits.iter().map(|wait| RunWait::new(wait, plan)).collect())
    }

    /// Returns whether this live worker holds the lease.
    pub(crate) fn is_leased(&self, worker: WorkerId, lease: LeaseId) -> bool {
        !self.journals.contains(worker) && self.leases.is_held_by(lease, worker)
    }

    pub(crate) fn test_uid(&self, test: TestId) -> Option<String> {
        Some(self.requested.plan().tests.get(test.0 as usize)?.uid.clone())
    }

    /// Cancels the run because its client has left. Running tests are killed without a grace period.
    pub(crate) fn abandon(&mut self) {
        self.requested.remove_grace();
        self.cancel();
    }

    /// Cancels the run and kills all running tests without a grace period, including tests already being
    /// cancelled.
    ///
    /// Cancel safe: no, because a cancellation message may be lost.
    pub(crate) async fn kill(&mut self, pool: &mut WorkerPool) {
        self.abandon();
        for worker in self.leases.workers() {
            pool.send_to_worker(worker, &ToWorker::Cancel { grace_ms: 0 }).await;
        }
    }

    /// Cancels the run: running tests are cancelled, the rest is reported as not run.
    pub(crate) fn cancel(&mut self) {
        self.model.apply(RunEvent::Cancel);
    }

    /// Adds tests to an open run. If they belong to programs outside the run, the run accepts no more tests
    /// and ends; its outcome shows which tests it contained.
    pub(crate) fn add_tests(&mut self, added: PlannedTests) {
        if !self.model.state().is_open() {
            return;
        }
        match self.requested.append(added) {
            Some(scheduled) => self.model.apply(RunEvent::TestsAdded(scheduled)),
            None => self.end_tests(),
        }
    }

    /// Closes an open run: no more tests will be added.
    pub(crate) fn end_tests(&mut self) {
        self.model.apply(RunEvent::NoMoreTests);
    }

    /// Returns whether the completion has been sent.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns the plan and the result of the run.
    pub(crate) fn into_outcome(self) -> (RunPlan, RunOutcome) {
        let Self { requested, model, findings, delivery, .. } = self;
        let outcome = findings.into_outcome(requested.plan(), model.state(), delivery.proof());
        (requested.into_plan(), outcome)
    }

    /// Returns when [`RunDriver::on_deadline`] must be called unless an event arrives earlier.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let waits = self.waits.next_deadline(&self.model);
        self.timers.next_deadline().into_iter().chain(self.journals.next_deadline()).chain(waits).min()
    }

    /// Handles expired deadlines.
    ///
    /// Cancel safe: no, because a deadline is cleared before its action is complete.
    pub(crate) async fn on_deadline(&mut self, pool: &mut WorkerPool, now: Instant) {
        self.waits.update(&self.model, now);
        for worker in self.journals.late(now) {
            let text = format!("the watchdog did not read the journal of worker {worker} in time");
            self.requested.log(LogLevel::Warning, text);
            let journal = JournalFile::read_worker(&self.requested.plan().run_dir.path, worker);
            self.on_journal_read(worker, &journal.settled());
        }
        for timer in self.timers.take_expired(now) {
            match timer {
                ExpiredTimer::Retry(test) => self.model.apply(RunEvent::RetryDue(test)),
                ExpiredTimer::Starts(program) => self.model.apply(RunEvent::StartsDue(program)),
                ExpiredTimer::SetUp(lease) => self.model.apply(RunEvent::SetUpDue { lease }),
                ExpiredTimer::Run => {
                    let text = "the run reached its time limit (run-timeout)".to_owned();
                    self.requested.log(LogLevel::Warning, text);
                    self.model.apply(RunEvent::TimeLimitReached);
                }
                ExpiredTimer::Cancel => {
                    for worker in self.model.state().cancelled_workers() {
                        pool.kill_worker(worker).await;
                    }
                }
                ExpiredTimer::Stage(stage) => self.on_stage_deadline(pool, stage).await,
            }
        }
    }

    async fn on_stage_deadline(&mut self, pool: &mut WorkerPool, stage: RunStage) {
        let is_given_up = self.model.state().is_finisher_given_up();
        // A client that still makes progress gets more time.
        let client = self.key().client;
        if !is_given_up
            && let OverdueDecision::WaitOn(rest) =
                pool.on_client_overdue(client, self.requested.stage_limit())
        {
            return self.timers.extend_stage(stage, rest);
        }
        match stage {
            RunStage::Draining => {
                for worker in self.model.state().awaited_workers() {
                    let text =
                        format!("worker {} did not send its last results in time; killing it", worker.0);
                    self.requested.log(LogLevel::Warning, text);
                    pool.kill_worker(worker).await;
                }
            }
            // The watchdog has been killed already and still hasn't ended.
            RunStage::Finishing if is_given_up => self.finish_without_watchdog(FINISH_TIMED_OUT),
            RunStage::Finishing => {
                let text = "the watchdog did not finish the run in time; killing it".to_owned();
                self.requested.log(LogLevel::Warning, text);
                self.timers.extend_stage(RunStage::Finishing, STAGE_SLACK);
                self.model.apply(RunEvent::FinisherLate);
            }
            RunStage::Running | RunStage::Completed => {}
        }
    }

    /// Handles a worker's message about this run.
    pub(crate) fn on_worker_message(&mut self, worker: WorkerId, message: FromWorker) {
        match message {
            FromWorker::LeaseEvents { lease, events } => {
                events.into_iter().for_each(|event| self.on_lease_event(worker, lease, event));
            }
            FromWorker::LeaseIdle { lease } => self.model.apply(RunEvent::LeaseIdle { worker, lease }),
            FromWorker::LeaseEnded { lease, end, start_us } => {
                let start = start_us.map(Duration::from_micros);
                if let Some(program) = self.leases.close(lease) {
                    if let LeaseEnd::StartTimedOut { message, .. } = &end {
                        let first_line = message.lines().next().unwrap_or_default();
                        self.requested.log_program(program, first_line);
                    }
                    self.findings.on_lease_end(program, &end, start);
                }
                self.model.apply(RunEvent::LeaseEnded { worker, lease, end: end.outcome(), start });
            }
            FromWorker::Drained { run, proof, position } if run == *self.key() => {
                self.requested.client_log().log_proof(&format!("worker {worker}"), proof);
                self.delivery.on_drained(worker, proof);
                self.model.apply(RunEvent::Drained { worker, proven: position });
            }
            FromWorker::Log { lines, .. } => self.requested.client_log().forward_lines(lines),
            FromWorker::Drained { .. }
            | FromWorker::Paused
            | FromWorker::Blocked { .. }
            | FromWorker::Discovered { .. }
            | FromWorker::NotDiscovered { .. } => {}
        }
    }

    fn on_lease_event(&mut self, worker: WorkerId, lease: LeaseId, event: LeaseEvent) {
        match event {
            LeaseEvent::StoppedForDebugger { test, pid, is_program, debuggee } => {
                if !is_program {
                    let text = "the test process could not be stopped at its first instruction: the debugger attaches \
                                while it still runs Heeler, just before it executes the program";
                    let log = self.requested.client_log();
                    log.log_line(Some(test), LogLevel::Information, text.to_owned());
                }
                self.debuggees.waiting.push(WaitingDebuggee { worker, lease, test, pid, debuggee });
            }
            LeaseEvent::LaunchedByDebugger { .. } => self.debuggees.launched.push((worker, lease)),
            event => {
                if let LeaseEvent::Started(test) = event {
                    self.leases.begin(worker, lease, test);
                }
                let plan = self.requested.plan();
                let for_model = self.findings.on_lease_event(plan, &self.leases, worker, lease, event);
                for_model.into_iter().for_each(|event| self.model.apply(event));
            }
        }
    }

    /// Records that a worker died together with the watchdog. Must be called before the worker's death is
    /// handled.
    pub(crate) fn on_watchdog_died(&mut self, worker: WorkerId) {
        self.model.apply(RunEvent::WatchdogDied { worker });
    }

    /// Handles a worker's death. `proven` states how many of its results the client has received.
    ///
    /// Cancel safe: no, because the watchdog may or may not have received the request for the worker's
    /// journal.
    pub(crate) async fn on_worker_died(
        &mut self,
        pool: &mut WorkerPool,
        worker: WorkerId,
        proven: &DeadSenderProof,
    ) {
        let (relayed, own_stream) = (proven.relayed_of(self.key()), proven.own_stream_of(self.key()));
        self.findings.on_worker_died();
        let test = self.leases.close_worker(worker);
        let message = format!("worker {worker} died; rerunning its tests that have no result");
        self.requested.client_log().log_line(test, LogLevel::Warning, message);
        if relayed > 0 {
            self.delivery.on_dead_relay(worker);
        }
        if own_stream > 0 {
            self.delivery.on_dead_stream(StreamPosition { worker, position: own_stream });
            self.send_handled_streams(pool).await;
        }
        self.journals.add(worker, relayed.max(own_stream));
        pool.send_to_watchdog(&self.requested.journal_request(worker)).await;
    }

    async fn send_handled_streams(&self, pool: &mut WorkerPool) {
        if let Some(handled) = self.delivery.handled_streams(self.key()) {
            pool.send_to_watchdog(&handled).await;
        }
    }

    /// Handles a watchdog message about this run.
    pub(crate) fn on_watchdog_message(&mut self, message: FromWatchdog) {
        match message {
            FromWatchdog::Journal { run, worker, settled, files, damage } if run == *self.key() => {
                if let Some(damage) = damage {
                    let text = format!("failed to read the journal of worker {worker} to its end: {damage}");
                    self.requested.log(LogLevel::Warning, text);
                }
                self.findings.on_journal_files(worker, files);
                self.on_journal_read(worker, &settled);
            }
            FromWatchdog::Finished { run, proof, soft_errors, .. } if run == *self.key() => {
                for error in soft_errors {
                    self.requested.log(LogLevel::Warning, error);
                }
                self.requested.client_log().log_proof("the watchdog", proof);
                self.delivery.set_proof(proof);
                self.model.apply(RunEvent::Finished);
            }
            FromWatchdog::Completing { run } if run == *self.key() => self.model.apply(RunEvent::Completing),
            FromWatchdog::Journal { .. }
            | FromWatchdog::Completing { .. }
            | FromWatchdog::Relaying { .. }
            | FromWatchdog::Finished { .. }
            | FromWatchdog::WorkerNotStarted { .. }
            | FromWatchdog::WorkerEnded { .. } => {}
        }
    }

    fn on_journal_read(&mut self, worker: WorkerId, settled: &[JournalledResult]) {
        let Some(proven) = self.journals.remove(worker) else { return };
        let settled = settled
            .iter()
            .map(|result| (result.test, result.outcome, Duration::from_micros(result.duration_us)))
            .collect();
        self.model.apply(RunEvent::WorkerLost { worker, proven, settled });
    }

    /// Sends the run's state to a new watchdog. `proven` states what the client has received from the
    /// previous one.
    ///
    /// Cancel safe: no, because only part of the state may be sent.
    pub(crate) async fn on_watchdog_replaced(&mut self, pool: &mut WorkerPool, proven: &DeadSenderProof) {
        let text = "the watchdog died, and its workers with it; a new one was started".to_owned();
        self.requested.log(LogLevel::Warning, text);
        self.take_finish_proof(proven);
        for worker in self.journals.workers() {
            pool.send_to_watchdog(&self.requested.journal_request(worker)).await;
        }
        match self.model.state().finisher_task() {
            FinisherTask::Register => {
                pool.send_to_watchdog_flushed(&self.requested.announcement()).await;
                self.send_handled_streams(pool).await;
            }
            // If the finish action has not been executed yet, executing it will send the request.
            FinisherTask::Finish(_) => {
                if let Some(finish) = self.delivery.begun_finish() {
                    pool.send_to_watchdog(&finish).await;
                }
            }
            FinisherTask::Complete => {
                let completion = Box::new(self.completion_request());
                pool.send_to_watchdog(&ToWatchdog::Finish(completion)).await;
            }
            FinisherTask::CoordinatorCompletes => self.finish_without_watchdog(FINISH_TIMED_OUT),
            FinisherTask::None => {}
        }
    }

    /// Records how much of a dead watchdog's finish the client has received. If the client has handled the
    /// completion, the run is over even though the watchdog could not report it.
    fn take_finish_proof(&mut self, proven: &DeadSenderProof) {
        let (sent, relayed) = (proven.own_stream_of(self.key()), proven.relayed_of(self.key()));
        self.delivery.on_dead_finisher(sent, relayed);
        if proven.completed.iter().any(|directory| self.requested.is_run_dir(directory)) {
            self.delivery.set_proof(ProofLevel::Handled);
            self.model.apply(RunEvent::Finished);
        }
    }

    /// Ends the run because the watchdog, and therefore every worker, is gone. `proven` states what the
    /// client has received from the last watchdog.
    pub(crate) fn on_watchdog_lost(&mut self, why: &str, proven: &DeadSenderProof) {
        self.take_finish_proof(proven);
        if self.model.state().stage() != RunStage::Completed {
            self.finish_without_watchdog(why);
        }
    }
}
