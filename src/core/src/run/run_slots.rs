//! The slots of a run: its own limit, its share of those of all runs, and those that nobody uses.

/// Number of slots that a run may use.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct RunSlots {
    /// Maximum number of concurrent leases by the plan, at least 1.
    limit: usize,
    /// Maximum number of concurrent leases, limited because other runs need slots as well.
    share: usize,
    /// Number of slots that no run can use.
    spare: usize,
}

impl RunSlots {
    pub(super) fn new(limit: usize) -> Self {
        let limit = limit.max(1);
        Self { limit, share: limit, spare: 0 }
    }

    pub(super) fn on_share(&mut self, share: usize) {
        self.share = share;
    }

    pub(super) fn on_spare(&mut self, spare: usize) {
        self.spare = spare;
    }

    /// Returns the number of slots by the plan.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Returns the number of slots that its leases may take.
    pub(super) fn usable(&self) -> usize {
        self.share.min(self.limit)
    }

    /// Returns the number of slots that are left where leases take this number.
    pub(super) fn free(&self, taken: usize) -> usize {
        self.usable().saturating_sub(taken)
    }

    /// Returns the number of slots that would do nothing, those included that no run can use.
    pub(super) fn idle(&self, taken: usize) -> usize {
        self.usable().saturating_add(self.spare).saturating_sub(taken)
    }
}
