//! Messages of workers and of the watchdog about one run.

use std::{collections::BTreeMap, time::Duration};

use heeler_core::{
    LeaseId, ProvisionalReason,
    run::{FinisherTask, RunEvent, RunStage},
};
use heeler_protocol::{
    control::{
        FinishRequest, FromWatchdog, FromWorker, JournalledResult, LeaseEnd, LeaseEvent, OsText, ProofLevel,
        ResultFile, RunKey, StreamPosition, ToWatchdog, WorkerId,
    },
    mtp::{Attachment, LogLevel},
};
use tokio::time::Instant;

use super::{FINISH_TIMED_OUT, JOURNAL_DEADLINE, RunDriver, WaitingDebuggee};
use crate::pool::{DeadSenderProof, WorkerPool};
use crate::run::{attachments::FileSource, manifest, synthesized};

impl RunDriver {
    /// Handles a worker's message about this run.
    pub fn on_worker_message(&mut self, worker: WorkerId, message: FromWorker) {
        match message {
            FromWorker::LeaseEvents { lease, events: reports } => {
                for report in reports {
                    match report {
                        LeaseEvent::StoppedForDebugger { test, pid, is_program, debuggee } => {
                            self.on_debuggee_waiting(
                                WaitingDebuggee { worker, lease, test, pid, debuggee },
                                is_program,
                            );
                        }
                        LeaseEvent::LaunchedByDebugger { .. } => self.launched_leases.push((worker, lease)),
                        report => self.on_report(worker, lease, report),
                    }
                }
            }
            FromWorker::LeaseIdle { lease } => self.apply_event(RunEvent::LeaseIdle { worker, lease }),
            FromWorker::LeaseEnded { lease, end, start_us } => {
                let start = start_us.map(Duration::from_micros);
                if let Some(program) = self.neighbours.close(lease) {
                    self.record_lease_end(program, &end, start);
                }
                self.apply_event(RunEvent::LeaseEnded { worker, lease, end: end.outcome(), start });
            }
            FromWorker::Drained { run, proof, position } if run == self.client.key => {
                self.client_log().log_proof(&format!("worker {worker}"), proof);
                // What lies in the queue of the main connection is overtaken by a completion on another one.
                let is_relayed = proof == ProofLevel::Ordered && self.client.route.callback.is_some();
                self.must_finish_on_main |= proof == ProofLevel::Delivered || is_relayed;
                if is_relayed {
                    self.relayed_workers.insert(worker);
                }
                self.apply_event(RunEvent::Drained { worker, proven: position });
            }
            FromWorker::Log { lines, .. } => self.client_log().forward_lines(lines),
            FromWorker::Drained { .. }
            | FromWorker::Paused
            | FromWorker::Blocked { .. }
            | FromWorker::Discovered { .. }
            | FromWorker::NotDiscovered { .. } => {}
        }
    }

    /// Records what the end of a lease shows about its program.
    fn record_lease_end(&mut self, program: usize, end: &LeaseEnd, start: Option<Duration>) {
        if let Some(start) = start {
            self.resource_usage.record_start(program, start);
        }
        if let Some(message) = end.program_failure() {
            self.program_failures.add(program, message.to_owned());
        }
        if let LeaseEnd::StartTimedOut { message, .. } = end {
            let suite = &self.plan.programs[program].suite;
            let first_line = message.lines().next().unwrap_or_default();
            self.log(LogLevel::Warning, format!("{suite}: {first_line}"));
            self.program_failures.add_start_timeout(program, message.clone());
        }
    }

    fn on_debuggee_waiting(&mut self, standing: WaitingDebuggee, is_program: bool) {
        if !is_program {
            let text = "the system does not let the test be held at its first instruction: a debugger finds Heeler in its \
                        process, about to become the program";
            self.log_test(standing.test, LogLevel::Information, text.to_owned());
        }
        self.waiting_debuggees.push(standing);
    }

    fn on_report(&mut self, worker: WorkerId, lease: LeaseId, report: LeaseEvent) {
        let program = self.neighbours.program_of(lease);
        match report {
            // Handled by the caller.
            LeaseEvent::StoppedForDebugger { .. } | LeaseEvent::LaunchedByDebugger { .. } => {}
            LeaseEvent::Started(test) => {
                self.running_tests.insert(worker, test);
                self.neighbours.begin(lease, test);
                self.apply_event(RunEvent::Started { lease, test });
            }
            LeaseEvent::IterationPassed { test, duration_us } => {
                let duration = Duration::from_micros(duration_us);
                self.apply_event(RunEvent::IterationPassed { lease, test, duration });
            }
            LeaseEvent::Held(test) => self.apply_event(RunEvent::Held { lease, test }),
            LeaseEvent::Settled { test, outcome, duration_us, position } => {
                self.program_failures.remove_start_timeouts(self.plan.tests[test.index()].program);
                let duration = Duration::from_micros(duration_us);
                self.durations.push((test, duration));
                self.apply_event(RunEvent::Settled { worker, test, outcome, duration, position });
            }
            LeaseEvent::FilesAttached { test, files } => {
                self.dumps.count(&files);
                let source = test.map_or(FileSource::Run, |test| FileSource::Result { worker, test });
                for file in files {
                    self.attachments.add(Attachment::file(&file.path, &file.description), source);
                }
            }
            LeaseEvent::SetUp { fixture, progress } => {
                self.apply_event(RunEvent::SetUp { worker, lease, fixture, progress });
            }
            LeaseEvent::ProcessEnded { test, tests, usage } => {
                self.resource_usage.record_process(program, tests, test, usage)
            }
            LeaseEvent::FixtureFailed { fixture, message } => {
                if let Some(program) = program {
                    self.program_failures.add_fixture(program, fixture, message);
                }
            }
            LeaseEvent::ProcessesLeaked { tests, processes } => {
                self.result.leaks.extend(synthesized::leak_entry(&self.plan, program, &tests, &processes));
            }
            LeaseEvent::FailedProvisionally { test, attempt } => {
                self.dumps.count_provisional(&attempt);
                let ran_beside = self.tests_beside(lease);
                let results = self.provisional.entry(test).or_default();
                results.attempts.push(*attempt);
                results.ran_beside.extend(ran_beside);
                self.apply_event(RunEvent::Provisional { lease, test, by: ProvisionalReason::AwaitsRetry });
            }
            LeaseEvent::CrashedProvisionally { test, attempt } => {
                self.dumps.count_provisional(&attempt);
                self.crashed.insert(test);
                let ran_beside = self.tests_beside(lease);
                let results = self.provisional.entry(test).or_default();
                results.crash = Some(*attempt);
                results.ran_beside.extend(ran_beside);
                self.apply_event(RunEvent::Provisional {
                    lease,
                    test,
                    by: ProvisionalReason::AwaitsIsolatedRun,
                });
            }
        }
    }

    /// Returns tests that ran in other processes of a lease's program, by uid.
    fn tests_beside(&self, lease: LeaseId) -> Vec<String> {
        self.neighbours.beside(lease).map(|test| self.plan.tests[test.index()].uid.clone()).collect()
    }

    /// Notes that a worker has died with the watchdog, before its death is handled.
    pub fn on_watchdog_died(&mut self, worker: WorkerId) {
        self.apply_event(RunEvent::WatchdogDied { worker });
    }

    /// Handles a worker's death, given what the client is proven to have of its results.
    ///
    /// Cancel safe: no, because the watchdog may or may not have received the request for its journal.
    pub async fn on_worker_died(
        &mut self,
        pool: &mut WorkerPool,
        worker: WorkerId,
        proven: &DeadSenderProof,
    ) {
        let (relayed, own_stream) = (self.of_run(&proven.relayed), self.of_run(&proven.own_streams));
        self.worker_deaths += 1;
        self.neighbours.close_worker(worker);
        let message = format!("worker {worker} died; its tests without a result run again");
        let test = self.running_tests.remove(&worker);
        self.client_log().log_line(test, LogLevel::Warning, message);
        // What came on its own connection is proven there, and nothing on another can overtake it.
        if relayed > 0 && self.client.route.callback.is_some() {
            self.must_finish_on_main = true;
            self.relayed_workers.insert(worker);
        }
        if own_stream > 0 {
            self.handled_streams.push(StreamPosition { worker, position: own_stream });
            self.send_handled_streams(pool).await;
        }
        let position = relayed.max(own_stream);
        self.pending_journals.insert(worker, (position, Instant::now() + JOURNAL_DEADLINE));
        self.request_journal(pool, worker).await;
    }

    /// Has the watchdog know what the client has handled of dead workers: if this process is killed, the
    /// watchdog must not send it again, and one that is new has no duplicates of their connections.
    async fn send_handled_streams(&self, pool: &mut WorkerPool) {
        if !self.handled_streams.is_empty() {
            let (run, positions) = (self.client.key.clone(), self.handled_streams.clone());
            pool.send_to_watchdog(&ToWatchdog::StreamsHandled { run, positions }).await;
        }
    }

    async fn request_journal(&self, pool: &mut WorkerPool, worker: WorkerId) {
        let (run, run_dir) = (self.client.key.clone(), OsText::from(self.plan.run_dir.path.as_path()));
        pool.send_to_watchdog(&ToWatchdog::ReadJournal { run, run_dir, worker }).await;
    }

    /// Handles a message of the watchdog about this run.
    pub fn on_watchdog_message(&mut self, message: FromWatchdog) {
        match message {
            FromWatchdog::Journal { run, worker, settled, files, damage } if run == self.client.key => {
                if let Some(damage) = damage {
                    let text =
                        format!("the journal of worker {worker} could not be read to its end: {damage}");
                    self.log(LogLevel::Warning, text);
                }
                // Some of them were reported before their worker died.
                for ResultFile { test, attachment } in files {
                    self.attachments.add(attachment, FileSource::Result { worker, test });
                }
                self.on_journal_read(worker, &settled);
            }
            FromWatchdog::Finished { run, proof, soft_errors, .. } if run == self.client.key => {
                for error in soft_errors {
                    self.log(LogLevel::Warning, error);
                }
                self.client_log().log_proof("the watchdog", proof);
                self.proof = proof;
                self.apply_event(RunEvent::Finished);
            }
            FromWatchdog::Completing { run } if run == self.client.key => {
                self.apply_event(RunEvent::Completing)
            }
            FromWatchdog::Journal { .. }
            | FromWatchdog::Completing { .. }
            | FromWatchdog::Relaying { .. }
            | FromWatchdog::Finished { .. }
            | FromWatchdog::WorkerNotStarted { .. }
            | FromWatchdog::WorkerEnded { .. } => {}
        }
    }

    pub(super) fn on_journal_read(&mut self, worker: WorkerId, settled: &[JournalledResult]) {
        let Some((relayed, _)) = self.pending_journals.remove(&worker) else { return };
        let settled = settled
            .iter()
            .map(|result| {
                let duration = Duration::from_micros(result.duration_us);
                (result.test, result.outcome, duration)
            })
            .collect();
        self.apply_event(RunEvent::WorkerLost { worker, proven: relayed, settled });
    }

    /// Sends the run's state to a new watchdog, given what the client is proven to have of the earlier one.
    ///
    /// Cancel safe: no, because only a part may be sent.
    pub async fn on_watchdog_replaced(&mut self, pool: &mut WorkerPool, proven: &DeadSenderProof) {
        let text = "the watchdog died and was replaced; its workers died with it".to_owned();
        self.log(LogLevel::Warning, text);
        self.take_finish_proof(proven);
        for worker in self.pending_journals.keys().copied().collect::<Vec<_>>() {
            self.request_journal(pool, worker).await;
        }
        match self.run.finisher_task() {
            FinisherTask::Register => {
                self.send_begin_run(pool).await;
                self.send_handled_streams(pool).await;
            }
            // If the finish action has not been executed yet, it will send the request itself.
            FinisherTask::Finish(_) => {
                if let Some(finish) = &self.finish {
                    pool.send_to_watchdog(&ToWatchdog::Finish(finish.clone())).await;
                }
            }
            FinisherTask::Complete => self.send_completion_request(pool).await,
            FinisherTask::CoordinatorCompletes => self.finish_without_watchdog(FINISH_TIMED_OUT),
            FinisherTask::None => {}
        }
    }

    /// Returns what of a proof concerns this run.
    fn of_run(&self, positions: &BTreeMap<RunKey, u64>) -> u64 {
        positions.get(&self.client.key).copied().unwrap_or(0)
    }

    /// Takes over what the client is proven to have of a dead watchdog's finish. A run whose completion it
    /// has handled is over, although the watchdog could not report it.
    fn take_finish_proof(&mut self, proven: &DeadSenderProof) {
        let (sent, relayed) = (self.of_run(&proven.own_streams), self.of_run(&proven.relayed));
        if let Some(finish) = &mut self.finish {
            finish.sent_frames = finish.sent_frames.max(sent);
            finish.relayed_frames = finish.relayed_frames.max(relayed);
            // What was relayed lies in the queue of the main connection, and a completion elsewhere would
            // overtake it.
            finish.is_relayed |= relayed > 0;
        }
        let run_dir = OsText::from(self.plan.run_dir.path.as_path());
        if proven.completed.contains(&run_dir) {
            self.proof = ProofLevel::Handled;
            self.apply_event(RunEvent::Finished);
        }
    }

    /// Ends the run, because there is no watchdog any more and therefore no worker, given what the client is
    /// proven to have of the last one.
    pub fn on_watchdog_lost(&mut self, why: &str, proven: &DeadSenderProof) {
        self.take_finish_proof(proven);
        if self.run.stage() != RunStage::Completed {
            self.finish_without_watchdog(why);
        }
    }

    async fn send_completion_request(&self, pool: &mut WorkerPool) {
        pool.send_to_watchdog(&ToWatchdog::Finish(Box::new(self.completion_request()))).await;
    }

    /// Returns a finish of only the completion, for a client that is proven to have received everything
    /// before it.
    pub(super) fn completion_request(&self) -> FinishRequest {
        FinishRequest {
            run: self.client.key.clone(),
            route: self.client.route.clone(),
            run_dir: OsText::from(self.plan.run_dir.path.as_path()),
            relayed_workers: self.relayed_workers.iter().copied().collect(),
            ..FinishRequest::default()
        }
    }

    /// Announces the run to the watchdog before any worker receives a lease of it: if this process is killed
    /// after a worker has sent something of the run to the client, the watchdog can complete it.
    pub(super) async fn send_begin_run(&self, pool: &mut WorkerPool) {
        let (run, run_dir) = (self.client.key.clone(), OsText::from(self.plan.run_dir.path.as_path()));
        let has_attachments_stream = self.plan.has_attachments_stream;
        let route = self.client.route.clone();
        let plan = (!self.has_manifest).then(|| Box::new(manifest::manifest_plan(&self.plan)));
        let client_members = self.client.client_members.clone();
        pool.send_to_watchdog_flushed(&ToWatchdog::BeginRun {
            run,
            route,
            run_dir,
            has_attachments_stream,
            plan,
            client_members,
        })
        .await;
    }
}
