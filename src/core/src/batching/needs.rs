//! A lease takes slots while it runs, and portions of resources such as a database or a group of tests with
//! limited concurrency. A test that needs more than there is takes all of it.
//!
//! A resource consists of units: a lock is one unit of amount 1, a limit for four tests one unit of amount 4,
//! and two named devices are two units. Each portion comes from one unit, and a lease keeps its portions
//! until its process ends.

use std::collections::BTreeMap;

use crate::{ResourceId, Slots};

/// Units of a resource without an entry in the plan.
static UNLIMITED: [u32; 1] = [u32::MAX];

/// Needs of all tests of one queue. A batch holds them from the start to the end of its process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LeaseNeeds {
    /// Slots of the lease.
    pub weight: Slots,
    /// Portions of each resource. Each comes from one unit; several may come from the same unit.
    pub resources: BTreeMap<ResourceId, Vec<u32>>,
    /// Tests with a higher priority go first.
    pub priority: i32,
}

/// A portion of a resource that a lease holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HeldPortion {
    pub resource: ResourceId,
    /// Index of the unit in the list of the resource's units.
    pub unit: u32,
    /// Amount of the unit.
    pub amount: u32,
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

    /// Replaces needs beyond the capacity of a resource by all of its units.
    pub(super) fn limit_to(&mut self, capacities: &[Vec<u32>]) {
        for (resource, portions) in &mut self.resources {
            let units = units_of(capacities, *resource);
            if choose_units(units.to_vec(), portions).is_none() {
                *portions = units.to_vec();
            }
        }
    }
}

/// Slots and resources that no lease takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FreeResources<'a> {
    capacities: &'a [Vec<u32>],
    /// Slots that the run may use, free or not.
    usable: Slots,
    slots: Slots,
    /// Free amount of each unit. Only resources that some lease uses have an entry.
    touched: BTreeMap<ResourceId, Vec<u32>>,
}

impl<'a> FreeResources<'a> {
    pub(super) fn all(capacities: &'a [Vec<u32>], usable: Slots) -> Self {
        Self { capacities, usable, slots: usable, touched: BTreeMap::new() }
    }

    /// Limits the free slots to those available now. A lease still needs its weight within all usable slots.
    pub(super) fn limited_to(self, available: Slots) -> Self {
        Self { slots: self.slots.min(available), ..self }
    }

    /// Takes the portions of one lease, and this many slots.
    pub(super) fn take(&mut self, portions: &[HeldPortion], weight: Slots) {
        self.slots = self.slots.saturating_sub(weight);
        for HeldPortion { resource, unit, amount } in portions {
            let units = self
                .touched
                .entry(*resource)
                .or_insert_with(|| units_of(self.capacities, *resource).to_vec());
            if let Some(free) = units.get_mut(*unit as usize) {
                *free = free.saturating_sub(*amount);
            }
        }
    }

    /// Chooses the units of a lease with these needs: for each resource, one for each portion, in order; as
    /// far as possible the first units. `None` if the free resources do not suffice, regardless of slots.
    pub(super) fn choose(&self, needs: &LeaseNeeds) -> Option<Vec<HeldPortion>> {
        let mut held = Vec::new();
        for (resource, portions) in &needs.resources {
            let units = choose_units(self.free_units(*resource).to_vec(), portions)?;
            let resource = *resource;
            let portions = units.into_iter().zip(portions);
            held.extend(portions.map(|(unit, amount)| HeldPortion { resource, unit, amount: *amount }));
        }
        Some(held)
    }

    /// Returns how many leases with these needs the free resources allow, regardless of slots.
    pub(super) fn leases_by_resources(&self, needs: &LeaseNeeds) -> usize {
        let allowed = |(resource, portions): (&ResourceId, &Vec<u32>)| {
            count_choices(self.free_units(*resource), portions)
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
        let lacks = |(resource, portions): (&ResourceId, &Vec<u32>)| {
            other.resources.contains_key(resource) && count_choices(self.free_units(*resource), portions) == 0
        };
        lacks_slots || waiting.resources.iter().any(lacks)
    }

    /// Returns the first resource of which too little is free for these needs.
    pub(super) fn first_lacking(&self, needs: &LeaseNeeds) -> Option<ResourceId> {
        let lacks = |(resource, portions): &(&ResourceId, &Vec<u32>)| {
            count_choices(self.free_units(**resource), portions) == 0
        };
        needs.resources.iter().find(lacks).map(|(resource, _)| *resource)
    }

    fn free_units(&self, resource: ResourceId) -> &[u32] {
        self.touched.get(&resource).map_or_else(|| units_of(self.capacities, resource), Vec::as_slice)
    }
}

/// Returns whether units with these amounts suffice for these portions, each of one unit.
#[must_use]
pub fn units_suffice(units: &[u32], portions: &[u32]) -> bool {
    choose_units(units.to_vec(), portions).is_some()
}

fn units_of(capacities: &[Vec<u32>], resource: ResourceId) -> &[u32] {
    capacities.get(resource.index()).map_or(&UNLIMITED, Vec::as_slice)
}

/// Returns how many leases with these portions the free amounts of the units allow, one beside the other.
fn count_choices(free: &[u32], portions: &[u32]) -> usize {
    // Equal portions do not need a search, which matters for large capacities.
    if let Some(first) = portions.first().filter(|first| portions.iter().all(|one| one == *first)) {
        let per_unit = |free: &u32| free.checked_div(*first).map_or(usize::MAX, |count| count as usize);
        return free.iter().map(per_unit).fold(0, usize::saturating_add) / portions.len();
    }
    if portions.is_empty() {
        return usize::MAX;
    }
    let mut left = free.to_vec();
    let mut count = 0;
    while let Some(units) = choose_units(left.clone(), portions) {
        for (unit, amount) in units.into_iter().zip(portions) {
            left[unit as usize] -= amount;
        }
        count += 1;
    }
    count
}

/// Returns a unit for each portion, or `None` if the free amounts do not suffice. Larger portions choose
/// first, and each takes the first unit that leaves enough for the others.
fn choose_units(mut free: Vec<u32>, portions: &[u32]) -> Option<Vec<u32>> {
    let mut order: Vec<usize> = (0..portions.len()).collect();
    order.sort_by_key(|place| std::cmp::Reverse(portions[*place]));
    let mut chosen = vec![0; portions.len()];
    place_portions(&mut free, portions, &order, &mut chosen).then_some(chosen)
}

fn place_portions(free: &mut [u32], portions: &[u32], order: &[usize], chosen: &mut [u32]) -> bool {
    let Some((place, rest)) = order.split_first() else { return true };
    let needed: u64 = order.iter().map(|place| u64::from(portions[*place])).sum();
    if free.iter().map(|free| u64::from(*free)).sum::<u64>() < needed {
        return false;
    }
    let amount = portions[*place];
    for unit in 0..free.len() {
        // A unit with as much left as an earlier one would fail like that.
        if free[unit] < amount || free[..unit].contains(&free[unit]) {
            continue;
        }
        free[unit] -= amount;
        if place_portions(free, portions, rest, chosen) {
            chosen[*place] = u32::try_from(unit).expect("a resource has fewer than 2^32 units");
            return true;
        }
        free[unit] += amount;
    }
    false
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn portions_come_from_the_first_units_that_leave_enough() {
        let choose = |free: &[u32], portions: &[u32]| choose_units(free.to_vec(), portions);
        assert_eq!(choose(&[1, 1, 1], &[1, 1]), Some(vec![0, 1]));
        assert_eq!(choose(&[0, 1, 1], &[1]), Some(vec![1]));
        assert_eq!(choose(&[4], &[1, 3]), Some(vec![0, 0]));
        assert_eq!(choose(&[2, 2], &[3]), None, "no portion comes from two units");
        assert_eq!(choose(&[5, 4], &[2, 3, 4]), Some(vec![0, 0, 1]), "the first choice for 4 fails");
        assert_eq!(choose(&[1, 1], &[]), Some(Vec::new()));
        assert_eq!(choose(&[], &[1]), None);
    }

    #[test]
    fn needs_beyond_the_units_become_all_of_them() {
        let mut needs = LeaseNeeds::default();
        needs.resources.insert(ResourceId(0), vec![1; 3]);
        needs.resources.insert(ResourceId(1), vec![9]);
        needs.resources.insert(ResourceId(2), vec![2]);
        needs.limit_to(&[vec![1, 1], vec![4], vec![2, 3]]);
        let limited: Vec<_> = needs.resources.into_values().collect();
        assert_eq!(limited, [vec![1, 1], vec![4], vec![2]]);
    }

    proptest! {
        /// The number of leases that fit is the number that can be taken one after the other, and no unit is
        /// overdrawn.
        #[test]
        fn as_many_leases_fit_as_can_be_taken(
            units in proptest::collection::vec(0_u32..6, 1..4),
            portions in proptest::collection::vec(1_u32..4, 1..4),
        ) {
            let capacities = [units];
            let needs = LeaseNeeds {
                resources: BTreeMap::from([(ResourceId(0), portions.clone())]),
                ..LeaseNeeds::default()
            };
            let mut free = FreeResources::all(&capacities, Slots(9));
            let expected = free.leases_by_resources(&needs);
            let mut taken = vec![0; capacities[0].len()];
            let mut count = 0;
            while let Some(held) = free.choose(&needs) {
                prop_assert_eq!(held.iter().map(|one| one.amount).collect::<Vec<_>>(), portions.clone());
                free.take(&held, Slots::ONE);
                held.iter().for_each(|one| taken[one.unit as usize] += one.amount);
                count += 1;
            }
            prop_assert_eq!(count, expected);
            prop_assert!(taken.iter().zip(&capacities[0]).all(|(taken, unit)| taken <= unit));
        }
    }
}
