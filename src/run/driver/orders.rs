//! Executes the actions that the model returns for one run.

use std::time::Duration;

use model::{
    TestId,
    run::{Action, Due, Lease as ModelLease, Stage, Succession},
};
use tokio::time::Instant;
use wire::{
    control::{
        Finish, JournalledResult, Lease, LeasedTest, OsBytes, Proof, TestIndex, TestLimits, ToWatchdog,
        ToWorker, WatchPlan,
    },
    mtp::{LogLevel, RawChange, attachments_of},
};

use super::{CANCEL_DEADLINE, Driver, STAGE_SLACK};
use crate::{
    pool::Pool,
    run::{
        convert::{from_model, outcome_of},
        groups, last_resort, manifest, told,
    },
};

impl Driver {
    /// Executes the pending actions.
    ///
    /// Cancel safe: no, because an action that is lost is never repeated.
    pub async fn act(&mut self, pool: &mut Pool) {
        while let Some(action) = self.actions.pop_front() {
            match action {
                Action::StartWorker => self.asked += 1,
                Action::Lease(lease) => self.lease(pool, *lease).await,
                Action::CancelLease(worker) => {
                    let grace = Duration::from_millis(self.plan.limits.grace_ms);
                    self.cancel_until.get_or_insert(Instant::now() + grace + CANCEL_DEADLINE);
                    let cancel = ToWorker::Cancel { grace_ms: self.plan.limits.grace_ms };
                    pool.tell(from_model(worker), &cancel).await;
                }
                Action::Drain(worker) => {
                    host::fail::pass("run.drain");
                    self.set_stage(Stage::Draining);
                    pool.tell(from_model(worker), &ToWorker::Drain { run: self.plan.run.clone() }).await;
                }
                Action::KillFinisher => pool.kill_watchdog(),
                Action::Finish(due) => self.finish(pool, &due).await,
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

    async fn lease(&mut self, pool: &mut Pool, lease: ModelLease) {
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
            run_dir: OsBytes::from(self.plan.run_dir.path.as_path()),
            program: self.plan.programs[program].clone(),
            groups: groups::lend(&self.plan, &mut tests),
            tests,
            limits: TestLimits {
                memory_bytes: self.plan.memory_limit(&lease.batch.tests),
                ..self.plan.limits
            },
            watch: self.watch(&lease.batch.tests),
            is_alone: lease.batch.is_alone,
            is_debugged: self.plan.is_debugged,
            is_output_shown: self.plan.is_output_shown,
        };
        self.leases.insert(wire.lease, program);
        if let [only] = wire.tests.as_slice() {
            self.in_flight.insert(from_model(lease.worker), only.test);
        }
        self.served += 1;
        pool.assign(from_model(lease.worker), &self.plan.run);
        pool.tell(from_model(lease.worker), &ToWorker::Lease(Box::new(wire))).await;
    }

    /// Returns the crash capture of a lease. A crash that is checked by an isolated rerun has left its dump
    /// already.
    fn watch(&self, tests: &[TestId]) -> WatchPlan {
        let mut watch = self.dumps.watch(&self.plan, tests);
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
            group: None,
            foreign: selected.foreign.as_deref().map(str::to_owned),
            timeout_ms: selected.timeout.map(millis),
            silence_ms: selected.silence.map(millis),
            slow_ms: selected.slow.map(millis),
            attempts: held.attempts,
            death: held.death,
            is_failure_held,
        }
    }

    async fn finish(&mut self, pool: &mut Pool, Due { resend, told }: &Due) {
        host::fail::pass("run.finish");
        self.set_stage(Stage::Finishing);
        let changes = told::changes(&self.plan, told, &self.held, &self.charges);
        self.note_told(&told::results(told, &self.held), &changes).await;
        for (test, told) in told {
            let held = self.held.get(&TestIndex(test.0));
            self.result.attachments.extend(held.iter().flat_map(|held| told::attachments(*told, held)));
        }
        let finish = Box::new(Finish {
            run: self.plan.run.clone(),
            run_dir: OsBytes::from(self.plan.run_dir.path.as_path()),
            resend: told::resend(&self.plan, self.run.ledger(), resend),
            groups: groups::due(&self.plan, resend.len() + told.len()),
            told: changes,
            attachments: self.result.attachments.clone(),
            has_attachments_stream: self.plan.has_attachments_stream,
        });
        self.finish = Some(finish.clone());
        pool.tell_watchdog(&ToWatchdog::Finish(finish)).await;
    }

    /// Writes the synthesized results to disk before they are sent to the client.
    async fn note_told(&self, results: &[JournalledResult], changes: &[RawChange]) {
        if let Err(error) = manifest::write_told(&self.plan, results, changes) {
            let text = format!("what no worker tells could not be written to the run's directory: {error}");
            self.log(LogLevel::Warning, text).await;
        }
    }

    /// Finishes the run in this process, on the main connection, because without a watchdog there are no
    /// workers.
    ///
    /// Cancel safe: no, because only a part may be sent.
    pub async fn finish_ourselves(&mut self, why: &str) {
        self.log(LogLevel::Error, format!("the run is ended without a watchdog: {why}")).await;
        let Self { plan, run, held, charges, .. } = self;
        let settled = |worker| {
            let settled = last_resort::settled(&plan.run_dir.path, from_model(worker)).into_iter();
            let result = |one: JournalledResult| {
                (TestId(one.test.0), outcome_of(one.state), Duration::from_micros(one.duration_us))
            };
            settled.map(result).collect()
        };
        let mut noted = Ok(());
        match run.end_alone(settled) {
            Succession::Finish(Due { resend, told }) => {
                let changes = told::changes(plan, &told, held, charges);
                noted = manifest::write_told(plan, &told::results(&told, held), &changes);
                let resend = told::resend(plan, run.ledger(), &resend);
                let of_changes = changes.iter().flat_map(|change| attachments_of(change.as_bytes()));
                let attachments: Vec<_> = self.result.attachments.iter().cloned().chain(of_changes).collect();
                let due = (changes.as_slice(), attachments.as_slice());
                last_resort::finish(plan, &self.client, &resend, due).await;
            }
            Succession::Complete => last_resort::complete(plan, &self.client).await,
            Succession::Begin | Succession::Alone | Succession::Nothing => {}
        }
        if let Err(error) = noted {
            tracing::warn!(%error, "what no worker tells could not be written to the run's directory");
        }
        self.proof = Proof::Ordered;
        self.actions.clear();
        self.is_complete = true;
    }
}

fn millis(limit: Duration) -> u64 {
    u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)
}
