//! What a lease holds until its process ends, however it ends.

use crate::{Slots, batching::HeldPortion};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct LeaseHoldings {
    /// Number of slots that the lease occupies.
    pub(super) weight: Slots,
    /// Number of the lease's process, from 1. No other lease of the run has it.
    pub(super) slot: usize,
    pub(super) portions: Vec<HeldPortion>,
}
