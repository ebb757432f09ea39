//! Tests that begin after others, such as the users of a fixture after its set-up. They are in the queue only
//! when those have their results, and so they hold no slot before.

use std::collections::BTreeMap;

use super::Prerequisite;
use crate::{TestId, ledger::Ledger};

/// What is known of the prerequisites of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PrerequisiteState {
    /// One has no result.
    Open,
    /// All have their results, as they must be.
    Met,
    /// This one has failed, and must succeed.
    Failed(TestId),
}

/// Tests that wait for the results of others, and those that are open.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct BlockedTests {
    open: BTreeMap<TestId, Vec<Prerequisite>>,
}

/// Tests that no longer wait for others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ReleasedTests {
    /// Tests whose prerequisites are met.
    pub(super) met: Vec<TestId>,
    /// Tests with a prerequisite that has failed and must succeed.
    pub(super) failed: Vec<FailedBefore>,
}

/// A test that is not run, because another one has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FailedBefore {
    pub(super) test: TestId,
    pub(super) failed: TestId,
}

impl BlockedTests {
    /// Adds a test that waits for these others.
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
        // No test comes before itself: those that wait for each other run in any order.
        if released == ReleasedTests::default() && ledger.open_count() <= self.open.len() {
            released.met = self.take_all();
        }
        released
    }

    /// Removes and returns the tests that are accepted.
    pub(super) fn take(&mut self, is_accepted: impl Fn(TestId) -> bool) -> Vec<TestId> {
        self.open.extract_if(.., |test, _| is_accepted(*test)).map(|(test, _)| test).collect()
    }

    pub(super) fn take_all(&mut self) -> Vec<TestId> {
        std::mem::take(&mut self.open).into_keys().collect()
    }
}

/// Returns the state of the open prerequisites of a test, and removes those that are met: each is looked at
/// once after it has its result.
fn prerequisite_state(ledger: &Ledger, open: &mut Vec<Prerequisite>) -> PrerequisiteState {
    while let Some(last) = open.last() {
        match ledger.entry(last.test).outcome() {
            None => return PrerequisiteState::Open,
            Some(outcome) if last.must_succeed && outcome.is_failure() => {
                return PrerequisiteState::Failed(last.test);
            }
            Some(_) => drop(open.pop()),
        }
    }
    PrerequisiteState::Met
}
