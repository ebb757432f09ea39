//! Executes the actions that the model returns for one run.

use std::time::Duration;

use heeler_core::{
    TestId,
    run::{BatchLease as ModelLease, DueResults, FinisherTask, RunAction, RunStage},
};
use heeler_protocol::{
    control::{
        CrashCapturePlan, FinishRequest, JournalledResult, LeasedTest, LogLevel, OsText, ProofLevel,
        TestIndex, TestLimits, ToWatchdog, ToWorker, WorkerLease,
    },
    mtp::{EncodedChange, attachments_of},
};
use tokio::time::Instant;

use super::{CANCEL_DEADLINE, RunDriver, STAGE_SLACK};
use crate::pool::WorkerPool;
use crate::run::{
    convert::{from_model, outcome_of},
    fallback_finish::{self, FallbackFinish},
    groups, manifest,
    plan::millis,
    synthesized,
};
use crate::scheduler::ClientEvent;

impl RunDriver {
    /// Executes the pending actions.
    ///
    /// Cancel safe: no, because an action that is lost is never repeated.
    pub async fn execute_actions(&mut self, pool: &mut WorkerPool) {
        loop {
            while let Some(action) = self.actions.pop_front() {
                self.execute_action(pool, action).await;
            }
            self.release_idle(pool);
            if self.actions.is_empty() {
                return;
            }
        }
    }

    async fn execute_action(&mut self, pool: &mut WorkerPool, action: RunAction) {
        match action {
            RunAction::StartWorker => pool.request_worker(self.user()),
            RunAction::Lease(lease) => self.send_lease(pool, *lease).await,
            RunAction::CancelLease(worker) => {
                let grace = Duration::from_millis(self.plan.limits.grace_ms);
                self.cancel_deadline.get_or_insert(Instant::now() + grace + CANCEL_DEADLINE);
                let cancel = ToWorker::Cancel { grace_ms: self.plan.limits.grace_ms };
                pool.send_to_worker(from_model(worker), &cancel).await;
            }
            RunAction::Drain(worker) => {
                heeler_sys::fail::pass("run.drain");
                self.set_stage(RunStage::Draining);
                let drain = ToWorker::Drain { run: self.client.key.clone() };
                pool.send_to_worker(from_model(worker), &drain).await;
            }
            RunAction::KillFinisher => pool.kill_watchdog(),
            RunAction::Finish(due) => self.send_finish(pool, &due).await,
            RunAction::Complete => self.is_complete = true,
        }
    }

    fn set_stage(&mut self, stage: RunStage) {
        if self.stage_deadline.is_none_or(|(earlier, _)| earlier != stage) {
            let limits = self.plan.delivery_limits;
            let waits = limits.connect_ms + limits.stall_ms + 8 * limits.drain_ms;
            self.stage_deadline = Some((stage, Instant::now() + Duration::from_millis(waits) + STAGE_SLACK));
        }
    }

    async fn send_lease(&mut self, pool: &mut WorkerPool, lease: ModelLease) {
        let program = lease.batch.program.index();
        let mut tests: Vec<_> = lease
            .batch
            .tests
            .iter()
            .zip(&lease.is_failure_provisional)
            .map(|(test, is_failure_held)| self.leased_test(*test, *is_failure_held))
            .collect();
        tests.sort_by_key(|test| self.plan.tests[test.test.0 as usize].listing_index);
        let wire = WorkerLease {
            lease: heeler_protocol::control::LeaseId(lease.lease.0),
            run: self.client.key.clone(),
            route: self.client.route.clone(),
            run_dir: OsText::from(self.plan.run_dir.path.as_path()),
            program: self.plan.programs[program].clone(),
            groups: groups::subset(&self.plan, &mut tests),
            tests,
            limits: TestLimits {
                memory_bytes: self.plan.memory_limit(&lease.batch.tests),
                ..self.plan.limits
            },
            crash_capture: self.watch_plan(&lease.batch.tests),
            is_isolated: lease.batch.is_isolated,
            is_debugged: self.plan.is_debugged,
            is_output_shown: self.plan.is_output_shown,
        };
        self.lease_programs.insert(wire.lease, program);
        if let [only] = wire.tests.as_slice() {
            self.running_tests.insert(from_model(lease.worker), only.test);
        }
        self.leases_granted += 1;
        pool.assign_run(from_model(lease.worker), &self.client.key);
        pool.send_to_worker(from_model(lease.worker), &ToWorker::Lease(Box::new(wire))).await;
    }

    /// Returns the crash capture of a lease. A crash that is checked by an isolated rerun has left its dump
    /// already.
    fn watch_plan(&self, tests: &[TestId]) -> CrashCapturePlan {
        let mut watch = self.dumps.watch_plan(&self.plan, tests);
        let has_dump = |test: &TestId| {
            let death = self.provisional.get(&TestIndex(test.0)).and_then(|held| held.crash.as_ref());
            death.is_some_and(|death| death.diagnostics.is_some())
        };
        watch.dumps.crash &= !tests.iter().any(has_dump);
        watch
    }

    fn leased_test(&self, test: TestId, is_failure_held: bool) -> LeasedTest {
        let selected = &self.plan.tests[test.index()];
        let held = self.provisional.get(&TestIndex(test.0)).cloned().unwrap_or_default();
        LeasedTest {
            test: TestIndex(test.0),
            listed: selected.listed.clone(),
            uid: selected.uid.clone(),
            group: None,
            client_members: selected.foreign.as_deref().map(str::to_owned),
            timeout_ms: selected.timeout.map(millis),
            idle_timeout_ms: selected.idle_timeout.map(millis),
            slow_ms: selected.slow_period.map(millis),
            attempts: held.attempts,
            crashed_attempt: held.crash,
            is_failure_provisional: is_failure_held,
        }
    }

    async fn send_finish(
        &mut self,
        pool: &mut WorkerPool,
        DueResults { resend, synthesized: told }: &DueResults,
    ) {
        heeler_sys::fail::pass("run.finish");
        self.set_stage(RunStage::Finishing);
        let changes =
            synthesized::synthesized_changes(&self.plan, told, &self.provisional, &self.program_failures);
        self.write_synthesized(&synthesized::journalled_results(told, &self.provisional), &changes);
        for (test, told) in told {
            let held = self.provisional.get(&TestIndex(test.0));
            self.result
                .attachments
                .extend(held.iter().flat_map(|held| synthesized::attachments(*told, held)));
        }
        let finish = Box::new(FinishRequest {
            run: self.client.key.clone(),
            route: self.client.route.clone(),
            run_dir: OsText::from(self.plan.run_dir.path.as_path()),
            resend: synthesized::resend_requests(&self.plan, self.run.ledger(), resend),
            groups: groups::pending_group_changes(&self.plan, resend.len() + told.len()),
            synthesized: changes,
            attachments: self.result.attachments.clone(),
            has_attachments_stream: self.plan.has_attachments_stream,
        });
        self.finish = Some(finish.clone());
        pool.send_to_watchdog(&ToWatchdog::Finish(finish)).await;
    }

    /// Writes the synthesized results to disk before they are sent to the client.
    fn write_synthesized(&self, results: &[JournalledResult], changes: &[EncodedChange]) {
        if let Err(error) = manifest::write_synthesized(&self.plan, results, changes) {
            let text = format!("what no worker tells could not be written to the run's directory: {error}");
            self.log(LogLevel::Warning, text);
        }
    }

    /// Has the run finished on the main connection, because without a watchdog there are no workers.
    pub fn finish_without_watchdog(&mut self, why: &str) {
        self.log(LogLevel::Error, format!("the run is ended without a watchdog: {why}"));
        let Self { plan, run, provisional: held, program_failures: charges, .. } = self;
        let settled = |worker| {
            let settled =
                fallback_finish::journalled_results(&plan.run_dir.path, from_model(worker)).into_iter();
            let result = |one: JournalledResult| {
                (TestId(one.test.0), outcome_of(one.state), Duration::from_micros(one.duration_us))
            };
            settled.map(result).collect()
        };
        let mut noted = Ok(());
        match run.complete_without_finisher(settled) {
            FinisherTask::Finish(DueResults { resend, synthesized: told }) => {
                let changes = synthesized::synthesized_changes(plan, &told, held, charges);
                noted = manifest::write_synthesized(
                    plan,
                    &synthesized::journalled_results(&told, held),
                    &changes,
                );
                let resend = synthesized::resend_requests(plan, run.ledger(), &resend);
                let of_changes = changes.iter().flat_map(|change| attachments_of(change.as_bytes()));
                let attachments: Vec<_> = self.result.attachments.iter().cloned().chain(of_changes).collect();
                let finish = fallback_finish::pending_updates(plan, &resend, &changes, attachments);
                self.client.events.send(ClientEvent::FinishRun(Box::new(finish)));
            }
            FinisherTask::Complete => {
                self.client.events.send(ClientEvent::FinishRun(Box::new(FallbackFinish::completion(plan))));
            }
            FinisherTask::Register | FinisherTask::CoordinatorCompletes | FinisherTask::None => {}
        }
        if let Err(error) = noted {
            tracing::warn!(%error, "what no worker tells could not be written to the run's directory");
        }
        self.proof = ProofLevel::Ordered;
        self.actions.clear();
        self.is_complete = true;
    }
}
