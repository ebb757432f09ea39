//! Tests of the state machine of a mutation run.

use super::*;
use crate::plan::BaselineProgram;

const LIMIT: OrderLimit = OrderLimit { steps: 10, tests: 3 };

/// Two programs with two tests each. All tests reach mutants 1 and 2, the first test reaches 3, none reaches
/// 4.
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
    for (number, limit) in
        [(2, StepOutcome::StepLimit { test: Some("b".into()) }), (3, StepOutcome::StepLimit { test: None })]
    {
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
        assert_eq!(reason.contains("was executed more than"), expected == MutantStatus::Timeout, "{reason}");
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

fn signalled(test: Option<&str>) -> StepOutcome {
    StepOutcome::Signalled { test: test.map(str::to_owned), reason: "killed by SIGKILL".into() }
}

#[test]
fn signal_of_another_process_is_confirmed_alone() {
    let baseline = baseline();
    let mut run = begin(&baseline);
    next(&mut run);
    next(&mut run);
    assert_eq!(end(&mut run, 1, signalled(Some("a"))), None);
    assert_eq!(end(&mut run, 2, signalled(None)), None);
    assert_eq!(end(&mut run, 3, StepOutcome::Passed).unwrap().status, MutantStatus::Survived);
    // Killed from outside once more, then passes: the mutant survives.
    assert_eq!(run.next_alone().unwrap().number.0, 1);
    assert_eq!(end(&mut run, 1, signalled(Some("a"))), None);
    assert_eq!(run.next_alone().unwrap().number.0, 2);
    assert_eq!(end(&mut run, 2, signalled(None)), None);
    assert_eq!(run.next_alone().unwrap().number.0, 1);
    assert_eq!(end(&mut run, 1, StepOutcome::Passed), None);
    assert_eq!(next(&mut run), [(1, 1, vec![0, 1])], "its other program");
    assert_eq!(end(&mut run, 1, StepOutcome::Passed).unwrap().status, MutantStatus::Survived);
    assert_eq!(run.next_alone().unwrap().number.0, 2);
    let died = end(&mut run, 2, signalled(None)).unwrap();
    assert_eq!(died.status, MutantStatus::RuntimeError);
    assert_eq!(died.reason.as_deref(), Some("killed by SIGKILL, 3 times in a row"));
    assert!(run.is_over());
}

#[test]
fn mutant_that_always_ends_by_a_signal_is_killed() {
    let baseline = baseline();
    let mut run = begin(&baseline);
    next(&mut run);
    assert_eq!(end(&mut run, 1, signalled(Some("b"))), None);
    next(&mut run);
    for number in [2, 3] {
        end(&mut run, number, failed("a")).unwrap();
    }
    for _ in 1..CONFIRMED_FAILURES - 1 {
        run.next_alone().unwrap();
        assert_eq!(end(&mut run, 1, signalled(Some("b"))), None);
    }
    run.next_alone().unwrap();
    let verdict = end(&mut run, 1, signalled(Some("b"))).unwrap();
    let killer = Some(TestIndex { program: 0, test: 1 });
    assert_eq!((verdict.status, verdict.killed_by), (MutantStatus::Killed, killer));
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
    // A test that is not flaky decides at once, even after a flaky one.
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
    let lost = || StepOutcome::Unknown { reason: "cancelled".into() };
    for _ in 1..MAX_UNKNOWN {
        assert_eq!(end(&mut run, 1, lost()), None, "it runs again");
        assert_eq!(next(&mut run)[0], (1, 0, vec![0, 1]));
    }
    let unknown = end(&mut run, 1, lost()).unwrap();
    assert_eq!((unknown.status, unknown.killed_by), (MutantStatus::Pending, None));
    assert_eq!(end(&mut run, 9, StepOutcome::Passed), None, "no mutant of the run");
}
