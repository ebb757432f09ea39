//! Assignment of workers: shares of the slots, idle workers, and workers that are starting.

use heeler_core::fair_share::{SlotDemand, fair_shares};
use heeler_protocol::control::WorkerId;

use super::{
    Scheduler,
    jobs::{JobKey, JobProgress},
};

/// A user of slots: a run, or (without a key) the listing.
pub(super) struct SlotUser {
    key: Option<JobKey>,
    demand: SlotDemand,
    slots_in_use: usize,
}

impl Scheduler {
    fn slots(&self) -> usize {
        self.settings.run.jobs.slots().get()
    }

    /// Returns all users of slots; the listing first, because requests wait for it.
    fn slot_users(&self) -> Vec<SlotUser> {
        let lister = self.lister.iter().map(|lister| SlotUser {
            key: None,
            demand: lister.demand(),
            slots_in_use: lister.running_jobs(),
        });
        let runs = self.jobs.iter().filter_map(|(key, work)| match work {
            JobProgress::Running { driver, .. } => Some(SlotUser {
                key: Some(*key),
                demand: driver.demand(),
                slots_in_use: driver.open_leases(),
            }),
            JobProgress::AwaitingListing(_) | JobProgress::SendingTests { .. } => None,
        });
        lister.chain(runs).collect()
    }

    /// Computes the share of every user and passes it to the runs; returns each user with its share.
    pub(super) fn update_shares(&mut self) -> Vec<(SlotUser, usize)> {
        let users = self.slot_users();
        let demands: Vec<_> = users.iter().map(|user| user.demand).collect();
        let shares = fair_shares(self.slots(), &demands);
        for (user, share) in users.iter().zip(&shares) {
            if let Some(driver) = self.driver_by_key(user.key) {
                driver.set_share(*share);
            }
        }
        users.into_iter().zip(shares).collect()
    }

    /// Reclaims the workers that runs do not need, and collects the runs' requests for new workers.
    pub(super) fn reclaim(&mut self) {
        for (key, work) in &mut self.jobs {
            if let Some(driver) = work.driver() {
                self.idle_workers.extend(driver.take_idle());
                self.worker_requests.extend(std::iter::repeat_n(Some(*key), driver.take_worker_requests()));
            }
        }
    }

    /// Assigns each idle worker to the least served user among those below their share. Returns whether one
    /// was used.
    pub(super) async fn assign_idle(&mut self) -> bool {
        // All workers of a dead watchdog die with it: the work of one must not be assigned to another of
        // them.
        if let Some(pool) = &self.pool {
            self.idle_workers.retain(|worker| pool.is_ready(*worker));
        }
        let mut has_given = false;
        while !self.idle_workers.is_empty()
            && let Some(SlotUser { key, slots_in_use: in_hand, .. }) = self.next_in_line()
            && let Some(worker) = self.idle_workers.pop()
        {
            if let Some(place) = self.worker_requests.iter().position(|asked| *asked == key) {
                self.worker_requests.remove(place);
            }
            self.assign_to(key, worker).await;
            self.reclaim();
            if self.slot_users().iter().any(|user| user.key == key && user.slots_in_use == in_hand) {
                // The user did not need the worker after all; its new demand is seen with the next event.
                break;
            }
            has_given = true;
        }
        has_given
    }

    /// Returns the least served user that is below its share. Slots that a user occupies beyond its share
    /// count as occupied, so that no slot is used twice.
    fn next_in_line(&mut self) -> Option<SlotUser> {
        let users = self.update_shares();
        let in_use: usize = users.iter().map(|(user, _)| user.slots_in_use).sum();
        if in_use >= self.slots() {
            return None;
        }
        let may_have_more = |(user, share): &(SlotUser, usize)| user.slots_in_use < *share;
        let candidates = users.into_iter().filter(may_have_more).map(|(user, _)| user);
        candidates.min_by_key(|user| user.demand.served)
    }

    async fn assign_to(&mut self, key: Option<JobKey>, worker: WorkerId) {
        let Some(pool) = &mut self.pool else { return };
        match key {
            None => {
                if let Some(lister) = &mut self.lister {
                    lister.assign(pool, &self.catalogue, worker).await;
                }
            }
            Some(key) => {
                if let Some(driver) = self.jobs.get_mut(&key).and_then(JobProgress::driver) {
                    driver.add_worker(worker);
                    driver.execute_actions(pool).await;
                }
            }
        }
    }

    /// Starts the workers that were requested, as long as there are fewer workers than slots.
    pub(super) async fn start_workers(&mut self) {
        let slots = self.slots();
        // The listing's requests are recomputed each time; the earlier ones are dropped.
        let wanted = self
            .lister
            .as_ref()
            .map_or(0, |lister| lister.demand().wanted.min(slots).saturating_sub(lister.running_jobs()));
        self.worker_requests.retain(|key| key.is_some_and(|key| self.jobs.contains_key(&key)));
        self.worker_requests.extend(std::iter::repeat_n(None, wanted));
        let Some(pool) = &mut self.pool else { return };
        while pool.starting_count() < self.worker_requests.len() && pool.worker_count() < slots {
            pool.start_worker().await;
        }
    }

    /// Reports to the first requester in the queue that a worker did not start.
    pub(super) async fn on_worker_not_started(&mut self, worker: WorkerId, error: &str) {
        match self.worker_requests.pop_front() {
            None => tracing::warn!(%worker, error, "a worker could not be started"),
            Some(None) => self.on_lister_start_failed(error),
            Some(Some(key)) => {
                if let Some(driver) = self.jobs.get_mut(&key).and_then(JobProgress::driver) {
                    driver.on_worker_not_started(worker, error).await;
                }
            }
        }
    }

    /// Counts a failed start for the listing and gives the listing up after too many, unless a worker is
    /// ready. Workers that are still starting do not count, because all of them may fail like this one.
    fn on_lister_start_failed(&mut self, error: &str) {
        let slots = self.slots();
        let is_somebody_there = self.pool.as_ref().is_some_and(|pool| !pool.ready_workers().is_empty());
        let Some(lister) = &mut self.lister else { return };
        if lister.count_failed_start(slots) && !is_somebody_there {
            lister.fail_remaining(&mut self.catalogue, error);
        }
    }
}
