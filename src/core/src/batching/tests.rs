//! Sizes and order of batches.

use proptest::prelude::*;

use super::{program_queue::FIRST_TESTS, *};

fn items(count: u32, weight: Option<Duration>) -> impl Iterator<Item = (ProgramId, QueuedTest)> {
    let item = move |test| QueuedTest {
        test: TestId(test),
        weight,
        is_isolated: false,
        bond: None,
        selection_bytes: 0,
    };
    (0..count).map(move |test| (ProgramId(0), item(test)))
}

fn costs(start_ms: u64) -> ProgramCosts {
    ProgramCosts { start: Some(Duration::from_millis(start_ms)), ..ProgramCosts::default() }
}

/// Returns a slot that runs the first program.
fn busy_for(remaining: Duration) -> BusySlot {
    BusySlot { program: ProgramId(0), weight: Slots::ONE, portions: Vec::new(), remaining }
}

fn sizes(queue: &mut TestQueue, slots: usize) -> Vec<usize> {
    std::iter::from_fn(|| queue.next_batch(&SlotLoads::idle(Slots(slots))))
        .map(|batch| batch.tests.len())
        .collect()
}

#[test]
fn bound_tests_are_never_in_two_batches() {
    for weight in [None, Some(1), Some(2000)] {
        let mut queue = TestQueue::new([costs(3)]);
        let weight = weight.map(Duration::from_millis);
        let bound = items(60, weight).map(|(program, item)| {
            let bond = Some(item.test.0 / 7).filter(|bond| *bond < 5);
            (program, QueuedTest { bond, ..item })
        });
        queue.add(bound);
        let mut batch_of = BTreeMap::new();
        let mut tests = 0;
        for number in 0.. {
            let Some(batch) = queue.next_batch(&SlotLoads::idle(Slots(8))) else { break };
            tests += batch.tests.len();
            for test in batch.tests {
                let bond = test.0 / 7;
                let first = *batch_of.entry(bond).or_insert(number);
                assert!(
                    bond >= 5 || first == number,
                    "{test:?} of bond {bond} is in batch {number} ({weight:?})"
                );
            }
        }
        assert_eq!(tests, 60);
    }
}

#[test]
fn tests_without_data_are_spread_over_free_slots() {
    // The listing does not show an expensive start, and the durations are unknown.
    for start in [60, 300] {
        assert_eq!(simulate(start, &[440; 20], false, 2), (vec![10, 10], start + 4400));
    }
    assert_eq!(simulate(3, &[2000; 8], false, 8), (vec![1; 8], 2003));
    assert_eq!(simulate(3, &[500; 40], false, 8).1 / 10, 250);
    assert_eq!(simulate(3, &[1; 4], false, 1).0, [4]);
}

#[test]
fn first_run_is_near_the_bound_whatever_the_order() {
    let fast_first: Vec<_> = [vec![0; 6], vec![300; 30]].concat();
    let fast_last: Vec<_> = [vec![300; 30], vec![0; 6]].concat();
    let mixed: Vec<_> = (0..36).map(|n| if n % 6 == 0 { 0 } else { 300 }).collect();
    let one_slow: Vec<_> = (0..2000).map(|n| if n == 1000 { 10_000 } else { 1 }).collect();
    for (durations, slots, percent) in [
        (vec![500; 40], 2, 102),
        (vec![500; 40], 8, 102),
        (vec![20; 400], 8, 115),
        (fast_first.clone(), 2, 108),
        (fast_first, 8, 135),
        (fast_last, 2, 108),
        (mixed, 2, 108),
        (one_slow, 2, 115),
    ] {
        let (sizes, end) = simulate(3, &durations, false, slots);
        let sum: u64 = durations.iter().sum();
        let bound = (sum / slots as u64).max(durations.iter().copied().max().unwrap());
        assert!(end * 100 <= bound * percent, "{slots} slots: {end} of {bound}: {sizes:?}");
    }
}

#[test]
fn program_with_most_of_the_tests_is_split_although_there_are_many_programs() {
    let of = |program: u32, tests: std::ops::Range<u32>| {
        let item = |test| QueuedTest {
            test: TestId(test),
            weight: None,
            is_isolated: false,
            bond: None,
            selection_bytes: 0,
        };
        tests.map(move |test| (ProgramId(program), item(test)))
    };
    let mut queue = TestQueue::new(vec![costs(10); 40]);
    queue.add(of(0, 0..1000));
    (1..40).for_each(|program| queue.add(of(program, program * 1000..program * 1000 + 50)));
    let mut next = || queue.next_batch(&SlotLoads::idle(Slots(8))).unwrap();
    for _ in 0..8 {
        let first = next();
        assert_eq!((first.program, first.tests.len()), (ProgramId(0), FIRST_TESTS), "nothing is known of it");
    }
    let small = std::iter::from_fn(|| Some(next())).find(|batch| batch.program != ProgramId(0)).unwrap();
    assert_eq!(small.tests.len(), 50, "small programs are batches enough");
}

/// Gives a batch to each slot that becomes free. Returns the batch sizes in that order, and the end of the
/// last batch. All times are in milliseconds.
fn simulate(start: u64, durations: &[u64], known: bool, slots: usize) -> (Vec<usize>, u64) {
    let mut queue = TestQueue::new([costs(start)]);
    let item = |(test, duration): (u32, &u64)| QueuedTest {
        test: TestId(test),
        weight: known.then(|| Duration::from_millis(*duration)),
        is_isolated: false,
        bond: None,
        selection_bytes: 0,
    };
    queue.add((0..).zip(durations).map(item).map(|item| (ProgramId(0), item)));
    let mut free_at = vec![0; slots];
    let mut running = vec![Vec::new(); slots];
    let mut sizes = Vec::new();
    loop {
        let (slot, now) = free_at.iter().copied().enumerate().min_by_key(|(_, at)| *at).unwrap();
        for test in std::mem::take(&mut running[slot]) {
            let test: TestId = test;
            queue.observe_duration(ProgramId(0), Duration::from_millis(durations[test.index()]));
        }
        let others = free_at.iter().enumerate().filter(|(other, at)| *other != slot && **at > now);
        let busy = others.map(|(_, at)| busy_for(Duration::from_millis(*at - now))).collect();
        let Some(batch) = queue.next_batch(&SlotLoads { slots: Slots(slots), busy, ..SlotLoads::default() })
        else {
            break;
        };
        let tests: u64 = batch.tests.iter().map(|test| durations[test.index()]).sum();
        free_at[slot] = now + start + tests;
        sizes.push(batch.tests.len());
        running[slot] = batch.tests;
    }
    (sizes, free_at.into_iter().max().unwrap())
}

#[test]
fn start_that_no_listing_shows_is_learnt_from_the_first_process() {
    let costs = ProgramCosts { listing: Some(Duration::from_millis(3)), ..ProgramCosts::default() };
    let mut queue = TestQueue::new([costs]);
    queue.add(items(20, None));
    let mut next = || queue.next_batch(&SlotLoads::idle(Slots(2))).unwrap().tests.len();
    assert_eq!((next(), next()), (4, 4));
    queue.observe_start(ProgramId(0), Duration::from_millis(300));
    for _ in 0..4 {
        queue.observe_duration(ProgramId(0), Duration::from_millis(100));
    }
    assert_eq!(sizes(&mut queue, 2), [6, 3, 3], "half of what is left for each free slot");
}

#[test]
fn slots_end_an_expensive_program_together() {
    // 57 tests on two slots, with a start of four seconds: the bound is 8.4 s.
    for known in [false, true] {
        let (sizes, end) = simulate(4000, &[154; 57], known, 2);
        assert_eq!((sizes.len(), end / 100), (2, 84), "{sizes:?}");
    }
    // Tests over one second, which a cheap program would run in isolation.
    let (sizes, end) = simulate(4000, &[1100; 8], true, 2);
    assert_eq!((sizes, end), (vec![4, 4], 8400));
    // One long test among short ones: the other slot runs the short ones.
    let mut durations = [200; 41];
    durations[20] = 8000;
    let (sizes, end) = simulate(4000, &durations, true, 2);
    assert!(end <= 14_000, "{sizes:?} {end}");
    // Work that does not justify another start is not split.
    assert_eq!(simulate(4000, &[10; 57], true, 2).0, [57]);
    let (sizes, _) = simulate(4000, &[1; 57], false, 2);
    assert_eq!(sizes, [28, 29]);
}

#[test]
fn program_with_a_limit_of_processes_leaves_slots_to_others() {
    let limited = ProgramCosts { max_processes: NonZeroU32::new(1), ..costs(2) };
    let mut queue = TestQueue::new([limited, costs(2)]);
    queue.add(items(100, Some(Duration::from_millis(500))));
    queue.add_isolated(ProgramId(0), TestId(200), None);
    queue.add_remainder(ProgramId(0), vec![TestId(201)]);
    assert_eq!(queue.wanted_slots(&SlotLoads::idle(Slots(4))), Slots(1));
    let mut loads = SlotLoads::idle(Slots(4));
    let first = queue.next_batch(&loads).unwrap();
    assert_eq!(first.tests, [TestId(201)]);
    loads.busy.push(busy_for(Duration::from_secs(1)));
    assert_eq!((queue.wanted_slots(&loads), queue.next_batch(&loads)), (Slots::NONE, None));
    queue.add([(
        ProgramId(1),
        QueuedTest { test: TestId(300), weight: None, is_isolated: false, bond: None, selection_bytes: 0 },
    )]);
    assert_eq!(queue.wanted_slots(&loads), Slots(1));
    assert_eq!(queue.next_batch(&loads).unwrap().program, ProgramId(1));
    loads.busy.clear();
    let mut seen = 0;
    while let Some(batch) = queue.next_batch(&loads) {
        seen += batch.tests.len();
    }
    assert_eq!((seen, queue.is_empty()), (101, true));
}

#[test]
fn splits_are_near_the_bound() {
    for start in [1, 20, 300, 4000] {
        for durations in [vec![5; 2000], vec![150; 300], (0..400).map(|n| n % 97).collect::<Vec<_>>()] {
            for slots in [1, 2, 4, 8] {
                let (sizes, end) = simulate(start, &durations, true, slots);
                let total: u64 = durations.iter().sum();
                let bound = start + total / slots as u64;
                // Batches of cheap programs shrink, because estimates may be wrong. Each batch costs a start.
                assert!(
                    end <= bound * 5 / 4 + 3 * start.min(150),
                    "{start} {slots}: {end} {bound} {sizes:?}"
                );
            }
        }
    }
}

#[test]
fn small_remainder_joins_the_previous_batch() {
    let with = |weight_us| {
        let mut queue = TestQueue::new([costs(15)]);
        queue.add(items(500, Some(Duration::from_micros(weight_us))));
        (queue.wanted_slots(&SlotLoads::idle(Slots(2))).0, sizes(&mut queue, 2))
    };
    assert_eq!(with(92), (1, vec![500]));
    assert_eq!(with(119), (1, vec![500]));
    assert_eq!(with(130), (2, vec![346, 154]));
}

#[test]
fn trivial_tests_take_few_batches_after_the_first() {
    let mut queue = TestQueue::new([costs(2)]);
    queue.add(items(2000, None));
    let mut sizes = Vec::new();
    while let Some(batch) = queue.next_batch(&SlotLoads::idle(Slots(2))) {
        for _ in &batch.tests {
            queue.observe_duration(ProgramId(0), Duration::from_micros(10));
        }
        sizes.push(batch.tests.len());
    }
    assert_eq!(sizes[..3], [4, 64, 966]);
    assert!(sizes.len() <= 6, "{sizes:?}");
}

#[test]
fn batches_shrink_with_the_remaining_work() {
    let mut queue = TestQueue::new([costs(2)]);
    queue.add(items(800, Some(Duration::from_millis(10))));
    let sizes = sizes(&mut queue, 4);
    assert_eq!(sizes.iter().sum::<usize>(), 800);
    assert!(sizes.is_sorted_by(|a, b| a >= b), "{sizes:?}");
    assert_eq!(sizes[0], 100);
    assert!(*sizes.last().unwrap() <= 10, "{sizes:?}");
}

#[test]
fn limited_batches_take_no_longer_than_the_limit() {
    let limited = |start_ms, weight: Option<Duration>| {
        let mut queue = TestQueue::new([costs(start_ms)]);
        queue.limit_batches(Some(SHARED_BATCH_LIMIT));
        queue.add(items(20_000, weight));
        queue
    };
    let millis = |ms| Some(Duration::from_millis(ms));
    // 40 tests of 5 ms fit, with or without history, and fewer at the end.
    let all = sizes(&mut limited(3, millis(5)), 2);
    assert_eq!((all[0], all.iter().max()), (40, Some(&40)));
    let mut queue = limited(3, None);
    assert_eq!(
        queue.next_batch(&SlotLoads::idle(Slots(2))).unwrap().tests.len(),
        4,
        "enough for a first estimate"
    );
    for _ in 0..64 {
        queue.observe_duration(ProgramId(0), Duration::from_millis(5));
    }
    assert_eq!(queue.next_batch(&SlotLoads::idle(Slots(2))).unwrap().tests.len(), 40);
    // A batch pays for an expensive start, but not without data.
    assert_eq!(limited(100, millis(5)).next_batch(&SlotLoads::idle(Slots(2))).unwrap().tests.len(), 100);
    let first =
        |start_ms| limited(start_ms, None).next_batch(&SlotLoads::idle(Slots(2))).unwrap().tests.len();
    assert_eq!(first(100), 20, "enough to measure them");
    assert_eq!(first(300), 200, "its start alone takes longer");
    // Tests without a duration cost their reports.
    let free = sizes(&mut limited(3, millis(0)), 2);
    assert_eq!(free, [4_000; 5]);
    assert_eq!(limited(3, millis(0)).wanted_slots(&SlotLoads::idle(Slots(9))), Slots(5));
}

#[test]
fn long_tests_go_first_to_processes_that_take_more_tests() {
    let process = ProcessTraits { takes_more_tests: true, ..ProcessTraits::NONE };
    let mut queue = TestQueue::new([ProgramCosts { process, ..ProgramCosts::default() }]);
    let item = |test, seconds: f64, is_isolated| QueuedTest {
        test: TestId(test),
        weight: Some(Duration::from_secs_f64(seconds)),
        is_isolated,
        bond: None,
        selection_bytes: 0,
    };
    let items = [item(0, 0.01, false), item(1, 2.0, false), item(2, 5.0, false), item(3, 0.1, true)];
    queue.add(items.map(|item| (ProgramId(0), item)));
    let loads = SlotLoads::idle(Slots(2));
    let isolated = queue.next_batch(&loads).unwrap();
    assert_eq!((isolated.tests, isolated.is_isolated), (vec![TestId(3)], true));
    let first = queue.next_batch(&loads).unwrap();
    assert_eq!((first.tests, first.is_isolated), (vec![TestId(2)], false));
    assert_eq!(queue.start_delay(ProgramId(0)), None, "another process is worth its start");
    assert_eq!(queue.wanted_slots(&loads), Slots(2));
    let mut extend = || queue.next_extension(ProgramId(0), &loads).map(|batch| batch.tests);
    assert_eq!(extend(), Some(vec![TestId(1)]));
    assert_eq!(extend(), Some(vec![TestId(0)]));
    assert_eq!(extend(), None);
    assert!(queue.is_empty());
}

#[test]
fn long_and_crashing_tests_go_first_isolated() {
    let mut queue = TestQueue::new([costs(2)]);
    let item = |test, seconds: f64, is_isolated| QueuedTest {
        test: TestId(test),
        weight: Some(Duration::from_secs_f64(seconds)),
        is_isolated,
        bond: None,
        selection_bytes: 0,
    };
    let items = [
        item(0, 0.1, false),
        item(1, 1.5, false),
        item(2, 0.2, true),
        item(3, 9.0, false),
        item(4, 0.2, true),
    ];
    queue.add(items.map(|item| (ProgramId(0), item)));
    let batches: Vec<_> = std::iter::from_fn(|| queue.next_batch(&SlotLoads::idle(Slots(2)))).collect();
    let order: Vec<_> = batches.iter().map(|batch| (batch.tests[0].0, batch.is_isolated)).collect();
    assert_eq!(order, [(3, true), (1, true), (2, true), (4, true), (0, false)]);
}

#[test]
fn remainder_stays_one_batch_until_shrunk() {
    let mut queue = TestQueue::new([costs(2)]);
    queue.add(items(3, None));
    let rest: Vec<_> = (100..463).map(TestId).collect();
    queue.add_remainder(ProgramId(0), rest.clone());
    assert_eq!(
        queue.next_batch(&SlotLoads::idle(Slots(2))).unwrap(),
        TestBatch { program: ProgramId(0), tests: rest.clone(), is_isolated: false }
    );
    assert_eq!(queue.shrink_batches(ProgramId(0), 363), 36);
    queue.add_remainder(ProgramId(0), rest);
    assert_eq!(queue.next_batch(&SlotLoads::idle(Slots(2))).unwrap().tests.len(), 36);
    assert_eq!(queue.shrink_batches(ProgramId(0), 36), 3);
    assert_eq!(queue.shrink_batches(ProgramId(0), 3), 1);
    assert_eq!(queue.take_program(ProgramId(0)).len(), 363 - 36 + 3);
    assert!(queue.is_empty());
}

#[test]
fn waiting_remainder_is_split_by_the_current_limit() {
    let mut queue = TestQueue::new([costs(2)]);
    queue.add_remainder(ProgramId(0), (0..1000).map(TestId).collect());
    queue.shrink_batches(ProgramId(0), 1000);
    assert_eq!(queue.next_batch(&SlotLoads::idle(Slots(2))).unwrap().tests.len(), 100);
    assert_eq!(queue.wanted_slots(&SlotLoads::idle(Slots(99))), Slots(9));
    queue.shrink_batches(ProgramId(0), 100);
    queue.shrink_batches(ProgramId(0), 10);
    let isolated = queue.next_batch(&SlotLoads::idle(Slots(2))).unwrap();
    assert_eq!((isolated.tests, isolated.is_isolated), (vec![TestId(100)], true));
    queue.grow_batches(ProgramId(0), 1);
    assert_eq!(queue.next_batch(&SlotLoads::idle(Slots(2))).unwrap().tests.len(), 10);
    queue.grow_batches(ProgramId(0), 1);
    assert_eq!(
        queue.next_batch(&SlotLoads::idle(Slots(2))).unwrap().tests.len(),
        10,
        "a small batch proves nothing for larger ones"
    );
}

#[test]
fn unstartable_tests_wait_isolated_after_all_others() {
    let mut queue = TestQueue::new([costs(2)]);
    queue.add(items(3, None));
    queue.add_last(ProgramId(0), TestId(7), None);
    queue.add_last(ProgramId(0), TestId(8), None);
    let batches: Vec<_> = std::iter::from_fn(|| queue.next_batch(&SlotLoads::idle(Slots(1)))).collect();
    let seen: Vec<_> = batches.iter().map(|batch| (batch.tests.len(), batch.is_isolated)).collect();
    assert_eq!(seen, [(3, false), (1, true), (1, true)]);
    assert_eq!(batches[1].tests, [TestId(7)]);
}

#[test]
fn zero_durations_make_one_batch() {
    let mut queue = TestQueue::new([costs(0)]);
    queue.add(items(20_000, Some(Duration::ZERO)));
    assert_eq!(sizes(&mut queue, 4), [20_000]);
}

#[test]
fn maximal_durations_do_not_overflow() {
    let mut queue = TestQueue::new([ProgramCosts {
        start: Some(Duration::MAX),
        listing: None,
        selection_budget_bytes: None,
        max_processes: None,
        needs: LeaseNeeds::default(),
        process: ProcessTraits::default(),
    }]);
    queue.add(items(3, None));
    queue.observe_duration(ProgramId(0), Duration::MAX);
    assert!((1..=2).contains(&queue.wanted_slots(&SlotLoads::idle(Slots(2))).0));
    assert_eq!(sizes(&mut queue, 2).iter().sum::<usize>(), 3);
}

#[test]
fn batch_names_stay_within_the_selection_budget() {
    let mut queue = TestQueue::new([ProgramCosts {
        start: None,
        listing: None,
        selection_budget_bytes: Some(100),
        max_processes: None,
        needs: LeaseNeeds::default(),
        process: ProcessTraits::default(),
    }]);
    let item = |test, selection_bytes| QueuedTest {
        test: TestId(test),
        weight: None,
        is_isolated: false,
        bond: None,
        selection_bytes,
    };
    let items = [item(0, 60), item(1, 60), item(2, 500), item(3, 40), item(4, 60)];
    queue.add(items.map(|item| (ProgramId(0), item)));
    assert_eq!(sizes(&mut queue, 1), [1, 1, 1, 2]);
}

#[test]
fn first_test_of_a_process_that_hides_its_start_is_no_sample() {
    for hides_start in [false, true] {
        let mut queue = TestQueue::new([ProgramCosts {
            process: ProcessTraits { hides_start, ..ProcessTraits::default() },
            ..costs(20)
        }]);
        queue.add(items(9, None));
        let batch = queue.next_batch(&SlotLoads::idle(Slots(1))).unwrap();
        assert_eq!(queue.includes_start(&batch, batch.tests[0]), hides_start);
        assert!(!queue.includes_start(&batch, batch.tests[1]));
    }
}

#[test]
fn program_that_runs_in_one_batch_is_never_split() {
    let one = ProgramCosts {
        process: ProcessTraits { is_one_batch: true, ..ProcessTraits::default() },
        ..costs(3)
    };
    for weight in [None, Some(Duration::from_secs(5))] {
        let mut queue = TestQueue::new([one.clone()]);
        queue.limit_batches(Some(SHARED_BATCH_LIMIT));
        queue.add(items(300, weight));
        assert_eq!(queue.wanted_slots(&SlotLoads::idle(Slots(8))), Slots(1));
        assert_eq!(sizes(&mut queue, 8), [300]);
    }
    // Isolated tests have their own processes, and a program whose processes die gets smaller batches.
    let mut queue = TestQueue::new([one]);
    queue.add(
        items(20, None).map(|(program, item)| (program, QueuedTest { is_isolated: item.test.0 < 2, ..item })),
    );
    queue.shrink_batches(ProgramId(0), 100);
    assert_eq!(sizes(&mut queue, 8), [1, 1, 10, 8]);
}

proptest! {
    #[test]
    fn every_test_leaves_the_queue_once(
        weights in proptest::collection::vec((0_u32..3, proptest::option::of(0_u64..3000), any::<bool>(), 0_usize..50), 0..80),
        slots in 0_usize..9,
        start in proptest::option::of(0_u64..100),
        is_limited in any::<bool>(),
    ) {
        let costs = ProgramCosts { start: start.map(Duration::from_millis), listing: None, selection_budget_bytes: Some(60), ..ProgramCosts::default() };
        let limit = is_limited.then_some(SHARED_BATCH_LIMIT);
        let mut queue = TestQueue::new([costs.clone(), costs.clone(), costs]);
        queue.limit_batches(limit);
        for (test, (program, weight, is_isolated, selection_bytes)) in (0..).zip(&weights) {
            queue.add([(ProgramId(*program), QueuedTest {
                test: TestId(test),
                weight: weight.map(Duration::from_millis),
                is_isolated: *is_isolated,
                bond: None,
                selection_bytes: *selection_bytes,
            })]);
        }
        let mut seen = Vec::new();
        while let Some(batch) = queue.next_batch(&SlotLoads::idle(Slots(slots))) {
            prop_assert!(!batch.tests.is_empty());
            for test in &batch.tests {
                prop_assert_eq!(batch.program.0, weights[test.index()].0);
            }
            prop_assert!(batch.tests.is_sorted());
            seen.extend(batch.tests);
        }
        prop_assert!(queue.is_empty());
        seen.sort_unstable();
        prop_assert_eq!(seen, (0..u32::try_from(weights.len()).unwrap()).map(TestId).collect::<Vec<_>>());
    }
}

#[test]
fn process_that_takes_more_tests_gets_the_rest_in_pieces() {
    let process = ProcessTraits { takes_more_tests: true, ..ProcessTraits::NONE };
    let queue = |count, weight: Option<u64>| {
        let mut queue = TestQueue::new([ProgramCosts { process, ..costs(700) }]);
        queue.add(items(count, weight.map(Duration::from_millis)));
        queue
    };
    let first =
        |queue: &mut TestQueue, slots| queue.next_batch(&SlotLoads::idle(Slots(slots))).unwrap().tests.len();
    // Without data, a few tests serve as a sample, and the running process runs the others next.
    assert_eq!(first(&mut queue(4000, None), 2), 4);
    // Two seconds: the rest is distributed when it is known which slot is slower.
    assert_eq!(first(&mut queue(4000, Some(10)), 2), 200);
    // For less work, another process would cost more than it saves.
    assert_eq!(first(&mut queue(40, Some(5)), 2), 40);
    // A single slot does not wait for others.
    for weight in [None, Some(5)] {
        assert_eq!(first(&mut queue(4000, weight), 1), 4000);
    }
}

#[test]
fn costly_batches_are_few() {
    let traits = |has_costly_batches| ProcessTraits {
        takes_more_tests: true,
        has_costly_batches,
        ..ProcessTraits::NONE
    };
    let batches = |process: ProcessTraits| {
        let mut queue = TestQueue::new([ProgramCosts { process, ..costs(700) }]);
        queue.add(items(2000, None));
        let idle = SlotLoads::idle(Slots(2));
        let (mut batches, mut next) = (0, queue.next_batch(&idle));
        while let Some(batch) = next {
            batches += 1;
            for _ in batch.tests {
                queue.observe_duration(ProgramId(0), Duration::from_micros(10));
            }
            next = queue.next_extension(ProgramId(0), &idle);
        }
        batches
    };
    assert!(batches(traits(true)) <= 4 && batches(traits(false)) > 4);
}

#[test]
fn few_slow_tests_among_fast_ones_are_not_all_one_processs() {
    let process = ProcessTraits { takes_more_tests: true, ..ProcessTraits::NONE };
    let mut queue = TestQueue::new([ProgramCosts { process, ..costs(8000) }]);
    queue.add(items(4000, None));
    // In the second half, one in 50 tests takes a second. All others take a millisecond.
    let duration = |test: TestId| match test.0 {
        number if number >= 2000 && number % 50 == 0 => Duration::from_secs(1),
        _ => Duration::from_millis(1),
    };
    let mut free_at = [Duration::ZERO; 2];
    let idle = SlotLoads::idle(Slots(2));
    let mut is_started = [false; 2];
    loop {
        let slot = usize::from(free_at[1] < free_at[0]);
        let batch = if is_started[slot] {
            queue.next_extension(ProgramId(0), &idle)
        } else {
            queue.next_batch(&idle)
        };
        let Some(batch) = batch else { break };
        is_started[slot] = true;
        for test in batch.tests {
            free_at[slot] += duration(test);
            queue.observe_duration(ProgramId(0), duration(test));
        }
    }
    let [first, second] = free_at;
    assert!(first.abs_diff(second) < Duration::from_secs(4), "{first:?} and {second:?} of 44 s");
}
