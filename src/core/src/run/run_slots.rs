//! Slots of a run: its own limit, its share, the slots that are available now, and slots that no run uses.

use crate::Slots;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct RunSlots {
    /// Maximum number of slots that the plan allows, at least one.
    limit: Slots,
    /// Maximum number of slots while other runs also need slots.
    share: Slots,
    /// Maximum number of slots at this moment, because processes outside this coordinator have the rest.
    available: Slots,
    /// Slots that no run can use.
    spare: Slots,
}

impl RunSlots {
    pub(super) fn new(limit: Slots) -> Self {
        let limit = limit.max(Slots::ONE);
        Self { limit, share: limit, available: Slots(usize::MAX), spare: Slots::NONE }
    }

    pub(super) fn on_share(&mut self, share: Slots) {
        self.share = share;
    }

    pub(super) fn on_available(&mut self, available: Slots) {
        self.available = available;
    }

    pub(super) fn on_spare(&mut self, spare: Slots) {
        self.spare = spare;
    }

    /// Returns the maximum number of slots that the plan allows.
    pub(super) fn limit(&self) -> Slots {
        self.limit
    }

    /// Returns the number of slots that the run's leases may occupy.
    pub(super) fn usable(&self) -> Slots {
        self.share.min(self.limit)
    }

    /// Returns the number of slots that may be occupied at this moment.
    pub(super) fn available(&self) -> Slots {
        self.usable().min(self.available)
    }

    /// Returns the number of available slots that are not occupied.
    pub(super) fn free(&self, taken: Slots) -> Slots {
        self.available().saturating_sub(taken)
    }

    /// Returns the number of idle slots, including slots that no run can use.
    pub(super) fn idle(&self, taken: Slots) -> Slots {
        self.usable().saturating_add(self.spare).saturating_sub(taken)
    }
}
