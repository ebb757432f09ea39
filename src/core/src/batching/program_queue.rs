//! Queue of one program's waiting tests, and the size of its batches.

use std::{collections::VecDeque, num::NonZeroU32, time::Duration};

use super::{
    ISOLATE_FROM, LeaseNeeds, ProcessTraits, ProgramCosts, QueuedTest, UNKNOWN_START, UNKNOWN_WEIGHT,
};
use crate::TestId;

/// Lower bound of the cost of a process start, regardless of measurements.
const MIN_START: Duration = Duration::from_millis(1);
/// Target duration of a batch as a multiple of its start cost: the start is 2 %.
const TARGET_BATCH_PER_START: u32 = 50;
/// Minimum duration of a batch as a multiple of its start cost, for cheap starts while all slots can be kept
/// busy.
const MIN_BATCH_PER_START: u32 = 3;
/// A batch of this duration always justifies a cheap start, because the time that a slot saves is noticeable.
const NOTICEABLE: Duration = Duration::from_millis(150);
/// Divisor: while a slot is free, work of at least this fraction of the start cost justifies a process,
/// because the run ends noticeably earlier.
const START_PER_WORTHWHILE_BATCH: u32 = 4;
/// If a start costs at least this much, tests are spread over all slots even if no durations are known.
const EXPENSIVE_START: Duration = Duration::from_millis(250);
/// Number of tests in the first batches of a program with a cheap start and no known durations.
pub(super) const FIRST_TESTS: usize = 4;
/// Start cost per test of a first batch: a more expensive start justifies a larger first batch.
const START_PER_FIRST_TEST: Duration = Duration::from_millis(5);
/// While few tests of a program are measured, a batch has at most this multiple of their number: the first
/// results may not be representative.
const GROWTH: usize = 16;
/// After this many measured tests, batches of unmeasured tests are no longer limited.
const SAMPLE: usize = 64;
/// Samples smaller than this may include tests that paid for the warm-up of their process.
const WARM_UP_SAMPLE: usize = 256;
/// Divisor: in a smaller sample, this fraction of the tests, the longest, is attributed to warm-up.
const WARM_UP_PART: usize = 7;
/// Divisor: the start of another process is delayed by this fraction of the start cost.
const START_PER_DELAY: u32 = 2;
/// Maximum delay of a start. If the tests turn out to be slow, only one slot runs them during the delay.
const MAX_START_DELAY: Duration = Duration::from_millis(400);
/// With this many waiting programs per slot, a small program without known durations is not split: there are
/// enough batches to keep the slots busy until the end.
const PROGRAMS_PER_SLOT: usize = 4;
/// Tests shorter than this multiple of their program's start cost do not run in isolation.
const ISOLATED_TEST_PER_START: u32 = 3;
/// Minimum duration of a batch as a multiple of its start cost if the duration of batches is limited.
const LIMITED_BATCH_PER_START: u32 = 5;
/// Maximum number of tests in a program's first batch if batch durations are limited and no test durations
/// are known. Enough for a measurement, and only a short wait if the tests are slow.
const MEASURING_TESTS: usize = 20;
/// Overhead of a test: its result is read, journalled and sent. Counting the overhead also limits batches of
/// tests that take no time.
const TEST_OVERHEAD: Duration = Duration::from_micros(50);
/// Maximum number of durations kept for a program's median. More would add no information.
const MAX_OBSERVED_DURATIONS: usize = 512;
/// Cost of another batch for a running process with `has_costly_batches`.
const COSTLY_BATCH: Duration = Duration::from_millis(75);
/// Maximum duration of a batch for a process that can run further batches. A longer batch would keep tests on
/// one slot while another slot could run them earlier.
const MAX_EXTENSION: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct ProgramQueue {
    costs: ProgramCosts,
    /// Waiting tests. Isolated tests at the end have failed to start, and run after all others.
    pub(super) waiting: VecDeque<QueuedTest>,
    /// Total duration of the waiting tests with a known duration, and number of the other waiting tests.
    known: Duration,
    unknown: u32,
    /// Whether earlier runs recorded the duration of any test.
    has_history: bool,
    /// Maximum number of tests in one batch, set when the program's processes keep dying.
    pub(super) cap: Option<usize>,
    /// Sorted durations of tests that ended in this run.
    observed: Vec<Duration>,
    /// Sum and number of all observed durations.
    observed_sum: Duration,
    observed_count: u32,
}

/// Limits of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BatchSize {
    pub(super) duration: Duration,
    pub(super) tests: usize,
    /// Maximum number of tests whose duration is unknown.
    pub(super) unmeasured: usize,
    /// If the tests that would remain take at most this long, they join the batch.
    pub(super) remainder: Duration,
}

impl BatchSize {
    /// Limits of a batch that takes all tests.
    const UNLIMITED: Self = Self {
        duration: Duration::MAX,
        tests: usize::MAX,
        unmeasured: usize::MAX,
        remainder: Duration::ZERO,
    };
}

/// One slot's share of the remaining work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SlotShare {
    /// Work for the slot if the remaining work is divided so that all slots end at the same time.
    pub(super) duration: Duration,
    /// Slots that may run this program.
    pub(super) slots: usize,
    /// Programs with waiting tests.
    pub(super) programs: usize,
    /// Waiting tests of all programs.
    pub(super) tests: usize,
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
        // If a running process can take further batches, small batches cost no start, so use the mean. Unlike
        // the median, the mean reflects a few tests that take most of the time.
        let is_mean = self.costs.process.takes_more_tests && self.observed_count > 0;
        if is_mean { self.mean().max(*median) } else { *median }
    }

    /// Returns the mean of the observed durations. If batches are costly and the sample is small, the longest
    /// durations are left out: the first tests of a process pay for its warm-up and would distort the mean.
    fn mean(&self) -> Duration {
        if !self.costs.process.has_costly_batches || self.observed.len() >= WARM_UP_SAMPLE {
            return self.observed_sum / self.observed_count;
        }
        let counted = self.observed.len() - self.observed.len() / WARM_UP_PART;
        let sum = self.observed[..counted].iter().copied().fold(Duration::ZERO, Duration::saturating_add);
        sum / u32::try_from(counted).unwrap_or(u32::MAX).max(1)
    }

    /// Returns how long to delay another process of this program while one runs. `None` if another process is
    /// worth its start now.
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
        // The minimum is the best estimate: higher measurements include the load of other processes.
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

    /// Removes and returns the accepted tests.
    pub(super) fn take(&mut self, is_accepted: impl Fn(TestId) -> bool) -> Vec<TestId> {
        let (taken, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.waiting).into_iter().partition(|item| is_accepted(item.test));
        (self.known, self.unknown) = (Duration::ZERO, 0);
        kept.into_iter().for_each(|item| self.push(item));
        taken.into_iter().map(|item| item.test).collect()
    }

    pub(super) fn max_processes(&self) -> Option<usize> {
        self.costs.max_processes.map(|most| usize::try_from(most.get()).unwrap_or(usize::MAX))
    }

    pub(super) fn needs(&self) -> &LeaseNeeds {
        &self.costs.needs
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

    /// Returns whether a test of this duration gets a separate process.
    pub(super) fn is_worth_a_process(&self, weight: Duration) -> bool {
        !self.costs.process.is_one_batch
            && weight >= ISOLATE_FROM
            && weight >= self.start_cost().saturating_mul(ISOLATED_TEST_PER_START)
    }

    /// Returns the limits of a batch, given the share of the slot that runs it. `limit` is the maximum
    /// duration.
    pub(super) fn full_batch(&self, share: SlotShare, limit: Option<Duration>) -> BatchSize {
        let full = self.full_process(share, limit);
        if !self.costs.process.takes_more_tests {
            return full;
        }
        // The process can run further batches, so this batch is smaller than the slot's share: if its tests
        // are slower than estimated, other slots can run the rest. A single slot does not wait for others.
        let least = self.least_worthwhile(self.start_cost().saturating_mul(MIN_BATCH_PER_START));
        let part = if share.slots <= 1 {
            share.duration.max(least)
        } else {
            (share.duration / 2).max(least).min(MAX_EXTENSION)
        };
        BatchSize { duration: full.duration.min(part), ..full }
    }

    /// Returns the limits of a batch for a process that runs only this batch.
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
        // A remainder of up to one start joins the batch, because another start would also delay other runs.
        let remainder = if limit < unlimited { start } else { remainder };
        if !self.has_data(share.known_median) {
            let duration = unlimited.min(limit).min(start.saturating_mul(MIN_BATCH_PER_START));
            // If a start alone exceeds the limit, a second start would not shorten the wait.
            let tests = if start < limit { MEASURING_TESTS } else { usize::MAX };
            return BatchSize { duration, tests, unmeasured, remainder };
        }
        let limit = limit.max(start.saturating_mul(LIMITED_BATCH_PER_START));
        let tests = usize::try_from(limit.as_nanos() / TEST_OVERHEAD.as_nanos()).unwrap_or(usize::MAX);
        BatchSize { duration: unlimited.min(limit), tests: tests.max(1), unmeasured, remainder }
    }

    /// Returns the cost of another batch for a running process.
    fn batch_cost(&self) -> Duration {
        if self.costs.process.has_costly_batches { COSTLY_BATCH } else { Duration::ZERO }
    }

    /// Returns the limits of a batch for a running process, which costs no start.
    pub(super) fn full_extension(&mut self, share: SlotShare, limit: Option<Duration>) -> BatchSize {
        let start = self.costs.start.replace(self.batch_cost());
        let full = self.full_batch(share, limit);
        self.costs.start = start;
        full
    }

    /// Returns the maximum number of tests of unknown duration in one batch. Batches begin small and grow
    /// with the results; otherwise one slot could get all slow tests.
    fn unmeasured_limit(&self, share: SlotShare) -> usize {
        let start = self.start_cost();
        let measured = self.observed.len();
        // Without a split, a program with more tests than one slot's share would end after all other
        // programs.
        let is_small = self.waiting.len() <= share.tests / share.slots.max(1);
        let is_split_enough = is_small && share.programs >= share.slots.saturating_mul(PROGRAMS_PER_SLOT);
        let is_alone = share.slots <= 1;
        let is_start_spread = start >= EXPENSIVE_START && !self.costs.process.takes_more_tests;
        if self.has_history || measured >= SAMPLE || is_start_spread || is_split_enough || is_alone {
            return usize::MAX;
        }
        let unknown = usize::try_from(self.unknown).unwrap_or(usize::MAX);
        let first = if self.costs.process.has_costly_batches {
            // One batch yields enough measurements for all others.
            SAMPLE.min(unknown / share.slots / 2).max(FIRST_TESTS)
        } else {
            // A process that can run further batches pays for its start once, even if the first batch is
            // small.
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
            // The durations are unknown, so equal parts limit the duration of the run.
            share
        } else {
            // The start may cost more than the listing (set-up of an environment), and a free slot costs
            // nothing.
            economical.min(share)
        };
        (share / 2).max(least)
    }

    /// Returns the minimum work that makes a free slot start a process. `if_cheap` applies to a program with
    /// a cheap start.
    fn least_worthwhile(&self, if_cheap: Duration) -> Duration {
        if_cheap.min(NOTICEABLE).max(self.start_cost() / START_PER_WORTHWHILE_BATCH)
    }

    /// Returns the longest remainder that still joins a batch with its slot's full share.
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
        let mut bond = None;
        while let Some(item) = self.waiting.front() {
            has_isolated |= item.is_isolated;
            let is_over_budget = self
                .costs
                .selection_budget_bytes
                .is_some_and(|budget| bytes.saturating_add(item.selection_bytes) > budget);
            let item_weight = item.weight.unwrap_or(unknown);
            // Leave out a long test if the batch is closer to its target without it.
            let is_over_target = weight >= target || weight.saturating_add(item_weight / 2) >= target;
            let is_bound = bond.is_some() && item.bond == bond;
            let is_enough = is_over_target
                || tests.len() >= full.tests
                || (item.weight.is_none() && unmeasured >= full.unmeasured);
            let is_full = (is_enough && !is_bound)
                || self.cap.is_some_and(|cap| tests.len() >= cap)
                || is_over_budget
                || has_isolated;
            if is_full && !tests.is_empty() {
                break;
            }
            weight = weight.saturating_add(item_weight);
            unmeasured += usize::from(item.weight.is_none());
            bytes = bytes.saturating_add(item.selection_bytes);
            bond = item.bond;
            tests.push(item.test);
            self.pop();
        }
        tests
    }
}
