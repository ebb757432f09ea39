//! Repetition of tests: iteration numbers.

use std::{fmt, num::NonZeroU32};

use serde::{Deserialize, Serialize};

/// One iteration of a test that runs several times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Iteration {
    /// Number of the iteration, from 1.
    number: NonZeroU32,
    /// Number of all iterations, at least `number`; `None` if the repetition is limited by time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    count: Option<NonZeroU32>,
}

impl Iteration {
    /// Returns the first of `count` iterations.
    #[must_use]
    pub fn first_of(count: NonZeroU32) -> Self {
        Self { number: NonZeroU32::MIN, count: Some(count) }
    }

    /// Returns the iteration that follows `passed` iterations, if time limits them.
    #[must_use]
    pub fn after(passed: u32) -> Self {
        Self { number: NonZeroU32::MIN.saturating_add(passed), count: None }
    }

    /// Returns the following iteration; `None` after the last, or if time limits them.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        let count = self.count?;
        let number = self.number.checked_add(1).filter(|number| *number <= count)?;
        Some(Self { number, ..self })
    }

    /// Returns the number of the iteration, from 1.
    #[must_use]
    pub fn number(self) -> u32 {
        self.number.get()
    }

    #[must_use]
    pub fn is_first(self) -> bool {
        self.number == NonZeroU32::MIN
    }

    /// Returns whether this is the last iteration; `false` if time limits them.
    #[must_use]
    pub fn is_last(self) -> bool {
        Some(self.number) == self.count
    }

    /// Returns the iteration if the test runs more than once.
    #[must_use]
    pub fn if_repeated(self) -> Option<Self> {
        (self.count != Some(NonZeroU32::MIN)).then_some(self)
    }
}

impl fmt::Display for Iteration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count {
            Some(count) => write!(f, "iteration {} of {count}", self.number),
            None => write!(f, "iteration {}", self.number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iterations_that_time_limits_have_no_last() {
        for passed in [0, 1, 36, u32::MAX] {
            let one = Iteration::after(passed);
            assert_eq!((one.is_last(), one.next(), one.if_repeated()), (false, None, Some(one)));
            assert_eq!(one.is_first(), passed == 0);
            assert_eq!(one.to_string(), format!("iteration {}", passed.saturating_add(1)));
        }
    }

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
