//! Number of tests by outcome.

use serde::{Deserialize, Serialize};

use crate::{NotRunReason, Outcome};

const OUTCOMES: usize = 13;

/// Number of tests by outcome. Flaky tests count only as flaky, so the sum is the number of tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct OutcomeCounts {
    ended: [usize; OUTCOMES],
    /// Number of tests that make the run fail.
    failing: usize,
    leaky: usize,
}

impl OutcomeCounts {
    /// One outcome of each kind, in the order of summaries. Ignore the reason of [`Outcome::NotRun`].
    pub const KINDS: [Outcome; OUTCOMES] = [
        Outcome::Passed,
        Outcome::Flaky,
        Outcome::Failed,
        Outcome::Crashed,
        Outcome::ExitedEarly,
        Outcome::OutOfMemory,
        Outcome::TimedOut,
        Outcome::Idle,
        Outcome::Lost,
        Outcome::Interrupted,
        Outcome::NotRun(NotRunReason::Unrunnable),
        Outcome::Cancelled,
        Outcome::Skipped,
    ];

    /// Returns the number of tests with this kind of outcome. The reason of [`Outcome::NotRun`] is ignored.
    #[must_use]
    pub fn with_outcome(&self, outcome: Outcome) -> usize {
        self.ended[index(outcome)]
    }

    /// Returns the number of tests that passed, at the first or a later attempt.
    #[must_use]
    pub fn passed(&self) -> usize {
        self.with_outcome(Outcome::Passed) + self.with_outcome(Outcome::Flaky)
    }

    /// Returns the number of tests that ended.
    #[must_use]
    pub fn total(&self) -> usize {
        self.ended.iter().sum()
    }

    /// Returns the number of tests that left processes behind, regardless of their outcome.
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
        self.failing
    }

    /// Counts an outcome, which may replace an earlier outcome of the same test.
    pub fn add(&mut self, outcome: Outcome, replaced: Option<Outcome>) {
        if let Some(replaced) = replaced {
            self.ended[index(replaced)] -= 1;
            self.failing -= usize::from(replaced.is_failure());
        }
        self.ended[index(outcome)] += 1;
        self.failing += usize::from(outcome.is_failure());
    }
}

fn index(outcome: Outcome) -> usize {
    match outcome {
        Outcome::Passed => 0,
        Outcome::Flaky => 1,
        Outcome::Failed => 2,
        Outcome::Crashed => 3,
        Outcome::ExitedEarly => 4,
        Outcome::OutOfMemory => 5,
        Outcome::TimedOut => 6,
        Outcome::Idle => 7,
        Outcome::Lost => 8,
        Outcome::Interrupted => 9,
        Outcome::NotRun(_) => 10,
        Outcome::Cancelled => 11,
        Outcome::Skipped => 12,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_has_its_own_count() {
        let mut counts = OutcomeCounts::default();
        for outcome in OutcomeCounts::KINDS {
            counts.add(outcome, None);
        }
        assert!(OutcomeCounts::KINDS.into_iter().all(|outcome| counts.with_outcome(outcome) == 1));
        assert_eq!((counts.total(), counts.failing(), counts.passed()), (13, 9, 2));
        counts.add(Outcome::Failed, Some(Outcome::Passed));
        assert_eq!((counts.total(), counts.failing(), counts.passed()), (13, 10, 1));
        let cancelled = Outcome::NotRun(NotRunReason::Cancelled);
        counts.add(cancelled, Some(Outcome::NotRun(NotRunReason::Unrunnable)));
        assert_eq!((counts.with_outcome(cancelled), counts.failing()), (1, 9));
    }
}
