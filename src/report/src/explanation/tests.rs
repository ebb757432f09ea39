//! Runs with known answers, and random schedules whose losses must add up.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Returns a process without a test of its own.
fn process(times: [u64; 4]) -> MeasuredProcess {
    let [started, first, last, ended] = times.map(ms);
    MeasuredProcess { started, first_test: Some(first), last_test: Some(last), ended }
}

/// Returns the only test of a process.
fn test(name: &str, process: usize, from: u64, to: u64) -> MeasuredTest {
    MeasuredTest {
        name: name.to_owned(),
        duration: ms(to - from),
        ended: ms(to),
        process: Some(process),
        ..MeasuredTest::default()
    }
}

fn run(slots: u32, duration: u64, spans: &[(&str, [u64; 4])]) -> MeasuredRun {
    let tests = spans.iter().enumerate();
    MeasuredRun {
        slots,
        duration: ms(duration),
        processes: spans.iter().map(|(_, times)| process(*times)).collect(),
        tests: tests.map(|(place, (name, [_, from, to, _]))| test(name, place, *from, *to)).collect(),
        ..MeasuredRun::default()
    }
}

fn timed(name: &str, duration: u64) -> TimedTest {
    TimedTest { name: name.to_owned(), duration: ms(duration) }
}

fn losses(explained: &RunExplanation) -> Vec<(LossReason, u64)> {
    let losses = explained.losses.iter();
    losses.map(|loss| (loss.reason.clone(), u64::try_from(loss.time.as_millis()).unwrap())).collect()
}

#[test]
fn perfect_run_loses_nothing() {
    let perfect = run(2, 100, &[("a", [0, 0, 100, 100]), ("b", [0, 0, 60, 60]), ("c", [60, 60, 100, 100])]);
    let explained = explain_run(&perfect);
    assert_eq!((explained.bound, explained.bound_by), (ms(100), BoundReason::Slots));
    assert_eq!((explained.test_time, explained.losses.as_slice()), (ms(200), &[][..]));
    assert_eq!((explained.longest, explained.residual_ns), (Some(timed("a", 100)), 0));
}

#[test]
fn starts_gaps_tail_and_end_are_told_apart() {
    // Slot 1: start 20, test 180, end 10. Slot 2: start 20, test 40, end 0, gap 20, test 60, then idle.
    let spans = [("a", [10, 30, 210, 220]), ("b", [10, 30, 70, 70]), ("c", [90, 90, 150, 150])];
    let measured = MeasuredRun { preparation: ms(30), ..run(2, 230, &spans) };
    let explained = explain_run(&measured);
    // 280 ms of tests on 2 slots would take 140 ms, but the longest test takes 180 ms.
    assert_eq!((explained.wall, explained.bound), (ms(260), ms(180)));
    assert_eq!(explained.bound_by, BoundReason::LongestTest);
    // 2 × 40 ms of idle slots beside the longest test are unavoidable: the tail has 70 ms, the gap 20 ms.
    let expected = [
        (LossReason::Preparation, 30),
        (LossReason::ProcessStarts { processes: 3 }, 20),
        (LossReason::FirstProcess, 10),
        (LossReason::Finish, 10),
        (LossReason::ProcessEnds, 5),
        (LossReason::Gaps, 5),
    ];
    assert_eq!(losses(&explained), expected);
    assert_eq!(explained.residual_ns, 0);
}

#[test]
fn late_long_test_is_named_as_the_last_one() {
    let late = run(2, 300, &[("a", [0, 0, 100, 100]), ("b", [0, 0, 100, 100]), ("z", [100, 100, 300, 300])]);
    let explained = explain_run(&late);
    assert_eq!((explained.bound, explained.bound_by), (ms(200), BoundReason::Slots));
    assert_eq!(losses(&explained), [(LossReason::Tail { last: Some(timed("z", 200)) }, 100)]);
}

#[test]
fn wait_for_a_resource_names_it_and_the_tests_that_held_it_longest() {
    let spans = [("a", [0, 0, 50, 50]), ("b", [50, 50, 130, 130]), ("c", [130, 130, 150, 150])];
    let mut locked = run(2, 150, &spans);
    locked.resources = vec![MeasuredResource { name: "db".to_owned(), capacity: 1 }];
    for test in &mut locked.tests {
        test.needs.resources = BTreeMap::from([(0, 1)]);
    }
    let explained = explain_run(&locked);
    assert_eq!(explained.bound, ms(80), "b is longer than half of the sum");
    let holders = vec![timed("b", 80), timed("a", 50), timed("c", 20)];
    let waited = LossReason::WaitForResource { name: "db".to_owned(), holders };
    // The second slot is idle for 130 ms, and then for 20 ms while nothing waits. 10 ms of it are
    // unavoidable, because the longest test takes 80 ms of 75.
    let tail = LossReason::Tail { last: Some(timed("c", 20)) };
    assert_eq!(losses(&explained), [(waited, 65), (tail, 5)]);
}

#[test]
fn chain_of_prerequisites_is_the_bound_and_only_its_delays_are_lost() {
    let spans = [("first", [0, 0, 50, 50]), ("other", [0, 0, 10, 10]), ("second", [60, 70, 150, 150])];
    let mut chained = run(2, 150, &spans);
    chained.tests[2].after = vec![0];
    let explained = explain_run(&chained);
    assert_eq!((explained.bound, explained.bound_by), (ms(130), BoundReason::Chain));
    assert_eq!(explained.chain, [timed("first", 50), timed("second", 80)]);
    let total: Duration = explained.losses.iter().map(|loss| loss.time).sum();
    assert_eq!((total, explained.residual_ns), (ms(20), 0));
    let starts = LossReason::ProcessStarts { processes: 3 };
    assert!(losses(&explained).contains(&(starts, 5)), "{explained:?}");
}

#[test]
fn slots_that_wait_for_a_wide_test_are_named() {
    let spans = [("a", [0, 0, 40, 40]), ("b", [0, 0, 100, 100]), ("wide", [100, 100, 200, 200])];
    let mut wide = run(2, 200, &spans);
    wide.tests[2].needs.weight = 9;
    let explained = explain_run(&wide);
    assert_eq!((explained.test_time, explained.bound), (ms(340), ms(170)));
    assert_eq!(losses(&explained), [(LossReason::WaitForSlots, 30)]);
}

#[test]
fn earlier_attempts_and_time_between_tests_are_told_apart() {
    let mut retried = run(1, 100, &[("flaky", [0, 0, 100, 100])]);
    retried.tests[0].duration = ms(30);
    retried.tests[0].earlier_attempts = ms(60);
    let explained = explain_run(&retried);
    assert_eq!(losses(&explained), [(LossReason::EarlierAttempts, 60), (LossReason::BetweenTests, 10)]);
}

#[test]
fn circle_of_prerequisites_has_no_chain() {
    let mut circle = run(1, 20, &[("a", [0, 0, 10, 10]), ("b", [10, 10, 20, 20])]);
    (circle.tests[0].after, circle.tests[1].after) = (vec![1], vec![0]);
    let explained = explain_run(&circle);
    assert_eq!((explained.chain.len(), explained.residual_ns), (0, 0));
}

#[test]
fn contradictory_times_leave_a_residual() {
    // The test took longer than its process ran.
    let mut odd = run(1, 100, &[("a", [0, 0, 100, 100])]);
    odd.tests[0].duration = ms(140);
    let explained = explain_run(&odd);
    assert_eq!((explained.bound, explained.losses.len()), (ms(140), 0));
    assert_eq!(explained.residual_ns, -40_000_000);
    assert!(explain_run(&MeasuredRun::default()).losses.is_empty(), "an empty run");
}

/// A test of a random run.
#[derive(Debug, Clone)]
struct PlannedTest {
    duration: u64,
    start: u64,
    end: u64,
    weight: u32,
    resource: Option<(usize, u32)>,
    after: Option<usize>,
    pause: u64,
}

fn planned_test() -> impl Strategy<Value = PlannedTest> {
    let times = (0_u64..50, 0_u64..5, 0_u64..3, 0_u64..4);
    let needs = (1_u32..5, proptest::option::of((0_usize..2, 1_u32..4)), proptest::option::of(0_usize..12));
    (times, needs).prop_map(|((duration, start, end, pause), (weight, resource, after))| PlannedTest {
        duration,
        start,
        end,
        weight,
        resource,
        after,
        pause,
    })
}

const CAPACITIES: [u32; 2] = [1, 2];

/// Runs the tests in any order that their needs allow, each in its own process.
fn schedule(slots: u32, planned: &[PlannedTest], rest: u64) -> MeasuredRun {
    let mut free_at: Vec<u64> = vec![0; slots as usize];
    let mut unit_free_at = CAPACITIES.map(|capacity| vec![0; capacity as usize]);
    let (mut processes, mut tests): (Vec<MeasuredProcess>, Vec<MeasuredTest>) = (Vec::new(), Vec::new());
    for (place, one) in planned.iter().enumerate() {
        let weight = one.weight.min(slots) as usize;
        let after = one.after.filter(|after| *after < place);
        free_at.sort_unstable();
        let mut at = free_at[weight - 1] + one.pause;
        at = at.max(after.map_or(0, |after| u64::try_from(tests[after].ended.as_millis()).unwrap()));
        let amount = one.resource.map_or(0, |(resource, amount)| amount.min(CAPACITIES[resource]) as usize);
        if let Some((resource, _)) = one.resource {
            unit_free_at[resource].sort_unstable();
            at = at.max(unit_free_at[resource][amount - 1]);
        }
        let (from, to) = (at + one.start, at + one.start + one.duration);
        let ended = to + one.end;
        free_at[..weight].fill(ended);
        if let Some((resource, _)) = one.resource {
            unit_free_at[resource][..amount].fill(ended);
        }
        processes.push(process([at, from, to, ended]));
        let needs = MeasuredNeeds { weight: one.weight, resources: one.resource.into_iter().collect() };
        let after = after.into_iter().collect();
        tests.push(MeasuredTest { needs, after, ..test(&place.to_string(), place, from, to) });
    }
    let last = processes.iter().map(|process| process.ended).max().unwrap_or_default();
    let resource =
        |(place, capacity): (usize, &u32)| MeasuredResource { name: place.to_string(), capacity: *capacity };
    let resources = CAPACITIES.iter().enumerate().map(resource).collect();
    MeasuredRun { slots, preparation: ms(rest), duration: last + ms(rest), resources, processes, tests }
}

proptest! {
    /// The losses of any possible run add up to its duration less the bound.
    #[test]
    fn losses_add_up(
        slots in 1_u32..5,
        planned in proptest::collection::vec(planned_test(), 0..12),
        rest in 0_u64..20,
    ) {
        let explained = explain_run(&schedule(slots, &planned, rest));
        let total: Duration = explained.losses.iter().map(|loss| loss.time).sum();
        prop_assert!(explained.bound <= explained.wall);
        prop_assert_eq!((total, explained.residual_ns), (explained.wall - explained.bound, 0));
        prop_assert!(explained.losses.iter().all(|loss| !loss.time.is_zero()));
    }
}
