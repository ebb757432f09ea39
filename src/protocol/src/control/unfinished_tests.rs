//! Tests of a lease that have started for the client and have no result yet. If such a test runs again, its
//! updates may use another connection, where they could overtake the earlier updates.

use std::collections::BTreeSet;

use super::{LeaseEvent, TestId};

/// Unfinished tests of one lease.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnfinishedTests(BTreeSet<TestId>);

impl UnfinishedTests {
    /// Records events of the lease. Returns whether a started test will run again because of them.
    pub fn record(&mut self, events: &[LeaseEvent]) -> bool {
        let mut runs_again = false;
        for event in events {
            match event {
                LeaseEvent::Started(test) => drop(self.0.insert(*test)),
                LeaseEvent::Settled { test, .. } => drop(self.0.remove(test)),
                LeaseEvent::FailedProvisionally { test, .. }
                | LeaseEvent::CrashedProvisionally { test, .. }
                | LeaseEvent::IterationPassed { test, .. } => {
                    self.0.remove(test);
                    runs_again = true;
                }
                LeaseEvent::StoppedForDebugger { .. }
                | LeaseEvent::LaunchedByDebugger { .. }
                | LeaseEvent::Held(_)
                | LeaseEvent::FilesAttached { .. }
                | LeaseEvent::ProcessEnded { .. }
                | LeaseEvent::SetUp { .. }
                | LeaseEvent::FixtureFailed { .. }
                | LeaseEvent::ProcessesLeaked { .. } => {}
            }
        }
        runs_again
    }

    /// Returns whether no started test would run again if the lease ended now.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Attempt, *};
    use crate::control::Outcome;

    #[test]
    fn only_tests_without_a_result_run_again() {
        let mut tests = UnfinishedTests::default();
        let settled =
            |test| LeaseEvent::Settled { test, outcome: Outcome::Passed, duration_us: 1, position: 1 };
        let attempt = Attempt::new(Outcome::Failed, "");
        let failed = |test| LeaseEvent::FailedProvisionally { test, attempt: Box::new(attempt.clone()) };
        let crashed = |test| LeaseEvent::CrashedProvisionally { test, attempt: Box::new(attempt.clone()) };
        let [one, two, three] = [1, 2, 3].map(TestId);
        assert!(!tests.record(&[LeaseEvent::Started(one), LeaseEvent::Started(two)]) && !tests.is_empty());
        assert!(!tests.record(&[settled(one)]) && !tests.is_empty());
        assert!(tests.record(&[failed(two)]) && tests.is_empty());
        assert!(tests.record(&[LeaseEvent::Started(three), crashed(three)]) && tests.is_empty());
    }
}
