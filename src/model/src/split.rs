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
pub const ALONE_FROM: Duration = Duration::from_secs(1);
/// Assumed duration of a test without any data, until the first results arrive.
pub const UNKNOWN_WEIGHT: Duration = Duration::from_millis(1);
/// Assumed cost of starting a program before it has been measured.
pub const UNKNOWN_START: Duration = Duration::from_millis(3);
/// Lower bound of the cost of a process start, regardless of measurements.
const LEAST_START: Duration = Duration::from_millis(1);
/// Target duration of a batch as a multiple of the cost of its start: the start is 2 %.
const BATCH_PER_START: u32 = 50;
/// Lower bound of the same multiple where all slots can be kept busy.
const LEAST_BATCH_PER_START: u32 = 3;
/// Maximum number of observed durations of a program that are kept for its median; more add no information.
const OBSERVED: usize = 512;

/// A test, as batching sees it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Item {
    pub test: TestId,
    /// Its duration in earlier runs.
    pub weight: Option<Duration>,
    /// Whether it gets a process of its own.
    pub is_alone: bool,
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
pub struct Batch {
    pub program: ProgramId,
    /// In the framework's order; never empty.
    pub tests: Vec<TestId>,
    /// Whether it is one test in a process of its own, whose death is final.
    pub is_alone: bool,
}

/// The rest of a dead process's batch. It is split only when it is assigned, by what is then known of its
/// program.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Rest {
    program: ProgramId,
    tests: VecDeque<TestId>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct ProgramQueue {
    costs: ProgramCosts,
    /// Isolated tests at the end failed to start, and are tried again after all others.
    waiting: VecDeque<Item>,
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
pub struct Queue {
    resumed: VecDeque<Rest>,
    /// The longest first, equal ones in the plan's order.
    alone: BTreeSet<(Reverse<Duration>, TestId, ProgramId)>,
    programs: BTreeMap<ProgramId, ProgramQueue>,
    known_median: Option<Duration>,
}

impl Queue {
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
    pub fn add(&mut self, items: impl IntoIterator<Item = (ProgramId, Item)>) {
        for (program, item) in items {
            if item.is_alone || item.weight.is_some_and(|weight| weight >= ALONE_FROM) {
                self.add_alone(program, item.test, item.weight);
            } else {
                self.program(program).push(item);
            }
        }
        let waiting = self.programs.values().flat_map(|one| &one.waiting);
        self.known_median = median(&mut waiting.filter_map(|item| item.weight).collect::<Vec<_>>());
    }

    /// Adds a test that runs in isolation.
    pub fn add_alone(&mut self, program: ProgramId, test: TestId, weight: Option<Duration>) {
        self.alone.insert((Reverse(weight.unwrap_or(UNKNOWN_WEIGHT)), test, program));
    }

    /// Adds a test that runs in isolation, after all tests of its program that wait now.
    pub fn add_last(&mut self, program: ProgramId, test: TestId, weight: Option<Duration>) {
        self.program(program).push(Item { test, weight, is_alone: true, selection_bytes: 0 });
    }

    /// Puts the rest of a dead process's batch at the front of the queue, to run in one new process.
    pub fn resume(&mut self, program: ProgramId, tests: Vec<TestId>) {
        if !tests.is_empty() {
            self.resumed.push_back(Rest { program, tests: tests.into() });
        }
    }

    /// Makes batches of this program ten times smaller, down to one test; returns the new size.
    pub fn shrink(&mut self, program: ProgramId, died_with: usize) -> usize {
        let queue = self.program(program);
        let cap = (queue.cap.unwrap_or(died_with).min(died_with.max(1)) / 10).max(1);
        queue.cap = Some(cap);
        cap
    }

    /// Lets the batches of a program grow again after one that ended well, unless that batch was smaller than
    /// the current limit.
    pub fn relax(&mut self, program: ProgramId, ended_with: usize) {
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
    pub fn observe(&mut self, program: ProgramId, duration: Duration) {
        let observed = &mut self.program(program).observed;
        if observed.len() < OBSERVED {
            let place = observed.partition_point(|one| *one < duration);
            observed.insert(place, duration);
        }
    }

    /// Removes and returns all waiting tests of one program.
    pub fn forget_program(&mut self, program: ProgramId) -> Vec<TestId> {
        let mut out = Vec::new();
        self.resumed.retain(|rest| {
            if rest.program == program {
                out.extend(&rest.tests);
            }
            rest.program != program
        });
        self.alone.retain(|(_, test, of)| {
            if *of == program {
                out.push(*test);
            }
            *of != program
        });
        out.extend(self.program(program).forget());
        out
    }

    /// Removes and returns all waiting tests.
    pub fn forget_all(&mut self) -> Vec<TestId> {
        let mut out: Vec<_> = self.resumed.drain(..).flat_map(|rest| rest.tests).collect();
        out.extend(std::mem::take(&mut self.alone).into_iter().map(|(_, test, _)| test));
        out.extend(self.programs.values_mut().flat_map(ProgramQueue::forget));
        out
    }

    /// Returns whether no test waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.resumed.is_empty()
            && self.alone.is_empty()
            && self.programs.values().all(|one| one.waiting.is_empty())
    }

    /// Returns the approximate number of `slots` workers that would receive a batch now.
    #[must_use]
    pub fn wanted(&self, slots: usize) -> usize {
        let resumed = self.resumed.iter().map(|rest| {
            let cap = self.programs.get(&rest.program).and_then(|one| one.cap).unwrap_or(usize::MAX);
            rest.tests.len().div_ceil(cap)
        });
        let ready = resumed.sum::<usize>() + self.alone.len();
        if ready >= slots {
            return slots;
        }
        let total = sum(self.programs.values().map(|one| one.work(self.known_median)));
        let chunks = self.programs.values().filter(|one| !one.waiting.is_empty()).map(|one| {
            let target = one.target(total, slots, self.known_median).max(Duration::from_nanos(1));
            let work = one.work(self.known_median).saturating_sub(one.start());
            let by_work = work.as_nanos().div_ceil(target.as_nanos());
            usize::try_from(by_work).unwrap_or(usize::MAX).clamp(1, one.waiting.len())
        });
        chunks.fold(ready, usize::saturating_add).min(slots)
    }

    /// Removes and returns the next batch, for one of `slots` workers.
    pub fn next(&mut self, slots: usize) -> Option<Batch> {
        if let Some(batch) = self.next_resumed() {
            return Some(batch);
        }
        if let Some((_, test, program)) = self.alone.pop_first() {
            return Some(Batch { program, tests: vec![test], is_alone: true });
        }
        let known_median = self.known_median;
        let works: Vec<_> = self
            .programs
            .iter()
            .filter(|(_, one)| !one.waiting.is_empty())
            .map(|(id, one)| (*id, one.work(known_median)))
            .collect();
        let total = sum(works.iter().map(|(_, work)| *work));
        // Among equals the first, so that the order is the user's.
        let (program, _) = works.into_iter().rev().max_by_key(|(_, work)| *work)?;
        let queue = self.program(program);
        let target = queue.target(total, slots, known_median);
        let is_alone = queue.cap == Some(1) || queue.waiting.front().is_some_and(|item| item.is_alone);
        let tests = queue.take(target, known_median);
        Some(Batch { program, tests, is_alone })
    }

    fn next_resumed(&mut self) -> Option<Batch> {
        let rest = self.resumed.front_mut()?;
        let program = rest.program;
        let cap = self.programs.get(&program).and_then(|one| one.cap);
        let count = cap.unwrap_or(usize::MAX).min(rest.tests.len());
        let tests: Vec<_> = rest.tests.drain(..count).collect();
        if rest.tests.is_empty() {
            self.resumed.pop_front();
        }
        Some(Batch { program, tests, is_alone: cap == Some(1) })
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

    fn work(&self, known_median: Option<Duration>) -> Duration {
        self.known.saturating_add(self.unknown_weight(known_median).saturating_mul(self.unknown))
    }

    fn push(&mut self, item: Item) {
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

    fn forget(&mut self) -> Vec<TestId> {
        (self.known, self.unknown) = (Duration::ZERO, 0);
        self.waiting.drain(..).map(|item| item.test).collect()
    }

    fn start(&self) -> Duration {
        self.costs.start.unwrap_or(UNKNOWN_START).max(LEAST_START)
    }

    fn target(&self, total: Duration, slots: usize, known_median: Option<Duration>) -> Duration {
        let slots = u32::try_from(slots.max(1)).unwrap_or(u32::MAX);
        let start = self.start();
        let is_known = !self.observed.is_empty()
            || known_median.is_some()
            || self.waiting.front().is_some_and(|item| item.weight.is_some());
        let economical = start.saturating_mul(BATCH_PER_START);
        let least = if is_known {
            economical.min((total / slots).max(start.saturating_mul(LEAST_BATCH_PER_START)))
        } else {
            economical
        };
        (total / slots.saturating_mul(2)).max(least)
    }

    fn take(&mut self, target: Duration, known_median: Option<Duration>) -> Vec<TestId> {
        let unknown = self.unknown_weight(known_median);
        // A remainder that takes less time than a process start for it is added to this batch.
        let is_all = self.work(known_median) <= target.saturating_add(self.start());
        let target = if is_all { Duration::MAX } else { target };
        let mut weight = Duration::ZERO;
        let mut bytes = 0_usize;
        let mut tests = Vec::new();
        let mut is_lone = false;
        while let Some(item) = self.waiting.front() {
            is_lone |= item.is_alone;
            let is_over_budget = self
                .costs
                .selection_budget_bytes
                .is_some_and(|budget| bytes.saturating_add(item.selection_bytes) > budget);
            let is_full = weight >= target
                || self.cap.is_some_and(|cap| tests.len() >= cap)
                || is_over_budget
                || is_lone;
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

    fn items(count: u32, weight: Option<Duration>) -> impl Iterator<Item = (ProgramId, Item)> {
        let item = move |test| Item { test: TestId(test), weight, is_alone: false, selection_bytes: 0 };
        (0..count).map(move |test| (ProgramId(0), item(test)))
    }

    fn costs(start_ms: u64) -> ProgramCosts {
        ProgramCosts { start: Some(Duration::from_millis(start_ms)), selection_budget_bytes: None }
    }

    fn sizes(queue: &mut Queue, slots: usize) -> Vec<usize> {
        std::iter::from_fn(|| queue.next(slots)).map(|batch| batch.tests.len()).collect()
    }

    #[test]
    fn a_program_that_starts_slowly_gets_one_batch_when_nothing_is_known() {
        let mut queue = Queue::new([costs(60)]);
        queue.add(items(500, None));
        assert_eq!(sizes(&mut queue, 2), [500]);
    }

    #[test]
    fn a_rest_that_is_not_worth_a_start_goes_with_the_batch_before_it() {
        let with = |weight_us| {
            let mut queue = Queue::new([costs(15)]);
            queue.add(items(500, Some(Duration::from_micros(weight_us))));
            (queue.wanted(2), sizes(&mut queue, 2))
        };
        assert_eq!(with(92), (1, vec![500]));
        assert_eq!(with(119), (1, vec![500]));
        assert_eq!(with(130), (2, vec![347, 153]));
    }

    #[test]
    fn trivial_tests_need_a_handful_of_processes_once_the_first_batch_has_shown_them() {
        let mut queue = Queue::new([costs(2)]);
        queue.add(items(2000, None));
        assert_eq!(queue.next(2).unwrap().tests.len(), 500);
        for _ in 0..500 {
            queue.observe(ProgramId(0), Duration::from_micros(10));
        }
        let rest = sizes(&mut queue, 2);
        assert!(rest.len() <= 3, "{rest:?}");
    }

    #[test]
    fn chunks_shrink_as_the_work_does_and_keep_all_slots_busy() {
        let mut queue = Queue::new([costs(2)]);
        queue.add(items(800, Some(Duration::from_millis(10))));
        let sizes = sizes(&mut queue, 4);
        assert_eq!(sizes.iter().sum::<usize>(), 800);
        assert!(sizes.is_sorted_by(|a, b| a >= b), "{sizes:?}");
        assert_eq!(sizes[0], 100);
        assert!(*sizes.last().unwrap() <= 10, "{sizes:?}");
    }

    #[test]
    fn long_tests_and_known_crashers_go_first_and_alone_longest_first() {
        let mut queue = Queue::new([costs(2)]);
        let item = |test, seconds: f64, is_alone| Item {
            test: TestId(test),
            weight: Some(Duration::from_secs_f64(seconds)),
            is_alone,
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
        let batches: Vec<_> = std::iter::from_fn(|| queue.next(2)).collect();
        let order: Vec<_> = batches.iter().map(|batch| (batch.tests[0].0, batch.is_alone)).collect();
        assert_eq!(order, [(3, true), (1, true), (2, true), (4, true), (0, false)]);
    }

    #[test]
    fn the_rest_of_a_dead_batch_is_one_batch_until_its_program_is_shrunk() {
        let mut queue = Queue::new([costs(2)]);
        queue.add(items(3, None));
        let rest: Vec<_> = (100..463).map(TestId).collect();
        queue.resume(ProgramId(0), rest.clone());
        assert_eq!(
            queue.next(2).unwrap(),
            Batch { program: ProgramId(0), tests: rest.clone(), is_alone: false }
        );
        assert_eq!(queue.shrink(ProgramId(0), 363), 36);
        queue.resume(ProgramId(0), rest);
        assert_eq!(queue.next(2).unwrap().tests.len(), 36);
        assert_eq!(queue.shrink(ProgramId(0), 36), 3);
        assert_eq!(queue.shrink(ProgramId(0), 3), 1);
        assert_eq!(queue.forget_program(ProgramId(0)).len(), 363 - 36 + 3);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_waiting_rest_is_cut_by_what_is_known_when_it_is_handed_out() {
        let mut queue = Queue::new([costs(2)]);
        queue.resume(ProgramId(0), (0..1000).map(TestId).collect());
        queue.shrink(ProgramId(0), 1000);
        assert_eq!(queue.next(2).unwrap().tests.len(), 100);
        assert_eq!(queue.wanted(99), 9);
        queue.shrink(ProgramId(0), 100);
        queue.shrink(ProgramId(0), 10);
        let lone = queue.next(2).unwrap();
        assert_eq!((lone.tests, lone.is_alone), (vec![TestId(100)], true));
        queue.relax(ProgramId(0), 1);
        assert_eq!(queue.next(2).unwrap().tests.len(), 10);
        queue.relax(ProgramId(0), 1);
        assert_eq!(queue.next(2).unwrap().tests.len(), 10, "a small batch proves nothing for larger ones");
    }

    #[test]
    fn what_failed_to_begin_waits_alone_behind_all_others_of_its_program() {
        let mut queue = Queue::new([costs(2)]);
        queue.add(items(3, None));
        queue.add_last(ProgramId(0), TestId(7), None);
        queue.add_last(ProgramId(0), TestId(8), None);
        let batches: Vec<_> = std::iter::from_fn(|| queue.next(1)).collect();
        let seen: Vec<_> = batches.iter().map(|batch| (batch.tests.len(), batch.is_alone)).collect();
        assert_eq!(seen, [(3, false), (1, true), (1, true)]);
        assert_eq!(batches[1].tests, [TestId(7)]);
    }

    #[test]
    fn tests_and_starts_that_take_no_time_at_all_make_one_batch() {
        let mut queue = Queue::new([costs(0)]);
        queue.add(items(20_000, Some(Duration::ZERO)));
        assert_eq!(sizes(&mut queue, 4), [20_000]);
    }

    #[test]
    fn durations_beyond_all_reason_do_not_overflow() {
        let mut queue =
            Queue::new([ProgramCosts { start: Some(Duration::MAX), selection_budget_bytes: None }]);
        queue.add(items(3, None));
        queue.observe(ProgramId(0), Duration::MAX);
        assert_eq!(queue.wanted(2), 1);
        assert_eq!(sizes(&mut queue, 2).iter().sum::<usize>(), 3);
    }

    #[test]
    fn names_on_the_command_line_stay_within_the_budget() {
        let mut queue = Queue::new([ProgramCosts { start: None, selection_budget_bytes: Some(100) }]);
        let item = |test, selection_bytes| Item {
            test: TestId(test),
            weight: None,
            is_alone: false,
            selection_bytes,
        };
        let items = [item(0, 60), item(1, 60), item(2, 500), item(3, 40), item(4, 60)];
        queue.add(items.map(|item| (ProgramId(0), item)));
        assert_eq!(sizes(&mut queue, 1), [1, 1, 1, 2]);
    }

    proptest! {
        #[test]
        fn every_test_leaves_the_queue_exactly_once(
            weights in proptest::collection::vec((0_u32..3, proptest::option::of(0_u64..3000), any::<bool>(), 0_usize..50), 0..80),
            slots in 0_usize..9,
            start in proptest::option::of(0_u64..100),
        ) {
            let costs = ProgramCosts { start: start.map(Duration::from_millis), selection_budget_bytes: Some(60) };
            let mut queue = Queue::new([costs.clone(), costs.clone(), costs]);
            for (test, (program, weight, is_alone, selection_bytes)) in (0..).zip(&weights) {
                queue.add([(ProgramId(*program), Item {
                    test: TestId(test),
                    weight: weight.map(Duration::from_millis),
                    is_alone: *is_alone,
                    selection_bytes: *selection_bytes,
                })]);
            }
            let mut seen = Vec::new();
            while let Some(batch) = queue.next(slots) {
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
