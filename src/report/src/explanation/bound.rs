//! The shortest possible duration of a run: the largest of the sum of all tests divided by the slots, the
//! longest test, and the longest chain of prerequisites.

use super::{BoundReason, MeasuredRun};

#[derive(Debug, Clone)]
pub(super) struct RunBound {
    test_time_ns: u128,
    time_ns: u128,
    reason: BoundReason,
    chain: Vec<usize>,
}

impl RunBound {
    pub(super) fn of(run: &MeasuredRun) -> Self {
        let weighted =
            |test: &super::MeasuredTest| test.duration.as_nanos() * u128::from(run.weight(&test.needs));
        let test_time_ns: u128 = run.tests.iter().map(weighted).sum();
        let by_slots = test_time_ns.div_ceil(u128::from(run.slots.max(1)));
        let longest = run.tests.iter().map(|test| test.duration.as_nanos()).max().unwrap_or(0);
        let chain = longest_chain(run);
        let of_chain: u128 = chain.iter().map(|test| run.tests[*test].duration.as_nanos()).sum();
        let (time_ns, reason) = if of_chain > by_slots.max(longest) {
            (of_chain, BoundReason::Chain)
        } else if longest > by_slots {
            (longest, BoundReason::LongestTest)
        } else {
            (by_slots, BoundReason::Slots)
        };
        Self { test_time_ns, time_ns, reason, chain }
    }

    /// Returns the sum of all tests in nanoseconds of slot time.
    pub(super) fn test_time_ns(&self) -> u128 {
        self.test_time_ns
    }

    pub(super) fn time_ns(&self) -> u128 {
        self.time_ns
    }

    pub(super) fn reason(&self) -> BoundReason {
        self.reason
    }

    /// Returns the tests of the longest chain, first test first; empty if no test has prerequisites.
    pub(super) fn chain(&self) -> &[usize] {
        &self.chain
    }
}

/// Returns the chain of prerequisites that takes longest. Tests in a circle run in any order, so they belong
/// to no chain.
fn longest_chain(run: &MeasuredRun) -> Vec<usize> {
    let count = run.tests.len();
    let prerequisites = |test: usize| run.tests[test].after.iter().copied().filter(move |one| *one < count);
    let mut open: Vec<usize> = (0..count).map(|test| prerequisites(test).count()).collect();
    let mut followers: Vec<Vec<usize>> = vec![Vec::new(); count];
    for test in 0..count {
        prerequisites(test).for_each(|one| followers[one].push(test));
    }
    // The duration of the longest chain that ends with each test, and the test before it.
    let mut lengths: Vec<u128> = vec![0; count];
    let mut before: Vec<Option<usize>> = vec![None; count];
    let mut ready: Vec<usize> = (0..count).filter(|test| open[*test] == 0).collect();
    while let Some(test) = ready.pop() {
        lengths[test] += run.tests[test].duration.as_nanos();
        for follower in &followers[test] {
            open[*follower] -= 1;
            if lengths[test] > lengths[*follower] || before[*follower].is_none() {
                lengths[*follower] = lengths[test];
                before[*follower] = Some(test);
            }
            if open[*follower] == 0 {
                ready.push(*follower);
            }
        }
    }
    let ends = (0..count).filter(|test| open[*test] == 0 && before[*test].is_some());
    let mut at = ends.max_by_key(|test| lengths[*test]);
    let mut chain = Vec::new();
    while let Some(test) = at {
        chain.push(test);
        at = before[test];
    }
    chain.reverse();
    chain
}
