//! Batching: selects the tests of the next batch. Workers pull: no test is assigned before a worker is free.
//!
//! Order: the rest of a batch whose process died, whole, in one new process · tests that run in isolation
//! (known crashers, tests over a second, isolated ones, isolated reruns), longest first · everything else in
//! chunks, from the program with the most work left · of each program, the tests that could not start in
//! isolation. Chunks shrink as the remaining work does (guided self-scheduling), but a process start should
//! be at most 2 % of its batch; where durations are known, that rule yields to keeping all slots busy, and
//! where other runs may begin at any time, to a limit of the batch's duration.
//!
//! Tests of one chunk are adjacent in their framework's order, because neighbours share expensive set-up.

mod program_queue;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use crate::{ProgramId, TestId};
use program_queue::{ProgramQueue, RemainingWork};

/// A test that took at least this long in earlier runs goes first and in isolation.
pub const ISOLATE_FROM: Duration = Duration::from_secs(1);
/// Assumed duration of a test without any data, until the first results arrive.
pub const UNKNOWN_WEIGHT: Duration = Duration::from_millis(1);
/// Assumed cost of starting a program before it has been measured.
pub const UNKNOWN_START: Duration = Duration::from_millis(3);
/// Limit of the target duration of batches where other runs may begin at any time: their first test waits for
/// the end of a batch.
pub const SHARED_BATCH_LIMIT: Duration = Duration::from_millis(200);

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

/// The tests that wait for a worker.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct TestQueue {
    remainders: VecDeque<BatchRemainder>,
    /// The longest first, equal ones in the plan's order.
    isolated: BTreeSet<(Reverse<Duration>, TestId, ProgramId)>,
    programs: BTreeMap<ProgramId, ProgramQueue>,
    known_median: Option<Duration>,
    /// Duration beyond which no batch is extended.
    batch_limit: Option<Duration>,
}

impl TestQueue {
    /// Returns a queue of these programs, without tests.
    #[must_use]
    pub fn new(programs: impl IntoIterator<Item = ProgramCosts>) -> Self {
        let programs = (0_u32..)
            .map(ProgramId)
            .zip(programs)
            .map(|(id, costs)| (id, ProgramQueue::new(costs)))
            .collect();
        Self { programs, ..Self::default() }
    }

    /// Returns the queue with a limit of the duration of its batches. A program whose start is expensive
    /// exceeds it, so that a batch pays for its start. While nothing is known of the durations of a program's
    /// tests, its batches are even smaller: a guess may be wrong by orders of magnitude.
    #[must_use]
    pub fn with_batch_limit(self, batch_limit: Option<Duration>) -> Self {
        Self { batch_limit, ..self }
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
        self.program(program).observe_start(start);
    }

    /// Records the duration of a test, for the estimate of tests without data.
    pub fn observe_duration(&mut self, program: ProgramId, duration: Duration) {
        self.program(program).observe_duration(duration);
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
            let work = RemainingWork { total, slots, known_median: self.known_median };
            let full = one.full_batch(work, self.batch_limit);
            let work = one.remaining_work(self.known_median).saturating_sub(one.start_cost());
            let by_work = work.as_nanos().div_ceil(full.duration.as_nanos().max(1));
            let by_count = one.waiting.len().div_ceil(full.tests);
            usize::try_from(by_work).unwrap_or(usize::MAX).max(by_count).clamp(1, one.waiting.len())
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
        let limit = self.batch_limit;
        let queue = self.program(program);
        let full = queue.full_batch(RemainingWork { total, slots, known_median }, limit);
        let is_isolated = queue.cap == Some(1) || queue.waiting.front().is_some_and(|item| item.is_isolated);
        let tests = queue.take_batch(full, known_median);
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
    fn limited_batches_take_no_longer_than_the_limit() {
        let limited = |start_ms, weight: Option<Duration>| {
            let mut queue = TestQueue::new([costs(start_ms)]).with_batch_limit(Some(SHARED_BATCH_LIMIT));
            queue.add(items(20_000, weight));
            queue
        };
        let millis = |ms| Some(Duration::from_millis(ms));
        // Of tests that take 5 ms, 40 fit, with or without a history; at the end even fewer.
        let all = sizes(&mut limited(3, millis(5)), 2);
        assert_eq!((all[0], all.iter().max()), (40, Some(&40)));
        let mut queue = limited(3, None);
        assert_eq!(queue.next_batch(2).unwrap().tests.len(), 9, "the smallest that pays for its start");
        queue.observe_duration(ProgramId(0), Duration::from_millis(5));
        assert_eq!(queue.next_batch(2).unwrap().tests.len(), 40);
        // A batch pays for an expensive start, but not without data.
        assert_eq!(limited(100, millis(5)).next_batch(2).unwrap().tests.len(), 100);
        assert_eq!(limited(100, None).next_batch(2).unwrap().tests.len(), 20, "enough to measure them");
        assert_eq!(
            limited(300, None).next_batch(2).unwrap().tests.len(),
            200,
            "its start alone takes longer"
        );
        // Tests without a duration cost their reports.
        let free = sizes(&mut limited(3, millis(0)), 2);
        assert_eq!(free, [4_000; 5]);
        assert_eq!(limited(3, millis(0)).available_batches(9), 5);
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
            is_limited in any::<bool>(),
        ) {
            let costs = ProgramCosts { start: start.map(Duration::from_millis), selection_budget_bytes: Some(60) };
            let limit = is_limited.then_some(SHARED_BATCH_LIMIT);
            let mut queue = TestQueue::new([costs.clone(), costs.clone(), costs]).with_batch_limit(limit);
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
