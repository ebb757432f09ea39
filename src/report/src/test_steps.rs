//! Steps of tests in reports: subtests, sections, data rows and points that a framework reports within a
//! test.

use std::{collections::BTreeMap, iter::Sum};

use heeler_protocol::mtp::TestPartInfo;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StepEnd {
    Passed,
    Failed,
    Skipped,
    /// The test ended within the step.
    Unfinished,
}

impl StepEnd {
    /// Returns the outcome of a step.
    pub(super) fn of(part: &TestPartInfo) -> Self {
        match part.state.as_str() {
            "passed" => Self::Passed,
            "skipped" => Self::Skipped,
            "in-progress" => Self::Unfinished,
            _ => Self::Failed,
        }
    }

    /// Returns the outcome's name in reports.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::Unfinished => "unfinished",
        }
    }
}

/// Number of steps by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StepCounts {
    pub passed: u32,
    pub failed: u32,
    pub skipped: u32,
    /// Steps that were running when their test ended.
    pub unfinished: u32,
    /// Steps beyond the limit per test, which are counted but not listed.
    pub left_out: u32,
}

impl StepCounts {
    pub(super) fn of(parts: &[TestPartInfo], left_out: u32) -> Self {
        let mut counts = Self { left_out, ..Self::default() };
        for part in parts {
            *match StepEnd::of(part) {
                StepEnd::Passed => &mut counts.passed,
                StepEnd::Failed => &mut counts.failed,
                StepEnd::Skipped => &mut counts.skipped,
                StepEnd::Unfinished => &mut counts.unfinished,
            } += 1;
        }
        counts
    }

    /// Returns the number of listed steps.
    #[must_use]
    pub fn listed(self) -> usize {
        [self.passed, self.failed, self.skipped, self.unfinished].into_iter().map(|one| one as usize).sum()
    }

    /// Returns the count of each outcome by name; empty without steps.
    #[must_use]
    pub fn by_kind(self) -> BTreeMap<&'static str, u32> {
        let Self { passed, failed, skipped, unfinished, left_out } = self;
        let kinds = [
            (StepEnd::Passed.as_str(), passed),
            (StepEnd::Failed.as_str(), failed),
            (StepEnd::Skipped.as_str(), skipped),
            (StepEnd::Unfinished.as_str(), unfinished),
            ("not-listed", left_out),
        ];
        if self.total() == 0 { BTreeMap::new() } else { kinds.into() }
    }

    /// Returns the number of all steps.
    #[must_use]
    pub fn total(self) -> usize {
        self.listed() + self.left_out as usize
    }
}

impl Sum for StepCounts {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), |sum, one| Self {
            passed: sum.passed.saturating_add(one.passed),
            failed: sum.failed.saturating_add(one.failed),
            skipped: sum.skipped.saturating_add(one.skipped),
            unfinished: sum.unfinished.saturating_add(one.unfinished),
            left_out: sum.left_out.saturating_add(one.left_out),
        })
    }
}
