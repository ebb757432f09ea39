//! Facts that workers report about tests and processes and that the run's model does not need.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use heeler_core::{
    ProgramFailure, ProvisionalReason, SynthesizedResult, TestId,
    ledger::Ledger,
    run::{RunEvent, RunState},
};
use heeler_protocol::{
    control::{
        Attempt, CrashCapturePlan, DueResult, LeaseEnd, LeaseEvent, LeaseId, ProofLevel, ResultFile, WorkerId,
    },
    mtp::{Attachment, RunLeak, RunResult},
};

use super::RunOutcome;
use crate::run::{
    RunPlan, RunResourceUsage,
    attachments::{FileSource, RunAttachments},
    dump_budget::DumpBudget,
    neighbours::LeaseNeighbours,
    synthesized::{self, ProgramFailures, ProvisionalResults},
};

#[derive(Default)]
pub(super) struct RunFindings {
    provisional: BTreeMap<TestId, ProvisionalResults>,
    program_failures: ProgramFailures,
    leaks: Vec<RunLeak>,
    attachments: RunAttachments,
    dumps: DumpBudget,
    durations: Vec<(TestId, Duration)>,
    crashed: BTreeSet<TestId>,
    resource_usage: RunResourceUsage,
    worker_deaths: usize,
}

impl RunFindings {
    /// Starts with the programs whose listing process failed after listing all tests.
    pub(super) fn of_listings(plan: &RunPlan) -> Self {
        let mut findings = Self::default();
        for (program, listing) in plan.listings.iter().enumerate() {
            if let Some(failure) = &listing.failure {
                findings.program_failures.add(program, failure.to_string());
            }
        }
        findings
    }

    /// Records a lease event and returns the model's event for it, if any.
    pub(super) fn on_lease_event(
        &mut self,
        plan: &RunPlan,
        leases: &LeaseNeighbours,
        worker: WorkerId,
        lease: LeaseId,
        event: LeaseEvent,
    ) -> Option<RunEvent> {
        match event {
            LeaseEvent::Started(test) => return Some(RunEvent::Started { lease, test }),
            LeaseEvent::IterationPassed { test, duration_us } => {
                let duration = Duration::from_micros(duration_us);
                return Some(RunEvent::IterationPassed { lease, test, duration });
            }
            LeaseEvent::Held(test) => return Some(RunEvent::Held { lease, test }),
            LeaseEvent::SetUp { fixture, progress } => {
                return Some(RunEvent::SetUp { worker, lease, fixture, progress });
            }
            LeaseEvent::Settled { test, outcome, duration_us, position } => {
                self.program_failures.remove_start_timeouts(plan.tests[test.index()].program);
                let duration = Duration::from_micros(duration_us);
                self.durations.push((test, duration));
                return Some(RunEvent::Settled { worker, test, outcome, duration, position });
            }
            LeaseEvent::FailedProvisionally { test, attempt } => {
                let results = self.provisional_of(plan, leases, lease, test, &attempt);
                results.attempts.push(*attempt);
                return Some(RunEvent::Provisional { lease, test, by: ProvisionalReason::AwaitsRetry });
            }
            LeaseEvent::CrashedProvisionally { test, attempt } => {
                self.crashed.insert(test);
                let results = self.provisional_of(plan, leases, lease, test, &attempt);
                results.crash = Some(*attempt);
                return Some(RunEvent::Provisional { lease, test, by: ProvisionalReason::AwaitsIsolatedRun });
            }
            LeaseEvent::FilesAttached { test, files } => {
                self.dumps.count(&files);
                let source = test.map_or(FileSource::Run, |test| FileSource::Result { worker, test });
                for file in files {
                    self.attachments.add(Attachment::file(&file.path, &file.description), source);
                }
            }
            LeaseEvent::ProcessEnded { test, tests, usage } => {
                self.resource_usage.record_process(leases.program_of(lease), tests, test, usage)
            }
            LeaseEvent::FixtureFailed { fixture, message } => {
                if let Some(program) = leases.program_of(lease) {
                    self.program_failures.add_fixture(program, fixture, message);
                }
            }
            LeaseEvent::ProcessesLeaked { tests, processes } => {
                let program = leases.program_of(lease);
                self.leaks.extend(synthesized::leak_entry(plan, program, &tests, &processes));
            }
            // These events contain no results.
            LeaseEvent::StoppedForDebugger { .. } | LeaseEvent::LaunchedByDebugger { .. } => {}
        }
        None
    }

    /// Returns the provisional results of a test, so that the caller can add `attempt`. Counts the attempt's
    /// dumps, and records the tests that ran at the same time.
    fn provisional_of(
        &mut self,
        plan: &RunPlan,
        leases: &LeaseNeighbours,
        lease: LeaseId,
        test: TestId,
        attempt: &Attempt,
    ) -> &mut ProvisionalResults {
        self.dumps.count_provisional(attempt);
        let results = self.provisional.entry(test).or_default();
        results.ran_beside.extend(leases.beside(lease).map(|test| plan.tests[test.index()].uid.clone()));
        results
    }

    /// Records what the end of a lease shows about its program.
    pub(super) fn on_lease_end(&mut self, program: usize, end: &LeaseEnd, start: Option<Duration>) {
        if let Some(start) = start {
            self.resource_usage.record_start(program, start);
        }
        if let Some(message) = end.program_failure() {
            self.program_failures.add(program, message.to_owned());
        }
        if let LeaseEnd::StartTimedOut { message, .. } = end {
            self.program_failures.add_start_timeout(program, message.clone());
        }
    }

    pub(super) fn on_worker_died(&mut self) {
        self.worker_deaths += 1;
    }

    /// Records that a process got stuck in a session fixture that another process of the program had already
    /// set up.
    pub(super) fn on_conflict(&mut self, program: usize) {
        self.resource_usage.conflicts.insert(program);
    }

    /// Records files named in a dead worker's journal. Some of them may have been reported before its death.
    pub(super) fn on_journal_files(&mut self, worker: WorkerId, files: Vec<ResultFile>) {
        for ResultFile { test, attachment } in files {
            self.attachments.add(attachment, FileSource::Result { worker, test });
        }
    }

    /// Returns the longest start of a program so far.
    pub(super) fn longest_start(&self, program: usize) -> Option<Duration> {
        self.resource_usage.longest_starts.get(&program).copied()
    }

    pub(super) fn provisional(&self, test: TestId) -> ProvisionalResults {
        self.provisional.get(&test).cloned().unwrap_or_default()
    }

    /// Returns the crash capture settings of a lease. An isolated rerun after a crash writes no crash dump if
    /// the crash left one already.
    pub(super) fn crash_capture(&self, plan: &RunPlan, tests: &[TestId]) -> CrashCapturePlan {
        let mut capture = self.dumps.watch_plan(plan, tests);
        let has_dump = |test: &TestId| {
            let death = self.provisional.get(test).and_then(|held| held.crash.as_ref());
            death.is_some_and(|death| death.diagnostics.is_some())
        };
        capture.dumps.crash &= !tests.iter().any(has_dump);
        capture
    }

    /// Returns synthesized results. Their files are attached to the run.
    pub(super) fn synthesize(
        &mut self,
        plan: &RunPlan,
        due: &[(TestId, SynthesizedResult)],
    ) -> Vec<DueResult> {
        let synthesized = synthesized::due_results(plan, due, &self.provisional);
        for file in synthesized.iter().flat_map(|due| due.result.files()) {
            self.attachments.add(Attachment::file(&file.path, &file.description), FileSource::Run);
        }
        synthesized
    }

    /// Once all streams are closed, returns the files that no worker is proven to have sent.
    pub(super) fn due_attachments(&self, ledger: &Ledger) -> Vec<Attachment> {
        self.attachments.due(ledger)
    }

    pub(super) fn program_failures(&self, plan: &RunPlan) -> Vec<ProgramFailure> {
        self.program_failures.records(plan)
    }

    pub(super) fn into_outcome(self, plan: &RunPlan, state: &RunState, proof: ProofLevel) -> RunOutcome {
        RunOutcome {
            stopped_by: state.stop_reason(),
            ledger: state.ledger().clone(),
            durations: self.durations,
            crashed: self.crashed,
            result: RunResult {
                attachments: self.attachments.all(),
                largest: self.resource_usage.largest(plan),
                leaks: self.leaks,
            },
            resource_usage: self.resource_usage,
            worker_deaths: self.worker_deaths,
            failed_programs: self.program_failures.program_count(),
            proof,
        }
    }
}
