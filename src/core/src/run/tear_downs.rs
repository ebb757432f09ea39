//! Tear-downs of fixtures: tests that remove the effects of set-ups. A tear-down is due as soon as one of its
//! set-ups may have begun, and then runs even if the run has stopped in the meantime.

use std::collections::{BTreeMap, BTreeSet};

use crate::TestId;

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct TearDowns {
    /// The set-ups of each tear-down.
    set_ups: BTreeMap<TestId, Vec<TestId>>,
    /// Set-ups that have been leased. A worker may die before it reports the start of a test, so every leased
    /// set-up counts as begun.
    begun: BTreeSet<TestId>,
}

impl TearDowns {
    /// Adds a tear-down of these set-ups.
    pub(super) fn insert(&mut self, tear_down: TestId, set_ups: Vec<TestId>) {
        self.set_ups.insert(tear_down, set_ups);
    }

    pub(super) fn is_tear_down(&self, test: TestId) -> bool {
        self.set_ups.contains_key(&test)
    }

    /// Records that a test has been leased.
    pub(super) fn on_leased(&mut self, test: TestId) {
        if self.set_ups.values().any(|set_ups| set_ups.contains(&test)) {
            self.begun.insert(test);
        }
    }

    /// Returns whether this is a tear-down with a set-up that has begun.
    pub(super) fn is_due(&self, test: TestId) -> bool {
        let has_begun = |set_up: &TestId| self.begun.contains(set_up);
        self.set_ups.get(&test).is_some_and(|set_ups| set_ups.iter().any(has_begun))
    }

    /// Returns a set-up of this tear-down if none of its set-ups has begun.
    pub(super) fn set_up_not_begun(&self, test: TestId) -> Option<TestId> {
        let set_ups = self.set_ups.get(&test).filter(|_| !self.is_due(test))?;
        set_ups.first().copied()
    }
}
