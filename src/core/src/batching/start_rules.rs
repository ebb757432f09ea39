//! Decides which programs may start a lease, if tests need several slots or resources, or have a priority:
//! everything they need is free, no program with a higher rank may start, and they take nothing that the
//! holder of the ticket lacks.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    needs::{FreeResources, HeldPortion, LeaseNeeds},
    slot_loads::{BusySlot, SlotLoads},
    ticket::Ticket,
};
use crate::{ProgramId, ResourceId, Slots};

/// A resource is critical if its tests take at least this part of the remaining time: one half.
const CRITICAL_PART: u32 = 2;
/// Needs of a program without an entry.
static ONE_SLOT: LeaseNeeds = LeaseNeeds { weight: Slots::ONE, resources: BTreeMap::new(), priority: 0 };

/// Reason why a test that waits in the queue can't start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QueueWait {
    /// Fewer than this number of slots are free. Never less than two slots.
    Slots(Slots),
    /// Running tests have taken the resource.
    Resource(ResourceId),
    /// The program may have no more processes.
    Process(ProgramId),
    /// Tests that have been passed over too often go first.
    Turn,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct StartRules {
    /// Needs of the programs that need more than a slot, or have a priority. No resource has too few units.
    needs: BTreeMap<ProgramId, LeaseNeeds>,
    /// Amounts of the units of each resource.
    capacities: Vec<Vec<u32>>,
    ticket: Ticket,
}

impl StartRules {
    pub(super) fn new(needs: impl IntoIterator<Item = (ProgramId, LeaseNeeds)>) -> Self {
        let needs = needs.into_iter().filter(|(_, needs)| *needs != ONE_SLOT).collect();
        Self { needs, ..Self::default() }
    }

    pub(super) fn set_capacities(&mut self, capacities: Vec<Vec<u32>>) {
        self.needs.values_mut().for_each(|needs| needs.limit_to(&capacities));
        self.capacities = capacities;
    }

    /// Returns whether every program needs one slot and nothing else.
    pub(super) fn are_trivial(&self) -> bool {
        self.needs.is_empty()
    }

    pub(super) fn needs(&self, program: ProgramId) -> &LeaseNeeds {
        self.needs.get(&program).unwrap_or(&ONE_SLOT)
    }

    /// Returns the slots of a lease of a program in a run that may use this many.
    pub(super) fn lease_weight(&self, program: ProgramId, usable: Slots) -> Slots {
        self.needs(program).weight_within(usable)
    }

    /// Returns how many more leases of a program the free resources allow, regardless of slots.
    pub(super) fn leases_by_resources(&self, program: ProgramId, loads: &SlotLoads) -> usize {
        match self.needs.get(&program) {
            Some(needs) if !needs.resources.is_empty() => self.free(loads).leases_by_resources(needs),
            Some(_) | None => usize::MAX,
        }
    }

    /// Returns how many leases of a program the capacities of its resources allow.
    pub(super) fn most_leases(&self, program: ProgramId) -> usize {
        FreeResources::all(&self.capacities, Slots::NONE).leases_by_resources(self.needs(program))
    }

    /// Returns the slots and resources that no lease takes.
    fn free(&self, loads: &SlotLoads) -> FreeResources<'_> {
        self.free_beside(loads, &loads.busy)
    }

    fn free_beside(&self, loads: &SlotLoads, busy: &[BusySlot]) -> FreeResources<'_> {
        let mut free = FreeResources::all(&self.capacities, loads.usable()).limited_to(loads.available());
        for slot in busy {
            free.take(&slot.portions, slot.weight);
        }
        free
    }

    /// Chooses the units for a lease of a program. `None` if too little is free.
    pub(super) fn choose_units(&self, program: ProgramId, loads: &SlotLoads) -> Option<Vec<HeldPortion>> {
        match self.needs.get(&program) {
            Some(needs) if !needs.resources.is_empty() => self.free(loads).choose(needs),
            Some(_) | None => Some(Vec::new()),
        }
    }

    /// Returns the programs that may start now. The highest priority decides, then the largest number of
    /// slots, then whether the tests need a critical resource.
    /// `waiting` are the programs with waiting tests, `has_room` tells which may have another process, and
    /// `work` how long their waiting tests take.
    pub(super) fn startable(
        &self,
        waiting: &BTreeSet<ProgramId>,
        loads: &SlotLoads,
        has_room: impl Fn(ProgramId) -> bool,
        work: impl Fn(ProgramId) -> Duration,
    ) -> BTreeSet<ProgramId> {
        let free = self.free(loads);
        let fits = |program: ProgramId| has_room(program) && free.leases_of(self.needs(program)) > 0;
        let holder = self.ticket.holder().filter(|holder| waiting.contains(holder));
        if let Some(holder) = holder.filter(|holder| fits(*holder)) {
            return BTreeSet::from([holder]);
        }
        let is_allowed = |program: ProgramId| {
            holder.is_none_or(|holder| !free.is_in_the_way(self.needs(program), self.needs(holder)))
        };
        let rank = |program: ProgramId| {
            let needs = self.needs(program);
            (needs.priority, needs.weight_within(loads.usable()))
        };
        let mut programs: BTreeSet<_> =
            waiting.iter().copied().filter(|program| fits(*program) && is_allowed(*program)).collect();
        let first = programs.iter().map(|program| rank(*program)).max();
        programs.retain(|program| Some(rank(*program)) == first);
        // Mostly all slots are busy, so the resources are compared only if that can decide.
        let needs_resource = |program: &ProgramId| !self.needs(*program).resources.is_empty();
        if programs.len() > 1 && programs.iter().any(needs_resource) {
            let critical = self.critical_resources(waiting, loads, work);
            let is_critical = |program: &ProgramId| {
                self.needs(*program).resources.keys().any(|resource| critical.contains(resource))
            };
            if programs.iter().any(is_critical) {
                programs.retain(is_critical);
            }
        }
        programs
    }

    /// Returns what each of the waiting programs lacks, except those that only lack one free slot. If a
    /// program lacks several resources, the first one counts.
    pub(super) fn lacking(
        &self,
        waiting: &BTreeSet<ProgramId>,
        loads: &SlotLoads,
    ) -> BTreeMap<ProgramId, QueueWait> {
        if self.are_trivial() {
            return BTreeMap::new();
        }
        let free = self.free(loads);
        let holder = self.ticket.holder().filter(|holder| waiting.contains(holder));
        let reason = |program: ProgramId| {
            let needs = self.needs(program);
            if let Some(resource) = free.first_lacking(needs) {
                return Some(QueueWait::Resource(resource));
            }
            if free.leases_of(needs) == 0 {
                let weight = needs.weight_within(loads.usable());
                return (weight > Slots::ONE).then_some(QueueWait::Slots(weight));
            }
            let holder = holder.filter(|holder| *holder != program)?;
            free.is_in_the_way(needs, self.needs(holder)).then_some(QueueWait::Turn)
        };
        waiting.iter().filter_map(|program| Some((*program, reason(*program)?))).collect()
    }

    /// Returns the resources whose tests will take most of the remaining time, because few of them can run at
    /// once. If these tests waited for all others, they would run alone at the end.
    fn critical_resources(
        &self,
        waiting: &BTreeSet<ProgramId>,
        loads: &SlotLoads,
        work: impl Fn(ProgramId) -> Duration,
    ) -> BTreeSet<ResourceId> {
        let mut total = Duration::ZERO;
        let mut by_resource: BTreeMap<ResourceId, Duration> = BTreeMap::new();
        for program in waiting {
            let (needs, work) = (self.needs(*program), work(*program));
            let weight = needs.weight_within(loads.usable()).0;
            total = total.saturating_add(work.saturating_mul(u32::try_from(weight).unwrap_or(u32::MAX)));
            for (resource, portions) in &needs.resources {
                let units = self.capacities.get(resource.index());
                let capacity = units.map_or(u32::MAX, |units| sum_of(units)).max(1);
                let serial = work.saturating_mul(sum_of(portions).min(capacity)) / capacity;
                let sum = by_resource.entry(*resource).or_default();
                *sum = sum.saturating_add(serial);
            }
        }
        let share = total / u32::try_from(loads.usable().0).unwrap_or(u32::MAX).max(1);
        let is_critical = |serial: &Duration| serial.saturating_mul(CRITICAL_PART) >= share;
        by_resource.into_iter().filter(|(_, serial)| is_critical(serial)).map(|(one, _)| one).collect()
    }

    /// Returns how many leases of these programs fit beside each other. `batches` tells how many each could
    /// use.
    pub(super) fn fitting_leases(
        &self,
        programs: BTreeSet<ProgramId>,
        loads: &SlotLoads,
        batches: impl Fn(ProgramId) -> usize,
    ) -> usize {
        let mut free = self.free(loads);
        let mut count = 0;
        for program in programs {
            let needs = self.needs(program);
            let leases = batches(program).min(free.leases_of(needs));
            for _ in 0..leases {
                let portions = free.choose(needs).unwrap_or_default();
                free.take(&portions, needs.weight_within(loads.usable()));
            }
            count += leases;
        }
        count
    }

    /// Returns whether a process of this program must end instead of running more tests, because other tests
    /// wait for its slots or resources: those with the ticket, or with a higher priority.
    pub(super) fn must_yield(
        &self,
        program: ProgramId,
        waiting: &BTreeSet<ProgramId>,
        loads: &SlotLoads,
        has_room: impl Fn(ProgramId) -> bool,
    ) -> bool {
        let (free, own) = (self.free(loads), self.needs(program));
        let mut others = loads.busy.clone();
        if let Some(place) = others.iter().position(|slot| slot.program == program) {
            others.remove(place);
        }
        let free_without = self.free_beside(loads, &others);
        waiting.iter().copied().filter(|other| *other != program).any(|other| {
            let needs = self.needs(other);
            let has_ticket = self.ticket.holder() == Some(other);
            let goes_first = needs.priority > own.priority && has_room(other);
            has_ticket && free.is_in_the_way(own, needs) || goes_first && free_without.leases_of(needs) > 0
        })
    }

    /// Records that a batch of this program starts. `loads` and `waiting` describe the time before, without
    /// its tests.
    pub(super) fn on_start(&mut self, program: ProgramId, waiting: &BTreeSet<ProgramId>, loads: &SlotLoads) {
        let (free, own) = (self.free(loads), self.needs(program));
        let is_passed_over = |other: &ProgramId| {
            let needs = self.needs(*other);
            *other != program
                && needs.priority >= own.priority
                && free.leases_of(needs) == 0
                && free.is_in_the_way(own, needs)
        };
        let passed_over: Vec<_> = waiting.iter().copied().filter(is_passed_over).collect();
        self.ticket.on_start(program);
        if let Some(holder) = self.ticket.holder().filter(|holder| !waiting.contains(holder)) {
            self.ticket.take_from(holder);
        }
        for other in passed_over {
            self.ticket.pass_over(other, loads.slots);
        }
    }
}

fn sum_of(amounts: &[u32]) -> u32 {
    amounts.iter().copied().fold(0, u32::saturating_add)
}
