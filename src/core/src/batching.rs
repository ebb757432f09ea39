//! Batching: selects the tests of the next batch. Workers pull: no test is assigned before a worker is free.
//!
//! Order: the rest of a batch whose process died, whole, in one new process · tests that run in isolation
//! (known crashers, tests over a second, isolated ones, isolated reruns), longest first · everything else in
//! chunks, from the program with the most work left · of each program, the tests that could not start in
//! isolation. Chunks shrink as the remaining work does (guided self-scheduling), but a process start should
//! be at most 2 % of its batch; where durations are known, that rule yields to keeping all slots busy.
//!
//! Tests of one chunk are adjacent in their framework's order, because neighbours share expensive set-up.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use crate::{ProgramId, TestId};

/// A test that took at least this long in earlier runs goes first and in isolation.
pub const ISOLATE_FROM: Duration = Duration::from_secs(1);
/// Assumed duration of a test without any data, until the first results arrive.
pub const UNKNOWN_WEIGHT: Duration = Duration::from_millis(1);
/// Assumed cost of starting a program before it has been measured.
pub const UNKNOWN_START: Duration = Duration::from_millis(3);
/// Lower bound of the cost of a process start, regardless of measurements.
const MIN_START: Duration = Duration::from_millis(1);
/// Target duration of a batch as a multiple of the cost of its start: the start is 2 %.
const TARGET_BATCH_PER_START: u32 = 50;
/// Lower bound of the same multiple where all slots can be kept busy.
const MIN_BATCH_PER_START: u32 = 3;
/// Maximum number of observed durations of a program that are kept for its median; more add no information.
const MAX_OBSERVED_DURATIONS: usize = 512;

/// A test, as batching sees it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct QueuedTest {
    pub test: TestId,
    /// Its duration in earlier runs.
    pub weight: Option<Duration>,
    /// Whether it gets a process of its own.
    pub is_isolated: bool,
    /// Bytes that its name takes on the command line.
    pub selection_bytes: usize,
}

/// Costs of a program, as batching sees it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ProgramCosts {
    /// Time that a process takes before its first test.
    pub start: Option<Duration>,
    /// Number of bytes of names that fit on a command line; `None` if names are passed in a file.
    pub selection_budget_bytes: Option<usize>,
}

/// A batch of tests for one process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TestBatch {
    pub program: ProgramId,
    /// In the framework's order; never empty.
    pub tests: Vec<TestId>,
    /// Whether it is one test in a process of its own, whose death is final.
    pub is_isolated: bool,
}

/// The rest of a dead process's batch. It is split only when it is assigned, by what is then known of its
/// program.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct BatchRemainder {
    program: ProgramId,
    tests: VecDeque<TestId>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct ProgramQueue {
    costs: ProgramCosts,
    /// Isolated tests at the end failed to start, and are tried again after all others.
    waiting: VecDeque<QueuedTest>,
    /// Total duration of the waiting tests whose duration is known, and number of the others.
    known: Duration,
    unknown: u32,
    /// Maximum number of tests in one batch, once the program's processes have kept dying.
    cap: Option<usize>,
    /// Sorted durations of tests that ended in this run.
    observed: Vec<Duration>,
}

/// The tests that wait for a worker.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct TestQueue {
    remainders: VecDeque<BatchRemainder>,
    /// The longest first, equal ones in the plan's order.
    isolated: BTreeSet<(Reverse<Duration>, TestId, ProgramId)>,
    programs: BTreeMap<ProgramId, ProgramQueue>,
    known_median: Option<Duration>,
}

impl TestQueue {
    /// Returns a queue of these programs, without tests.
    #[must_use]
    pub fn new(programs: impl IntoIterator<Item = ProgramCosts>) -> Self {
        let programs = (0_u32..)
            .map(ProgramId)
            .zip(programs)
            .map(|(id, costs)| (id, ProgramQueue { costs, ..ProgramQueue::default() }))
            .collect();
        Self { programs, ..Self::default() }
    }

    /// Adds tests, those of each program in the order in which they are to be batched.
    pub fn add(&mut self, items: impl IntoIterator<Item = (ProgramId, QueuedTest)>) {
        for (program, item) in items {
            if item.is_isolated || item.weight.is_some_and(|weight| weight >= ISOLATE_FROM) {
                self.add_isolated(program, item.test, item.weight);
            } else {
                self.program(program).push(item);
            }
        }
        let waiting = self.programs.values().flat_map(|one| &one.waiting);
        self.known_median = median(&mut waiting.filter_map(|item| item.weight).collect::<Vec<_>>());
    }

    /// Adds a test that runs in isolation.
    pub fn add_isolated(&mut self, program: ProgramId, test: TestId, weight: Option<Duration>) {
        self.isolated.insert((Reverse(weight.unwrap_or(UNKNOWN_WEIGHT)), test, program));
    }

    /// Adds a test that runs in isolation, after all tests of its program that wait now.
    pub fn add_last(&mut self, program: ProgramId, test: TestId, weight: Option<Duration>) {
        self.program(program).push(QueuedTest { test, weight, is_isolated: true, selection_bytes: 0 });
    }

    /// Puts the rest of a dead process's batch at the front of the queue, to run in one new process.
    pub fn add_remainder(&mut self, program: ProgramId, tests: Vec<TestId>) {
        if !tests.is_empty() {
            self.remainders.push_back(BatchRemainder { program, tests: tests.into() });
        }
    }

    /// Makes batches of this program ten times smaller, down to one test; returns the new size.
    pub fn shrink_batches(&mut self, program: ProgramId, died_with: usize) -> usize {
        let queue = self.program(program);
        let cap = (queue.cap.unwrap_or(died_with).min(died_with.max(1)) / 10).max(1);
        queue.cap = Some(cap);
        cap
    }

    /// Lets the batches of a program grow again after one that ended well, unless that batch was smaller than
    /// the current limit.
    pub fn grow_batches(&mut self, program: ProgramId, ended_with: usize) {
        let cap = &mut self.program(program).cap;
        if cap.is_some_and(|cap| ended_with >= cap) {
            *cap = cap.map(|cap| cap.saturating_mul(10)).filter(|cap| *cap < 10_000);
        }
    }

    /// Records the cost of a process start.
    pub fn observe_start(&mut self, program: ProgramId, start: Duration) {
        let costs = &mut self.program(program).costs;
        // The minimum is nearest to the truth: higher measurements include the load of other processes.
        costs.start = Some(costs.start.map_or(start, |earlier| earlier.min(start)));
    }

    /// Records the duration of a test, for the estimate of tests without data.
    pub fn observe_duration(&mut self, program: ProgramId, duration: Duration) {
        let observed = &mut self.program(program).observed;
        if observed.len() < MAX_OBSERVED_DURATIONS {
            let place = observed.partition_point(|one| *one < duration);
            observed.insert(place, duration);
        }
    }

    /// Removes and returns all waiting tests of one program.
    pub fn take_program(&mut self, program: ProgramId) -> Vec<TestId> {
        let mut out = Vec::new();
        self.remainders.retain(|rest| {
            if rest.program == program {
                out.extend(&rest.tests);
            }
            rest.program != program
        });
        self.isolated.retain(|(_, test, of)| {
            if *of == program {
                out.push(*test);
            }
            *of != program
        });
        out.extend(self.program(program).take_all());
        out
    }

    /// Removes and returns all waiting tests.
    pub fn take_all(&mut self) -> Vec<TestId> {
        let mut out: Vec<_> = self.remainders.drain(..).flat_map(|rest| rest.tests).collect();
        out.extend(std::mem::take(&mut self.isolated).into_iter().map(|(_, test, _)| test));
        out.extend(self.programs.values_mut().flat_map(ProgramQueue::take_all));
        out
    }

    /// Returns whether no test waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.remainders.is_empty()
            && self.isolated.is_empty()
            && self.programs.values().all(|one| one.waiting.is_empty())
    }

    /// Returns the approximate number of `slots` workers that would receive a batch now.
    #[must_use]
    pub fn available_batches(&self, slots: usize) -> usize {
        let resumed = self.remainders.iter().map(|rest| {
            let cap = self.programs.get(&rest.program).and_then(|one| one.cap).unwrap_or(usize::MAX);
            rest.tests.len().div_ceil(cap)
        });
        let ready = resumed.sum::<usize>() + self.isolated.len();
        if ready >= slots {
            return slots;
        }
        let total = sum(self.programs.values().map(|one| one.remaining_work(self.known_median)));
        let chunks = self.programs.values().filter(|one| !one.waiting.is_empty()).map(|one| {
            let target = one.target_duration(total, slots, self.known_median).max(Duration::from_nanos(1));
            let work = one.remaining_work(self.known_median).saturating_sub(one.start_cost());
            let by_work = work.as_nanos().div_ceil(target.as_nanos());
            usize::try_from(by_work).unwrap_or(usize::MAX).clamp(1, one.waiting.len())
        });
        chunks.fold(ready, usize::saturating_add).min(slots)
    }

    /// Removes and returns the next batch, for one of `slots` workers.
    pub fn next_batch(&mut self, slots: usize) -> Option<TestBatch> {
        if let Some(batch) = self.next_remainder() {
            return Some(batch);
        }
        if let Some((_, test, program)) = self.isolated.pop_first() {
            return Some(TestBatch { program, tests: vec![test], is_isolated: true });
        }
        let known_median = self.known_median;
        let works: Vec<_> = self
            .programs
            .iter()
            .filter(|(_, one)| !one.waiting.is_empty())
            .map(|(id, one)| (*id, one.remaining_work(known_median)))
            .collect();
        let total = sum(works.iter().map(|(_, work)| *work));
        // Among equals the first, so that the order is the user's.
        let (program, _) = works.into_iter().rev().max_by_key(|(_, work)| *work)?;
        let queue = self.program(program);
        let target = queue.target_duration(total, slots, known_median);
        let is_isolated = queue.cap == Some(1) || queue.waiting.front().is_some_and(|item| item.is_isolated);
        let tests = queue.take_batch(target, known_median);
        Some(TestBatch { program, tests, is_isolated })
    }

    fn next_remainder(&mut self) -> Option<TestBatch> {
        let rest = self.remainders.front_mut()?;
        let program = rest.program;
        let cap = self.programs.get(&program).and_then(|one| one.cap);
        let count = cap.unwrap_or(usize::MAX).min(rest.tests.len());
        let tests: Vec<_> = rest.tests.drain(..count).collect();
        if rest.tests.is_empty() {
            self.remainders.pop_front();
        }
        Some(TestBatch { program, tests, is_isolated: cap == Some(1) })
    }

    fn program(&mut self, program: ProgramId) -> &mut ProgramQueue {
        self.programs.get_mut(&program).expect("every program of the plan has a queue")
    }
}

impl ProgramQueue {
    fn unknown_weight(&self, known_median: Option<Duration>) -> Duration {
        match self.observed.get(self.observed.len() / 2) {
            Some(median) => *median,
            None => known_median.unwrap_or(UNKNOWN_WEIGHT),
        }
    }

    fn remaining_work(&self, known_median: Option<Duration>) -> Duration {
        self.known.saturating_add(self.unknown_weight(known_median).saturating_mul(self.unknown))
    }

    fn push(&mut self, item: QueuedTest) {
        match item.weight {
            Some(weight) => self.known = self.known.saturating_add(weight),
            None => self.unknown += 1,
        }
        self.waiting.push_back(item);
    }

    fn pop(&mut self) {
        match self.waiting.pop_front().map(|item| item.weight) {
            Some(Some(weight)) => self.known = self.known.saturating_sub(weight),
            Some(None) => self.unknown -= 1,
            None => {}
        }
    }

    fn take_all(&mut self) -> Vec<TestId> {
        (self.known, self.unknown) = (Duration::ZERO, 0);
        self.waiting.drain(..).map(|item| item.test).collect()
    }

    fn start_cost(&self) -> Duration {
        self.costs.start.unwrap_or(UNKNOWN_START).max(MIN_START)
    }

    fn target_duration(&self, total: Duration, slots: usize, known_median: Option<Duration>) -> Duration {
        let slots = u32::try_from(slots.max(1)).unwrap_or(u32::MAX);
        let start = self.start_cost();
        let is_known = !self.observed.is_empty()
            || known_median.is_some()
            || self.waiting.front().is_some_and(|item| item.weight.is_some());
        let economical = start.saturating_mul(TARGET_BATCH_PER_START);
        let least = if is_known {
            economical.min((total / slots).max(start.saturating_mul(MIN_BATCH_PER_START)))
        } else {
            economical
        };
        (total / slots.saturating_mul(2)).max(least)
    }

    fn take_batch(&mut self, target: Duration, known_median: Option<Duration>) -> Vec<TestId> {
        let unknown = self.unknown_weight(known_median);
        // A remainder that takes less time than a process start for it is added to this batch.
        let is_all = self.remaining_work(known_median) <= target.saturating_add(self.start_cost());
        let target = if is_all { Duration::MAX } else { target };
        let mut weight = Duration::ZERO;
        let mut bytes = 0_usize;
        let mut tests = Vec::new();
        let mut has_isolated = false;
        while let Some(item) = self.waiting.front() {
            has_isolated |= item.is_isolated;
            let is_over_budget = self
                .costs
                .selection_budget_bytes
                .is_some_and(|budget| bytes.saturating_add(item.selection_bytes) > budget);
            let is_full = weight >= target
                || self.cap.is_some_and(|cap| tests.len() >= cap)
                || is_over_budget
                || has_isolated;
            if is_full && !tests.is_empty() {
                break;
            }
            weight = weight.saturating_add(item.weight.unwrap_or(unknown));
            bytes = bytes.saturating_add(item.selection_bytes);
            tests.push(item.test);
            self.pop();
        }
        tests
    }
}

fn sum(durations: impl Iterator<Item = Duration>) -> Duration {
    durations.fold(Duration::ZERO, Duration::saturating_add)
}

fn median(values: &mut [Duration]) -> Option<Duration> {
    if values.is_empty() {
        return None;
    }
    let middle = values.len() / 2;
    Some(*values.select_nth_unstable(middle).1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn items(count: u32, weight: Option<Duration>) -> impl Iterator<Item = (ProgramId, QueuedTest)> {
        let item =
            move |test| QueuedTest { test: TestId(test), weight, is_isolated: false, selection_bytes: 0 };
        (0..count).map(move |test| (ProgramId(0), item(test)))
    }

    fn costs(start_ms: u64) -> ProgramCosts {
        ProgramCosts { start: Some(Duration::from_millis(start_ms)), selection_budget_bytes: None }
    }

    fn sizes(queue: &mut TestQueue, slots: usize) -> Vec<usize> {
        std::iter::from_fn(|| queue.next_batch(slots)).map(|batch| batch.tests.len()).collect()
    }

    #[test]
    fn slow_start_without_data_yields_one_batch() {
        let mut queue = TestQueue::new([costs(60)]);
        queue.add(items(500, None));
        assert_eq!(sizes(&mut queue, 2), [500]);
    }

    #[test]
    fn small_remainder_joins_the_previous_batch() {
        let with = |weight_us| {
            let mut queue = TestQueue::new([costs(15)]);
            queue.add(items(500, Some(Duration::from_micros(weight_us))));
            (queue.available_batches(2), sizes(&mut queue, 2))
        };
        assert_eq!(with(92), (1, vec![500]));
        assert_eq!(with(119), (1, vec![500]));
        assert_eq!(with(130), (2, vec![347, 153]));
    }

    #[test]
    fn trivial_tests_take_few_batches_after_the_first() {
        let mut queue = TestQueue::new([costs(2)]);
        queue.add(items(2000, None));
        assert_eq!(queue.next_batch(2).unwrap().tests.len(), 500);
        for _ in 0..500 {
            queue.observe_duration(ProgramId(0), Duration::from_micros(10));
        }
        let rest = sizes(&mut queue, 2);
        assert!(rest.len() <= 3, "{rest:?}");
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
    fn long_and_crashing_tests_go_first_isolated() {
        let mut queue = TestQueue::new([costs(2)]);
        let item = |test, seconds: f64, is_isolated| QueuedTest {
            test: TestId(test),
            weight: Some(Duration::from_secs_f64(seconds)),
            is_isolated,
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
        let batches: Vec<_> = std::iter::from_fn(|| queue.next_batch(2)).collect();
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
            queue.next_batch(2).unwrap(),
            TestBatch { program: ProgramId(0), tests: rest.clone(), is_isolated: false }
        );
        assert_eq!(queue.shrink_batches(ProgramId(0), 363), 36);
        queue.add_remainder(ProgramId(0), rest);
        assert_eq!(queue.next_batch(2).unwrap().tests.len(), 36);
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
        assert_eq!(queue.next_batch(2).unwrap().tests.len(), 100);
        assert_eq!(queue.available_batches(99), 9);
        queue.shrink_batches(ProgramId(0), 100);
        queue.shrink_batches(ProgramId(0), 10);
        let isolated = queue.next_batch(2).unwrap();
        assert_eq!((isolated.tests, isolated.is_isolated), (vec![TestId(100)], true));
        queue.grow_batches(ProgramId(0), 1);
        assert_eq!(queue.next_batch(2).unwrap().tests.len(), 10);
        queue.grow_batches(ProgramId(0), 1);
        assert_eq!(
            queue.next_batch(2).unwrap().tests.len(),
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
        let batches: Vec<_> = std::iter::from_fn(|| queue.next_batch(1)).collect();
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
        let mut queue =
            TestQueue::new([ProgramCosts { start: Some(Duration::MAX), selection_budget_bytes: None }]);
        queue.add(items(3, None));
        queue.observe_duration(ProgramId(0), Duration::MAX);
        assert_eq!(queue.available_batches(2), 1);
        assert_eq!(sizes(&mut queue, 2).iter().sum::<usize>(), 3);
    }

    #[test]
    fn batch_names_stay_within_the_selection_budget() {
        let mut queue = TestQueue::new([ProgramCosts { start: None, selection_budget_bytes: Some(100) }]);
        let item = |test, selection_bytes| QueuedTest {
            test: TestId(test),
            weight: None,
            is_isolated: false,
            selection_bytes,
        };
        let items = [item(0, 60), item(1, 60), item(2, 500), item(3, 40), item(4, 60)];
        queue.add(items.map(|item| (ProgramId(0), item)));
        assert_eq!(sizes(&mut queue, 1), [1, 1, 1, 2]);
    }

    proptest! {
        #[test]
        fn every_test_leaves_the_queue_once(
            weights in proptest::collection::vec((0_u32..3, proptest::option::of(0_u64..3000), any::<bool>(), 0_usize..50), 0..80),
            slots in 0_usize..9,
            start in proptest::option::of(0_u64..100),
        ) {
            let costs = ProgramCosts { start: start.map(Duration::from_millis), selection_budget_bytes: Some(60) };
            let mut queue = TestQueue::new([costs.clone(), costs.clone(), costs]);
            for (test, (program, weight, is_isolated, selection_bytes)) in (0..).zip(&weights) {
                queue.add([(ProgramId(*program), QueuedTest {
                    test: TestId(test),
                    weight: weight.map(Duration::from_millis),
                    is_isolated: *is_isolated,
                    selection_bytes: *selection_bytes,
                })]);
            }
            let mut seen = Vec::new();
            while let Some(batch) = queue.next_batch(slots) {
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
}
