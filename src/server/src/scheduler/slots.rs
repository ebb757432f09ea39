//! Assignment of workers: shares of the slots, first among clients and then among the runs of each, and
//! grants of idle workers.

use std::collections::BTreeSet;

use heeler_core::fair_share::{
    GrantRule, GroupedDemand, SlotDemand, preferred_demands, shares_with_priority,
};
use heeler_protocol::control::{ClientId, WorkerId};

use super::{event_loop::Scheduler, runs::RunNumber};
use crate::pool::WorkerUser;

/// A user of slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UserKey {
    /// The listing of a catalogue.
    Listing(usize),
    Run(RunNumber),
}

/// Group of the listings, each of which serves all clients of its programs. Clients are numbered from 1.
const LISTINGS: u32 = 0;

/// Workers that start while programs are listed, at most: a run of few tests on many slots needs no more.
const EARLY_WORKERS: usize = 8;

/// A user of slots, with its demand.
pub(super) struct SlotUser {
    key: UserKey,
    demand: GroupedDemand,
    /// Slots that it occupies; workers that wait for their client occupy none.
    slots_in_use: usize,
    /// Whether it comes before all others.
    is_preferred: bool,
}

impl Scheduler {
    /// Returns all users of slots; the listings first, because requests wait for them.
    fn slot_users(&self) -> Vec<SlotUser> {
        let listings = self.catalogues.listers().map(|(place, lister)| SlotUser {
            key: UserKey::Listing(place),
            demand: GroupedDemand {
                group: LISTINGS,
                group_served: self.catalogues.listers().map(|(_, lister)| lister.demand().served).sum(),
                demand: lister.demand(),
                has_priority: false,
            },
            slots_in_use: lister.running_jobs(),
            is_preferred: false,
        });
        let runs = self.runs.iter().map(|(number, run)| {
            let open = run.driver.model().state().active_leases();
            let blocked = self.pool.as_ref().map_or(0, |pool| pool.workers().blocked_count(run.driver.key()));
            let SlotDemand { wanted, served } = run.driver.model().demand();
            let is_paused = self.clients.get(&run.client).is_some_and(|entry| entry.is_paused);
            let wanted = if is_paused || blocked > 0 { open } else { wanted };
            SlotUser {
                key: UserKey::Run(*number),
                demand: GroupedDemand {
                    group: run.client.0,
                    group_served: self.served_leases(run.client),
                    demand: SlotDemand { wanted: wanted - blocked.min(wanted), served },
                    has_priority: run.driver.has_priority(),
                },
                slots_in_use: open - blocked.min(open),
                is_preferred: false,
            }
        });
        listings.chain(runs).collect()
    }

    /// Returns the number of leases that a client has received.
    fn served_leases(&self, client: ClientId) -> u64 {
        let own = self.runs.values().filter(|run| run.client == client);
        let before = self.clients.get(&client).map_or(0, |entry| entry.served_before);
        before + own.map(|run| run.driver.model().leases_granted()).sum::<u64>()
    }

    /// Lets a client that begins its only run come level with those that have runs already: otherwise it
    /// would be served alone until it has received as many leases as they have.
    pub(super) fn level_new_client(&mut self, client: ClientId) {
        let others: BTreeSet<_> = self.runs.values().map(|run| run.client).collect();
        if others.contains(&client) {
            return;
        }
        let begun = |other: &ClientId| {
            let open = self
                .runs
                .values()
                .filter(|run| run.client == *other)
                .map(|run| run.driver.model().state().active_leases());
            self.served_leases(*other).saturating_sub(open.sum::<usize>() as u64)
        };
        let level = others.iter().map(begun).min().unwrap_or(0);
        if let Some(entry) = self.clients.get_mut(&client) {
            entry.served_before = entry.served_before.max(level);
        }
    }

    /// Computes the share of every user and passes it to the runs; returns each user with its share.
    pub(super) fn update_shares(&mut self) -> Vec<(SlotUser, usize)> {
        let mut users = self.slot_users();
        let demands: Vec<_> = users.iter().map(|user| user.demand).collect();
        let preferred = preferred_demands(self.grant_rule, &demands);
        let shares = shares_with_priority(self.options.slots, &demands, &preferred);
        for (user, is_preferred) in users.iter_mut().zip(preferred) {
            user.is_preferred = is_preferred;
        }
        let spare = self.options.slots.saturating_sub(shares.iter().sum());
        for (user, share) in users.iter().zip(&shares) {
            if let UserKey::Run(number) = user.key
                && let Some(run) = self.runs.get_mut(&number)
            {
                run.driver.set_share(*share, spare);
            }
        }
        users.into_iter().zip(shares).collect()
    }

    /// Grants each idle worker to the first preferred user, or to the least served among those below their
    /// share. Returns whether there was one. Each grant makes progress: a user below its share uses the
    /// worker or reduces its demand.
    pub(super) async fn grant_idle_workers(&mut self) -> bool {
        let mut has_granted = false;
        while self.pool.as_ref().is_some_and(|pool| pool.workers().has_idle())
            && let Some(SlotUser { key, is_preferred, .. }) = self.next_in_line()
            && let Some(worker) = self
                .pool
                .as_ref()
                .and_then(|pool| pool.workers().preferred_idle(matches!(key, UserKey::Listing(_))))
        {
            self.grant_rule = GrantRule::after_grant(is_preferred);
            self.grant(key, worker).await;
            has_granted = true;
        }
        has_granted
    }

    /// Returns the least served user that is below its share. Slots that a user occupies beyond its share
    /// count as occupied, so that no slot is used twice.
    fn next_in_line(&mut self) -> Option<SlotUser> {
        let users = self.update_shares();
        let in_use: usize = users.iter().map(|(user, _)| user.slots_in_use).sum();
        if in_use >= self.options.slots {
            return None;
        }
        let may_have_more = |(user, share): &(SlotUser, usize)| user.slots_in_use < *share;
        let candidates = users.into_iter().filter(may_have_more).map(|(user, _)| user);
        candidates
            .min_by_key(|user| (!user.is_preferred, user.demand.group_served, user.demand.demand.served))
    }

    async fn grant(&mut self, key: UserKey, worker: WorkerId) {
        let Some(pool) = &mut self.pool else { return };
        match key {
            UserKey::Listing(place) => {
                // A process that waits there is ended before the next listing.
                let _ended = pool.grant(worker, WorkerUser::Listing(place));
                self.assign_to_listing(place, worker).await;
            }
            UserKey::Run(number) => {
                if let Some(run) = self.runs.get_mut(&number) {
                    let waiting = pool.grant(worker, WorkerUser::Run(run.driver.key().clone()));
                    run.driver.on_worker_granted(worker, waiting.as_deref());
                    run.driver.execute_actions(pool).await;
                }
            }
        }
    }

    /// Starts the workers that were requested.
    pub(super) async fn start_workers(&mut self) {
        let slots = self.options.slots;
        let Some(pool) = &mut self.pool else { return };
        // The listings' requests are recomputed each time.
        pool.clear_listing_requests();
        for (place, lister) in self.catalogues.listers() {
            let for_listing = lister.demand().wanted.min(slots).saturating_sub(lister.running_jobs());
            let for_run = if self.options.starts_workers_early { slots.min(EARLY_WORKERS) } else { 0 };
            let for_run = for_run.saturating_sub(pool.workers().ready().len());
            let wanted = for_listing.max(for_run);
            pool.request_workers(&WorkerUser::Listing(place), wanted);
        }
        pool.start_requested().await;
    }

    /// Reports to its requester that a worker did not start.
    pub(super) fn on_worker_not_started(&mut self, worker: WorkerId, user: Option<WorkerUser>, error: &str) {
        match user {
            None => tracing::warn!(%worker, error, "a worker could not be started"),
            Some(WorkerUser::Listing(place)) => {
                let slots = self.options.slots;
                let is_worker_ready =
                    self.pool.as_ref().is_some_and(|pool| !pool.workers().ready().is_empty());
                self.catalogues.on_start_failed(place, slots, is_worker_ready, error);
            }
            Some(WorkerUser::Run(key)) => {
                if let Some(driver) = self.run_mut(&key) {
                    driver.on_worker_not_started(worker, error);
                }
            }
        }
    }
}
