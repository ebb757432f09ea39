//! Synthesized results, which no worker reports: tests that never ran, provisional results that can't be
//! replaced any more, programs that died outside any test.

use std::{collections::BTreeMap, time::Duration};

use heeler_core::{
    NotRunReason, Outcome, ProvisionalReason, SynthesizedResult, TestId,
    ledger::{Ledger, LedgerEntry},
};
use heeler_protocol::{
    control::{Attempt, JournalResend, JournalledResult, KnownResult, LeakedProcess, TestIndex, TestProgram},
    mtp::{
        Attachment, EncodedChange, ExecutionState, LeakedProcessInfo, RunLeak, TestNode, TestTrait,
        group_path, key,
    },
};

use super::{RunPlan, SelectedTest, convert::from_model, groups};

/// The provisional results of one test.
#[derive(Debug, Clone, Default)]
pub(super) struct ProvisionalResults {
    /// Failed attempts that await a retry.
    pub(super) attempts: Vec<Attempt>,
    /// The crash that awaits an isolated rerun.
    pub(super) crash: Option<Attempt>,
}

impl ProvisionalResults {
    /// Returns the attempt that a synthesized result is made from.
    fn attempt(&self, told: SynthesizedResult) -> Option<&Attempt> {
        match told {
            SynthesizedResult::NotRun(_) => None,
            SynthesizedResult::Provisional(ProvisionalReason::AwaitsRetry) => self.attempts.last(),
            SynthesizedResult::Provisional(ProvisionalReason::AwaitsIsolatedRun) => self.crash.as_ref(),
        }
    }
}

/// Program failures: bad exits of a program's processes outside any test.
#[derive(Debug, Clone, Default)]
pub(super) struct ProgramFailures(BTreeMap<usize, Vec<String>>);

/// Maximum number of messages per program; further deaths add no information.
const MAX_MESSAGES: usize = 5;

impl ProgramFailures {
    /// Adds a failure of a program.
    pub(super) fn add(&mut self, program: usize, message: String) {
        self.0.entry(program).or_default().push(message);
    }

    /// Returns the number of programs with failures.
    pub(super) fn program_count(&self) -> usize {
        self.0.len()
    }

    /// Returns a change for each program with failures; its uid is the suite's name.
    fn changes(&self, plan: &RunPlan) -> Vec<EncodedChange> {
        let node = |(program, messages): (&usize, &Vec<String>)| {
            let TestProgram { suite, path, .. } = &plan.programs[*program];
            let mut node =
                TestNode::test(suite, format!("{suite} (the program itself)"), ExecutionState::Error);
            let mut text = messages[..messages.len().min(MAX_MESSAGES)].join("\n\n");
            if messages.len() > MAX_MESSAGES {
                text.push_str(&format!("\n\n… and {} more of its processes", messages.len() - MAX_MESSAGES));
            }
            node.error_message = Some(text);
            node.outcome_kind = Some("program".to_owned());
            node.members.insert(key::SUITE.to_owned(), suite.clone().into());
            node.members.insert(key::PROGRAM.to_owned(), path.to_text().into());
            EncodedChange::new(None, &node, None)
        };
        self.0.iter().map(node).collect()
    }
}

/// Composes the changes of all synthesized results.
pub(super) fn synthesized_changes(
    plan: &RunPlan,
    told: &[(TestId, SynthesizedResult)],
    held: &BTreeMap<TestIndex, ProvisionalResults>,
    charges: &ProgramFailures,
) -> Vec<EncodedChange> {
    let tests =
        told.iter().map(|(test, told)| synthesized_change(plan, *test, *told, held.get(&TestIndex(test.0))));
    tests.chain(charges.changes(plan)).collect()
}

/// Returns the journal entries of the same tests, which are stored beside their changes.
pub(super) fn journalled_results(
    told: &[(TestId, SynthesizedResult)],
    held: &BTreeMap<TestIndex, ProvisionalResults>,
) -> Vec<JournalledResult> {
    let result = |(test, told): &(TestId, SynthesizedResult)| {
        let index = TestIndex(test.0);
        let attempt = held.get(&index).and_then(|held| held.attempt(*told));
        JournalledResult {
            test: index,
            state: attempt.map_or_else(|| execution_state(told.outcome()), |attempt| attempt.state),
            duration_us: attempt.map_or(0, |attempt| attempt.duration_us),
        }
    };
    told.iter().map(result).collect()
}

/// Composes the change of one synthesized result.
fn synthesized_change(
    plan: &RunPlan,
    test: TestId,
    told: SynthesizedResult,
    held: Option<&ProvisionalResults>,
) -> EncodedChange {
    let selected = &plan.tests[test.index()];
    let node = node(plan, test, told, held);
    EncodedChange::new(groups::group_uid(plan, selected.group), &node, selected.foreign.as_deref())
}

fn bare_node(plan: &RunPlan, test: TestId, outcome: Outcome) -> TestNode {
    let selected = &plan.tests[test.index()];
    let program = &plan.programs[selected.program];
    let display_name = selected.listed.display.as_ref().unwrap_or(&selected.listed.name);
    let mut node = TestNode::test(&selected.uid, display_name, execution_state(outcome));
    node.location_file.clone_from(&selected.listed.file);
    node.location_line_start = selected.listed.line;
    node.location_line_end = selected.listed.line;
    node.traits = selected.listed.traits.iter().map(TestTrait::from).collect();
    if let Some(group) = groups::group_uid(plan, selected.group) {
        node.location_type = Some(group_path(group, &program.suite).to_owned());
        node.location_method = selected.uid.strip_prefix(group).map(str::to_owned);
    }
    if !program.suite.is_empty() {
        node.members.insert(key::SUITE.to_owned(), program.suite.clone().into());
        node.members.insert(key::PROGRAM.to_owned(), program.path.to_text().into());
    }
    node
}

fn node(
    plan: &RunPlan,
    test: TestId,
    told: SynthesizedResult,
    held: Option<&ProvisionalResults>,
) -> TestNode {
    let selected = &plan.tests[test.index()];
    let mut node = bare_node(plan, test, told.outcome());
    match told {
        SynthesizedResult::NotRun(why) => {
            node.outcome_kind = Some("not-run".to_owned());
            node.error_message = Some(not_run_reason(why, selected));
        }
        SynthesizedResult::Provisional(by) => {
            if let Some(attempt) = held.and_then(|held| held.attempt(told)) {
                fill_from_attempt(&mut node, attempt, by);
            }
        }
    }
    node
}

/// Returns the results to send again, each with the information that is left should its journal be lost.
pub(super) fn resend_requests(
    plan: &RunPlan,
    ledger: &Ledger,
    due: &[(heeler_core::WorkerId, u64)],
) -> Vec<JournalResend> {
    let known = |worker: heeler_core::WorkerId, proven: u64| {
        let reported = ledger.entries().iter().zip(0..).filter_map(|(entry, test)| match *entry {
            LedgerEntry::Settled { outcome, worker: by, position } if by == worker && position > proven => {
                Some((position, outcome, TestId(test)))
            }
            LedgerEntry::Settled { .. } | LedgerEntry::Synthesized(_) | LedgerEntry::Open => None,
        });
        let mut known: Vec<_> = reported
            .map(|(position, outcome, test)| KnownResult {
                position,
                change: reported_change(plan, test, outcome),
            })
            .collect();
        known.sort_unstable_by_key(|one| one.position);
        known
    };
    let resend = |(worker, proven): &(heeler_core::WorkerId, u64)| JournalResend {
        worker: from_model(*worker),
        proven: *proven,
        known: known(*worker, *proven),
    };
    due.iter().map(resend).collect()
}

/// Composes the change of a result of which only its worker's report is left.
fn reported_change(plan: &RunPlan, test: TestId, outcome: Outcome) -> EncodedChange {
    let selected = &plan.tests[test.index()];
    let mut node = bare_node(plan, test, outcome);
    if outcome.is_failure() {
        node.error_message =
            Some("its message and output are lost: its journal could not be kept".to_owned());
    }
    EncodedChange::new(groups::group_uid(plan, selected.group), &node, selected.foreign.as_deref())
}

/// Returns the files of a provisional result that becomes final.
pub(super) fn attachments(told: SynthesizedResult, held: &ProvisionalResults) -> Vec<Attachment> {
    let files = held
        .attempt(told)
        .and_then(|attempt| attempt.diagnostics.as_ref())
        .into_iter()
        .flat_map(|one| &one.files);
    files.map(|file| Attachment::file(&file.path, &file.description)).collect()
}

/// Returns the leak entry of a run's result for processes that outlived their test. `None`: the lease belongs
/// to another run.
pub(super) fn leak_entry(
    plan: &RunPlan,
    (program, tests): (Option<usize>, &[TestIndex]),
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

fn execution_state(outcome: Outcome) -> ExecutionState {
    match outcome {
        Outcome::Passed => ExecutionState::Passed,
        Outcome::Skipped => ExecutionState::Skipped,
        Outcome::Failed => ExecutionState::Failed,
        Outcome::TimedOut => ExecutionState::TimedOut,
        Outcome::Error => ExecutionState::Error,
        Outcome::Cancelled => ExecutionState::Cancelled,
    }
}

fn not_run_reason(why: NotRunReason, selected: &SelectedTest) -> String {
    match why {
        NotRunReason::Unrunnable => selected.unrunnable.clone().unwrap_or_else(|| "not run".to_owned()),
        NotRunReason::Cancelled => "not run: the run was cancelled".to_owned(),
        NotRunReason::TooManyFailures => "not run: the run stopped at its limit of failures".to_owned(),
        NotRunReason::TimeLimitReached => {
            "not run: the run stopped at its limit of time (run-timeout)".to_owned()
        }
        NotRunReason::ProgramGivenUp { deaths } => {
            format!("not run: its program died outside any test {deaths} times in a row and was given up")
        }
        NotRunReason::NeverStarted => "not run: its program kept ending well without running it".to_owned(),
        NotRunReason::WorkerDied => "not run to its end: its worker died under it twice".to_owned(),
        NotRunReason::NoWorker => "not run: no worker could be kept alive to run it".to_owned(),
    }
}

fn fill_from_attempt(node: &mut TestNode, attempt: &Attempt, by: ProvisionalReason) {
    let ending = match by {
        ProvisionalReason::AwaitsRetry => "\n(it was to be tried again, but that could not be done)",
        ProvisionalReason::AwaitsIsolatedRun => "\n(it was to be tried alone, but that could not be done)",
    };
    node.state = Some(attempt.state);
    node.error_message = Some(format!("{}{ending}", attempt.message));
    node.standard_output = Some(attempt.stdout.clone()).filter(|text| !text.is_empty());
    node.standard_error = Some(attempt.stderr.clone()).filter(|text| !text.is_empty());
    node.duration_ms = Some(Duration::from_micros(attempt.duration_us).as_secs_f64() * 1e3);
    if let Some(evidence) = &attempt.diagnostics {
        node.add_attachments(&evidence.files);
    }
    node.error_stacktrace =
        attempt.diagnostics.as_ref().map(|evidence| evidence.stack.clone()).filter(|stack| !stack.is_empty());
    let Some(death) = &attempt.exit_reason else { return };
    node.outcome_kind = Some(if death.signal.is_some() { "crashed" } else { "exited" }.to_owned());
    if let Some(signal) = &death.signal {
        node.members.insert(key::SIGNAL.to_owned(), signal.clone().into());
    }
    if let Some(code) = death.code {
        node.members.insert(key::EXIT_CODE.to_owned(), code.into());
    }
}
