//! The state machine of a mutation run: decides which processes run next, and turns their ends into
//! verdicts. It starts no process itself.
//!
//! ```text
//! waiting ──► in progress ──passed──► waiting for its next process, or survived
//!    ▲             ├─ a test failed, it died early, too many hits ──► verdict
//!    │             └─ silent, or possibly killed from outside ──► waits to run alone, with double time
//!    └──── passed ─────────────────────────────────────────────────┘└── the same again ──► verdict
//! ```
//!
//! A signal that another process may have sent counts only if such signals end the mutant's process
//! [`CONFIRMED_FAILURES`] times in a row.
//!
//! If one test of a mutant does not end and another fails, the mutant is killed, whichever test runs first.
//! Therefore, after a test reaches a limit, the remaining tests still run, until eight tests have reached a
//! limit.
//!
//! A test that is flaky without a mutant kills only if it fails [`CONFIRMED_FAILURES`] times in a row, alone
//! from the second time on. If it passes in between, the other tests decide.

use std::{collections::VecDeque, time::Duration};

use heeler_mutant_model::MutantStatus;

use crate::{
    built_project::{FunctionId, MutantNumber},
    plan::{Baseline, KnownKillers, MutantPlan, PlanStep, TestIndex},
    step_outcome::StepOutcome,
};

/// Number of consecutive failures before a flaky test counts as killing the mutant.
pub const CONFIRMED_FAILURES: u32 = 3;

/// Number of process ends of unknown cause (the worker or watchdog died) before the mutant is given up
/// without a verdict.
pub const MAX_UNKNOWN: u32 = 3;

/// Number of tests of a mutant that may reach a limit before its other tests are skipped.
const MAX_LIMITS: u32 = 8;

/// The result of testing a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MutantVerdict {
    pub number: MutantNumber,
    pub status: MutantStatus,
    pub reason: Option<String>,
    pub covered_by: Vec<TestIndex>,
    pub killed_by: Option<TestIndex>,
    /// Number of tests that ended in framework order, including the failed one.
    pub tests_completed: Option<u32>,
    pub is_static: bool,
    /// Total run time of the mutant's processes.
    pub duration: Duration,
}

/// A process to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderedStep {
    pub number: MutantNumber,
    pub step: PlanStep,
}

/// How many processes to order at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderLimit {
    pub steps: usize,
    /// Maximum total number of tests; a single process may exceed it.
    pub tests: usize,
}

#[derive(Debug)]
struct RunMutant {
    number: MutantNumber,
    function: FunctionId,
    state: RunMutantState,
}

#[derive(Debug)]
enum RunMutantState {
    Waiting,
    Begun(Box<MutantProgress>),
    Over,
}

/// The results of a mutant's processes so far.
#[derive(Debug, Default)]
struct MutantProgress {
    /// Created when the first process is ordered, so that it uses all killers known by then.
    plan: MutantPlan,
    next_step: usize,
    completed: u32,
    duration: Duration,
    is_alone: bool,
    /// Consecutive failures of the flaky test that runs next.
    failures: u32,
    /// Consecutive ends by a signal that another process may have sent.
    signals: u32,
    /// Number of processes that ended for an unknown reason.
    unknown: u32,
    /// Flaky tests that failed and then passed.
    dismissed: Vec<String>,
    /// Number of tests that reached a limit; `limited` is the reason of the first.
    limits: u32,
    limited: Option<String>,
}

/// All mutants of a run and their progress.
#[derive(Debug)]
pub struct MutationRun<'a> {
    baseline: &'a Baseline,
    /// Mutants ordered by number.
    mutants: Vec<RunMutant>,
    /// Indices of mutants whose next process is due.
    waiting: VecDeque<usize>,
    /// Indices of mutants that must run while no other process does.
    unconfirmed: VecDeque<usize>,
    in_progress: usize,
    killers: KnownKillers,
    /// Run time of all processes in sequence if no test fails.
    longest: Duration,
}

impl<'a> MutationRun<'a> {
    /// Begins the run of these mutants, and returns the verdicts of those that no test reaches.
    pub fn begin(
        baseline: &'a Baseline,
        mutants: impl IntoIterator<Item = (MutantNumber, FunctionId)>,
    ) -> (Self, Vec<MutantVerdict>) {
        let mut run = Self {
            baseline,
            mutants: Vec::new(),
            waiting: VecDeque::new(),
            unconfirmed: VecDeque::new(),
            in_progress: 0,
            killers: KnownKillers::default(),
            longest: Duration::ZERO,
        };
        let mut uncovered = Vec::new();
        for (number, function) in mutants {
            let covering = baseline.covering(number);
            if covering.is_empty() {
                uncovered.push(MutantVerdict::uncovered(number));
            } else {
                run.longest += baseline.expected_of(&covering);
                run.mutants.push(RunMutant { number, function, state: RunMutantState::Waiting });
            }
        }
        run.mutants.sort_by_key(|mutant| mutant.number);
        run.waiting.extend(0..run.mutants.len());
        (run, uncovered)
    }

    /// Returns the run time of all processes in sequence if no test fails.
    pub fn longest(&self) -> Duration {
        self.longest
    }

    /// Sorts the waiting mutants by these keys, so that a run that ends early does not cover only the first
    /// sources. Call this before any mutant has begun.
    pub fn begin_by(&mut self, key: impl Fn(MutantNumber) -> u64) {
        let mutants = &self.mutants;
        self.waiting.make_contiguous().sort_by_key(|&index| key(mutants[index].number));
    }

    /// Records a test that killed a mutant of this function in an earlier run.
    pub fn note_killer(&mut self, test: TestIndex, function: FunctionId) {
        self.killers.note(test, function);
    }

    /// Returns whether all mutants have verdicts.
    pub fn is_over(&self) -> bool {
        self.waiting.is_empty() && self.unconfirmed.is_empty() && self.in_progress == 0
    }

    /// Returns the number of mutants without a verdict.
    pub fn open_mutants(&self) -> usize {
        self.waiting.len() + self.unconfirmed.len() + self.in_progress
    }

    /// Returns the next processes, which may run in parallel.
    pub fn next_steps(&mut self, limit: OrderLimit) -> Vec<OrderedStep> {
        let (mut steps, mut tests) = (Vec::new(), 0);
        while steps.len() < limit.steps {
            let Some(&index) = self.waiting.front() else { break };
            let ordered = self.order(index);
            tests += ordered.step.tests.len();
            if tests > limit.tests && !steps.is_empty() {
                // Drop the plan: more killers will be known when the mutant is ordered again.
                if self.begin_mutant(index).is_new() {
                    self.mutants[index].state = RunMutantState::Waiting;
                }
                break;
            }
            self.waiting.pop_front();
            self.in_progress += 1;
            steps.push(ordered);
        }
        steps
    }

    /// Returns a process that must run alone; `None` while other processes are running or waiting.
    pub fn next_alone(&mut self) -> Option<OrderedStep> {
        if !self.waiting.is_empty() || self.in_progress > 0 {
            return None;
        }
        let index = self.unconfirmed.pop_front()?;
        self.begin_mutant(index).is_alone = true;
        self.in_progress += 1;
        let OrderedStep { number, step } = self.order(index);
        Some(OrderedStep { number, step: step.with_double_time() })
    }

    /// Records the end of a mutant's process; returns the mutant's verdict if there is one.
    pub fn on_ended(
        &mut self,
        number: MutantNumber,
        outcome: StepOutcome,
        took: Duration,
    ) -> Option<MutantVerdict> {
        let index = self.mutants.binary_search_by_key(&number, |mutant| mutant.number).ok()?;
        let mutant = &mut self.mutants[index];
        let mut progress = match std::mem::replace(&mut mutant.state, RunMutantState::Over) {
            RunMutantState::Begun(progress) => progress,
            other => {
                mutant.state = other;
                return None;
            }
        };
        self.in_progress = self.in_progress.saturating_sub(1);
        let function = mutant.function;
        progress.duration += took;
        match self.decide(&mut progress, number, outcome) {
            NextForMutant::Verdict(status, reason, killed_by) => {
                if let Some(killer) = killed_by {
                    self.killers.note(killer, function);
                }
                return Some(progress.verdict(number, status, reason, killed_by));
            }
            // A mutant that has begun finishes before others begin.
            NextForMutant::Process => self.waiting.push_front(index),
            NextForMutant::Confirmation => self.unconfirmed.push_back(index),
        }
        self.mutants[index].state = RunMutantState::Begun(progress);
        None
    }

    fn decide(
        &self,
        progress: &mut MutantProgress,
        number: MutantNumber,
        outcome: StepOutcome,
    ) -> NextForMutant {
        // If another process may have caused the end, first run the process again alone.
        let step = progress.plan.steps[progress.next_step].clone();
        let names = &self.baseline.programs[step.program].names;
        let was_alone = std::mem::take(&mut progress.is_alone);
        let limited = |reason| NextForMutant::Verdict(MutantStatus::Timeout, reason, None);
        let outcome = match progress.confirmed(outcome) {
            Some(outcome) => outcome,
            None => return NextForMutant::Confirmation,
        };
        // Turn the outcome into the next process or a verdict.
        match outcome {
            StepOutcome::Passed => {
                progress.completed += u32::try_from(step.tests.len()).unwrap_or(u32::MAX);
                progress.next_step += 1;
                if std::mem::take(&mut progress.failures) > 0 {
                    let name = step.tests.first().and_then(|&test| names.get(test));
                    progress.dismissed.extend(name.cloned());
                }
                if progress.next_step < progress.plan.steps.len() {
                    return NextForMutant::Process;
                }
                match progress.limited.take() {
                    Some(reason) => limited(Some(reason)),
                    None => NextForMutant::Verdict(MutantStatus::Survived, progress.dismissal(), None),
                }
            }
            StepOutcome::Failed { test, reason } => {
                let place = step.tests.iter().position(|&one| names.get(one) == Some(&test));
                if place.is_some_and(|place| self.runs_again(progress, number, place)) {
                    return NextForMutant::Process;
                }
                let ended = place.map_or(step.tests.len(), |place| place + 1);
                progress.completed += u32::try_from(ended).unwrap_or(u32::MAX);
                let killer = place.map(|place| TestIndex { program: step.program, test: step.tests[place] });
                NextForMutant::Verdict(MutantStatus::Killed, Some(reason), killer)
            }
            StepOutcome::HitLimit { test } => {
                let reason = format!("the mutant was executed more than {} times", step.hit_limit);
                self.on_limit(progress, number, test, reason)
            }
            StepOutcome::StepLimit { test } => {
                let reason = format!("mutants and loops were executed more than {} times", step.step_limit);
                self.on_limit(progress, number, test, reason)
            }
            StepOutcome::DiedEarly { .. } | StepOutcome::Signalled { .. } | StepOutcome::Unknown { .. }
                if progress.limited.is_some() =>
            {
                limited(progress.limited.take())
            }
            StepOutcome::Silent { .. } if !was_alone => NextForMutant::Confirmation,
            StepOutcome::Silent { reason } => limited(Some(reason)),
            StepOutcome::DiedEarly { reason } | StepOutcome::Signalled { reason, .. } => {
                NextForMutant::Verdict(MutantStatus::RuntimeError, Some(reason), None)
            }
            StepOutcome::Unknown { .. } if progress.unknown + 1 < MAX_UNKNOWN => {
                progress.unknown += 1;
                NextForMutant::Process
            }
            StepOutcome::Unknown { reason } => {
                NextForMutant::Verdict(MutantStatus::Pending, Some(reason), None)
            }
        }
    }

    /// Continues with the remaining tests after a test has reached a limit, unless too many tests have.
    fn on_limit(
        &self,
        progress: &mut MutantProgress,
        number: MutantNumber,
        test: Option<String>,
        reason: String,
    ) -> NextForMutant {
        let step = &progress.plan.steps[progress.next_step];
        let names = &self.baseline.programs[step.program].names;
        let place = test.and_then(|test| step.tests.iter().position(|&one| names.get(one) == Some(&test)));
        let rest = place.map_or(&[][..], |place| &step.tests[place + 1..]);
        progress.completed += u32::try_from(step.tests.len() - rest.len()).unwrap_or(u32::MAX);
        progress.limits += 1;
        progress.failures = 0;
        let reason = progress.limited.get_or_insert(reason).clone();
        if progress.limits < MAX_LIMITS {
            let rest = (!rest.is_empty()).then(|| self.baseline.step(number, step.program, rest.to_vec()));
            progress.plan.steps.splice(progress.next_step..=progress.next_step, rest);
            if progress.next_step < progress.plan.steps.len() {
                return NextForMutant::Process;
            }
        }
        NextForMutant::Verdict(MutantStatus::Timeout, Some(reason), None)
    }

    /// Schedules another run of a failed flaky test before the remaining tests, unless it has failed often
    /// enough. `place` is the test's index in the step.
    fn runs_again(&self, progress: &mut MutantProgress, number: MutantNumber, place: usize) -> bool {
        let step = &progress.plan.steps[progress.next_step];
        let test = step.tests[place];
        if !self.baseline.flaky.contains(&TestIndex { program: step.program, test }) {
            return false;
        }
        progress.failures += 1;
        if progress.failures >= CONFIRMED_FAILURES {
            return false;
        }
        let part = |tests: &[usize]| self.baseline.step(number, step.program, tests.to_vec());
        let rest = &step.tests[place + 1..];
        let rest = (!rest.is_empty()).then(|| part(rest));
        let parts: Vec<PlanStep> = std::iter::once(part(&[test])).chain(rest).collect();
        progress.plan.steps.splice(progress.next_step..=progress.next_step, parts);
        progress.completed += u32::try_from(place).unwrap_or(u32::MAX);
        true
    }

    /// Returns the progress of a mutant without a verdict, and plans its tests if it has not begun.
    fn begin_mutant(&mut self, index: usize) -> &mut MutantProgress {
        let RunMutant { number, function, state } = &mut self.mutants[index];
        if !matches!(state, RunMutantState::Begun(_)) {
            let plan = self.baseline.plan(*number, *function, &self.killers);
            *state = RunMutantState::Begun(Box::new(MutantProgress { plan, ..MutantProgress::default() }));
        }
        match state {
            RunMutantState::Begun(progress) => progress,
            RunMutantState::Waiting | RunMutantState::Over => unreachable!("it has just begun"),
        }
    }

    /// Returns the next process of a mutant.
    fn order(&mut self, index: usize) -> OrderedStep {
        let number = self.mutants[index].number;
        let progress = self.begin_mutant(index);
        OrderedStep { number, step: progress.plan.steps[progress.next_step].clone() }
    }
}

/// The next action after a process has ended.
enum NextForMutant {
    /// Run another process.
    Process,
    /// Run the same process again while no other runs.
    Confirmation,
    /// The verdict, its reason and the test that failed.
    Verdict(MutantStatus, Option<String>, Option<TestIndex>),
}

impl MutantProgress {
    /// Returns whether nothing has run yet.
    fn is_new(&self) -> bool {
        self.next_step == 0 && self.failures == 0 && self.limits == 0
    }

    /// Returns the outcome to judge the mutant by; `None` while another process may have caused the end.
    fn confirmed(&mut self, outcome: StepOutcome) -> Option<StepOutcome> {
        let StepOutcome::Signalled { test, reason } = outcome else {
            self.signals = 0;
            return Some(outcome);
        };
        self.signals += 1;
        if self.signals < CONFIRMED_FAILURES {
            return None;
        }
        self.signals = 0;
        let reason = format!("{reason}, {CONFIRMED_FAILURES} times in a row");
        Some(match test {
            Some(test) => StepOutcome::Failed { test, reason },
            None => StepOutcome::DiedEarly { reason },
        })
    }

    /// Lists the tests whose failures did not count.
    fn dismissal(&self) -> Option<String> {
        let names = self.dismissed.join(", ");
        (!names.is_empty()).then(|| format!("failed once and passed when it ran again: {names}"))
    }

    fn verdict(
        self,
        number: MutantNumber,
        status: MutantStatus,
        reason: Option<String>,
        killed_by: Option<TestIndex>,
    ) -> MutantVerdict {
        let MutantPlan { covered_by, is_static, .. } = self.plan;
        MutantVerdict {
            number,
            status,
            reason,
            covered_by,
            killed_by,
            tests_completed: Some(self.completed),
            is_static,
            duration: self.duration,
        }
    }
}

impl MutantVerdict {
    /// Returns the verdict for a mutant that no test reaches.
    fn uncovered(number: MutantNumber) -> Self {
        Self {
            number,
            status: MutantStatus::NoCoverage,
            reason: None,
            covered_by: Vec::new(),
            killed_by: None,
            tests_completed: None,
            is_static: false,
            duration: Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests;
