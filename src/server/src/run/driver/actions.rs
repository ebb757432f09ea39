//! Executes the actions that the model returns for one run.

use std::time::Duration;

use heeler_config::FlakyResult;
use heeler_core::{
    OsText, TestId,
    run::{BatchLease as ModelLease, CancelMode, DueResults, FinisherTask, LostStream, RunAction, RunStage},
};
use heeler_protocol::{
    control::{
        CrashCapturePlan, FinishRequest, LeasedTest, ProofLevel, TestLimits, ToWatchdog, ToWorker,
        WorkerLease,
    },
    mtp::{Attachment, LogLevel},
};
use heeler_recovery::JournalFile;
use tokio::time::Instant;

use super::{CANCEL_DEADLINE, RunDriver, STAGE_SLACK};
use crate::pool::WorkerPool;
use crate::run::{attachments::FileSource, groups, manifest, plan::millis, synthesized};

/// Least startup limit as a multiple of what a start of the program is known to take: beside other processes
/// a start takes longer.
const STARTUP_LIMIT_PER_START: u32 = 3;
/// Number of times that a startup limit is doubled at most.
const MAX_STARTUP_DOUBLINGS: u32 = 10;

impl RunDriver {
    /// Executes the pending actions.
    ///
    /// Cancel safe: no, because an action that is lost is never repeated.
    pub async fn execute_actions(&mut self, pool: &mut WorkerPool) {
        while let Some(action) = self.actions.pop_front() {
            self.execute_action(pool, action).await;
        }
    }

    async fn execute_action(&mut self, pool: &mut WorkerPool, action: RunAction) {
        match action {
            RunAction::StartWorker => pool.request_workers(&self.user(), 1),
            RunAction::Lease(lease) => self.send_lease(pool, *lease).await,
            RunAction::ExtendLease(lease) => {
                let worker = lease.worker;
                self.leases_granted += 1;
                let extended = Box::new(self.worker_lease(&lease));
                pool.send_to_worker(worker, &ToWorker::ExtendLease(extended)).await;
            }
            RunAction::EndLease { worker, lease } => {
                pool.send_to_worker(worker, &ToWorker::EndLease { lease }).await;
            }
            RunAction::ReleaseWorker(worker) => pool.release(worker),
            RunAction::DelayRetry { test, delay } => {
                // A delay that no clock can hold never ends.
                let due = Instant::now().checked_add(delay);
                self.delayed_retries.extend(due.map(|due| (test, due)));
            }
            RunAction::DelayStarts { program, delay } => {
                self.delayed_starts.insert(program, Instant::now() + delay);
            }
            RunAction::LimitSetUp { lease, program } => {
                let limit = Duration::from_millis(self.startup_limit_ms(program.index(), 0));
                self.limited_set_ups.insert(lease, Instant::now() + limit);
            }
            RunAction::ReturnTests { worker, program, fixture } => {
                self.log_conflict(program.index(), &fixture);
                let grace_ms = self.plan.limits.grace_ms;
                pool.send_to_worker(worker, &ToWorker::ReturnTests { grace_ms }).await;
            }
            RunAction::CancelLease { worker, mode } => {
                let grace_ms = self.plan.limits.grace_ms;
                let order = match mode {
                    // Running tests have their own limits.
                    CancelMode::AfterRunningTests => ToWorker::CancelAfterRunningTests { grace_ms },
                    CancelMode::Now => {
                        let grace = Duration::from_millis(grace_ms);
                        self.cancel_deadline.get_or_insert(Instant::now() + grace + CANCEL_DEADLINE);
                        ToWorker::Cancel { grace_ms }
                    }
                };
                pool.send_to_worker(worker, &order).await;
            }
            RunAction::Drain(worker) => {
                heeler_sys::fail::pass("run.drain");
                self.set_stage(RunStage::Draining);
                let drain = ToWorker::Drain { run: self.client.key.clone() };
                pool.send_to_worker(worker, &drain).await;
            }
            RunAction::KillFinisher => pool.kill_watchdog(),
            RunAction::Finish(due) => self.send_finish(pool, &due).await,
            RunAction::Complete => self.is_complete = true,
        }
    }

    /// Says that a process stood in a set-up that another process of its program has done.
    fn log_conflict(&mut self, program: usize, fixture: &str) {
        self.resource_usage.conflicts.insert(program);
        let suite = &self.plan.programs[program].suite;
        let limit = self.startup_limit_ms(program, 0) / 1000;
        let message = format!(
            "{suite}: the set-up of the session fixture {fixture:?} stood still for {limit} s in one interpreter while \
             another has it set up: they share something, such as a port, a file or a database. Its tests go on in one \
             interpreter, also in later runs; `max-processes = 1` says so from the beginning, and a fixture that \
             gives each interpreter its own (a free port, tmp_path_factory) lets tests run beside each other"
        );
        self.log(LogLevel::Warning, message);
    }

    fn set_stage(&mut self, stage: RunStage) {
        if self.stage_deadline.is_none_or(|(earlier, _)| earlier != stage) {
            self.stage_deadline = Some((stage, Instant::now() + self.stage_limit()));
        }
    }

    /// Returns the time limit of a drain or a finish during which the client makes no progress.
    pub(super) fn stage_limit(&self) -> Duration {
        let limits = self.plan.delivery_limits;
        let waits = limits.connect_ms + limits.stall_ms + 8 * limits.drain_ms + 4 * limits.answer_ms;
        Duration::from_millis(waits) + STAGE_SLACK
    }

    async fn send_lease(&mut self, pool: &mut WorkerPool, lease: ModelLease) {
        let wire = self.worker_lease(&lease);
        self.neighbours.open(wire.lease, lease.worker, lease.batch.program.index());
        if let [only] = wire.tests.as_slice() {
            self.neighbours.begin(wire.lease, only.test);
            self.running_tests.insert(lease.worker, only.test);
        }
        self.leases_granted += 1;
        pool.send_lease(lease.worker, Box::new(wire)).await;
    }

    /// Returns a lease as its worker needs it.
    fn worker_lease(&self, lease: &ModelLease) -> WorkerLease {
        let program = lease.batch.program.index();
        let mut tests: Vec<_> = lease
            .batch
            .tests
            .iter()
            .zip(&lease.is_failure_provisional)
            .zip(&lease.passed_iterations)
            .map(|((test, is_failure_held), passed_iterations)| LeasedTest {
                passed_iterations: *passed_iterations,
                ..self.leased_test(*test, *is_failure_held)
            })
            .collect();
        tests.sort_by_key(|test| self.plan.tests[test.test.0 as usize].listing_index);
        let groups = groups::subset(&self.plan, &mut tests);
        let uids = tests.iter().map(|test| &test.uid).chain(groups.iter().map(|group| &group.uid));
        WorkerLease {
            lease: lease.lease,
            client_members: self.client.client_members.subset(uids.map(String::as_str)),
            run: self.client.key.clone(),
            route: self.client.route.clone(),
            run_dir: OsText::from(self.plan.run_dir.path.as_path()),
            program: self.plan.programs[program].clone(),
            groups,
            tests,
            limits: TestLimits {
                memory_bytes: self.plan.memory_limit(&lease.batch.tests),
                startup_ms: self.startup_limit_ms(program, lease.start_timeouts),
                ..self.plan.limits
            },
            is_whole_program: self.plan.is_whole_program(program, &lease.batch.tests),
            journal_limit_bytes: self.plan.journal_limit_bytes,
            repeat: self.plan.repeat,
            repeat_until_ms: self.repeat_until.map(millis),
            crash_capture: self.watch_plan(&lease.batch.tests),
            is_isolated: lease.batch.is_isolated,
            is_debugged: self.plan.is_debugged,
            output_display: self.plan.output_display,
            is_output_live: self.plan.is_output_live,
            has_private_tmpdir: self.plan.has_private_tmpdir,
            is_environment_shown: self.plan.is_environment_shown,
            runs_ignored: self.plan.runs_ignored,
        }
    }

    /// Returns the startup limit of a process: the setting, or a multiple of what a start of the program is
    /// known to take, and longer after processes that have exceeded theirs. A slow start is no fault of a
    /// test.
    fn startup_limit_ms(&self, program: usize, start_timeouts: u32) -> u64 {
        let observed = self.resource_usage.longest_starts.get(&program).copied();
        let known = self.plan.known_start(program).into_iter().chain(observed).max().unwrap_or_default();
        let least = millis(known.saturating_mul(STARTUP_LIMIT_PER_START));
        let limit = self.plan.limits.startup_ms.max(least);
        limit.saturating_mul(1 << start_timeouts.min(MAX_STARTUP_DOUBLINGS))
    }

    /// Returns the crash capture of a lease. A crash that is checked by an isolated rerun has left its dump
    /// already.
    fn watch_plan(&self, tests: &[TestId]) -> CrashCapturePlan {
        let mut watch = self.dumps.watch_plan(&self.plan, tests);
        let has_dump = |test: &TestId| {
            let death = self.provisional.get(test).and_then(|held| held.crash.as_ref());
            death.is_some_and(|death| death.diagnostics.is_some())
        };
        watch.dumps.crash &= !tests.iter().any(has_dump);
        watch
    }

    fn leased_test(&self, test: TestId, is_failure_held: bool) -> LeasedTest {
        let selected = &self.plan.tests[test.index()];
        let settings = &selected.settings;
        let held = self.provisional.get(&test).cloned().unwrap_or_default();
        LeasedTest {
            test,
            listed: selected.listed.clone(),
            uid: selected.uid.clone(),
            group: None,
            timeout_ms: settings
                .timeout
                .duration()
                .map(millis)
                .into_iter()
                .chain(selected.listed.timeout_ms)
                .min(),
            idle_timeout_ms: settings.idle_timeout.duration().map(millis),
            slow_ms: Some(millis(settings.slow_timeout.period)).filter(|period| *period > 0),
            attempts: held.attempts,
            crashed_attempt: held.crash,
            ran_beside: held.ran_beside.into_iter().collect(),
            is_failure_provisional: is_failure_held,
            is_flaky_failure: settings.flaky_result == FlakyResult::Fail,
            passed_iterations: 0,
        }
    }

    async fn send_finish(&mut self, pool: &mut WorkerPool, due: &DueResults) {
        heeler_sys::fail::pass("run.finish");
        self.set_stage(RunStage::Finishing);
        if self.plan.model.is_open {
            // The one that was written at the beginning lacks the tests that were added.
            self.write_manifest();
        }
        let finish = Box::new(self.finish_request(due));
        if let Err(error) = manifest::write_synthesized(&self.plan, &finish) {
            let text =
                format!("the synthesized results could not be written to the run's directory: {error}");
            self.log(LogLevel::Warning, text);
        }
        self.finish = Some(finish.clone());
        pool.send_to_watchdog(&ToWatchdog::Finish(finish)).await;
    }

    /// Composes what the client may lack when all streams are closed.
    fn finish_request(&mut self, DueResults { resend, synthesized }: &DueResults) -> FinishRequest {
        let resend = synthesized::resend_requests(self.run.ledger(), resend);
        let synthesized = synthesized::due_results(&self.plan, synthesized, &self.provisional);
        for file in synthesized.iter().flat_map(|due| due.result.files()) {
            self.attachments.add(Attachment::file(&file.path, &file.description), FileSource::Run);
        }
        let descriptions = manifest::descriptions(&self.plan, &resend, &synthesized);
        let uids = descriptions.tests.values().map(|test| &test.uid);
        let uids = uids.chain(descriptions.groups.iter().map(|group| &group.uid));
        FinishRequest {
            client_members: self.client.client_members.subset(uids.map(String::as_str)),
            run: self.client.key.clone(),
            route: self.client.route.clone(),
            run_dir: OsText::from(self.plan.run_dir.path.as_path()),
            descriptions,
            attachments: self.attachments.due(self.run.ledger()),
            program_failures: self.program_failures.records(&self.plan),
            has_attachments_stream: self.plan.has_attachments_stream,
            is_relayed: self.must_finish_on_main,
            relayed_workers: self.relayed_workers.iter().copied().collect(),
            sent_frames: 0,
            relayed_frames: 0,
            resend,
            synthesized,
        }
    }

    /// Has the run finished on the main connection, because without a watchdog there are no workers.
    pub fn finish_without_watchdog(&mut self, why: &str) {
        self.log(LogLevel::Error, format!("the run is ended without a watchdog: {why}"));
        let run_dir = self.plan.run_dir.path.clone();
        let pending = &self.pending_journals;
        let stream = |worker| {
            let journal = JournalFile::read_worker(&run_dir, worker);
            let settled = journal.settled().into_iter();
            let settled = settled.map(|one| (one.test, one.outcome, Duration::from_micros(one.duration_us)));
            let proven = pending.get(&worker).map_or(0, |(proven, _)| *proven);
            LostStream { proven, settled: settled.collect() }
        };
        match self.run.complete_without_finisher(stream) {
            FinisherTask::Finish(due) => {
                let sent = self.finish.as_ref().map(|finish| [finish.sent_frames, finish.relayed_frames]);
                let [sent_frames, relayed_frames] = sent.unwrap_or_default();
                let finish = FinishRequest { sent_frames, relayed_frames, ..self.finish_request(&due) };
                if let Err(error) = manifest::write_synthesized(&self.plan, &finish) {
                    tracing::warn!(%error, "the synthesized results could not be written to the run's directory");
                }
                self.client.events.finish_run(&finish);
            }
            FinisherTask::Complete => {
                self.client.events.finish_run(&self.completion_request());
            }
            FinisherTask::Register | FinisherTask::CoordinatorCompletes | FinisherTask::None => {}
        }
        self.proof = ProofLevel::Ordered;
        self.actions.clear();
        self.is_complete = true;
    }
}
