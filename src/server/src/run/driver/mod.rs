//! Drives one run: passes events to the model and executes the actions that it returns. No decision is made
//! here.
//!
//! - `inbound`: messages of workers and of the watchdog.
//! - `actions`: actions that the model returns.
//!
//! The driver waits for nothing by itself: the owner of the pool passes it the events of its run.

mod actions;
mod inbound;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use heeler_core::{
    ProgramId, TestId,
    client_progress::OverdueDecision,
    fair_share::{SlotDemand, has_priority},
    ledger::Ledger,
    run::{RunAction, RunEvent, RunStage, RunState},
};
use heeler_protocol::{
    control::{
        ClientRoute, DebuggeeCommand, FinishRequest, LeaseId, ProofLevel, RunKey, StreamPosition,
        TestProgram, ToWorker, UpdateEncoding, WorkerId,
    },
    mtp::{ClientMembers, LogLevel, RunResult},
};
use heeler_recovery::JournalFile;
use tokio::time::Instant;

use super::{
    PlannedTests, RunPlan, RunResourceUsage,
    attachments::RunAttachments,
    client_log::ClientLog,
    dump_budget::DumpBudget,
    manifest,
    neighbours::LeaseNeighbours,
    synthesized::{ProgramFailures, ProvisionalResults},
};
use crate::pool::{WorkerPool, WorkerUser};
use crate::scheduler::ClientEvents;

/// Time limit for a worker to end a cancelled lease, beyond a test's grace period.
const CANCEL_DEADLINE: Duration = Duration::from_secs(5);
/// Time limit for reading a journal.
const JOURNAL_DEADLINE: Duration = Duration::from_secs(10);
/// Time limit for a drain or a finish, beyond the client's own limits.
const STAGE_SLACK: Duration = Duration::from_secs(15);

/// Logged as the reason when the coordinator finishes the run in place of the watchdog.
const FINISH_TIMED_OUT: &str = "it did not finish in time";

/// The result of a run.
#[derive(Debug)]
pub struct RunOutcome {
    /// The ledger of all tests.
    pub ledger: Ledger,
    /// Why no more tests were leased, if the run was stopped early.
    pub stopped_by: Option<heeler_core::NotRunReason>,
    /// Durations of tests that ended, for the history.
    pub durations: Vec<(TestId, Duration)>,
    /// Tests during which a process died.
    pub crashed: BTreeSet<TestId>,
    /// Resource usage of its processes.
    pub resource_usage: RunResourceUsage,
    /// Number of workers that died.
    pub worker_deaths: usize,
    /// Number of programs with failures outside any test.
    pub failed_programs: usize,
    /// Proof level of the completion's delivery to the client.
    pub proof: ProofLevel,
    /// The result member of the response.
    pub result: RunResult,
}

/// A test whose process is stopped and waits for a debugger.
#[derive(Debug, Clone)]
pub struct WaitingDebuggee {
    /// The worker that runs the process.
    pub worker: WorkerId,
    /// The lease that the test belongs to.
    pub lease: LeaseId,
    pub test: TestId,
    /// Process id of the test.
    pub pid: u32,
    /// Command that a debugger can launch instead.
    pub debuggee: Option<DebuggeeCommand>,
}

/// The client of a run, as its driver needs it.
pub(crate) struct DriverClient {
    /// The key of the run.
    pub(crate) key: RunKey,
    pub(crate) route: ClientRoute,
    pub(crate) events: ClientEvents,
    /// Members that the client added to tests and groups of the run.
    pub(crate) client_members: ClientMembers,
}

/// One run, from its first lease to its completion.
pub struct RunDriver {
    plan: RunPlan,
    client: DriverClient,
    run: RunState,
    actions: VecDeque<RunAction>,
    /// Maximum number of leases that the run may have open.
    share: usize,
    /// Number of slots that no run can use.
    spare_slots: usize,
    /// Number of leases granted so far.
    leases_granted: u64,
    /// The open leases, with their workers and programs.
    neighbours: LeaseNeighbours,
    provisional: BTreeMap<TestId, ProvisionalResults>,
    program_failures: ProgramFailures,
    /// Leaked processes; the attachments and the largest processes are added at the end.
    result: RunResult,
    attachments: RunAttachments,
    dumps: DumpBudget,
    /// Dead workers whose journals are being read: the position up to which their results were forwarded, and
    /// the deadline.
    pending_journals: BTreeMap<WorkerId, (u64, Instant)>,
    /// What the client has handled on the connections of workers that have died: one for each.
    handled_streams: Vec<StreamPosition>,
    /// The finish request sent to the watchdog, kept so that it can be sent again to a replacement.
    finish: Option<Box<FinishRequest>>,
    stage_deadline: Option<(RunStage, Instant)>,
    /// The client's progress since the deadline was set.
    cancel_deadline: Option<Instant>,
    /// Deadline of the whole run (`run-timeout`).
    run_deadline: Option<Instant>,
    /// When each retry that is delayed is due.
    delayed_retries: BTreeMap<TestId, Instant>,
    /// When further processes of a program may start.
    delayed_starts: BTreeMap<ProgramId, Instant>,
    /// Deadline of the set-up that blocks the process of a lease.
    limited_set_ups: BTreeMap<LeaseId, Instant>,
    /// Time since boot until which tests that pass run again.
    repeat_until: Option<Duration>,
    proof: ProofLevel,
    durations: Vec<(TestId, Duration)>,
    crashed: BTreeSet<TestId>,
    resource_usage: RunResourceUsage,
    /// The test that each worker runs.
    running_tests: BTreeMap<WorkerId, TestId>,
    /// Tests that wait for a debugger, until the scheduler collects them.
    waiting_debuggees: Vec<WaitingDebuggee>,
    /// Leases whose processes were launched by debuggers, until the scheduler collects them.
    launched_leases: Vec<(WorkerId, LeaseId)>,
    worker_deaths: usize,
    is_complete: bool,
    /// A worker's results went over the main connection, or can't be proven on its own one: the end of the
    /// run goes over the main connection as well.
    must_finish_on_main: bool,
    /// Workers with results of the run that went over the main connection.
    relayed_workers: BTreeSet<WorkerId>,
    /// The manifest was written to the run's directory.
    has_manifest: bool,
}

impl RunDriver {
    /// Begins a run. It has no workers yet, and a share of 0 slots.
    ///
    /// Cancel safe: no, because a run that has begun must be completed.
    pub(crate) async fn begin(pool: &mut WorkerPool, plan: RunPlan, mut client: DriverClient) -> Self {
        let has_frames = client.route.encoding == UpdateEncoding::TestProtocol;
        client.route.has_attachments_stream = plan.has_attachments_stream && has_frames;
        let mut run = RunState::new(plan.model.clone());
        let mut actions: VecDeque<_> = run.handle(RunEvent::SlotShare(0)).into();
        actions.extend(run.begin());
        let mut driver = Self {
            run,
            actions,
            share: 0,
            spare_slots: 0,
            leases_granted: 0,
            neighbours: LeaseNeighbours::default(),
            provisional: BTreeMap::new(),
            program_failures: ProgramFailures::default(),
            result: RunResult::default(),
            attachments: RunAttachments::default(),
            dumps: DumpBudget::default(),
            pending_journals: BTreeMap::new(),
            handled_streams: Vec::new(),
            finish: None,
            stage_deadline: None,
            cancel_deadline: None,
            run_deadline: plan.time_limit.map(|limit| Instant::now() + limit),
            delayed_retries: BTreeMap::new(),
            delayed_starts: BTreeMap::new(),
            limited_set_ups: BTreeMap::new(),
            repeat_until: plan
                .stress_duration
                .map(|duration| heeler_sys::process::time_since_boot().saturating_add(duration)),
            proof: ProofLevel::None,
            durations: Vec::new(),
            crashed: BTreeSet::new(),
            resource_usage: RunResourceUsage::default(),
            running_tests: BTreeMap::new(),
            waiting_debuggees: Vec::new(),
            launched_leases: Vec::new(),
            worker_deaths: 0,
            is_complete: false,
            must_finish_on_main: false,
            relayed_workers: BTreeSet::new(),
            has_manifest: true,
            plan,
            client,
        };
        driver.write_manifest();
        driver.report_failed_listings();
        driver.report_known_conflicts();
        driver.send_begin_run(pool).await;
        heeler_sys::fail::pass("run.begun");
        driver
    }

    fn write_manifest(&mut self) {
        if let Err(error) = manifest::write_manifest(&self.plan) {
            self.has_manifest = false;
            let text = format!(
                "the run's manifest could not be written, so it can't be reported or rerun later: {error}"
            );
            self.log(LogLevel::Warning, text);
        }
    }

    /// Charges programs whose listing process failed after it had listed all tests.
    fn report_failed_listings(&mut self) {
        for (program, listing) in self.plan.listings.iter().enumerate() {
            if let Some(failure) = &listing.failure {
                self.program_failures.add(program, failure.to_string());
            }
        }
    }

    /// Says which programs run in one process because of what an earlier run has learned.
    fn report_known_conflicts(&self) {
        for (program, listing) in self.plan.listings.iter().enumerate() {
            if listing.has_conflict {
                let suite = &self.plan.programs[program].suite;
                let message = format!(
                    "{suite}: its tests run in one process, because in an earlier run a session fixture stood still \
                     in a second one; `max-processes` in heeler.toml decides otherwise, and 1 makes this the rule"
                );
                self.log(LogLevel::Warning, message);
            }
        }
    }

    /// Returns the key of the run.
    #[must_use]
    pub fn key(&self) -> &RunKey {
        &self.client.key
    }

    fn user(&self) -> WorkerUser {
        WorkerUser::Run(self.client.key.clone())
    }

    /// Returns the slots that the run could use.
    #[must_use]
    pub fn demand(&self) -> SlotDemand {
        SlotDemand { wanted: self.run.wanted_leases(), served: self.leases_granted }
    }

    /// Returns the number of leases that it has received.
    #[must_use]
    pub fn leases_granted(&self) -> u64 {
        self.leases_granted
    }

    /// Returns whether its next lease comes before those of others.
    #[must_use]
    pub fn has_priority(&self) -> bool {
        has_priority(self.plan.tests.len(), self.leases_granted)
    }

    /// Returns the number of open leases.
    #[must_use]
    pub fn open_leases(&self) -> usize {
        self.run.active_leases()
    }

    /// Returns whether the death of this worker affects this run.
    #[must_use]
    pub fn is_affected_by(&self, worker: WorkerId) -> bool {
        self.run.involves(worker)
    }

    /// Sets the maximum number of open leases, and the number of slots that no run can use.
    pub fn set_share(&mut self, slots: usize, spare: usize) {
        if self.share != slots {
            self.share = slots;
            self.apply_event(RunEvent::SlotShare(slots));
        }
        if self.spare_slots != spare {
            self.spare_slots = spare;
            self.apply_event(RunEvent::SpareSlots(spare));
        }
    }

    /// Handles the grant of a worker: the run leases a batch to it or releases it. A process of `waiting`
    /// waits for a lease there.
    pub fn on_worker_granted(&mut self, worker: WorkerId, waiting: Option<&TestProgram>) {
        let place = waiting.and_then(|waiting| self.plan.programs.iter().position(|one| one == waiting));
        if let Some(program) = place.and_then(|place| u32::try_from(place).ok()).map(ProgramId) {
            self.apply_event(RunEvent::ProcessWaiting { worker, program });
        }
        self.apply_event(RunEvent::WorkerGranted(worker));
    }

    /// Reports to the run that a worker it requested did not start.
    pub fn on_worker_not_started(&mut self, worker: WorkerId, error: &str) {
        self.log(LogLevel::Warning, format!("worker {worker} could not be started: {error}"));
        self.apply_event(RunEvent::WorkerNotStarted);
    }

    /// Returns the tests that wait for a debugger, each once.
    pub fn take_waiting_debuggees(&mut self) -> Vec<WaitingDebuggee> {
        std::mem::take(&mut self.waiting_debuggees)
    }

    /// Returns the leases whose processes were launched by debuggers, each once.
    pub fn take_launched_leases(&mut self) -> Vec<(WorkerId, LeaseId)> {
        std::mem::take(&mut self.launched_leases)
    }

    /// Returns whether this worker holds the lease.
    #[must_use]
    pub fn is_leased(&self, worker: WorkerId, lease: LeaseId) -> bool {
        let is_alive = !self.pending_journals.contains_key(&worker);
        is_alive && self.neighbours.is_held_by(lease, worker)
    }

    /// Returns the uid of a test.
    #[must_use]
    pub fn test_uid(&self, test: TestId) -> Option<String> {
        Some(self.plan.tests.get(test.0 as usize)?.uid.clone())
    }

    /// Cancels the run because its client has left: running tests are killed without grace.
    pub fn abandon(&mut self) {
        self.plan.limits.grace_ms = 0;
        self.cancel();
    }

    /// Cancels the run without grace. Tests that are being cancelled with grace are killed as well.
    ///
    /// Cancel safe: no, because an order may be lost.
    pub(crate) async fn kill(&mut self, pool: &mut WorkerPool) {
        self.abandon();
        for worker in self.neighbours.workers() {
            pool.send_to_worker(worker, &ToWorker::Cancel { grace_ms: 0 }).await;
        }
    }

    /// Cancels the run: running tests are cancelled, the rest is reported as not run.
    pub fn cancel(&mut self) {
        self.apply_event(RunEvent::Cancel);
    }

    /// Adds tests to an open run. A run that takes none, or none of their programs, ends without them: its
    /// outcome shows which tests were its own.
    pub(crate) fn add_tests(&mut self, added: PlannedTests) {
        if !self.run.is_open() {
            return;
        }
        match self.plan.append(added) {
            Some(scheduled) => self.apply_event(RunEvent::TestsAdded(scheduled)),
            None => self.end_tests(),
        }
    }

    /// Ends an open run after the tests that it has.
    pub(crate) fn end_tests(&mut self) {
        self.apply_event(RunEvent::NoMoreTests);
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
            stopped_by: self.run.stop_reason(),
            ledger: self.run.ledger().clone(),
            durations: self.durations,
            crashed: self.crashed,
            result: RunResult {
                attachments: self.attachments.all(),
                largest: self.resource_usage.largest(&self.plan),
                ..self.result
            },
            resource_usage: self.resource_usage,
            worker_deaths: self.worker_deaths,
            failed_programs: self.program_failures.program_count(),
            proof: self.proof,
        };
        (self.plan, outcome)
    }

    /// Returns when [`RunDriver::on_deadline`] must be called if no event comes before.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let journals = self.pending_journals.values().map(|(_, deadline)| *deadline);
        let stage = self.stage_deadline.map(|(_, deadline)| deadline);
        let delayed = self.delayed_retries.values().chain(self.delayed_starts.values());
        let delayed = delayed.chain(self.limited_set_ups.values()).copied();
        journals.chain(stage).chain(self.cancel_deadline).chain(self.run_deadline).chain(delayed).min()
    }

    fn apply_event(&mut self, event: RunEvent) {
        self.actions.extend(self.run.handle(event));
    }

    /// Handles expired deadlines.
    ///
    /// Cancel safe: no, because a deadline is cleared before its action is complete.
    pub async fn on_deadline(&mut self, pool: &mut WorkerPool, now: Instant) {
        let late: Vec<_> = self
            .pending_journals
            .iter()
            .filter(|(_, (_, deadline))| *deadline <= now)
            .map(|(id, _)| *id)
            .collect();
        for worker in late {
            self.log(LogLevel::Warning, format!("the journal of worker {worker} was not read in time"));
            let journal = JournalFile::read_worker(&self.plan.run_dir.path, worker);
            self.on_journal_read(worker, &journal.settled());
        }
        self.begin_due_retries(now);
        self.allow_due_starts(now);
        self.end_due_set_ups(now);
        if self.run_deadline.is_some_and(|deadline| deadline <= now) {
            self.run_deadline = None;
            self.log(LogLevel::Warning, "the run reached its time limit (run-timeout)".to_owned());
            self.apply_event(RunEvent::TimeLimitReached);
        }
        if self.cancel_deadline.is_some_and(|deadline| deadline <= now) {
            self.cancel_deadline = None;
            for worker in self.run.leasing_workers() {
                pool.kill_worker(worker).await;
            }
        }
        if let Some((stage, deadline)) = self.stage_deadline
            && deadline <= now
        {
            self.stage_deadline = None;
            self.on_stage_deadline(pool, stage).await;
        }
    }

    fn begin_due_retries(&mut self, now: Instant) {
        for test in take_due(&mut self.delayed_retries, now) {
            self.apply_event(RunEvent::RetryDue(test));
        }
    }

    fn allow_due_starts(&mut self, now: Instant) {
        for program in take_due(&mut self.delayed_starts, now) {
            self.apply_event(RunEvent::StartsDue(program));
        }
    }

    fn end_due_set_ups(&mut self, now: Instant) {
        for lease in take_due(&mut self.limited_set_ups, now) {
            self.apply_event(RunEvent::SetUpDue { lease });
        }
    }

    async fn on_stage_deadline(&mut self, pool: &mut WorkerPool, stage: RunStage) {
        let is_awaited = !self.run.is_finisher_given_up();
        if is_awaited
            && let OverdueDecision::WaitOn(rest) =
                pool.on_client_overdue(self.client.key.client, self.stage_limit())
        {
            self.stage_deadline = Some((stage, Instant::now() + rest));
            return;
        }
        match stage {
            RunStage::Draining => {
                for worker in self.run.awaited_workers() {
                    let text = format!("worker {} did not drain in time and is killed", worker.0);
                    self.log(LogLevel::Warning, text);
                    pool.kill_worker(worker).await;
                }
            }
            // The watchdog can't even be killed.
            RunStage::Finishing if self.run.is_finisher_given_up() => {
                self.finish_without_watchdog(FINISH_TIMED_OUT)
            }
            RunStage::Finishing => {
                let text = "the watchdog did not finish the run in time and is killed".to_owned();
                self.log(LogLevel::Warning, text);
                self.stage_deadline = Some((RunStage::Finishing, Instant::now() + STAGE_SLACK));
                self.apply_event(RunEvent::FinisherLate);
            }
            RunStage::Running | RunStage::Completed => {}
        }
    }

    fn client_log(&self) -> ClientLog<'_> {
        ClientLog { plan: &self.plan, events: &self.client.events }
    }

    /// Writes a message about one test to the client's log.
    pub fn log_test(&self, test: TestId, level: LogLevel, message: String) {
        self.client_log().log_line(Some(test), level, message);
    }

    fn log(&self, level: LogLevel, message: String) {
        self.client_log().log_line(None, level, message);
    }
}

/// Removes and returns what is due.
fn take_due<What: Copy + Ord>(delayed: &mut BTreeMap<What, Instant>, now: Instant) -> Vec<What> {
    delayed.extract_if(.., |_, due| *due <= now).map(|(what, _)| what).collect()
}
