//! Executes the actions that the model returns for one run.

use std::time::Duration;

use heeler_core::run::{BatchLease, CancelMode, DueResults, FinisherTask, LostStream, RunAction, RunStage};
use heeler_protocol::{
    control::{FinishRequest, ProofLevel, ToWorker},
    mtp::LogLevel,
};
use heeler_recovery::JournalFile;

use super::RunDriver;
use crate::pool::WorkerPool;
use crate::run::{manifest, synthesized};

/// Time limit for a worker to end a cancelled lease, on top of the test's grace period.
const CANCEL_DEADLINE: Duration = Duration::from_secs(5);

impl RunDriver {
    /// Executes the pending actions.
    ///
    /// Cancel safe: no, because an action that is lost is never repeated.
    pub(crate) async fn execute_actions(&mut self, pool: &mut WorkerPool) {
        while let Some(action) = self.model.next_action() {
            self.execute_action(pool, action).await;
        }
    }

    async fn execute_action(&mut self, pool: &mut WorkerPool, action: RunAction) {
        match action {
            RunAction::StartWorker => pool.request_workers(&self.requested.user(), 1),
            RunAction::Lease(lease) => self.send_lease(pool, *lease).await,
            RunAction::ExtendLease(lease) => {
                let extended = Box::new(self.requested.worker_lease(&lease, &self.findings));
                pool.send_to_worker(lease.worker, &ToWorker::ExtendLease(extended)).await;
            }
            RunAction::EndLease { worker, lease } => {
                pool.send_to_worker(worker, &ToWorker::EndLease { lease }).await;
            }
            RunAction::ReleaseWorker(worker) => pool.release(worker, None),
            RunAction::DelayRetry { test, delay } => self.timers.delay_retry(test, delay),
            RunAction::DelayStarts { program, delay } => self.timers.delay_starts(program, delay),
            RunAction::LimitSetUp { lease, program } => {
                let program = self.requested.plan().program_of(program);
                let limit_ms = self.requested.startup_limit_ms(program, 0, &self.findings);
                self.timers.limit_set_up(lease, Duration::from_millis(limit_ms));
            }
            RunAction::ReturnTests { worker, program, fixture } => {
                let program = self.requested.plan().program_of(program);
                self.findings.on_conflict(program);
                self.requested.log_conflict(program, &fixture, &self.findings);
                let grace_ms = self.requested.grace_ms();
                pool.send_to_worker(worker, &ToWorker::ReturnTests { grace_ms }).await;
            }
            RunAction::CancelLease { worker, mode } => {
                let grace_ms = self.requested.grace_ms();
                let order = match mode {
                    // Running tests keep their own time limits.
                    CancelMode::AfterRunningTests => ToWorker::CancelAfterRunningTests { grace_ms },
                    CancelMode::Now => {
                        self.timers.limit_cancel(Duration::from_millis(grace_ms) + CANCEL_DEADLINE);
                        ToWorker::Cancel { grace_ms }
                    }
                };
                pool.send_to_worker(worker, &order).await;
            }
            RunAction::Drain(worker) => {
                heeler_sys::fail::pass("run.drain");
                self.timers.begin_stage(RunStage::Draining, self.requested.stage_limit());
                pool.send_to_worker(worker, &self.requested.drain_order()).await;
            }
            RunAction::KillFinisher => pool.kill_watchdog(),
            RunAction::Finish(due) => self.send_finish(pool, &due).await,
            RunAction::Complete => self.is_complete = true,
        }
    }

    async fn send_lease(&mut self, pool: &mut WorkerPool, lease: BatchLease) {
        let wire = self.requested.worker_lease(&lease, &self.findings);
        let program = self.requested.plan().program_of(lease.batch.program);
        self.leases.open(wire.lease, lease.worker, program);
        if let [only] = wire.tests.as_slice() {
            self.leases.begin(lease.worker, wire.lease, only.test);
        }
        pool.send_lease(lease.worker, Box::new(wire)).await;
    }

    async fn send_finish(&mut self, pool: &mut WorkerPool, due: &DueResults) {
        heeler_sys::fail::pass("run.finish");
        self.timers.begin_stage(RunStage::Finishing, self.requested.stage_limit());
        if self.requested.plan().model.is_open {
            // The manifest written at the beginning lacks the tests added since then.
            self.requested.write_manifest();
        }
        let finish = Box::new(self.finish_request(due));
        if let Err(error) = manifest::write_synthesized(self.requested.plan(), &finish) {
            let text =
                format!("failed to write the results of unfinished tests to the run's directory: {error}");
            self.requested.log(LogLevel::Warning, text);
        }
        pool.send_to_watchdog(&self.delivery.begin_finish(finish)).await;
    }

    /// Builds a request for everything that the client may still lack once all streams are closed.
    fn finish_request(&mut self, DueResults { resend, synthesized }: &DueResults) -> FinishRequest {
        let (plan, ledger) = (self.requested.plan(), self.model.state().ledger());
        let resend = synthesized::resend_requests(ledger, resend);
        let synthesized = self.findings.synthesize(plan, synthesized);
        let finish = self.requested.finish_of(manifest::descriptions(plan, &resend, &synthesized));
        self.delivery.finish_of(FinishRequest {
            attachments: self.findings.due_attachments(ledger),
            program_failures: self.findings.program_failures(plan),
            resend,
            synthesized,
            ..finish
        })
    }

    /// Returns a finish request that contains only the completion.
    pub(super) fn completion_request(&self) -> FinishRequest {
        self.delivery.completion_of(self.requested.completion())
    }

    /// Finishes the run over the main connection. Used once the watchdog is lost, and all workers with it.
    pub(super) fn finish_without_watchdog(&mut self, why: &str) {
        self.requested.log(LogLevel::Error, format!("finishing the run without a watchdog: {why}"));
        // Read the journals of all workers, because no worker can report its results any more.
        let (run_dir, journals) = (&self.requested.plan().run_dir.path, &self.journals);
        let task = self.model.complete_without_finisher(|worker| {
            let journal = JournalFile::read_worker(run_dir, worker);
            let settled = journal.settled().into_iter();
            let settled = settled.map(|one| (one.test, one.outcome, Duration::from_micros(one.duration_us)));
            LostStream { proven: journals.proven(worker), settled: settled.collect() }
        });
        // Send what the watchdog would have sent.
        match task {
            FinisherTask::Finish(due) => {
                let finish = self.finish_request(&due);
                let finish = self.delivery.finish_after(finish);
                if let Err(error) = manifest::write_synthesized(self.requested.plan(), &finish) {
                    tracing::warn!(%error, "failed to write the results of unfinished tests to the run's directory");
                }
                self.requested.finish_to_client(&finish);
            }
            FinisherTask::Complete => self.requested.finish_to_client(&self.completion_request()),
            FinisherTask::Register | FinisherTask::CoordinatorCompletes | FinisherTask::None => {}
        }
        self.delivery.set_proof(ProofLevel::Ordered);
        self.is_complete = true;
    }
}
