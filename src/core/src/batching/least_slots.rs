//! The slots that a run must have before it can start another lease.

use super::{TestQueue, slot_loads::SlotLoads};
use crate::Slots;

/// Returns the slots that must be available before another lease can start, including the occupied ones: one
/// more than the occupied slots if any waiting test can use a single slot.
#[must_use]
pub(crate) fn least_slots(queue: &TestQueue, loads: &SlotLoads) -> Slots {
    let taken = loads.taken();
    if queue.start_rules.are_trivial() {
        return taken.saturating_add(Slots::ONE);
    }
    let single = SlotLoads { available: Some(taken.saturating_add(Slots::ONE)), ..loads.clone() };
    let all = SlotLoads { available: None, ..loads.clone() };
    let needs_more = queue.startable(&single).is_some_and(|programs| programs.is_empty());
    let programs = queue.startable(&all).filter(|_| needs_more).unwrap_or_default();
    let weights = programs.into_iter().map(|program| queue.start_rules.lease_weight(program, loads.usable()));
    taken.saturating_add(weights.min().unwrap_or(Slots::ONE))
}
