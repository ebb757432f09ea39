//! Synthesized results, which no worker reports: tests that never ran, provisional results that can't be
//! replaced any more, programs that died outside any test.

use std::{collections::BTreeMap, time::Duration};

use model::{
    HeldBy, NotRun, Outcome, TestId, Told,
    ledger::{Entry, Ledger},
};
use wire::{
    control::{Attempt, JournalledResult, KnownResult, Leaked, Program, Resend, TestIndex},
    mtp::{Attachment, ExecutionState, Leak, LeftBehind, RawChange, TestNode, Trait, group_path, key},
};

use super::{RunPlan, SelectedTest, convert::from_model, groups};

/// The provisional results of one test.
#[derive(Debug, Clone, Default)]
pub(super) struct HeldBack {
    /// Failed attempts that await a retry.
    pub(super) attempts: Vec<Attempt>,
    /// The crash that awaits an isolated rerun.
    pub(super) death: Option<Attempt>,
}

impl HeldBack {
    /// Returns the attempt that a synthesized result is made from.
    fn attempt(&self, told: Told) -> Option<&Attempt> {
        match told {
            Told::NotRun(_) => None,
            Told::Held(HeldBy::Retry) => self.attempts.last(),
            Told::Held(HeldBy::LoneRun) => self.death.as_ref(),
        }
    }
}

/// Program failures: bad exits of a program's processes outside any test.
#[derive(Debug, Clone, Default)]
pub(super) struct Charges(BTreeMap<usize, Vec<String>>);

/// Maximum number of messages per program; further deaths add no information.
const MESSAGES: usize = 5;

impl Charges {
    /// Adds a failure of a program.
    pub(super) fn add(&mut self, program: usize, message: String) {
        self.0.entry(program).or_default().push(message);
    }

    /// Returns the number of programs with failures.
    pub(super) fn programs(&self) -> usize {
        self.0.len()
    }

    /// Returns a change for each program with failures; its uid is the suite's name.
    fn changes(&self, plan: &RunPlan) -> Vec<RawChange> {
        let node = |(program, messages): (&usize, &Vec<String>)| {
            let Program { suite, path, .. } = &plan.programs[*program];
            let mut node =
                TestNode::test(suite, format!("{suite} (the program itself)"), ExecutionState::Error);
            let mut text = messages[..messages.len().min(MESSAGES)].join("\n\n");
            if messages.len() > MESSAGES {
                text.push_str(&format!("\n\n… and {} more of its processes", messages.len() - MESSAGES));
            }
            node.error_message = Some(text);
            node.outcome_kind = Some("program".to_owned());
            node.other.insert(key::SUITE.to_owned(), suite.clone().into());
            node.other.insert(key::PROGRAM.to_owned(), path.to_text().into());
            RawChange::new(None, &node, None)
        };
        self.0.iter().map(node).collect()
    }
}

/// Composes the changes of all synthesized results.
pub(super) fn changes(
    plan: &RunPlan,
    told: &[(TestId, Told)],
    held: &BTreeMap<TestIndex, HeldBack>,
    charges: &Charges,
) -> Vec<RawChange> {
    let tests = told.iter().map(|(test, told)| change(plan, *test, *told, held.get(&TestIndex(test.0))));
    tests.chain(charges.changes(plan)).collect()
}

/// Returns the journal entries of the same tests, which are stored beside their changes.
pub(super) fn results(
    told: &[(TestId, Told)],
    held: &BTreeMap<TestIndex, HeldBack>,
) -> Vec<JournalledResult> {
    let result = |(test, told): &(TestId, Told)| {
        let index = TestIndex(test.0);
        let attempt = held.get(&index).and_then(|held| held.attempt(*told));
        JournalledResult {
            test: index,
            state: attempt.map_or_else(|| state(told.outcome()), |attempt| attempt.state),
            duration_us: attempt.map_or(0, |attempt| attempt.duration_us),
        }
    };
    told.iter().map(result).collect()
}

/// Composes the change of one synthesized result.
fn change(plan: &RunPlan, test: TestId, told: Told, held: Option<&HeldBack>) -> RawChange {
    let selected = &plan.tests[test.index()];
    let node = node(plan, test, told, held);
    RawChange::new(groups::uid(plan, selected.group), &node, selected.foreign.as_deref())
}

fn bare_node(plan: &RunPlan, test: TestId, outcome: Outcome) -> TestNode {
    let selected = &plan.tests[test.index()];
    let program = &plan.programs[selected.program];
    let display_name = selected.listed.display.as_ref().unwrap_or(&selected.listed.name);
    let mut node = TestNode::test(&selected.uid, display_name, state(outcome));
    node.location_file.clone_from(&selected.listed.file);
    node.location_line_start = selected.listed.line;
    node.location_line_end = selected.listed.line;
    node.traits = selected.listed.traits.iter().map(Trait::from).collect();
    if let Some(group) = groups::uid(plan, selected.group) {
        node.location_type = Some(group_path(group, &program.suite).to_owned());
        node.location_method = selected.uid.strip_prefix(group).map(str::to_owned);
    }
    if !program.suite.is_empty() {
        node.other.insert(key::SUITE.to_owned(), program.suite.clone().into());
        node.other.insert(key::PROGRAM.to_owned(), program.path.to_text().into());
    }
    node
}

fn node(plan: &RunPlan, test: TestId, told: Told, held: Option<&HeldBack>) -> TestNode {
    let selected = &plan.tests[test.index()];
    let mut node = bare_node(plan, test, told.outcome());
    match told {
        Told::NotRun(why) => {
            node.outcome_kind = Some("not-run".to_owned());
            node.error_message = Some(reason(why, selected));
        }
        Told::Held(by) => {
            if let Some(attempt) = held.and_then(|held| held.attempt(told)) {
                tell_attempt(&mut node, attempt, by);
            }
        }
    }
    node
}

/// Returns the results to send again, each with the information that is left should its journal be lost.
pub(super) fn resend(plan: &RunPlan, ledger: &Ledger, due: &[(model::WorkerId, u64)]) -> Vec<Resend> {
    let known = |worker: model::WorkerId, proven: u64| {
        let reported = ledger.entries().iter().zip(0..).filter_map(|(entry, test)| match *entry {
            Entry::Settled { outcome, worker: by, position } if by == worker && position > proven => {
                Some((position, outcome, TestId(test)))
            }
            Entry::Settled { .. } | Entry::Told(_) | Entry::Open => None,
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
    let resend = |(worker, proven): &(model::WorkerId, u64)| Resend {
        worker: from_model(*worker),
        proven: *proven,
        known: known(*worker, *proven),
    };
    due.iter().map(resend).collect()
}

/// Composes the change of a result of which only its worker's report is left.
fn reported_change(plan: &RunPlan, test: TestId, outcome: Outcome) -> RawChange {
    let selected = &plan.tests[test.index()];
    let mut node = bare_node(plan, test, outcome);
    if outcome.is_failure() {
        node.error_message =
            Some("its message and output are lost: its journal could not be kept".to_owned());
    }
    RawChange::new(groups::uid(plan, selected.group), &node, selected.foreign.as_deref())
}

/// Returns the files of a provisional result that becomes final.
pub(super) fn attachments(told: Told, held: &HeldBack) -> Vec<Attachment> {
    let files = held
        .attempt(told)
        .and_then(|attempt| attempt.evidence.as_ref())
        .into_iter()
        .flat_map(|one| &one.files);
    files.map(|file| Attachment::file(&file.path, &file.description)).collect()
}

/// Returns the leak entry of a run's result for processes that outlived their test. `None`: the lease belongs
/// to another run.
pub(super) fn leak(
    plan: &RunPlan,
    (program, tests): (Option<usize>, &[TestIndex]),
    processes: &[Leaked],
) -> Option<Leak> {
    let program = plan.programs.get(program?)?;
    let tests: Vec<_> = tests.iter().map(|test| plan.tests.get(test.0 as usize)).collect::<Option<_>>()?;
    Some(Leak {
        suite: program.suite.clone(),
        tests: tests.iter().map(|test| test.uid.clone()).collect(),
        processes: processes.iter().map(LeftBehind::from).collect(),
    })
}

fn state(outcome: Outcome) -> ExecutionState {
    match outcome {
        Outcome::Passed => ExecutionState::Passed,
        Outcome::Skipped => ExecutionState::Skipped,
        Outcome::Failed => ExecutionState::Failed,
        Outcome::TimedOut => ExecutionState::TimedOut,
        Outcome::Error => ExecutionState::Error,
        Outcome::Cancelled => ExecutionState::Cancelled,
    }
}

fn reason(why: NotRun, selected: &SelectedTest) -> String {
    match why {
        NotRun::Unrunnable => selected.unrunnable.clone().unwrap_or_else(|| "not run".to_owned()),
        NotRun::Cancelled => "not run: the run was cancelled".to_owned(),
        NotRun::TooManyFailures => "not run: the run stopped at its limit of failures".to_owned(),
        NotRun::TimeIsUp => "not run: the run stopped at its limit of time (run-timeout)".to_owned(),
        NotRun::GivenUp { deaths } => {
            format!("not run: its program died outside any test {deaths} times in a row and was given up")
        }
        NotRun::NeverBegan => "not run: its program kept ending well without running it".to_owned(),
        NotRun::WorkerDied => "not run to its end: its worker died under it twice".to_owned(),
        NotRun::NoWorker => "not run: no worker could be kept alive to run it".to_owned(),
    }
}

fn tell_attempt(node: &mut TestNode, attempt: &Attempt, by: HeldBy) {
    let ending = match by {
        HeldBy::Retry => "\n(it was to be tried again, but that could not be done)",
        HeldBy::LoneRun => "\n(it was to be tried alone, but that could not be done)",
    };
    node.state = Some(attempt.state);
    node.error_message = Some(format!("{}{ending}", attempt.message));
    node.standard_output = Some(attempt.stdout.clone()).filter(|text| !text.is_empty());
    node.standard_error = Some(attempt.stderr.clone()).filter(|text| !text.is_empty());
    node.duration_ms = Some(Duration::from_micros(attempt.duration_us).as_secs_f64() * 1e3);
    if let Some(evidence) = &attempt.evidence {
        node.attach(&evidence.files);
    }
    node.error_stacktrace =
        attempt.evidence.as_ref().map(|evidence| evidence.stack.clone()).filter(|stack| !stack.is_empty());
    let Some(death) = &attempt.death else { return };
    node.outcome_kind = Some(if death.signal.is_some() { "crashed" } else { "exited" }.to_owned());
    if let Some(signal) = &death.signal {
        node.other.insert(key::SIGNAL.to_owned(), signal.clone().into());
    }
    if let Some(code) = death.code {
        node.other.insert(key::EXIT_CODE.to_owned(), code.into());
    }
}
