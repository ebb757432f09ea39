//! Tests of the plan of a mutant: order and limits.

use super::*;

const NUMBERS: [MutantNumber; 5] =
    [MutantNumber(0), MutantNumber(1), MutantNumber(2), MutantNumber(3), MutantNumber(4)];

fn file(counts: &[u32]) -> Vec<u8> {
    let bytes: Vec<u8> = counts.iter().flat_map(|count| count.to_le_bytes()).collect();
    // The file may end in the middle of a number.
    [bytes.as_slice(), &[1, 0]].concat()
}

fn function(function: usize) -> FunctionId {
    FunctionId { source: 0, function }
}

fn test(program: usize, test: usize) -> TestIndex {
    TestIndex { program, test }
}

/// Two programs: the first with a slow, a fast, a medium, an idle and a skipped test, the second with one
/// test.
fn baseline() -> Baseline {
    let millis = |millis: u64| Some(Duration::from_millis(millis));
    let mut coverage = Coverage::default();
    for (place, counts) in [
        (Some(0), vec![32, 4, 1]),
        (Some(1), vec![1, 1]),
        (Some(2), vec![0, 1, 0, 0]),
        (None, vec![0, 0, 0, 2]),
    ] {
        coverage.add(0, place, &file(&counts));
    }
    coverage.add(1, Some(0), &file(&[0, 1]));
    let first = BaselineProgram {
        names: Vec::new(),
        durations: vec![millis(300), millis(1), millis(20), millis(1), None],
        selection_costs: vec![10; 5],
        selection_budget: Some(30),
        ..BaselineProgram::default()
    };
    let second = BaselineProgram { durations: vec![millis(2)], ..BaselineProgram::default() };
    Baseline { programs: vec![first, second], coverage, ..Baseline::default() }
}

fn groups(number: usize, function_index: usize, killers: &KnownKillers) -> Vec<(usize, Vec<usize>)> {
    let plan = baseline().plan(NUMBERS[number], function(function_index), killers);
    plan.steps.into_iter().map(|step| (step.program, step.tests)).collect()
}

#[test]
fn mutants_that_are_reached_in_the_same_way_share_what_is_known() {
    let mut coverage = Coverage::default();
    coverage.add(0, Some(0), &file(&[8, 1, 1, 1, 0]));
    coverage.add(0, Some(1), &file(&[8, 2, 2, 0, 4]));
    coverage.add(0, None, &file(&[1, 0, 0, 1]));
    assert_eq!(coverage.lists.len(), 2 + 3 + 2);
    assert_eq!(coverage.by_mutant[1], coverage.by_mutant[2]);
    let by_test = coverage.by_test();
    let counts = |test| by_test.of(0, test).into_iter().map(|(number, count)| (number.0, count));
    assert!(counts(Some(0)).eq([(0, 8), (1, 1), (2, 1), (3, 1)]));
    assert!(counts(Some(1)).eq([(0, 8), (1, 2), (2, 2), (4, 4)]));
    assert!(counts(None).eq([(0, 1), (3, 1)]));
    assert_eq!(by_test.of(1, None), []);
}

#[test]
fn likeliest_killers_run_first_and_then_the_fastest_programs() {
    let mut killers = KnownKillers::default();
    assert_eq!(groups(1, 0, &killers), [(1, vec![0]), (0, vec![0, 1, 2])]);
    killers.note(test(0, 2), function(7));
    let split = [(0, vec![2]), (0, vec![0, 1]), (1, vec![0])];
    assert_eq!(groups(1, 0, &killers), split, "a killer of another function, alone before slow ones");
    killers.note(test(1, 0), function(0));
    killers.note(test(0, 2), function(7));
    let own_first = [(1, vec![0]), (0, vec![2]), (0, vec![0, 1])];
    assert_eq!(groups(1, 0, &killers), own_first, "the killer of this function");
}

#[test]
fn tests_that_need_a_process_each_run_in_the_order_in_which_they_may_fail() {
    let mut baseline = baseline();
    baseline.programs[0].is_one_test = true;
    let tests = |killers: &KnownKillers| -> Vec<Vec<usize>> {
        let plan = baseline.plan(NUMBERS[1], function(0), killers);
        plan.steps.into_iter().filter(|step| step.program == 0).map(|step| step.tests).collect()
    };
    let mut killers = KnownKillers::default();
    assert_eq!(tests(&killers), [vec![1], vec![2], vec![0]], "the fastest first");
    killers.note(test(0, 0), function(7));
    killers.note(test(0, 2), function(0));
    assert_eq!(tests(&killers), [vec![2], vec![0], vec![1]], "killers of this function, then of others");
    let all: Vec<Vec<usize>> = baseline.all_groups().swap_remove(0);
    assert_eq!(all.len(), 4, "one is skipped: {all:?}");
}

#[test]
fn what_nothing_reaches_needs_no_process_and_static_places_need_all_tests() {
    let killers = KnownKillers::default();
    assert_eq!(baseline().plan(NUMBERS[4], function(0), &killers), MutantPlan::default());
    let plan = baseline().plan(NUMBERS[3], function(0), &killers);
    assert!(plan.is_static);
    assert_eq!(plan.covered_by, [test(0, 0), test(0, 1), test(0, 2), test(0, 3)], "one is skipped");
    let tests: Vec<_> = plan.steps.iter().map(|step| step.tests.clone()).collect();
    assert_eq!(tests, [vec![0, 1, 2], vec![3]], "no more names than one command takes");
    assert!(plan.steps.iter().all(|step| step.hit_limit == 3 * 100 + 100));
}

#[test]
fn limits_allow_what_counts_at_powers_of_two_may_hide() {
    let plan = baseline().plan(NUMBERS[1], function(0), &KnownKillers::default());
    let [second, first] = plan.steps.as_slice() else { panic!("{plan:?}") };
    // A count of 4 stands for up to 7 hits; a count of 1 is exact.
    assert_eq!((first.hit_limit, first.silence), ((7 + 1 + 1) * 100 + 100, Duration::from_secs(3)));
    assert_eq!((first.expected, first.total), (Duration::from_millis(321), Duration::from_millis(36_420)));
    assert_eq!((first.step_limit, second.step_limit), ((63 + 1) * 100 + 1_000_000, 1_000_000));
    assert_eq!((second.hit_limit, second.silence), (200, Duration::from_secs(1)));
    let double = first.with_double_time();
    assert_eq!((double.silence, double.total), (Duration::from_secs(6), Duration::from_millis(72_840)));
    assert_eq!((double.hit_limit, double.tests), (first.hit_limit, first.tests.clone()));
}

#[test]
fn limits_of_tests_of_minutes_end_in_time() {
    let mut baseline = baseline();
    baseline.programs[1].durations[0] = Some(Duration::from_secs(120));
    let plan = baseline.plan(NUMBERS[1], function(0), &KnownKillers::default());
    let slow = plan.steps.iter().find(|step| step.program == 1).unwrap();
    assert_eq!((slow.silence, slow.total), (Duration::from_secs(270), Duration::from_secs(420)));
    let covering = baseline.covering(NUMBERS[1]);
    assert_eq!(baseline.expected_of(&covering), Duration::from_millis(120_321));
}

#[test]
fn code_that_runs_once_may_run_at_every_call() {
    let mut baseline = baseline();
    let limits = |baseline: &Baseline| {
        let plan = baseline.plan(NUMBERS[1], function(0), &KnownKillers::default());
        plan.steps.into_iter().map(|step| step.hit_limit).collect::<Vec<_>>()
    };
    assert_eq!(limits(&baseline), [200, 1_000], "few places are reached");
    baseline.coverage.add(1, Some(0), &file(&[8_192]));
    assert_eq!(limits(&baseline), [16_383, 1_000], "up to 16,383 may be hidden behind 8,192");
    baseline.coverage.add(1, Some(0), &file(&[1 << 30]));
    assert_eq!(limits(&baseline), [1_000_000, 1_000]);
}
