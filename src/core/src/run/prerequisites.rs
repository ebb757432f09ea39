//! Tests that start after others, such as the users of a fixture after its set-up. A test enters the queue
//! only when its prerequisites have results, so it occupies no slot while it waits.

use std::collections::{BTreeMap, HashMap};

use super::Prerequisite;
use crate::{NotRunReason, Outcome, TestId, ledger::Ledger};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PrerequisiteState {
    /// A prerequisite has no result.
    Open,
    /// All prerequisites have the required results.
    Met,
    /// This prerequisite failed, and is required to succeed.
    Failed(TestId),
}

/// Tests that wait for results of other tests, with their open prerequisites.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct BlockedTests {
    open: BTreeMap<TestId, Vec<Prerequisite>>,
}

/// Tests that have stopped waiting for others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ReleasedTests {
    /// Tests whose prerequisites are met.
    pub(super) met: Vec<TestId>,
    /// Tests with a failed prerequisite that is required to succeed.
    pub(super) failed: Vec<FailedBefore>,
}

/// A test that is not run because another one failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FailedBefore {
    pub(super) test: TestId,
    pub(super) failed: TestId,
}

impl BlockedTests {
    /// Adds a test that waits for these prerequisites.
    pub(super) fn insert(&mut self, test: TestId, prerequisites: Vec<Prerequisite>) {
        self.open.insert(test, prerequisites);
    }

    /// Removes and returns the tests whose prerequisites are met, and the tests with a failed prerequisite.
    pub(super) fn release(&mut self, ledger: &Ledger) -> ReleasedTests {
        let mut released = ReleasedTests::default();
        self.open.retain(|test, open| {
            let state = prerequisite_state(ledger, open);
            match state {
                PrerequisiteState::Open => {}
                PrerequisiteState::Met => released.met.push(*test),
                PrerequisiteState::Failed(failed) => {
                    released.failed.push(FailedBefore { test: *test, failed })
                }
            }
            state == PrerequisiteState::Open
        });
        // Tests in a cycle wait for each other forever, so they run in any order.
        if released == ReleasedTests::default() && ledger.open_count() <= self.open.len() {
            released.met = self.take_all();
        }
        released
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Returns the number of blocked tests by the test that they wait for in the end: a test that is not
    /// blocked itself, except in a cycle.
    pub(super) fn counts(&self) -> BTreeMap<TestId, usize> {
        let mut awaited: HashMap<TestId, TestId> = HashMap::with_capacity(self.open.len());
        let mut counts: BTreeMap<TestId, usize> = BTreeMap::new();
        for test in self.open.keys() {
            // Follow the chain to its beginning, or to a test whose chain is known.
            let (mut path, mut at) = (Vec::new(), *test);
            while !awaited.contains_key(&at)
                && path.len() <= self.open.len()
                && let Some(next) = self.open.get(&at).and_then(|open| open.last())
            {
                path.push(at);
                at = next.test;
            }
            let first = awaited.get(&at).copied().unwrap_or(at);
            awaited.extend(path.into_iter().map(|passed| (passed, first)));
            *counts.entry(first).or_default() += 1;
        }
        counts
    }

    /// Removes and returns the accepted tests.
    pub(super) fn take(&mut self, is_accepted: impl Fn(TestId) -> bool) -> Vec<TestId> {
        self.open.extract_if(.., |test, _| is_accepted(*test)).map(|(test, _)| test).collect()
    }

    pub(super) fn take_all(&mut self) -> Vec<TestId> {
        std::mem::take(&mut self.open).into_keys().collect()
    }
}

/// Returns the state of a test's open prerequisites. Removes met prerequisites, so each is checked only once
/// after its result.
fn prerequisite_state(ledger: &Ledger, open: &mut Vec<Prerequisite>) -> PrerequisiteState {
    while let Some(last) = open.last() {
        match ledger.entry(last.test).outcome() {
            None => return PrerequisiteState::Open,
            // If the prerequisite was not run either, the test names the one that failed.
            Some(Outcome::NotRun(NotRunReason::PrerequisiteFailed { test })) if last.must_succeed => {
                return PrerequisiteState::Failed(test);
            }
            Some(outcome) if last.must_succeed && outcome.is_failure() => {
                return PrerequisiteState::Failed(last.test);
            }
            Some(_) => drop(open.pop()),
        }
    }
    PrerequisiteState::Met
}
