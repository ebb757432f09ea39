//! Explains the duration of a run: the shortest possible duration, and what was lost against it.
//!
//! Everything is counted in slot time: a run of ten seconds on four slots has forty seconds of it. Each part
//! of the slot time is either spent in tests, or lost for one reason. Divided by the number of slots, the
//! losses add up to the difference between the duration and the sum of the tests. If one test or one chain
//! of prerequisites takes longer than this sum, other slots must be idle meanwhile: that part of the losses
//! is not counted.

mod bound;
mod measured_run;
mod slot_time;
#[cfg(test)]
mod tests;

use std::{cmp::Reverse, time::Duration};

pub use measured_run::{MeasuredNeeds, MeasuredProcess, MeasuredResource, MeasuredRun, MeasuredTest};

use bound::RunBound;
use slot_time::SlotTimes;

/// Maximum number of tests named for one resource.
const MAX_HOLDERS: usize = 3;

/// Why a run took as long as it did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunExplanation {
    /// Duration from the start of the command to the end of the run.
    pub wall: Duration,
    /// Number of slots of the run.
    pub slots: u32,
    /// Sum of the durations of all tests; a test that takes several slots counts once for each.
    pub test_time: Duration,
    /// Shortest possible duration of these tests on these slots.
    pub bound: Duration,
    pub bound_by: BoundReason,
    /// The longest test, unless no test has a duration.
    pub longest: Option<TimedTest>,
    /// The chain of prerequisites that takes longest, first test first. Empty if no test has prerequisites.
    pub chain: Vec<TimedTest>,
    /// Time lost against the bound for each reason, longest first; none is zero.
    pub losses: Vec<Loss>,
    /// Nanoseconds between the bound and the losses together, and the duration. Zero, unless the recorded
    /// times contradict each other.
    pub residual_ns: i128,
}

/// The reason why no shorter run is possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoundReason {
    /// The sum of all tests, divided by the slots.
    Slots,
    LongestTest,
    /// The longest chain of prerequisites.
    Chain,
}

/// A test and a duration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimedTest {
    pub name: String,
    pub duration: Duration,
}

/// Time lost for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    pub reason: LossReason,
    /// Lost slot time, divided by the number of slots.
    pub time: Duration,
}

/// Reason of a loss.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LossReason {
    /// Builds and listings before the run.
    Preparation,
    /// The start of the run: workers, and the first process.
    FirstProcess,
    /// Processes that had not begun their first test.
    ProcessStarts {
        /// Number of processes.
        processes: usize,
    },
    /// Processes that had ended their last test.
    ProcessEnds,
    /// Time between the tests of a process.
    BetweenTests,
    /// Attempts that were replaced by a retry.
    EarlierAttempts,
    /// Slots without a process although a test could have started.
    Gaps,
    /// Slots kept free for tests that take several.
    WaitForSlots,
    /// Tests waited for a resource.
    WaitForResource {
        name: String,
        /// Tests that used the resource, longest first; at most three.
        holders: Vec<TimedTest>,
    },
    /// Tests waited for their prerequisites.
    WaitForPrerequisites,
    /// Idle slots while the last tests ran.
    Tail {
        /// The test that ended last.
        last: Option<TimedTest>,
    },
    /// The end of the run, after its last process.
    Finish,
}

/// Explains the duration of a run.
#[must_use]
pub fn explain_run(run: &MeasuredRun) -> RunExplanation {
    let slots = u128::from(run.slots.max(1));
    let bound = RunBound::of(run);
    let wall = run.preparation.saturating_add(run.duration);
    // Slots that no schedule could have used are not lost.
    let mut times = SlotTimes::measure(run);
    let unusable_ns = bound.time_ns() * slots - bound.test_time_ns();
    times.subtract(unusable_ns, bound.reason());
    // Round so that the parts have the sum of the whole.
    let (mut losses, mut total, mut told) = (Vec::new(), 0, 0);
    for (place, slot_time_ns) in times.into_parts() {
        total += slot_time_ns;
        let time = duration_of(total / slots - told);
        told = total / slots;
        if !time.is_zero() {
            losses.push(Loss { reason: run.loss_reason(place), time });
        }
    }
    losses.sort_by_key(|loss| Reverse(loss.time));
    let difference = signed(wall.as_nanos()) - signed(bound.time_ns());
    RunExplanation {
        wall,
        slots: run.slots.max(1),
        test_time: duration_of(bound.test_time_ns()),
        bound: duration_of(bound.time_ns()),
        bound_by: bound.reason(),
        longest: run.longest_test(),
        chain: bound.chain().iter().map(|test| run.tests[*test].timed()).collect(),
        losses,
        residual_ns: difference - signed(told),
    }
}

fn duration_of(nanoseconds: u128) -> Duration {
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

fn signed(nanoseconds: u128) -> i128 {
    i128::try_from(nanoseconds).unwrap_or(i128::MAX)
}
