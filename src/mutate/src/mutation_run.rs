//! The mutants of a run, from the first process to the verdict of each: which processes run next, and what
//! their ends mean. It starts nothing itself.
//!
//! ```text
//! waiting ──► in progress ──passed──► waiting for its next process, or survived
//!    ▲             ├─ a test failed, it died early, too many hits ──► verdict
//!    │             └─ silent ──► waits to run alone, with double time
//!    └──── passed ──────────────────────┘└──── silent again ──► timed out
//! ```
//!
//! A mutant under which one test does not end and another fails is killed, whichever runs first: behind a
//! test that reached too many places, the others run, until eight of them did.
//!
//! A test that is flaky without a mutant kills only if it fails [`CONFIRMED_FAILURES`] times in a row, alone
//! from the second time on. If it passes before, the other tests decide.

use std::{collections::VecDeque, time::Duration};

use heeler_mutant::MutantStatus;

use crate::{
    built_project::{FunctionId, MutantNumber},
    plan::{Baseline, KnownKillers, MutantPlan, PlanStep, TestIndex},
    step_outcome::StepOutcome,
};

/// How often a flaky test must fail, with nothing else between, until the mutant counts as killed by it.
pub const CONFIRMED_FAILURES: u32 = 3;

/// How many tests of a mutant may reach too many places until no other runs.
const MAX_LIMITS: u32 = 8;

/// What became of a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MutantVerdict {
    pub number: MutantNumber,
    pub status: MutantStatus,
    pub reason: Option<String>,
    pub covered_by: Vec<TestIndex>,
    pub killed_by: Option<TestIndex>,
    /// The number of tests that ended, the failed one included, as the framework runs them in order.
    pub tests_completed: Option<u32>,
    pub is_static: bool,
    /// How long its processes ran.
    pub duration: Duration,
}

/// A process that is to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderedStep {
    pub number: MutantNumber,
    pub step: PlanStep,
}

/// How many processes are ordered together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderLimit {
    pub steps: usize,
    /// The tests of all of them, unless one alone has more.
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
    /// A process was ordered.
    Begun(Box<MutantProgress>),
    /// It has its verdict.
    Over,
}

/// What the processes of a mutant have shown.
#[derive(Debug, Default)]
struct MutantProgress {
    /// Made when its first process is ordered, from what is known by then.
    plan: MutantPlan,
    next_step: usize,
    completed: u32,
    duration: Duration,
    is_alone: bool,
    /// How often the flaky test that runs next has failed in a row.
    failures: u32,
    /// Flaky tests that failed and then passed.
    dismissed: Vec<String>,
    /// How many tests reached too many places, and of the first what it reached.
    limits: u32,
    limited: Option<String>,
}

/// The mutants of a run.
#[derive(Debug)]
pub struct MutationRun<'a> {
    baseline: &'a Baseline,
    /// In the order of their numbers.
    mutants: Vec<RunMutant>,
    /// Indices of mutants.
    waiting: VecDeque<usize>,
    /// Those that wait until nothing else runs.
    unconfirmed: VecDeque<usize>,
    in_progress: usize,
    killers: KnownKillers,
}

impl<'a> MutationRun<'a> {
    /// Returns the run of these mutants, and the verdicts of those that no test reaches.
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
        };
        let mut uncovered = Vec::new();
        for (number, function) in mutants {
            if baseline.covering(number).is_empty() {
                uncovered.push(MutantVerdict::uncovered(number));
            } else {
                run.mutants.push(RunMutant { number, function, state: RunMutantState::Waiting });
            }
        }
        run.mutants.sort_by_key(|mutant| mutant.number);
        run.waiting.extend(0..run.mutants.len());
        (run, uncovered)
    }

    /// Notes a test that failed under a mutant of a function in an earlier run.
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

    /// Returns the processes that run next, beside each other.
    pub fn next_steps(&mut self, limit: OrderLimit) -> Vec<OrderedStep> {
        let (mut steps, mut tests) = (Vec::new(), 0);
        while steps.len() < limit.steps {
            let Some(&index) = self.waiting.front() else { break };
            let ordered = self.order(index);
            tests += ordered.step.tests.len();
            if tests > limit.tests && !steps.is_empty() {
                // By the time it is ordered, more is known.
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

    /// Returns a process that runs while no other does, if it is time for one.
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

    /// Takes the end of a mutant's process; returns its verdict, if that decides.
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
            // Before others begin, so that a mutant that has begun ends.
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
        let step = progress.plan.steps[progress.next_step].clone();
        let names = &self.baseline.programs[step.program].names;
        let was_alone = std::mem::take(&mut progress.is_alone);
        let limited = |reason| NextForMutant::Verdict(MutantStatus::Timeout, reason, None);
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
                let reason = format!("its place was reached more than {} times", step.hit_limit);
                self.on_limit(progress, number, test, reason)
            }
            StepOutcome::StepLimit { test } => {
                let reason = format!("more than {} places were reached", step.step_limit);
                self.on_limit(progress, number, test, reason)
            }
            StepOutcome::DiedEarly { .. } | StepOutcome::Unknown { .. } if progress.limited.is_some() => {
                limited(progress.limited.take())
            }
            StepOutcome::Silent { .. } if !was_alone => NextForMutant::Confirmation,
            StepOutcome::Silent { reason } => limited(Some(reason)),
            StepOutcome::DiedEarly { reason } => {
                NextForMutant::Verdict(MutantStatus::RuntimeError, Some(reason), None)
            }
            StepOutcome::Unknown { reason } => {
                NextForMutant::Verdict(MutantStatus::Pending, Some(reason), None)
            }
        }
    }

    /// Has the tests run that had not, behind one that reached too many places.
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

    /// Has a flaky test that failed run again, unless it has failed often enough: before the tests that had
    /// not run. `place` is its place in the step.
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

    /// Returns what is known of a mutant that is to run, which has no verdict.
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

/// What follows from the end of a process.
enum NextForMutant {
    /// A further process.
    Process,
    /// The same process, when it is alone.
    Confirmation,
    /// A verdict, with its reason and the test that failed.
    Verdict(MutantStatus, Option<String>, Option<TestIndex>),
}

impl MutantProgress {
    /// Returns whether nothing has run yet.
    fn is_new(&self) -> bool {
        self.next_step == 0 && self.failures == 0 && self.limits == 0
    }

    /// Says which tests failed and do not count.
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
    /// Returns that of a mutant that no test reaches.
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
mod tests {
    use super::*;
    use crate::plan::BaselineProgram;

    const LIMIT: OrderLimit = OrderLimit { steps: 10, tests: 3 };

    /// Two programs with two tests each: all reach the mutants 1 and 2, the first also 3, none 4.
    fn baseline() -> Baseline {
        let program = |millis: u64| BaselineProgram {
            names: vec!["a".into(), "b".into()],
            durations: vec![Some(Duration::from_millis(millis)); 2],
            ..BaselineProgram::default()
        };
        let mut baseline = Baseline { programs: vec![program(1), program(2)], ..Baseline::default() };
        let bytes = |counts: &[u32]| counts.iter().flat_map(|count| count.to_le_bytes()).collect::<Vec<_>>();
        for (program, test) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let third = u32::from((program, test) == (0, 0));
            baseline.coverage.add(program, Some(test), &bytes(&[0, 1, 1, third]));
        }
        baseline
    }

    fn begin(baseline: &Baseline) -> MutationRun<'_> {
        let mutants = (1..=4).map(|number| (MutantNumber(number), FunctionId { source: 0, function: 0 }));
        let (run, uncovered) = MutationRun::begin(baseline, mutants);
        let uncovered: Vec<_> = uncovered.into_iter().map(|one| (one.number.0, one.status)).collect();
        assert_eq!(uncovered, [(4, MutantStatus::NoCoverage)]);
        run
    }

    fn next(run: &mut MutationRun<'_>) -> Vec<(u32, usize, Vec<usize>)> {
        let steps = run.next_steps(LIMIT);
        steps.into_iter().map(|one| (one.number.0, one.step.program, one.step.tests)).collect()
    }

    fn end(run: &mut MutationRun<'_>, number: u32, outcome: StepOutcome) -> Option<MutantVerdict> {
        run.on_ended(MutantNumber(number), outcome, Duration::from_millis(5))
    }

    fn silent() -> StepOutcome {
        StepOutcome::Silent { reason: "idle".into() }
    }

    #[test]
    fn mutant_survives_when_every_program_passes() {
        let baseline = baseline();
        let mut run = begin(&baseline);
        assert_eq!(next(&mut run), [(1, 0, vec![0, 1])], "two mutants have more tests than go together");
        assert_eq!(next(&mut run), [(2, 0, vec![0, 1]), (3, 0, vec![0])]);
        assert_eq!(end(&mut run, 1, StepOutcome::Passed), None);
        assert_eq!(next(&mut run), [(1, 1, vec![0, 1])]);
        let verdict = end(&mut run, 1, StepOutcome::Passed).unwrap();
        assert_eq!((verdict.status, verdict.tests_completed), (MutantStatus::Survived, Some(4)));
        assert_eq!((verdict.covered_by.len(), verdict.duration), (4, Duration::from_millis(10)));
        assert!(!run.is_over());
        assert_eq!(end(&mut run, 2, StepOutcome::HitLimit { test: None }), None, "its other program runs");
        assert_eq!(next(&mut run)[0], (2, 1, vec![0, 1]));
        for (number, limit) in [
            (2, StepOutcome::StepLimit { test: Some("b".into()) }),
            (3, StepOutcome::StepLimit { test: None }),
        ] {
            let verdict = end(&mut run, number, limit).unwrap();
            assert_eq!((verdict.status, verdict.killed_by), (MutantStatus::Timeout, None));
        }
        assert!(run.is_over());
    }

    #[test]
    fn test_that_fails_kills_whether_or_not_another_ends() {
        let baseline = baseline();
        for (after, expected) in
            [(StepOutcome::Passed, MutantStatus::Timeout), (failed("b"), MutantStatus::Killed)]
        {
            let mut run = begin(&baseline);
            next(&mut run);
            assert_eq!(end(&mut run, 1, StepOutcome::HitLimit { test: Some("a".into()) }), None);
            assert_eq!(next(&mut run)[0], (1, 0, vec![1]), "the test behind it");
            if after == StepOutcome::Passed {
                assert_eq!(end(&mut run, 1, after.clone()), None);
                assert_eq!(next(&mut run)[0], (1, 1, vec![0, 1]));
            }
            let verdict = end(&mut run, 1, after.clone()).unwrap();
            assert_eq!(verdict.status, expected);
            let reason = verdict.reason.unwrap();
            assert_eq!(
                reason.contains("was reached more than"),
                expected == MutantStatus::Timeout,
                "{reason}"
            );
        }
    }

    #[test]
    fn first_failure_kills_and_its_test_runs_first_for_the_next() {
        let baseline = baseline();
        let mut run = begin(&baseline);
        next(&mut run);
        end(&mut run, 1, StepOutcome::Passed);
        assert_eq!(next(&mut run), [(1, 1, vec![0, 1])]);
        let failed = StepOutcome::Failed { test: "b".into(), reason: "1 is not 2".into() };
        let verdict = end(&mut run, 1, failed.clone()).unwrap();
        let killer = TestIndex { program: 1, test: 1 };
        assert_eq!((verdict.status, verdict.killed_by), (MutantStatus::Killed, Some(killer)));
        assert_eq!((verdict.tests_completed, verdict.reason.as_deref()), (Some(4), Some("1 is not 2")));
        assert_eq!(next(&mut run)[0], (2, 1, vec![0, 1]), "the program of the killer");
        let verdict = end(&mut run, 2, StepOutcome::Failed { test: "other".into(), reason: String::new() });
        assert_eq!(verdict.unwrap().killed_by, None, "no test of it has this name");
    }

    #[test]
    fn silence_is_confirmed_alone_with_double_time() {
        let baseline = baseline();
        let mut run = begin(&baseline);
        next(&mut run);
        assert_eq!(end(&mut run, 1, silent()), None);
        assert_eq!(run.next_alone(), None, "others wait");
        next(&mut run);
        assert_eq!(end(&mut run, 2, silent()), None);
        assert_eq!(run.next_alone(), None, "another runs");
        let early = end(&mut run, 3, StepOutcome::DiedEarly { reason: "no".into() }).unwrap();
        assert_eq!(early.status, MutantStatus::RuntimeError);
        let alone = run.next_alone().unwrap();
        assert_eq!((alone.number.0, alone.step.silence), (1, Duration::from_secs(2)));
        assert_eq!(run.next_alone(), None, "it is alone");
        assert_eq!(end(&mut run, 1, StepOutcome::Passed), None);
        assert_eq!(next(&mut run), [(1, 1, vec![0, 1])], "its other program is not confirmed yet");
        assert_eq!(end(&mut run, 1, StepOutcome::Passed).unwrap().status, MutantStatus::Survived);
        assert_eq!(run.next_alone().unwrap().number.0, 2);
        assert_eq!(end(&mut run, 2, silent()).unwrap().status, MutantStatus::Timeout);
        assert!(run.is_over());
    }

    fn failed(test: &str) -> StepOutcome {
        StepOutcome::Failed { test: test.into(), reason: "now and then".into() }
    }

    #[test]
    fn flaky_test_kills_only_if_it_fails_again_and_again() {
        let mut baseline = baseline();
        baseline.flaky.insert(TestIndex { program: 0, test: 0 });
        let mut run = begin(&baseline);
        next(&mut run);
        assert_eq!(end(&mut run, 1, failed("a")), None);
        assert_eq!(next(&mut run)[0], (1, 0, vec![0]), "alone");
        assert_eq!(end(&mut run, 1, failed("a")), None);
        assert_eq!(next(&mut run)[0], (1, 0, vec![0]));
        let verdict = end(&mut run, 1, failed("a")).unwrap();
        let killer = Some(TestIndex { program: 0, test: 0 });
        assert_eq!((verdict.status, verdict.killed_by), (MutantStatus::Killed, killer));
        assert_eq!(verdict.tests_completed, Some(1));
    }

    #[test]
    fn flaky_test_that_passes_again_leaves_the_mutant_to_the_other_tests() {
        let mut baseline = baseline();
        baseline.flaky.insert(TestIndex { program: 0, test: 0 });
        let mut run = begin(&baseline);
        next(&mut run);
        assert_eq!(end(&mut run, 1, failed("a")), None);
        next(&mut run);
        assert_eq!(end(&mut run, 1, StepOutcome::Passed), None);
        assert_eq!(next(&mut run)[0], (1, 0, vec![1]), "the tests behind it had not run");
        assert_eq!(end(&mut run, 1, StepOutcome::Passed), None);
        assert_eq!(next(&mut run)[0], (1, 1, vec![0, 1]));
        let verdict = end(&mut run, 1, StepOutcome::Passed).unwrap();
        assert_eq!((verdict.status, verdict.tests_completed), (MutantStatus::Survived, Some(4)));
        assert_eq!(verdict.reason.as_deref(), Some("failed once and passed when it ran again: a"));
        // A test that is not flaky decides at once, also behind a flaky one.
        next(&mut run);
        assert_eq!(end(&mut run, 2, failed("a")), None);
        next(&mut run);
        assert_eq!(end(&mut run, 2, StepOutcome::Passed), None);
        assert_eq!(next(&mut run)[0], (2, 0, vec![1]));
        let verdict = end(&mut run, 2, failed("b")).unwrap();
        assert_eq!((verdict.status, verdict.tests_completed), (MutantStatus::Killed, Some(2)));
    }

    #[test]
    fn what_is_not_known_is_no_verdict() {
        let baseline = baseline();
        let mut run = begin(&baseline);
        next(&mut run);
        let unknown = end(&mut run, 1, StepOutcome::Unknown { reason: "cancelled".into() }).unwrap();
        assert_eq!((unknown.status, unknown.killed_by), (MutantStatus::Pending, None));
        assert_eq!(end(&mut run, 9, StepOutcome::Passed), None, "no mutant of the run");
    }
}
