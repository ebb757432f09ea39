//! Requests for workers, and workers that are starting.

use std::collections::{BTreeMap, VecDeque};

use heeler_protocol::control::{RunKey, WorkerId};
use tokio::time::Instant;

use super::deadlines::START_DEADLINE;

/// The user of a worker, or the requester of a starting worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WorkerUser {
    /// A listing, by the index of its catalogue.
    Listing(usize),
    Run(RunKey),
}

/// Requests without a granted worker, and workers that have not joined yet.
pub(super) struct WorkerStarts {
    /// Users that requested a worker, first request first.
    requests: VecDeque<WorkerUser>,
    /// When each starting worker must have joined.
    starting: BTreeMap<WorkerId, Instant>,
    next_worker: u32,
}

impl Default for WorkerStarts {
    fn default() -> Self {
        Self { requests: VecDeque::new(), starting: BTreeMap::new(), next_worker: 1 }
    }
}

impl WorkerStarts {
    pub(super) fn request(&mut self, user: &WorkerUser, count: usize) {
        self.requests.extend(std::iter::repeat_n(user.clone(), count));
    }

    /// Removes one request of a user that was granted a worker.
    pub(super) fn on_granted(&mut self, user: &WorkerUser) {
        if let Some(place) = self.requests.iter().position(|one| one == user) {
            self.requests.remove(place);
        }
    }

    pub(super) fn remove_user(&mut self, user: &WorkerUser) {
        self.requests.retain(|one| one != user);
    }

    pub(super) fn remove_listings(&mut self) {
        self.requests.retain(|user| matches!(user, WorkerUser::Run(_)));
    }

    /// Returns a worker to start, unless as many workers are already starting as are requested, or as `room`
    /// allows.
    pub(super) fn begin(&mut self, room: usize) -> Option<WorkerId> {
        if self.starting.len() >= self.requests.len().min(room) {
            return None;
        }
        let worker = WorkerId(self.next_worker);
        self.next_worker += 1;
        self.starting.insert(worker, Instant::now() + START_DEADLINE);
        Some(worker)
    }

    /// Restarts the deadlines of all starting workers, because a new watchdog starts them. Returns the
    /// workers.
    pub(super) fn begin_again(&mut self) -> Vec<WorkerId> {
        self.starting.values_mut().for_each(|deadline| *deadline = Instant::now() + START_DEADLINE);
        self.starting.keys().copied().collect()
    }

    /// Removes a worker that has joined, or failed to. Returns whether it was starting.
    pub(super) fn end(&mut self, worker: WorkerId) -> bool {
        self.starting.remove(&worker).is_some()
    }

    /// Removes and returns the workers that did not join in time.
    pub(super) fn take_late(&mut self, now: Instant) -> Vec<WorkerId> {
        self.starting.extract_if(.., |_, deadline| *deadline <= now).map(|(worker, _)| worker).collect()
    }

    /// Removes and returns all starting workers, because the watchdog that was starting them is dead.
    pub(super) fn take_all(&mut self) -> Vec<WorkerId> {
        std::mem::take(&mut self.starting).into_keys().collect()
    }

    /// Removes the first request because a worker did not start. Returns its user.
    pub(super) fn take_requester(&mut self) -> Option<WorkerUser> {
        self.requests.pop_front()
    }

    pub(super) fn deadlines(&self) -> impl Iterator<Item = Instant> + '_ {
        self.starting.values().copied()
    }
}
