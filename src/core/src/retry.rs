//! Retries of failed tests: how many, and the delay before each.

use std::time::Duration;

use crate::TestId;

/// How often and when a failed test is retried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct RetryPolicy {
    /// Maximum number of retries.
    pub count: u32,
    pub delay: RetryDelay,
}

impl RetryPolicy {
    /// Returns a policy with this number of retries, without delays.
    #[must_use]
    pub const fn immediate(count: u32) -> Self {
        Self { count, delay: RetryDelay::NONE }
    }
}

/// Delay between a failure and its retry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct RetryDelay {
    /// How the delays of a test's retries grow.
    pub backoff: Backoff,
    /// Delay before the first retry; may be zero.
    pub first: Duration,
    /// Maximum delay, before jitter.
    pub max: Option<Duration>,
    /// Whether each delay is randomly shortened, by less than half.
    pub has_jitter: bool,
}

/// How the delays of a test's retries grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Backoff {
    /// All delays are equal.
    #[default]
    Fixed,
    /// Each delay is twice the previous one.
    Exponential,
}

/// Upper bound of a delay; no run lasts this long.
const LONGEST_WAIT: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

impl RetryDelay {
    /// No delay.
    pub const NONE: Self =
        Self { backoff: Backoff::Fixed, first: Duration::ZERO, max: None, has_jitter: false };

    /// Returns the delay before the retry with this number, from 1. `random` is used only for jitter; see
    /// [`retry_random`].
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

/// Returns a random part of the delay: more than half of it, at most all, evenly distributed.
fn with_jitter(wait: Duration, random: u64) -> Duration {
    let half = wait / 2;
    // The longest delay has fewer than 2^60 nanoseconds, so the product fits.
    let share = ((wait - half).as_nanos() * (u128::from(random) + 1)) >> 64;
    half + Duration::from_nanos(u64::try_from(share).unwrap_or_default())
}

/// Returns a pseudo-random number derived from all inputs (SplitMix64). Runs with different seeds spread
/// their retries differently.
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
