//! Synthesized results, which no worker reports: tests that never ran, provisional results that can no longer
//! be replaced, and programs that failed outside any test.

use std::collections::{BTreeMap, BTreeSet};

use heeler_core::{
    Attempt, LeakedProcess, NotRunReason, ProgramFailure, ProvisionalReason, SuiteFixture, SynthesizedResult,
    TestId, TestResult, WorkerId,
    describe::not_run_text,
    ledger::{Ledger, LedgerEntry},
};
use heeler_protocol::{
    control::{DueResult, JournalResend, KnownResult, TestProgram},
    mtp::{LeakedProcessInfo, RunLeak},
};

use super::{RunPlan, SelectedTest};

/// The provisional results of one test.
#[derive(Debug, Clone, Default)]
pub(super) struct ProvisionalResults {
    /// Failed attempts that await a retry.
    pub(super) attempts: Vec<Attempt>,
    /// The crash that awaits an isolated rerun.
    pub(super) crash: Option<Attempt>,
    /// Uids of tests that ran in other processes of the program when one of these attempts ended.
    pub(super) ran_beside: BTreeSet<String>,
}

impl ProvisionalResults {
    /// Returns the attempt that a synthesized result is based on.
    fn attempt(&self, result: SynthesizedResult) -> Option<&Attempt> {
        match result {
            SynthesizedResult::NotRun(_) => None,
            SynthesizedResult::Provisional(ProvisionalReason::AwaitsRetry) => self.attempts.last(),
            SynthesizedResult::Provisional(ProvisionalReason::AwaitsIsolatedRun) => self.crash.as_ref(),
        }
    }
}

/// Program failures: processes that failed outside any test, and failed set-ups or tear-downs of suites.
#[derive(Debug, Clone, Default)]
pub(super) struct ProgramFailures {
    /// Messages by program and, for failures of a suite's set-up or tear-down, by fixture.
    messages: BTreeMap<(usize, Option<SuiteFixture>), Vec<String>>,
    /// Processes that started no test within their startup limit. They count as program failures only if no
    /// test of the program gets a result.
    start_timeouts: BTreeMap<usize, Vec<String>>,
}

/// Maximum number of messages per program or fixture. More would add no information.
const MAX_MESSAGES: usize = 5;

impl ProgramFailures {
    /// Adds a failure of the program outside its fixtures.
    pub(super) fn add(&mut self, program: usize, message: String) {
        self.messages.entry((program, None)).or_default().push(message);
    }

    /// Adds a failure of a suite's set-up or tear-down.
    pub(super) fn add_fixture(&mut self, program: usize, fixture: SuiteFixture, message: String) {
        self.messages.entry((program, Some(fixture))).or_default().push(message);
    }

    /// Adds a process that started no test within its startup limit.
    pub(super) fn add_start_timeout(&mut self, program: usize, message: String) {
        self.start_timeouts.entry(program).or_default().push(message);
    }

    /// Forgets the startup timeouts of a program, because one of its tests has a result.
    pub(super) fn remove_start_timeouts(&mut self, program: usize) {
        self.start_timeouts.remove(&program);
    }

    /// Returns the number of programs that failed.
    pub(super) fn program_count(&self) -> usize {
        let programs = self.messages.keys().map(|(program, _)| program);
        programs.chain(self.start_timeouts.keys()).collect::<BTreeSet<_>>().len()
    }

    /// Returns one record for each program or fixture that failed.
    pub(super) fn records(&self, plan: &RunPlan) -> Vec<ProgramFailure> {
        let mut all = self.messages.clone();
        for (program, messages) in &self.start_timeouts {
            all.entry((*program, None)).or_default().extend_from_slice(messages);
        }
        let failure = |((program, fixture), messages): ((usize, Option<SuiteFixture>), Vec<String>)| {
            let TestProgram { suite, path, .. } = &*plan.programs[program];
            let mut message = messages[..messages.len().min(MAX_MESSAGES)].join("\n\n");
            if messages.len() > MAX_MESSAGES {
                let more = messages.len() - MAX_MESSAGES;
                message.push_str(&format!("\n\n… and {more} more messages of its processes"));
            }
            ProgramFailure { suite: suite.clone(), program: path.clone(), fixture, message }
        };
        all.into_iter().map(failure).collect()
    }
}

/// Returns the synthesized results in the order given.
pub(super) fn due_results(
    plan: &RunPlan,
    synthesized: &[(TestId, SynthesizedResult)],
    provisional: &BTreeMap<TestId, ProvisionalResults>,
) -> Vec<DueResult> {
    let result = |(test, synthesized): &(TestId, SynthesizedResult)| {
        let selected = &plan.tests[test.index()];
        let attempt = provisional.get(test).and_then(|results| results.attempt(*synthesized));
        let result = match synthesized {
            SynthesizedResult::NotRun(NotRunReason::PrerequisiteFailed { test: failed }) => {
                let failed = &plan.tests[failed.index()].uid;
                let reason = format!("not run: the set-up {failed}, which it needs, failed");
                TestResult::with_reason(synthesized.outcome(), reason)
            }
            SynthesizedResult::NotRun(_) | SynthesizedResult::Provisional(_) => {
                test_result(selected, *synthesized, attempt)
            }
        };
        DueResult { test: *test, result }
    };
    synthesized.iter().map(result).collect()
}

fn test_result(
    selected: &SelectedTest,
    synthesized: SynthesizedResult,
    attempt: Option<&Attempt>,
) -> TestResult {
    let outcome = synthesized.outcome();
    match (synthesized, attempt) {
        (SynthesizedResult::NotRun(NotRunReason::Unrunnable), _)
            if let Some(reason) = &selected.unrunnable =>
        {
            TestResult::with_reason(outcome, reason)
        }
        (SynthesizedResult::NotRun(reason), _) => TestResult::with_reason(outcome, not_run_text(reason)),
        (SynthesizedResult::Provisional(reason), Some(attempt)) => TestResult::from_last_attempt(
            attempt,
            match reason {
                ProvisionalReason::AwaitsRetry => "it could not be retried",
                ProvisionalReason::AwaitsIsolatedRun => "it could not be rerun in isolation",
            },
        ),
        (SynthesizedResult::Provisional(_), None) => TestResult::new(outcome),
    }
}

/// Returns what to resend from the journal of each worker in `due`. [`JournalResend::known`] contains the
/// outcomes to report if the journal ends before them.
pub(super) fn resend_requests(ledger: &Ledger, due: &[(WorkerId, u64)]) -> Vec<JournalResend> {
    let known = |worker: WorkerId, proven: u64| {
        let reported = ledger.entries().iter().zip(0..).filter_map(|(entry, test)| match *entry {
            LedgerEntry::Settled { outcome, worker: by, position } if by == worker && position > proven => {
                Some(KnownResult { position, test: TestId(test), outcome })
            }
            LedgerEntry::Settled { .. } | LedgerEntry::Synthesized(_) | LedgerEntry::Open => None,
        });
        let mut known: Vec<_> = reported.collect();
        known.sort_unstable_by_key(|one| one.position);
        known
    };
    let resend = |(worker, proven): &(WorkerId, u64)| JournalResend {
        worker: *worker,
        proven: *proven,
        known: known(*worker, *proven),
    };
    due.iter().map(resend).collect()
}

/// Returns the run's leak entry for processes that outlived their test, or `None` if the lease belongs to
/// another run.
pub(super) fn leak_entry(
    plan: &RunPlan,
    program: Option<usize>,
    tests: &[TestId],
    processes: &[LeakedProcess],
) -> Option<RunLeak> {
    let program = plan.programs.get(program?)?;
    let tests: Vec<_> = tests.iter().map(|test| plan.tests.get(test.0 as usize)).collect::<Option<_>>()?;
    Some(RunLeak {
        suite: program.suite.clone(),
        tests: tests.iter().map(|test| test.uid.clone()).collect(),
        processes: processes.iter().map(LeakedProcessInfo::from).collect(),
    })
}
