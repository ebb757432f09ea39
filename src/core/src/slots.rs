//! Slots: the unit for sharing the machine between runs. A lease occupies its weight in slots.

use std::iter::Sum;

/// A number of slots.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slots(pub usize);

impl Slots {
    pub const NONE: Self = Self(0);
    pub const ONE: Self = Self(1);

    #[must_use]
    pub fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    #[must_use]
    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Returns the slots of this number of leases, each weighing `self`.
    #[must_use]
    pub fn times(self, leases: usize) -> Self {
        Self(self.0.saturating_mul(leases))
    }

    /// Returns how many leases of this weight fit.
    #[must_use]
    pub(crate) fn leases_of(self, weight: Self) -> usize {
        self.0 / weight.0.max(1)
    }
}

impl Sum for Slots {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::NONE, Self::saturating_add)
    }
}
