//! Sums up the changes of a run: the latest known node of each test, and the number of tests per state.

use std::collections::HashMap;

use heeler_protocol::mtp::{ExecutionState, NodeChange, TestNode};

/// Tests and groups of one run, in the order of their first report.
#[derive(Debug, Clone, Default)]
pub struct RunAggregate {
    tests: Vec<AggregatedTest>,
    indices: HashMap<String, usize>,
    counts: StateCounts,
    is_complete: bool,
}

/// Latest known state of a test or group.
#[derive(Debug, Clone, PartialEq)]
pub struct AggregatedTest {
    /// Uid of the parent group; `None` at the top level.
    pub parent: Option<String>,
    /// The node. After a test has ended, its first terminal node stays; later nodes do not replace it.
    pub node: TestNode,
}

/// Effect of a change on the aggregate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeEffect {
    /// A test or group that was unknown before.
    New,
    /// A change of a known test or group.
    Changed,
    /// No new information: a finished test in the same state, or an unchanged group. The server sends
    /// results again when it cannot prove their delivery.
    Repeated,
    /// No new information: an earlier state of a finished test that arrived late.
    Outdated,
    /// A different terminal state of a finished test. This violates the protocol; the first terminal state
    /// stays.
    ConflictingEnd {
        /// Terminal state that stays.
        first: ExecutionState,
        /// Terminal state that arrived later and is ignored.
        second: ExecutionState,
    },
    /// A change after the run's completion. This violates the protocol; the change is ignored.
    AfterCompletion,
}

impl ChangeEffect {
    /// Returns whether the server violated the protocol with this change.
    #[must_use]
    pub fn is_protocol_violation(self) -> bool {
        matches!(self, Self::ConflictingEnd { .. } | Self::AfterCompletion)
    }
}

impl RunAggregate {
    /// Applies a change, and returns its effect.
    pub fn apply(&mut self, change: NodeChange) -> ChangeEffect {
        if self.is_complete {
            return ChangeEffect::AfterCompletion;
        }
        let NodeChange { parent, node } = change;
        let Some(&place) = self.indices.get(&node.uid) else {
            self.counts.add(node.state);
            self.indices.insert(node.uid.clone(), self.tests.len());
            self.tests.push(AggregatedTest { parent, node });
            return ChangeEffect::New;
        };
        let known = &mut self.tests[place];
        if let Some(first) = known.node.state.filter(|state| state.is_terminal()) {
            return match node.state {
                Some(second) if second == first => ChangeEffect::Repeated,
                Some(second) if second.is_terminal() => ChangeEffect::ConflictingEnd { first, second },
                Some(_) | None => ChangeEffect::Outdated,
            };
        }
        // Each connection of the server reports the groups of its own tests, so groups arrive several times.
        if node.state.is_none() && known.node == node {
            return ChangeEffect::Repeated;
        }
        self.counts.remove(known.node.state);
        self.counts.add(node.state);
        *known = AggregatedTest { parent: parent.or(known.parent.take()), node };
        ChangeEffect::Changed
    }

    /// Marks the run as complete; any later change violates the protocol.
    pub fn mark_complete(&mut self) {
        self.is_complete = true;
    }

    /// Returns whether the run is complete.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns the number of tests per state.
    #[must_use]
    pub fn counts(&self) -> StateCounts {
        self.counts
    }

    /// Returns a test or group; `None` for an unknown uid.
    #[must_use]
    pub fn get(&self, uid: &str) -> Option<&AggregatedTest> {
        self.indices.get(uid).map(|&place| &self.tests[place])
    }

    /// Returns all tests and groups, in the order of their first report.
    #[must_use]
    pub fn tests(&self) -> &[AggregatedTest] {
        &self.tests
    }
}

/// Number of tests per state. Groups have no state and are not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StateCounts {
    /// Known but not started.
    pub discovered: usize,
    /// Running.
    pub in_progress: usize,
    /// Passed.
    pub passed: usize,
    /// Skipped by the test framework.
    pub skipped: usize,
    /// Failed, as reported by the test framework.
    pub failed: usize,
    /// Terminated at the timeout.
    pub timed_out: usize,
    /// Crashed, vanished, or could not run.
    pub error: usize,
    /// Cancelled by the user.
    pub cancelled: usize,
    /// In a state unknown to this version of the library.
    pub unknown: usize,
}

impl StateCounts {
    /// Returns the number of tests in one state.
    #[must_use]
    pub fn in_state(&self, state: ExecutionState) -> usize {
        let mut copy = *self;
        *copy.field(state)
    }

    /// Returns the number of tests in all states.
    #[must_use]
    pub fn total(&self) -> usize {
        self.discovered + self.in_progress + self.unknown + self.ended()
    }

    /// Returns the number of tests in a terminal state.
    #[must_use]
    pub fn ended(&self) -> usize {
        self.passed + self.skipped + self.failed + self.timed_out + self.error + self.cancelled
    }

    fn add(&mut self, state: Option<ExecutionState>) {
        if let Some(state) = state {
            *self.field(state) += 1;
        }
    }

    fn remove(&mut self, state: Option<ExecutionState>) {
        if let Some(state) = state {
            *self.field(state) -= 1;
        }
    }

    fn field(&mut self, state: ExecutionState) -> &mut usize {
        match state {
            ExecutionState::Discovered => &mut self.discovered,
            ExecutionState::InProgress => &mut self.in_progress,
            ExecutionState::Passed => &mut self.passed,
            ExecutionState::Skipped => &mut self.skipped,
            ExecutionState::Failed => &mut self.failed,
            ExecutionState::TimedOut => &mut self.timed_out,
            ExecutionState::Error => &mut self.error,
            ExecutionState::Cancelled => &mut self.cancelled,
            ExecutionState::Unknown => &mut self.unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(uid: &str, state: ExecutionState) -> NodeChange {
        NodeChange { parent: None, node: TestNode::test(uid, uid, state) }
    }

    #[test]
    fn test_is_counted_once_in_its_latest_state() {
        let mut aggregate = RunAggregate::default();
        assert_eq!(aggregate.apply(change("a", ExecutionState::Discovered)), ChangeEffect::New);
        assert_eq!(aggregate.apply(change("b", ExecutionState::Discovered)), ChangeEffect::New);
        assert_eq!(aggregate.apply(change("a", ExecutionState::InProgress)), ChangeEffect::Changed);
        assert_eq!(aggregate.apply(change("a", ExecutionState::Passed)), ChangeEffect::Changed);
        let counts = StateCounts { discovered: 1, passed: 1, ..StateCounts::default() };
        assert_eq!(aggregate.counts(), counts);
        assert_eq!((counts.total(), counts.ended(), counts.in_state(ExecutionState::Passed)), (2, 1, 1));
        let uids: Vec<_> = aggregate.tests().iter().map(|test| test.node.uid.as_str()).collect();
        assert_eq!(uids, ["a", "b"]);
    }

    #[test]
    fn first_end_stays_and_conflicting_end_is_reported() {
        let mut aggregate = RunAggregate::default();
        aggregate.apply(change("a", ExecutionState::Passed));
        assert_eq!(aggregate.apply(change("a", ExecutionState::Passed)), ChangeEffect::Repeated);
        assert_eq!(aggregate.apply(change("a", ExecutionState::InProgress)), ChangeEffect::Outdated);
        let second = aggregate.apply(change("a", ExecutionState::Failed));
        assert_eq!(
            second,
            ChangeEffect::ConflictingEnd { first: ExecutionState::Passed, second: ExecutionState::Failed }
        );
        assert!(second.is_protocol_violation());
        assert_eq!(aggregate.get("a").unwrap().node.state, Some(ExecutionState::Passed));
        assert_eq!(aggregate.counts(), StateCounts { passed: 1, ..StateCounts::default() });
    }

    #[test]
    fn completed_run_ignores_changes() {
        let mut aggregate = RunAggregate::default();
        aggregate.apply(change("a", ExecutionState::InProgress));
        aggregate.mark_complete();
        let late = aggregate.apply(change("a", ExecutionState::Passed));
        assert_eq!(late, ChangeEffect::AfterCompletion);
        assert!(late.is_protocol_violation());
        assert_eq!(aggregate.counts().in_progress, 1);
    }

    #[test]
    fn groups_are_kept_but_not_counted() {
        let mut aggregate = RunAggregate::default();
        let node = TestNode { uid: "g".into(), ..TestNode::default() };
        let group = NodeChange { parent: None, node };
        assert_eq!(aggregate.apply(group.clone()), ChangeEffect::New);
        assert_eq!(aggregate.apply(group), ChangeEffect::Repeated);
        let mut test = change("t", ExecutionState::Discovered);
        test.parent = Some("g".into());
        aggregate.apply(test);
        // A later change without a parent keeps the known parent.
        aggregate.apply(change("t", ExecutionState::Passed));
        assert_eq!(aggregate.get("t").unwrap().parent.as_deref(), Some("g"));
        assert_eq!(aggregate.counts().total(), 1);
        assert_eq!(aggregate.tests().len(), 2);
    }
}
