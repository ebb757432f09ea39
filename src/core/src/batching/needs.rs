//! A lease takes slots while it runs, and amounts of resources such as a database or a group of tests with
//! limited concurrency. A test that needs more than there is takes all of it.

use std::collections::BTreeMap;

use crate::{ResourceId, Slots};

/// Needs of all tests of one queue. A batch holds them from the start to the end of its process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LeaseNeeds {
    /// Slots of the lease.
    pub weight: Slots,
    /// Amount of each resource.
    pub resources: BTreeMap<ResourceId, u32>,
    /// Tests with a higher priority go first.
    pub priority: i32,
}

impl Default for LeaseNeeds {
    fn default() -> Self {
        Self { weight: Slots::ONE, resources: BTreeMap::new(), priority: 0 }
    }
}

impl LeaseNeeds {
    /// Returns the slots of a lease in a run that may use this many.
    #[must_use]
    pub(crate) fn weight_within(&self, usable: Slots) -> Slots {
        self.weight.min(usable.max(Slots::ONE))
    }
}

/// Slots and resources that no lease takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FreeResources<'a> {
    capacities: &'a [u32],
    /// Slots that the run may use, free or not.
    usable: Slots,
    slots: Slots,
    taken: BTreeMap<ResourceId, u32>,
}

impl<'a> FreeResources<'a> {
    pub(super) fn all(capacities: &'a [u32], usable: Slots) -> Self {
        Self { capacities, usable, slots: usable, taken: BTreeMap::new() }
    }

    /// Limits the free slots to those available now. A lease still needs its weight within all usable slots.
    pub(super) fn limited_to(self, available: Slots) -> Self {
        Self { slots: self.slots.min(available), ..self }
    }

    /// Takes the resources of one lease, and this many slots.
    pub(super) fn take(&mut self, needs: &LeaseNeeds, weight: Slots) {
        self.slots = self.slots.saturating_sub(weight);
        for (resource, amount) in &needs.resources {
            *self.taken.entry(*resource).or_default() += self.within_capacity(*resource, *amount);
        }
    }

    /// Returns how many leases with these needs the free resources allow, regardless of slots.
    pub(super) fn leases_by_resources(&self, needs: &LeaseNeeds) -> usize {
        let allowed = |(resource, amount): (&ResourceId, &u32)| {
            let free = self.free_units(*resource);
            match self.within_capacity(*resource, *amount) {
                0 => usize::MAX,
                amount => (free / amount) as usize,
            }
        };
        needs.resources.iter().map(allowed).min().unwrap_or(usize::MAX)
    }

    /// Returns how many leases with these needs fit.
    pub(super) fn leases_of(&self, needs: &LeaseNeeds) -> usize {
        self.slots.leases_of(needs.weight_within(self.usable)).min(self.leases_by_resources(needs))
    }

    /// Returns whether a lease with the needs `other` would take something that a lease with the needs
    /// `waiting` lacks.
    pub(super) fn is_in_the_way(&self, other: &LeaseNeeds, waiting: &LeaseNeeds) -> bool {
        let lacks_slots = self.slots < waiting.weight_within(self.usable);
        let lacks = |(resource, amount): (&ResourceId, &u32)| {
            self.free_units(*resource) < self.within_capacity(*resource, *amount)
                && other.resources.contains_key(resource)
        };
        lacks_slots || waiting.resources.iter().any(lacks)
    }

    /// Returns the first resource of which too little is free for these needs.
    pub(super) fn first_lacking(&self, needs: &LeaseNeeds) -> Option<ResourceId> {
        let lacks = |(resource, amount): &(&ResourceId, &u32)| {
            self.free_units(**resource) < self.within_capacity(**resource, **amount)
        };
        needs.resources.iter().find(lacks).map(|(resource, _)| *resource)
    }

    fn capacity(&self, resource: ResourceId) -> u32 {
        self.capacities.get(resource.index()).copied().unwrap_or(u32::MAX)
    }

    fn free_units(&self, resource: ResourceId) -> u32 {
        let taken = self.taken.get(&resource).copied().unwrap_or(0);
        self.capacity(resource).saturating_sub(taken)
    }

    fn within_capacity(&self, resource: ResourceId, amount: u32) -> u32 {
        amount.min(self.capacity(resource))
    }
}
