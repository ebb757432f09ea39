//! Retries of failed tests: how many, and how long each waits.

use std::time::Duration;

use crate::TestId;

/// How often a failed test is retried, and when.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct RetryPolicy {
    /// Maximum number of retries.
    pub count: u32,
    pub delay: RetryDelay,
}

impl RetryPolicy {
    /// Returns the policy of this number of retries, each at once.
    #[must_use]
    pub const fn immediate(count: u32) -> Self {
        Self { count, delay: RetryDelay::NONE }
    }
}

/// The wait between a failure and its retry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct RetryDelay {
    /// How the waits of a test's retries grow.
    pub backoff: Backoff,
    /// Wait before the first retry; zero retries at once.
    pub first: Duration,
    /// Longest wait of a growing one, before jitter.
    pub max: Option<Duration>,
    /// Whether each wait is a random part of at least half of what it would be.
    pub has_jitter: bool,
}

/// How the waits of a test's retries grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Backoff {
    /// All are as long as the first.
    #[default]
    Fixed,
    /// Each is twice as long as the one before.
    Exponential,
}

/// Longest wait of all, which no run lives to see the end of.
const LONGEST_WAIT: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

impl RetryDelay {
    /// No wait.
    pub const NONE: Self =
        Self { backoff: Backoff::Fixed, first: Duration::ZERO, max: None, has_jitter: false };

    /// Returns the wait before a retry, given by its number from 1. `random` is any number, such as
    /// [`retry_random`]; only jitter depends on it.
    #[must_use]
    pub fn before(&self, retry: u32, random: u64) -> Duration {
        let wait = match self.backoff {
            Backoff::Fixed => self.first,
            Backoff::Exponential => {
                let doublings = retry.saturating_sub(1);
                let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
                let wait = self.first.saturating_mul(factor);
                self.max.map_or(wait, |max| wait.min(max))
            }
        };
        let wait = wait.min(LONGEST_WAIT);
        if self.has_jitter { with_jitter(wait, random) } else { wait }
    }
}

/// Returns a part of the wait that `random` chooses evenly: more than half of it, at most all.
fn with_jitter(wait: Duration, random: u64) -> Duration {
    let half = wait / 2;
    // The longest wait has fewer than 2^60 nanoseconds.
    let share = ((wait - half).as_nanos() * (u128::from(random) + 1)) >> 64;
    half + Duration::from_nanos(u64::try_from(share).unwrap_or_default())
}

/// Returns a number that depends on all of its inputs as if it were random (SplitMix64): runs with different
/// seeds spread the retries of their tests differently.
#[must_use]
pub fn retry_random(seed: u64, test: TestId, retry: u32) -> u64 {
    let place = (u64::from(test.0) << 32) | u64::from(retry);
    let mut mixed = seed.wrapping_add(place.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn delays(delay: RetryDelay, random: u64) -> Vec<u64> {
        let millis = |retry| u64::try_from(delay.before(retry, random).as_millis()).unwrap();
        (1..=6).map(millis).collect()
    }

    #[test]
    fn waits_grow_as_their_backoff_says() {
        let fixed = RetryDelay { first: SECOND, ..RetryDelay::NONE };
        assert_eq!(delays(RetryDelay::NONE, 7), [0; 6]);
        assert_eq!(delays(fixed, 7), [1000; 6]);
        let doubled = RetryDelay { backoff: Backoff::Exponential, ..fixed };
        assert_eq!(delays(doubled, 7), [1000, 2000, 4000, 8000, 16_000, 32_000]);
        let limited = RetryDelay { max: Some(5 * SECOND), ..doubled };
        assert_eq!(delays(limited, 7), [1000, 2000, 4000, 5000, 5000, 5000]);
        // However many retries there are.
        for retry in [32, 33, 1000, u32::MAX] {
            assert_eq!(limited.before(retry, 7), 5 * SECOND);
            assert!(doubled.before(retry, 7) >= doubled.before(31, 7));
        }
    }

    #[test]
    fn jitter_takes_at_most_half_of_a_wait() {
        let jittered = |random| {
            let delay = RetryDelay { first: SECOND, has_jitter: true, ..RetryDelay::NONE };
            delay.before(1, random)
        };
        assert_eq!(jittered(0), SECOND / 2);
        assert_eq!(jittered(u64::MAX), SECOND);
        assert_eq!(jittered(u64::MAX / 2), SECOND * 3 / 4);
        assert_eq!(with_jitter(Duration::ZERO, u64::MAX), Duration::ZERO);
        let endless = RetryDelay { first: Duration::MAX, has_jitter: true, ..RetryDelay::NONE };
        assert_eq!(endless.before(9, u64::MAX), LONGEST_WAIT);
        for retry in 1..100 {
            let wait = jittered(retry_random(3, TestId(5), retry));
            assert!(wait >= SECOND / 2 && wait <= SECOND, "{wait:?}");
        }
    }

    #[test]
    fn random_numbers_differ_by_each_input() {
        let mut seen = std::collections::HashSet::new();
        for seed in 0..10 {
            for test in 0..10 {
                for retry in 1..10 {
                    assert!(seen.insert(retry_random(seed, TestId(test), retry)));
                }
            }
        }
    }
}
