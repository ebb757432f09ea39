//! How a test ended, in the categories of a summary: finer than the protocol's states, coarser than its
//! outcome kinds.

use heeler_protocol::mtp::{ExecutionState, TestNode, key};

/// How a test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReportedOutcome {
    /// Passed at the first attempt.
    Passed,
    /// Passed after an attempt that did not.
    Flaky,
    /// Not run by the test framework's own decision.
    Skipped,
    /// Failed, as reported by the test framework.
    Failed,
    /// Terminated at the time limit.
    TimedOut,
    /// The test's process died, by a signal or by exiting without a result.
    Crashed,
    /// The test could not be run, or has no valid result.
    Error,
    /// Cancelled by the user.
    Cancelled,
    /// Selected but never started; the reason is reported.
    NotRun,
}

impl ReportedOutcome {
    /// Every outcome, in the order of summaries.
    pub const ALL: [Self; 9] = [
        Self::Passed,
        Self::Flaky,
        Self::Failed,
        Self::Crashed,
        Self::TimedOut,
        Self::Error,
        Self::NotRun,
        Self::Cancelled,
        Self::Skipped,
    ];

    /// Returns how a node ended, or `None` while it has not ended.
    #[must_use]
    pub fn from_node(node: &TestNode) -> Option<Self> {
        let state = node.state.filter(|state| state.is_terminal())?;
        let kind = node.outcome_kind.as_deref();
        if kind == Some("not-run") {
            return Some(Self::NotRun);
        }
        Some(match state {
            ExecutionState::Passed if kind == Some("passed-with-retries") => Self::Flaky,
            ExecutionState::Passed => Self::Passed,
            ExecutionState::Skipped => Self::Skipped,
            ExecutionState::Failed => Self::Failed,
            ExecutionState::TimedOut => Self::TimedOut,
            ExecutionState::Cancelled => Self::Cancelled,
            ExecutionState::Error if is_process_death(node) => Self::Crashed,
            ExecutionState::Error
            | ExecutionState::Unknown
            | ExecutionState::Discovered
            | ExecutionState::InProgress => Self::Error,
        })
    }

    /// Returns whether the outcome makes the run fail.
    #[must_use]
    pub fn fails_run(self) -> bool {
        match self {
            Self::Failed | Self::TimedOut | Self::Crashed | Self::Error | Self::NotRun => true,
            Self::Passed | Self::Flaky | Self::Skipped | Self::Cancelled => false,
        }
    }

    /// Returns the words after a number: `3 timed out`.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Flaky => "flaky",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
            Self::TimedOut => "timed out",
            Self::Crashed => "crashed",
            Self::Error => "in error",
            Self::Cancelled => "cancelled",
            Self::NotRun => "not run",
        }
    }
}

fn is_process_death(node: &TestNode) -> bool {
    node.outcome_kind.as_deref() == Some("crashed")
        || node.members.contains_key(key::SIGNAL)
        || node.members.contains_key(key::EXIT_CODE)
}

/// The number of tests per outcome. Flaky tests count only as flaky, so that the sum is the number of tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutcomeCounts {
    ended: [usize; 9],
    leaky: usize,
}

impl OutcomeCounts {
    /// Returns the number of tests with this outcome.
    #[must_use]
    pub fn with_outcome(&self, outcome: ReportedOutcome) -> usize {
        self.ended[outcome as usize]
    }

    /// Returns the number of tests that passed, at any attempt.
    #[must_use]
    pub fn passed(&self) -> usize {
        self.with_outcome(ReportedOutcome::Passed) + self.with_outcome(ReportedOutcome::Flaky)
    }

    /// Returns the number of tests that ended.
    #[must_use]
    pub fn total(&self) -> usize {
        self.ended.iter().sum()
    }

    /// Returns the number of tests that left processes behind, with any outcome.
    #[must_use]
    pub fn leaky(&self) -> usize {
        self.leaky
    }

    /// Counts tests that left processes behind, in addition to their outcomes.
    pub fn add_leaky(&mut self, tests: usize) {
        self.leaky += tests;
    }

    /// Returns the number of tests that make the run fail.
    #[must_use]
    pub fn failing(&self) -> usize {
        ReportedOutcome::ALL
            .into_iter()
            .filter(|outcome| outcome.fails_run())
            .map(|outcome| self.with_outcome(outcome))
            .sum()
    }

    /// Counts an outcome, which replaces an earlier one of the same test.
    pub fn add(&mut self, outcome: ReportedOutcome, replaced: Option<ReportedOutcome>) {
        if let Some(replaced) = replaced {
            self.ended[replaced as usize] -= 1;
        }
        self.ended[outcome as usize] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(state: ExecutionState, kind: Option<&str>) -> TestNode {
        TestNode { outcome_kind: kind.map(str::to_owned), ..TestNode::test("s::t", "t", state) }
    }

    #[test]
    fn unfinished_test_has_no_outcome() {
        for state in [ExecutionState::Discovered, ExecutionState::InProgress, ExecutionState::Unknown] {
            assert_eq!(ReportedOutcome::from_node(&node(state, Some("not-run"))), None);
        }
        assert_eq!(ReportedOutcome::from_node(&TestNode::default()), None);
    }

    #[test]
    fn the_outcome_kind_refines_the_state() {
        assert_eq!(
            ReportedOutcome::from_node(&node(ExecutionState::Passed, Some("passed-with-retries"))),
            Some(ReportedOutcome::Flaky)
        );
        assert_eq!(
            ReportedOutcome::from_node(&node(ExecutionState::Passed, Some("vendor"))),
            Some(ReportedOutcome::Passed)
        );
        for state in [ExecutionState::Error, ExecutionState::Skipped, ExecutionState::Cancelled] {
            assert_eq!(
                ReportedOutcome::from_node(&node(state, Some("not-run"))),
                Some(ReportedOutcome::NotRun)
            );
        }
    }

    #[test]
    fn error_with_signal_or_exit_code_is_a_crash() {
        let mut one = node(ExecutionState::Error, None);
        assert_eq!(ReportedOutcome::from_node(&one), Some(ReportedOutcome::Error));
        one.members.insert(key::EXIT_CODE.into(), 0.into());
        assert_eq!(ReportedOutcome::from_node(&one), Some(ReportedOutcome::Crashed));
        assert_eq!(
            ReportedOutcome::from_node(&node(ExecutionState::Error, Some("crashed"))),
            Some(ReportedOutcome::Crashed)
        );
    }

    #[test]
    fn every_outcome_has_its_own_count() {
        let mut counts = OutcomeCounts::default();
        for outcome in ReportedOutcome::ALL {
            counts.add(outcome, None);
        }
        assert!(ReportedOutcome::ALL.into_iter().all(|outcome| counts.with_outcome(outcome) == 1));
        assert_eq!((counts.total(), counts.failing(), counts.passed()), (9, 5, 2));
        counts.add(ReportedOutcome::Failed, Some(ReportedOutcome::Passed));
        assert_eq!((counts.total(), counts.failing(), counts.passed()), (9, 6, 1));
    }
}
