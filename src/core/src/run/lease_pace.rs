//! Pace of a lease: the actual duration of its tests relative to the expected duration.

use std::time::Duration;

/// Minimum expected duration of a test; smaller estimates would produce meaningless ratios.
const LEAST_EXPECTED: Duration = Duration::from_micros(10);

/// Pace of a lease: the actual duration of its tests relative to the expected duration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct LeasePace {
    /// Total duration of the finished tests.
    taken: Duration,
    /// Total expected duration of the finished tests.
    expected: Duration,
}

impl LeasePace {
    pub(super) fn record(&mut self, taken: Duration, expected: Duration) {
        self.taken = self.taken.saturating_add(taken);
        self.expected = self.expected.saturating_add(expected.max(LEAST_EXPECTED));
    }

    /// Returns the expected duration of a test at this pace; `None` until a test has ended.
    pub(super) fn estimate(self, expected: Duration) -> Option<Duration> {
        if self.expected.is_zero() {
            return None;
        }
        let expected = expected.max(LEAST_EXPECTED);
        let factor = (self.taken.as_secs_f64() / self.expected.as_secs_f64()).max(1.0);
        Some(Duration::try_from_secs_f64(expected.as_secs_f64() * factor).unwrap_or(Duration::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn pace_never_makes_tests_faster_than_expected() {
        let mut pace = LeasePace::default();
        assert_eq!(pace.estimate(SECOND), None);
        pace.record(Duration::from_millis(1), SECOND);
        assert_eq!(pace.estimate(SECOND), Some(SECOND));
        let mut slow = LeasePace::default();
        slow.record(SECOND, Duration::ZERO);
        assert_eq!(slow.estimate(Duration::ZERO), Some(SECOND));
        slow.record(Duration::MAX, Duration::ZERO);
        assert!(slow.estimate(Duration::MAX).is_some(), "bounded");
    }
}
