//! Tests that begin after others, such as the users of a fixture after its set-up. They are in the queue only
//! when those have their results, and so they hold no slot before.

use super::{Prerequisite, state::RunState};
use crate::{
    NotRunReason, ProgramId, TestId,
    ledger::{Ledger, LedgerEntry},
};

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

impl RunState {
    /// Queues the tests whose prerequisites are met, and settles those of which one has failed.
    pub(super) fn release_blocked(&mut self) {
        if !self.lifecycle.is_assigning() {
            return;
        }
        loop {
            let mut known = Vec::new();
            for (test, open) in &mut self.blocked {
                match prerequisite_state(&self.ledger, open) {
                    PrerequisiteState::Open => {}
                    state => known.push((*test, state)),
                }
            }
            if known.is_empty() {
                // No test comes before itself: those that wait for each other run in any order.
                if self.blocked.is_empty() || self.has_unblocked() {
                    return;
                }
                known = self.blocked.keys().map(|test| (*test, PrerequisiteState::Met)).collect();
            }
            // Tests that are settled here may be prerequisites of others.
            let mut is_settled = false;
            let mut met = Vec::new();
            for (test, state) in known {
                self.blocked.remove(&test);
                if let PrerequisiteState::Failed(failed) = state {
                    self.synthesize_result(test, NotRunReason::PrerequisiteFailed { test: failed });
                    is_settled = true;
                } else {
                    met.push(self.plan.tests[test.index()].queued(test));
                }
            }
            self.queue.add(met);
            if !is_settled {
                return;
            }
        }
    }

    /// Removes and returns all tests of a program that wait, in the queue or for others.
    pub(super) fn take_program(&mut self, program: ProgramId) -> Vec<TestId> {
        let mut taken = self.queue.take_program(program);
        let plan = &self.plan.tests;
        taken.extend(
            self.blocked
                .extract_if(.., |test, _| plan[test.index()].program == program)
                .map(|(test, _)| test),
        );
        taken
    }

    /// Returns whether there are tests without a result that wait for no others.
    fn has_unblocked(&self) -> bool {
        let open = self.ledger.entries().iter().filter(|entry| **entry == LedgerEntry::Open).count();
        open > self.blocked.len()
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
