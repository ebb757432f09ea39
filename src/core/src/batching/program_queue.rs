//! The waiting tests of one program, and the size of its batches.

use std::{collections::VecDeque, num::NonZeroU32, time::Duration};

use super::{ISOLATE_FROM, ProcessTraits, ProgramCosts, QueuedTest, UNKNOWN_START, UNKNOWN_WEIGHT};
use crate::TestId;

/// Lower bound of the cost of a process start, regardless of measurements.
const MIN_START: Duration = Duration::from_millis(1);
/// Target duration of a batch as a multiple of the cost of its start: the start is 2 %.
const TARGET_BATCH_PER_START: u32 = 50;
/// Lower bound of the same multiple where all slots can be kept busy and a start is cheap.
const MIN_BATCH_PER_START: u32 = 3;
/// Duration of a batch that no rule about cheap starts exceeds: what a slot saves by it is noticeable.
const NOTICEABLE: Duration = Duration::from_millis(150);
/// Divisor: a part of this size of a start is worth a process of its own while a slot is free, because the
/// run ends noticeably earlier.
const START_PER_WORTHWHILE_BATCH: u32 = 4;
/// Cost of a start from which the tests are spread over all slots although nothing is known of their
/// durations.
const EXPENSIVE_START: Duration = Duration::from_millis(250);
/// Number of tests of the first batches of a program of which nothing is known, while its start is cheap.
pub(super) const FIRST_TESTS: usize = 4;
/// Cost of a start for which a first batch has one test more than none: a first batch has one for each such
/// part of its start.
const START_PER_FIRST_TEST: Duration = Duration::from_millis(5);
/// While few tests of a program are measured, a batch has at most this multiple of their number: the first
/// results may be no sample of the others.
const GROWTH: usize = 16;
/// Number of measured tests from which the durations of the others are estimated without reserve.
const SAMPLE: usize = 64;
/// Number of measured tests up to which some of them are taken for warm-up.
const WARM_UP_SAMPLE: usize = 256;
/// Divisor: such a part of a smaller sample, the longest ones, is taken for warm-up.
const WARM_UP_PART: usize = 7;
/// Divisor: the start of a further process is put off by such a part of a start.
const START_PER_DELAY: u32 = 2;
/// The longest delay of a start: tests that are slow without anybody knowing run on one slot for that long.
const MAX_START_DELAY: Duration = Duration::from_millis(400);
/// Number of waiting programs for each slot from which a small program is not split for want of data: there
/// are enough batches to keep the slots busy until the end.
const PROGRAMS_PER_SLOT: usize = 4;
/// A test that takes less than this multiple of its program's start is not worth a process of its own.
const ISOLATED_TEST_PER_START: u32 = 3;
/// Lower bound of the same multiple where the duration of batches is limited.
const LIMITED_BATCH_PER_START: u32 = 5;
/// Maximum number of tests of the first batch of a program where the duration of batches is limited and
/// nothing is known of its tests: enough to measure them, and not seconds if they turn out to be slow.
const MEASURING_TESTS: usize = 20;
/// Cost of a test beside its own duration: its result is read, journalled and sent. With it, the limit of a
/// batch also holds for tests that take no time themselves.
const TEST_OVERHEAD: Duration = Duration::from_micros(50);
/// Maximum number of observed durations of a program that are kept for its median; more add no information.
const MAX_OBSERVED_DURATIONS: usize = 512;
/// Cost of a further batch for a process whose batches are costly.
const COSTLY_BATCH: Duration = Duration::from_millis(75);
/// Duration of a batch of a process that is given further tests when it has ended these: a longer one would
/// only bind tests to one slot that another may run earlier.
const MAX_EXTENSION: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct ProgramQueue {
    costs: ProgramCosts,
    /// Isolated tests at the end failed to start, and are tried again after all others.
    pub(super) waiting: VecDeque<QueuedTest>,
    /// Total duration of the waiting tests whose duration is known, and number of the others.
    known: Duration,
    unknown: u32,
    /// Whether the duration of any test was known from earlier runs.
    has_history: bool,
    /// Maximum number of tests in one batch, once the program's processes have kept dying.
    pub(super) cap: Option<usize>,
    /// Sorted durations of tests that ended in this run.
    observed: Vec<Duration>,
    /// Sum and number of all observed durations.
    observed_sum: Duration,
    observed_count: u32,
}

/// The size at which a batch is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BatchSize {
    pub(super) duration: Duration,
    pub(super) tests: usize,
    /// Number of tests of whose durations nothing is known.
    pub(super) unmeasured: usize,
    /// Duration of a remainder that is added to the batch.
    pub(super) remainder: Duration,
}

impl BatchSize {
    /// The size of a batch that takes all tests.
    const UNLIMITED: Self = Self {
        duration: Duration::MAX,
        tests: usize::MAX,
        unmeasured: usize::MAX,
        remainder: Duration::ZERO,
    };
}

/// The part of the remaining work that is one slot's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SlotShare {
    /// Duration of the tests that a slot runs if all slots end together.
    pub(super) duration: Duration,
    /// Number of slots that take part in this program.
    pub(super) slots: usize,
    /// Number of programs that have waiting tests.
    pub(super) programs: usize,
    /// Number of waiting tests of all programs.
    pub(super) tests: usize,
    /// Median duration of the tests whose duration is known.
    pub(super) known_median: Option<Duration>,
}

impl ProgramQueue {
    pub(super) fn new(costs: ProgramCosts) -> Self {
        Self { costs, ..Self::default() }
    }

    pub(super) fn unknown_weight(&self, known_median: Option<Duration>) -> Duration {
        let Some(median) = self.observed.get(self.observed.len() / 2) else {
            return known_median.unwrap_or(UNKNOWN_WEIGHT);
        };
        // Where batches cost nothing, a mean that one slow test raises makes them smaller, which costs
        // nothing; a median would hide that few of the tests take most of the time.
        let is_mean = self.costs.process.takes_more_tests && self.observed_count > 0;
        if is_mean { self.mean().max(*median) } else { *median }
    }

    /// Returns the mean of the observed durations. Where it decides about costly starts and batches, the
    /// first tests of a process, which pay for its warm-up, would hide in a small sample what the others
    /// take.
    fn mean(&self) -> Duration {
        if !self.costs.process.has_costly_batches || self.observed.len() >= WARM_UP_SAMPLE {
            return self.observed_sum / self.observed_count;
        }
        let counted = self.observed.len() - self.observed.len() / WARM_UP_PART;
        let sum = self.observed[..counted].iter().copied().fold(Duration::ZERO, Duration::saturating_add);
        sum / u32::try_from(counted).unwrap_or(u32::MAX).max(1)
    }

    /// Returns how long the start of a further process of this program is put off while one runs; `None` if
    /// another is worth its start at once.
    pub(super) fn start_delay(&self, known_median: Option<Duration>) -> Option<Duration> {
        let start = self.start_cost();
        let is_kept = self.costs.process.takes_more_tests && start >= EXPENSIVE_START;
        let is_short = !self.has_data(known_median) || self.remaining_work(known_median) <= start;
        (is_kept && is_short && !self.waiting.is_empty())
            .then(|| (start / START_PER_DELAY).min(MAX_START_DELAY))
    }

    pub(super) fn remaining_work(&self, known_median: Option<Duration>) -> Duration {
        self.known.saturating_add(self.unknown_weight(known_median).saturating_mul(self.unknown))
    }

    pub(super) fn observe_start(&mut self, start: Duration) {
        // The minimum is nearest to the truth: higher measurements include the load of other processes.
        self.costs.start = Some(self.costs.start.map_or(start, |earlier| earlier.min(start)));
    }

    pub(super) fn observe_duration(&mut self, duration: Duration) {
        self.observed_sum = self.observed_sum.saturating_add(duration);
        self.observed_count = self.observed_count.saturating_add(1);
        if self.observed.len() < MAX_OBSERVED_DURATIONS {
            let place = self.observed.partition_point(|one| *one < duration);
            self.observed.insert(place, duration);
        }
    }

    pub(super) fn push(&mut self, item: QueuedTest) {
        match item.weight {
            Some(weight) => {
                self.known = self.known.saturating_add(weight);
                self.has_history = true;
            }
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

    pub(super) fn take_all(&mut self) -> Vec<TestId> {
        (self.known, self.unknown) = (Duration::ZERO, 0);
        self.waiting.drain(..).map(|item| item.test).collect()
    }

    pub(super) fn max_processes(&self) -> Option<usize> {
        self.costs.max_processes.map(|most| usize::try_from(most.get()).unwrap_or(usize::MAX))
    }

    pub(super) fn process_traits(&self) -> ProcessTraits {
        self.costs.process
    }

    pub(super) fn limit_to_one_process(&mut self) {
        self.costs.max_processes = Some(NonZeroU32::MIN);
    }

    pub(super) fn start_cost(&self) -> Duration {
        self.costs.start.or(self.costs.listing).unwrap_or(UNKNOWN_START).max(MIN_START)
    }

    /// Returns whether a test of this duration gets a process of its own.
    pub(super) fn is_worth_a_process(&self, weight: Duration) -> bool {
        !self.costs.process.is_one_batch
            && weight >= ISOLATE_FROM
            && weight >= self.start_cost().saturating_mul(ISOLATED_TEST_PER_START)
    }

    /// Returns the size at which a batch is full, for this share of the slot that runs it. `limit` is that of
    /// the batch's duration.
    pub(super) fn full_batch(&self, share: SlotShare, limit: Option<Duration>) -> BatchSize {
        let full = self.full_process(share, limit);
        if !self.costs.process.takes_more_tests {
            return full;
        }
        // What is left is given to the process when it has ended these: one batch has room for all that may
        // turn out to be slower than it seems. A slot that is alone waits for no other.
        let least = self.least_worthwhile(self.start_cost().saturating_mul(MIN_BATCH_PER_START));
        let part = if share.slots <= 1 {
            share.duration.max(least)
        } else {
            (share.duration / 2).max(least).min(MAX_EXTENSION)
        };
        BatchSize { duration: full.duration.min(part), ..full }
    }

    /// Returns the size at which a batch is full that a process runs from its start to its end.
    fn full_process(&self, share: SlotShare, limit: Option<Duration>) -> BatchSize {
        if self.costs.process.is_one_batch {
            return BatchSize::UNLIMITED;
        }
        let unlimited = self.target_duration(share);
        let remainder = self.negligible_remainder(share.known_median);
        let unmeasured = self.unmeasured_limit(share);
        let Some(limit) = limit else {
            return BatchSize { duration: unlimited, tests: usize::MAX, unmeasured, remainder };
        };
        let start = self.start_cost();
        // A start for the rest would delay other runs as well.
        let remainder = if limit < unlimited { start } else { remainder };
        if !self.has_data(share.known_median) {
            let duration = unlimited.min(limit).min(start.saturating_mul(MIN_BATCH_PER_START));
            // Where a start alone takes longer than the limit, another one would not make the wait shorter.
            let tests = if start < limit { MEASURING_TESTS } else { usize::MAX };
            return BatchSize { duration, tests, unmeasured, remainder };
        }
        let limit = limit.max(start.saturating_mul(LIMITED_BATCH_PER_START));
        let tests = usize::try_from(limit.as_nanos() / TEST_OVERHEAD.as_nanos()).unwrap_or(usize::MAX);
        BatchSize { duration: unlimited.min(limit), tests: tests.max(1), unmeasured, remainder }
    }

    /// Returns the cost of a further batch for a process that is running.
    fn batch_cost(&self) -> Duration {
        if self.costs.process.has_costly_batches { COSTLY_BATCH } else { Duration::ZERO }
    }

    /// Returns the size of a full batch for a process that is running: it costs no start.
    pub(super) fn full_extension(&mut self, share: SlotShare, limit: Option<Duration>) -> BatchSize {
        let start = self.costs.start.replace(self.batch_cost());
        let full = self.full_batch(share, limit);
        self.costs.start = start;
        full
    }

    /// Returns the maximum number of tests without any data in one batch. Batches begin small, and grow as
    /// results come, so that slow tests that nobody knows are not all one slot's.
    fn unmeasured_limit(&self, share: SlotShare) -> usize {
        let start = self.start_cost();
        let measured = self.observed.len();
        // A program with more tests than a slot's part of all would still run when the others have ended.
        let is_small = self.waiting.len() <= share.tests / share.slots.max(1);
        let is_split_enough = is_small && share.programs >= share.slots.saturating_mul(PROGRAMS_PER_SLOT);
        let is_alone = share.slots <= 1;
        let is_start_spread = start >= EXPENSIVE_START && !self.costs.process.takes_more_tests;
        if self.has_history || measured >= SAMPLE || is_start_spread || is_split_enough || is_alone {
            return usize::MAX;
        }
        let unknown = usize::try_from(self.unknown).unwrap_or(usize::MAX);
        let first = if self.costs.process.has_costly_batches {
            // One batch measures enough for all others.
            SAMPLE.min(unknown / share.slots / 2).max(FIRST_TESTS)
        } else {
            // A process that takes more tests pays its start once, however few the first ones are.
            let start = if self.costs.process.takes_more_tests { MIN_START } else { start };
            let parts = start.as_nanos() / START_PER_FIRST_TEST.as_nanos();
            usize::try_from(parts).unwrap_or(usize::MAX).max(FIRST_TESTS)
        };
        if measured == 0 {
            let whole = share.duration.as_nanos().div_ceil(UNKNOWN_WEIGHT.as_nanos());
            return first.min(usize::try_from(whole).unwrap_or(usize::MAX)).max(1);
        }
        let grown = measured.saturating_mul(GROWTH).min(unknown / share.slots / 2).max(first);
        grown.min(unknown.div_ceil(share.slots))
    }

    /// Returns whether the duration of the next test can be estimated from measurements.
    fn has_data(&self, known_median: Option<Duration>) -> bool {
        !self.observed.is_empty()
            || known_median.is_some()
            || self.waiting.front().is_some_and(|item| item.weight.is_some())
    }

    fn target_duration(&self, share: SlotShare) -> Duration {
        let SlotShare { duration: share, known_median, .. } = share;
        let start = self.start_cost();
        let economical = start.saturating_mul(TARGET_BATCH_PER_START);
        let least = if self.has_data(known_median) {
            let worthwhile = self.least_worthwhile(start.saturating_mul(MIN_BATCH_PER_START));
            economical.min(share.max(worthwhile))
        } else if start >= EXPENSIVE_START {
            // The tests may take anything: even parts bound what the run can take.
            share
        } else {
            // A start may be expensive only where a listing does not show it, in the set-up of an
            // environment, and a free slot costs nothing.
            economical.min(share)
        };
        (share / 2).max(least)
    }

    /// Returns the least duration of tests for which a free slot starts a process; `if_cheap` is that of a
    /// program with a cheap start.
    fn least_worthwhile(&self, if_cheap: Duration) -> Duration {
        if_cheap.min(NOTICEABLE).max(self.start_cost() / START_PER_WORTHWHILE_BATCH)
    }

    /// Returns the duration of a remainder that is added to a batch which is as large as the share of its
    /// slot.
    fn negligible_remainder(&self, known_median: Option<Duration>) -> Duration {
        let start = self.start_cost();
        if self.has_data(known_median) {
            return self.least_worthwhile(start);
        }
        if start >= EXPENSIVE_START { Duration::ZERO } else { UNKNOWN_WEIGHT }
    }

    pub(super) fn take_batch(&mut self, full: BatchSize, known_median: Option<Duration>) -> Vec<TestId> {
        let unknown = self.unknown_weight(known_median);
        let is_all = self.remaining_work(known_median) <= full.duration.saturating_add(full.remainder);
        let target = if is_all { Duration::MAX } else { full.duration };
        let mut weight = Duration::ZERO;
        let mut bytes = 0_usize;
        let mut unmeasured = 0;
        let mut tests = Vec::new();
        let mut has_isolated = false;
        while let Some(item) = self.waiting.front() {
            has_isolated |= item.is_isolated;
            let is_over_budget = self
                .costs
                .selection_budget_bytes
                .is_some_and(|budget| bytes.saturating_add(item.selection_bytes) > budget);
            let item_weight = item.weight.unwrap_or(unknown);
            // A long test is left out if the batch is nearer to its size without it.
            let is_over_target = weight >= target || weight.saturating_add(item_weight / 2) >= target;
            let is_full = is_over_target
                || tests.len() >= full.tests
                || (item.weight.is_none() && unmeasured >= full.unmeasured)
                || self.cap.is_some_and(|cap| tests.len() >= cap)
                || is_over_budget
                || has_isolated;
            if is_full && !tests.is_empty() {
                break;
            }
            weight = weight.saturating_add(item_weight);
            unmeasured += usize::from(item.weight.is_none());
            bytes = bytes.saturating_add(item.selection_bytes);
            tests.push(item.test);
            self.pop();
        }
        tests
    }
}
