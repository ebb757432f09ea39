//! Divides the slots, first among clients and then among the runs of each client.

use heeler_core::{
    Slots,
    fair_share::{GrantRule, GroupedDemand, SlotDemand, preferred_demands, shares_with_priority},
};

use super::{
    clients::Clients,
    listing::Catalogues,
    runs::{RunNumber, Runs},
};
use crate::pool::WorkerPool;

/// A user of slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UserKey {
    /// The listing of a catalogue.
    Listing(usize),
    Run(RunNumber),
}

/// Client number of the listings, which serve all clients of their programs. Real clients are numbered from
/// 1.
const LISTINGS: u32 = 0;

pub(super) struct SlotUser {
    pub(super) key: UserKey,
    demand: GroupedDemand,
    /// Slots in use. Workers blocked by their client do not count.
    slots_in_use: Slots,
    /// Slots that the user may occupy.
    pub(super) share: Slots,
    /// Whether the user takes precedence over all others.
    is_preferred: bool,
    /// Slots of all leases of the user. Leases of blocked workers count, too.
    pub(super) taken: Slots,
    /// Whether the user has work for another worker now.
    pub(super) can_use_worker: bool,
}

impl SlotUser {
    fn new(key: UserKey, demand: GroupedDemand, slots_in_use: Slots) -> Self {
        Self {
            key,
            demand,
            slots_in_use,
            share: Slots::NONE,
            is_preferred: false,
            taken: slots_in_use,
            can_use_worker: true,
        }
    }

    /// Returns whether the user wants more slots than it has.
    pub(super) fn wants_more(&self) -> bool {
        self.demand.demand.wanted > self.slots_in_use
    }
}

/// Returns all users of slots, without shares. Listings come first, because requests wait for them.
pub(super) fn slot_users(
    clients: &Clients,
    catalogues: &Catalogues,
    runs: &Runs,
    pool: Option<&WorkerPool>,
) -> Vec<SlotUser> {
    let listings = catalogues.listers().map(|(place, lister)| {
        let demand = GroupedDemand {
            group: LISTINGS,
            group_served: catalogues.listers().map(|(_, lister)| lister.demand().served).sum(),
            demand: lister.demand(),
            has_priority: false,
        };
        SlotUser::new(UserKey::Listing(place), demand, Slots(lister.running_jobs()))
    });
    let runs_of_clients = runs.iter().map(|(number, run)| {
        // A paused or blocked run keeps its slots but gets no more.
        let taken = run.driver.model().state().slots_taken();
        let state = run.driver.model().state();
        let blocked = pool.into_iter().flat_map(|pool| pool.workers().blocked_workers(run.driver.key()));
        let blocked: Slots = blocked.map(|worker| state.weight_of(worker)).sum();
        let SlotDemand { wanted, served } = run.driver.model().demand();
        let wanted = if clients.is_paused(run.client) || blocked > Slots::NONE { taken } else { wanted };
        let demand = GroupedDemand {
            group: run.client.0,
            group_served: clients.served_leases(run.client, runs),
            demand: SlotDemand { wanted: wanted.saturating_sub(blocked), served },
            has_priority: run.driver.has_priority(),
        };
        SlotUser { taken, ..SlotUser::new(UserKey::Run(number), demand, taken.saturating_sub(blocked)) }
    });
    listings.chain(runs_of_clients).collect()
}

/// Returns the slots that all users occupy.
pub(super) fn slots_in_use(users: &[SlotUser]) -> Slots {
    users.iter().map(|user| user.slots_in_use).sum()
}

pub(super) struct SlotShares {
    /// Slots that are divided among the users.
    slots: Slots,
    /// Slots that users may occupy now, because other coordinators have the rest.
    available: Slots,
    /// The rule for granting the next idle worker.
    grant_rule: GrantRule,
}

impl SlotShares {
    pub(super) fn new(slots: usize) -> Self {
        Self { slots: Slots(slots), available: Slots(slots), grant_rule: GrantRule::default() }
    }

    /// Sets the number of slots to divide.
    pub(super) fn limit(&mut self, slots: Slots) {
        self.slots = slots;
    }

    /// Sets the number of slots that users may occupy now.
    pub(super) fn make_available(&mut self, available: Slots) {
        self.available = available;
    }

    /// Returns how many slots a user may occupy now if no other user takes more.
    pub(super) fn available_to(&self, user: &SlotUser, in_use: Slots) -> Slots {
        user.taken.saturating_add(self.available).saturating_sub(in_use)
    }

    /// Computes the share of every user. Returns the number of slots that no user can use.
    pub(super) fn divide(&self, users: &mut [SlotUser]) -> Slots {
        let demands: Vec<_> = users.iter().map(|user| user.demand).collect();
        let preferred = preferred_demands(self.grant_rule, &demands);
        let shares = shares_with_priority(self.slots, &demands, &preferred);
        let spare = self.slots.saturating_sub(shares.iter().copied().sum());
        for (user, (share, is_preferred)) in users.iter_mut().zip(shares.into_iter().zip(preferred)) {
            (user.share, user.is_preferred) = (share, is_preferred);
        }
        spare
    }

    /// Returns the user that gets the next worker: below its share and with work for it, preferred users
    /// first, then the least served. Slots occupied beyond a user's share still count, so that no slot is
    /// used twice.
    pub(super) fn next_in_line(&self, users: Vec<SlotUser>) -> Option<SlotUser> {
        if slots_in_use(&users) >= self.slots.min(self.available) {
            return None;
        }
        let candidates =
            users.into_iter().filter(|user| user.slots_in_use < user.share && user.can_use_worker);
        candidates
            .min_by_key(|user| (!user.is_preferred, user.demand.group_served, user.demand.demand.served))
    }

    /// Records that a worker was granted to a user.
    pub(super) fn on_granted(&mut self, user: &SlotUser) {
        self.grant_rule = GrantRule::after_grant(user.is_preferred);
    }
}
