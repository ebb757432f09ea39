//! What each worker is used for: requests for workers, grants of idle ones, and the run that each one serves.

use std::sync::atomic::Ordering;

use heeler_protocol::control::{ClientId, RunKey, TestProgram, WorkerId};

use super::{pooled_worker::PooledWorker, workers::WorkerPool};

/// What a worker is used for, or was requested for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkerUser {
    /// A listing, by the number of its catalogue.
    Listing(usize),
    /// A run.
    Run(RunKey),
}

impl WorkerPool {
    /// Returns the workers that are granted to runs of this client and are not dying.
    #[must_use]
    pub fn workers_of(&self, client: ClientId) -> Vec<WorkerId> {
        let is_its = |worker: &PooledWorker| match &worker.user {
            Some(WorkerUser::Run(run)) => run.client == client && !worker.is_dying(),
            Some(WorkerUser::Listing(_)) | None => false,
        };
        self.workers.iter().filter(|(_, worker)| is_its(worker)).map(|(id, _)| *id).collect()
    }

    /// Returns whether there is an idle worker that shows no sign of death.
    #[must_use]
    pub fn has_idle_worker(&self) -> bool {
        self.idle_workers().next().is_some()
    }

    /// Returns an idle worker that shows no sign of death. A lease goes where a process waits for one, a
    /// listing elsewhere, because it would end that process.
    #[must_use]
    pub fn idle_worker(&self, for_listing: bool) -> Option<WorkerId> {
        let is_preferred = |worker: &PooledWorker| worker.waiting_process.is_some() != for_listing;
        self.idle_workers().max_by_key(|(id, worker)| (is_preferred(worker), **id)).map(|(id, _)| *id)
    }

    fn idle_workers(&self) -> impl Iterator<Item = (&WorkerId, &PooledWorker)> {
        self.workers.iter().filter(|(_, worker)| worker.user.is_none() && !worker.is_dying())
    }

    /// Grants an idle worker to a user, and removes one request of that user. Returns the program whose
    /// process waits for a lease there: it goes on if the next job is one, and is ended otherwise.
    pub fn grant(&mut self, worker: WorkerId, user: WorkerUser) -> Option<Box<TestProgram>> {
        if let Some(place) = self.requests.iter().position(|one| *one == user) {
            self.requests.remove(place);
        }
        let link = self.workers.get_mut(&worker)?;
        link.user = Some(user);
        link.waiting_process.take()
    }

    /// Takes a worker back from a listing: it is idle, and the process of this program waits for a lease
    /// there.
    pub fn release_listing(&mut self, worker: WorkerId, waiting_process: Option<Box<TestProgram>>) {
        if let Some(link) = self.workers.get_mut(&worker) {
            (link.user, link.waiting_process) = (None, waiting_process);
        }
    }

    /// Takes a worker back from its user: it is idle.
    pub fn release(&mut self, worker: WorkerId) {
        if let Some(link) = self.workers.get_mut(&worker) {
            link.user = None;
        }
    }

    /// Returns the number of a run's workers that wait for its client.
    #[must_use]
    pub fn blocked_count(&self, run: &RunKey) -> usize {
        let is_its = |worker: &&PooledWorker| {
            worker.is_blocked && matches!(&worker.user, Some(WorkerUser::Run(user)) if user == run)
        };
        self.workers.values().filter(is_its).count()
    }

    /// Requests one more worker for a user; it is started as soon as there are fewer workers than slots.
    /// [`WorkerPool::grant`] or `PoolEvent::WorkerNotStarted` follows.
    pub fn request_worker(&mut self, user: WorkerUser) {
        self.requests.push_back(user);
    }

    /// Requests several workers for a user.
    pub fn request_workers(&mut self, user: &WorkerUser, count: usize) {
        self.requests.extend(std::iter::repeat_n(user.clone(), count));
    }

    /// Removes the requests of listings.
    pub fn clear_listing_requests(&mut self) {
        self.requests.retain(|user| matches!(user, WorkerUser::Run(_)));
    }

    /// Starts requested workers, as long as there are fewer workers than slots.
    ///
    /// Cancel safe: no, as `start_worker`.
    pub async fn start_requested(&mut self) {
        let blocked = self.workers.values().filter(|worker| worker.is_blocked).count();
        while self.starting.len() < self.requests.len()
            && self.workers.len() + self.starting.len() < self.slots + blocked
        {
            self.start_worker().await;
        }
    }

    /// Records that a worker without a lease serves this run from now on. Positions are counted from 1 in
    /// each run. All frames of the previous run have been forwarded, because they precede the end of its
    /// lease.
    pub fn assign_run(&mut self, worker: WorkerId, run: &RunKey) {
        let Some(link) = self.workers.get_mut(&worker) else { return };
        if link.assigned_run.as_ref() == Some(run) {
            return;
        }
        let before = link.forwarded_before.remove(run).unwrap_or(0);
        let relayed = link.forwarded.position.swap(before, Ordering::AcqRel);
        if let Some(earlier) = link.assigned_run.replace(run.clone()) {
            link.forwarded_before.insert(earlier, relayed);
        }
    }

    /// Returns the run of a worker's last lease.
    #[must_use]
    pub fn assigned_run(&self, worker: WorkerId) -> Option<&RunKey> {
        self.workers.get(&worker)?.assigned_run.as_ref()
    }

    /// Removes the records of a run that is over.
    pub fn end_run(&mut self, run: &RunKey) {
        let user = WorkerUser::Run(run.clone());
        self.requests.retain(|one| *one != user);
        for link in self.workers.values_mut() {
            link.forwarded_before.remove(run);
            if link.assigned_run.as_ref() == Some(run) {
                link.assigned_run = None;
            }
            if link.user.as_ref() == Some(&user) {
                link.user = None;
            }
        }
    }
}
