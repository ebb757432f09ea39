//! Assignment of workers: shares of the slots, idle workers, and workers that are starting.

use model::share::{Demand, share_out};
use wire::control::WorkerId;

use super::{
    Engine,
    jobs::{JobKey, Work},
};

/// A user of slots: a run, or (without a key) the listing.
pub(super) struct User {
    key: Option<JobKey>,
    demand: Demand,
    in_hand: usize,
}

impl Engine {
    fn slots(&self) -> usize {
        self.settings.run.jobs.slots().get()
    }

    /// Returns all users of slots; the listing first, because requests wait for it.
    fn users(&self) -> Vec<User> {
        let lister = self.lister.iter().map(|lister| User {
            key: None,
            demand: lister.demand(),
            in_hand: lister.jobs_in_hand(),
        });
        let runs = self.jobs.iter().filter_map(|(key, work)| match work {
            Work::Running { driver, .. } => {
                Some(User { key: Some(*key), demand: driver.demand(), in_hand: driver.leases_in_hand() })
            }
            Work::Listing(_) | Work::Telling { .. } => None,
        });
        lister.chain(runs).collect()
    }

    /// Computes the share of every user and passes it to the runs; returns each user with its share.
    pub(super) fn share_out(&mut self) -> Vec<(User, usize)> {
        let users = self.users();
        let demands: Vec<_> = users.iter().map(|user| user.demand).collect();
        let shares = share_out(self.slots(), &demands);
        for (user, share) in users.iter().zip(&shares) {
            if let Some(driver) = self.driver_by_key(user.key) {
                driver.share(*share);
            }
        }
        users.into_iter().zip(shares).collect()
    }

    /// Reclaims the workers that runs do not need, and collects the runs' requests for new workers.
    pub(super) fn collect(&mut self) {
        for (key, work) in &mut self.jobs {
            if let Some(driver) = work.driver() {
                self.idle.extend(driver.take_idle());
                self.asked.extend(std::iter::repeat_n(Some(*key), driver.take_asked()));
            }
        }
    }

    /// Assigns each idle worker to the least served user among those below their share. Returns whether one
    /// was used.
    pub(super) async fn give(&mut self) -> bool {
        // All workers of a dead watchdog die with it: the work of one must not be assigned to another of
        // them.
        if let Some(pool) = &self.pool {
            self.idle.retain(|worker| pool.is_ready(*worker));
        }
        let mut has_given = false;
        while !self.idle.is_empty()
            && let Some(User { key, in_hand, .. }) = self.neediest()
            && let Some(worker) = self.idle.pop()
        {
            if let Some(place) = self.asked.iter().position(|asked| *asked == key) {
                self.asked.remove(place);
            }
            self.give_to(key, worker).await;
            self.collect();
            if self.users().iter().any(|user| user.key == key && user.in_hand == in_hand) {
                // The user did not need the worker after all; its new demand is seen with the next event.
                break;
            }
            has_given = true;
        }
        has_given
    }

    /// Returns the least served user that is below its share. Slots that a user occupies beyond its share
    /// count as occupied, so that no slot is used twice.
    fn neediest(&mut self) -> Option<User> {
        let users = self.share_out();
        let in_use: usize = users.iter().map(|(user, _)| user.in_hand).sum();
        if in_use >= self.slots() {
            return None;
        }
        let may_have_more = |(user, share): &(User, usize)| user.in_hand < *share;
        let candidates = users.into_iter().filter(may_have_more).map(|(user, _)| user);
        candidates.min_by_key(|user| user.demand.served)
    }

    async fn give_to(&mut self, key: Option<JobKey>, worker: WorkerId) {
        let Some(pool) = &mut self.pool else { return };
        match key {
            None => {
                if let Some(lister) = &mut self.lister {
                    lister.give(pool, &self.catalogue, worker).await;
                }
            }
            Some(key) => {
                if let Some(driver) = self.jobs.get_mut(&key).and_then(Work::driver) {
                    driver.give(worker);
                    driver.act(pool).await;
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
            .map_or(0, |lister| lister.demand().wanted.min(slots).saturating_sub(lister.jobs_in_hand()));
        self.asked.retain(|key| key.is_some_and(|key| self.jobs.contains_key(&key)));
        self.asked.extend(std::iter::repeat_n(None, wanted));
        let Some(pool) = &mut self.pool else { return };
        while pool.starting_count() < self.asked.len() && pool.worker_count() < slots {
            pool.start_worker().await;
        }
    }

    /// Reports to the first requester in the queue that a worker did not start.
    pub(super) async fn not_started(&mut self, worker: WorkerId, error: &str) {
        match self.asked.pop_front() {
            None => tracing::warn!(%worker, error, "a worker could not be started"),
            Some(None) => self.lister_without(error),
            Some(Some(key)) => {
                if let Some(driver) = self.jobs.get_mut(&key).and_then(Work::driver) {
                    driver.not_started(worker, error).await;
                }
            }
        }
    }

    /// Counts a failed start for the listing and gives the listing up after too many, unless a worker is
    /// ready. Workers that are still starting do not count, because all of them may fail like this one.
    fn lister_without(&mut self, error: &str) {
        let slots = self.slots();
        let is_somebody_there = self.pool.as_ref().is_some_and(|pool| !pool.ready_workers().is_empty());
        let Some(lister) = &mut self.lister else { return };
        if lister.has_tried_enough(slots) && !is_somebody_there {
            lister.without_workers(&mut self.catalogue, error);
        }
    }
}
