//! Messages of workers and of the watchdog about one run.

use std::time::Duration;

use model::{
    HeldBy, LeaseId, TestId,
    run::{Event, Succession},
};
use tokio::time::Instant;
use wire::{
    control::{
        EvidenceFile, Finish, FromWatchdog, FromWorker, JournalledResult, OsBytes, Report, ToWatchdog,
        WorkerId,
    },
    mtp::{Attachment, LogLevel},
};

use super::{Driver, JOURNAL_DEADLINE, LATE, Standing};
use crate::{
    pool::Pool,
    run::{
        convert::{charge, end_of, outcome_of, to_model},
        manifest, told,
    },
};

impl Driver {
    /// Handles a worker's message about this run.
    ///
    /// Cancel safe: no, because the message may be handled only in part.
    pub async fn worker(&mut self, worker: WorkerId, message: FromWorker) {
        match message {
            FromWorker::Reports { lease, reports } => {
                for report in reports {
                    match report {
                        Report::Standing { test, pid, is_program, debuggee } => {
                            self.stands(Standing { worker, lease, test, pid, debuggee }, is_program).await;
                        }
                        Report::Launched { .. } => self.launched.push((worker, lease)),
                        report => self.report(worker, lease, report),
                    }
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
                self.client_log().proof(&format!("worker {worker}"), proof).await;
                let proven = if proof.is_enough() { position } else { 0 };
                self.feed(Event::Drained { worker: to_model(worker), proven });
            }
            FromWorker::Log { run, lines } => self.client_log().lines(run.as_deref(), lines).await,
            FromWorker::Drained { .. }
            | FromWorker::Paused
            | FromWorker::Discovered { .. }
            | FromWorker::NotDiscovered { .. } => {}
        }
    }

    async fn stands(&mut self, standing: Standing, is_program: bool) {
        if !is_program {
            let text = "the system does not let the test be held at its first instruction: a debugger finds Heeler in its \
                        process, about to become the program";
            self.log_of(standing.test, LogLevel::Information, text.to_owned()).await;
        }
        self.standing.push(standing);
    }

    fn report(&mut self, worker: WorkerId, lease: wire::control::LeaseId, report: Report) {
        let program = self.leases.get(&lease).copied();
        let lease = LeaseId(lease.0);
        match report {
            // Handled by the caller.
            Report::Standing { .. } | Report::Launched { .. } => {}
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
                self.result.leaks.extend(told::leak(&self.plan, (program, &tests), &processes));
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

    /// Handles a worker's death, given the position up to which its results of this run were forwarded.
    ///
    /// Cancel safe: no, because the watchdog may or may not have received the request for its journal.
    pub async fn worker_gone(&mut self, pool: &mut Pool, worker: WorkerId, relayed: u64) {
        self.worker_deaths += 1;
        let message = format!("worker {worker} died; what it had not settled is run again");
        let test = self.in_flight.remove(&worker);
        self.client_log().line(test, LogLevel::Warning, message).await;
        self.journals.insert(worker, (relayed, Instant::now() + JOURNAL_DEADLINE));
        self.ask_for_journal(pool, worker).await;
    }

    async fn ask_for_journal(&self, pool: &mut Pool, worker: WorkerId) {
        let (run, run_dir) = (self.plan.run.clone(), OsBytes::from(self.plan.run_dir.path.as_path()));
        pool.tell_watchdog(&ToWatchdog::ReadJournal { run, run_dir, worker }).await;
    }

    /// Handles a message of the watchdog about this run.
    ///
    /// Cancel safe: no, as [`Driver::worker`].
    pub async fn watchdog(&mut self, message: FromWatchdog) {
        match message {
            FromWatchdog::Journal { run, worker, settled, attachments, damage } if run == self.plan.run => {
                if let Some(damage) = damage {
                    let text =
                        format!("the journal of worker {worker} could not be read to its end: {damage}");
                    self.log(LogLevel::Warning, text).await;
                }
                // Some of them were reported before their worker died.
                let is_new = |new: &Attachment| self.result.attachments.iter().all(|old| old.uri != new.uri);
                let new: Vec<_> = attachments.into_iter().filter(is_new).collect();
                self.result.attachments.extend(new);
                self.worker_lost(worker, &settled);
            }
            FromWatchdog::Finished { run, proof, soft_errors, .. } if run == self.plan.run => {
                for error in soft_errors {
                    self.log(LogLevel::Warning, error).await;
                }
                self.client_log().proof("the watchdog", proof).await;
                self.proof = proof;
                self.feed(Event::Finished);
            }
            FromWatchdog::Completing { run } if run == self.plan.run => self.feed(Event::Completing),
            FromWatchdog::Journal { .. }
            | FromWatchdog::Completing { .. }
            | FromWatchdog::Finished { .. }
            | FromWatchdog::WorkerNotStarted { .. }
            | FromWatchdog::WorkerEnded { .. } => {}
        }
    }

    pub(super) fn worker_lost(&mut self, worker: WorkerId, settled: &[JournalledResult]) {
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

    /// Sends the run's state to a new watchdog.
    ///
    /// Cancel safe: no, because only a part may be sent.
    pub async fn watchdog_replaced(&mut self, pool: &mut Pool) {
        let text = "the watchdog died and was replaced; its workers went with it".to_owned();
        self.log(LogLevel::Warning, text).await;
        for worker in self.journals.keys().copied().collect::<Vec<_>>() {
            self.ask_for_journal(pool, worker).await;
        }
        match self.run.succession() {
            Succession::Begin => self.tell_begin(pool).await,
            // If the finish action has not been executed yet, it will send the request itself.
            Succession::Finish(_) => {
                if let Some(finish) = self.finish.clone() {
                    pool.tell_watchdog(&ToWatchdog::Finish(finish)).await;
                }
            }
            Succession::Complete => self.complete_only(pool).await,
            Succession::Alone => self.finish_ourselves(LATE).await,
            Succession::Nothing => {}
        }
    }

    async fn complete_only(&self, pool: &mut Pool) {
        let finish = Finish {
            run: self.plan.run.clone(),
            run_dir: OsBytes::from(self.plan.run_dir.path.as_path()),
            resend: Vec::new(),
            groups: Vec::new(),
            told: Vec::new(),
            attachments: Vec::new(),
            has_attachments_stream: false,
        };
        pool.tell_watchdog(&ToWatchdog::Finish(Box::new(finish))).await;
    }

    pub(super) async fn tell_begin(&self, pool: &mut Pool) {
        let (run, run_dir) = (self.plan.run.clone(), OsBytes::from(self.plan.run_dir.path.as_path()));
        let has_attachments_stream = self.plan.has_attachments_stream;
        let plan = (!self.has_manifest).then(|| manifest::planned(&self.plan));
        pool.tell_watchdog(&ToWatchdog::BeginRun { run, run_dir, has_attachments_stream, plan }).await;
    }
}
