//! Random numbers from a seed. All random choices of a round come from here, so its seed replays the round.

use std::time::Duration;

/// A small random number generator (splitmix64): good enough for drawing faults, and identical on every
/// machine.
#[derive(Debug, Clone)]
pub(crate) struct SeededRandom(u64);

impl SeededRandom {
    pub(crate) fn new(seed: u64) -> Self {
        let mut draws = Self(seed);
        // Makes the states of adjacent seeds differ widely.
        draws.0 = draws.next() ^ seed.rotate_left(32);
        draws
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).expect("it is below a usize")
    }

    /// Returns a number from `first` to `last`, inclusive.
    pub(crate) fn between(&mut self, first: usize, last: usize) -> usize {
        first + self.below(last - first + 1)
    }

    /// Returns true with this probability in percent.
    pub(crate) fn with_probability(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Returns a random element.
    pub(crate) fn pick<T: Clone>(&mut self, among: &[T]) -> T {
        among[self.below(among.len())].clone()
    }

    /// Returns a random element according to the weights.
    pub(crate) fn pick_weighted<T: Clone>(&mut self, among: &[(usize, T)]) -> T {
        let mut left = self.below(among.iter().map(|(weight, _)| weight).sum());
        for (weight, one) in among {
            if left < *weight {
                return one.clone();
            }
            left -= weight;
        }
        unreachable!("the number is below the sum")
    }

    /// Returns a log-uniform random time up to `limit`: each order of magnitude is equally likely.
    pub(crate) fn duration_below(&mut self, limit: Duration) -> Duration {
        let limit_us = usize::try_from(limit.as_micros()).expect("limits are short");
        let within = (limit_us >> self.below(8)).max(1);
        Duration::from_micros(self.below(within) as u64)
    }
}
