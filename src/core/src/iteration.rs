//! Repetition of tests: where in it a process is.

use std::{fmt, num::NonZeroU32};

use serde::{Deserialize, Serialize};

/// One of the iterations of a test that runs several times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Iteration {
    /// Number of the iteration, from 1.
    number: NonZeroU32,
    /// Number of all iterations, at least `number`.
    count: NonZeroU32,
}

impl Iteration {
    /// Returns the first of this number of iterations.
    #[must_use]
    pub fn first_of(count: NonZeroU32) -> Self {
        Self { number: NonZeroU32::MIN, count }
    }

    /// Returns the iteration after this one; `None` after the last.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        let number = self.number.checked_add(1).filter(|number| *number <= self.count)?;
        Some(Self { number, ..self })
    }

    /// Returns its number, from 1.
    #[must_use]
    pub fn number(self) -> u32 {
        self.number.get()
    }

    /// Returns whether no iteration precedes it.
    #[must_use]
    pub fn is_first(self) -> bool {
        self.number == NonZeroU32::MIN
    }

    /// Returns whether no iteration follows it.
    #[must_use]
    pub fn is_last(self) -> bool {
        self.number == self.count
    }

    /// Returns the iteration of a test that runs more than once.
    #[must_use]
    pub fn if_repeated(self) -> Option<Self> {
        (self.count > NonZeroU32::MIN).then_some(self)
    }
}

impl fmt::Display for Iteration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "iteration {} of {}", self.number, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iterations_are_counted_to_the_last() {
        for count in 1..=4 {
            let first = Iteration::first_of(NonZeroU32::new(count).unwrap());
            let all: Vec<_> = std::iter::successors(Some(first), |iteration| iteration.next()).collect();
            assert_eq!(
                all.iter().map(|one| one.number()).collect::<Vec<_>>(),
                (1..=count).collect::<Vec<_>>()
            );
            for one in &all {
                assert_eq!(one.is_first(), one.number() == 1);
                assert_eq!(
                    (one.is_last(), one.next().is_none()),
                    (one.number() == count, one.number() == count)
                );
                assert_eq!(one.if_repeated().is_some(), count > 1);
                assert_eq!(one.to_string(), format!("iteration {} of {count}", one.number()));
            }
        }
    }
}
