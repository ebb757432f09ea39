//! The workers that have joined, their users, and signs of their deaths.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

use heeler_protocol::control::{ClientId, RunKey, StreamSender, TestProgram, WorkerId};
use heeler_sys::process::Pid;
use heeler_transport::control::ControlSender;
use tokio::time::Instant;

use super::{
    connection::ForwardedUpdates,
    dead_streams::{DeadSender, DeadSenderProof},
    deadlines::DEATH_DEADLINE,
    worker_starts::WorkerUser,
};

pub(super) struct PooledWorker {
    pid: Pid,
    sender: ControlSender,
    forwarded: Arc<ForwardedUpdates>,
    /// `None` while the worker is idle.
    user: Option<WorkerUser>,
    /// The program whose listing process waits for a lease, if one does.
    waiting_process: Option<Box<TestProgram>>,
    /// Whether the worker is blocked because its client stopped reading.
    is_blocked: bool,
    /// Program of the last lease.
    program: Option<Arc<TestProgram>>,
    /// Run of the last lease.
    assigned_run: Option<RunKey>,
    /// Last forwarded positions of the worker's earlier runs that have not ended.
    forwarded_before: BTreeMap<RunKey, u64>,
    is_disconnected: bool,
    /// Whether the watchdog has reported the worker's exit, or is dead itself.
    is_exit_reported: bool,
    /// Whether the watchdog died before it could report the worker's exit.
    is_lost_with_watchdog: bool,
    /// Deadline for the second sign of death, set at the first one.
    death_deadline: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum ExitSign {
    Disconnected,
    /// The watchdog has reported the exit.
    Reported,
    /// The watchdog is dead.
    WatchdogDied,
}

impl PooledWorker {
    /// Returns a worker that has just joined and is idle.
    pub(super) fn joined(pid: Pid, sender: ControlSender, forwarded: Arc<ForwardedUpdates>) -> Self {
        Self {
            pid,
            sender,
            forwarded,
            user: None,
            waiting_process: None,
            is_blocked: false,
            program: None,
            assigned_run: None,
            forwarded_before: BTreeMap::new(),
            is_disconnected: false,
            is_exit_reported: false,
            is_lost_with_watchdog: false,
            death_deadline: None,
        }
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    pub(super) fn sender(&self) -> ControlSender {
        self.sender.clone()
    }

    pub(super) fn is_dying(&self) -> bool {
        self.death_deadline.is_some()
    }

    pub(super) fn is_lost_with_watchdog(&self) -> bool {
        self.is_lost_with_watchdog
    }

    fn run(&self) -> Option<&RunKey> {
        match &self.user {
            Some(WorkerUser::Run(run)) => Some(run),
            Some(WorkerUser::Listing(_)) | None => None,
        }
    }

    /// Records a sign of death. Returns whether the worker is dead: its connection has ended, so no message
    /// can be missed, and its exit was reported, so none of its processes is left.
    fn on_exit_sign(&mut self, sign: ExitSign) -> bool {
        match sign {
            ExitSign::Disconnected => self.is_disconnected = true,
            ExitSign::Reported => self.is_exit_reported = true,
            ExitSign::WatchdogDied => {
                self.is_lost_with_watchdog = !self.is_exit_reported;
                self.is_exit_reported = true;
            }
        }
        let is_dead = self.is_disconnected && self.is_exit_reported;
        if !is_dead {
            self.expect_death();
        }
        is_dead
    }

    fn expect_death(&mut self) {
        self.death_deadline.get_or_insert(Instant::now() + DEATH_DEADLINE);
    }

    /// Converts this dead worker into what is needed to settle its streams: the last forwarded position of
    /// each run, and the updates that clients may not have handled yet.
    pub(super) fn into_dead(self, worker: WorkerId) -> DeadSender {
        let mut relayed = self.forwarded_before;
        let position = self.forwarded.position.load(Ordering::Acquire);
        relayed.extend(self.assigned_run.map(|run| (run, position)));
        DeadSender {
            sender: StreamSender::Worker(worker),
            proven: DeadSenderProof { relayed, ..DeadSenderProof::default() },
            forwarded: Some(self.forwarded).filter(|forwarded| forwarded.is_unhandled()),
        }
    }
}

/// Workers that have joined and are not known to be dead.
#[derive(Default)]
pub(crate) struct PooledWorkers(BTreeMap<WorkerId, PooledWorker>);

impl PooledWorkers {
    pub(super) fn join(&mut self, worker: WorkerId, joined: PooledWorker) {
        self.0.insert(worker, joined);
    }

    pub(super) fn get(&self, worker: WorkerId) -> Option<&PooledWorker> {
        self.0.get(&worker)
    }

    pub(super) fn remove(&mut self, worker: WorkerId) -> Option<PooledWorker> {
        self.0.remove(&worker)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn ids(&self) -> Vec<WorkerId> {
        self.0.keys().copied().collect()
    }

    /// Returns the workers that show no sign of death.
    #[must_use]
    pub(crate) fn ready(&self) -> Vec<WorkerId> {
        self.0.iter().filter(|(_, worker)| !worker.is_dying()).map(|(id, _)| *id).collect()
    }

    /// Returns the workers that serve runs of this client and show no sign of death.
    #[must_use]
    pub(crate) fn of_client(&self, client: ClientId) -> Vec<WorkerId> {
        let is_its = |worker: &PooledWorker| worker.run().is_some_and(|run| run.client == client);
        let its = self.0.iter().filter(|(_, worker)| is_its(worker) && !worker.is_dying());
        its.map(|(id, _)| *id).collect()
    }

    /// Returns whether there is an idle worker that shows no sign of death.
    #[must_use]
    pub(crate) fn has_idle(&self) -> bool {
        self.idle().next().is_some()
    }

    /// Returns an idle worker that shows no sign of death. For a lease, prefers a worker whose process waits
    /// for one. For a listing, avoids such a worker, because the listing would end that process.
    #[must_use]
    pub(crate) fn preferred_idle(&self, for_listing: bool) -> Option<WorkerId> {
        let is_preferred = |worker: &PooledWorker| worker.waiting_process.is_some() != for_listing;
        self.idle().max_by_key(|(id, worker)| (is_preferred(worker), **id)).map(|(id, _)| *id)
    }

    fn idle(&self) -> impl Iterator<Item = (&WorkerId, &PooledWorker)> {
        self.0.iter().filter(|(_, worker)| worker.user.is_none() && !worker.is_dying())
    }

    /// Grants an idle worker to a user. Returns the program whose process waits for a lease on the worker, if
    /// there is one. The process continues if the next job is a lease of its program, and is ended otherwise.
    pub(super) fn grant(&mut self, worker: WorkerId, user: WorkerUser) -> Option<Box<TestProgram>> {
        let granted = self.0.get_mut(&worker)?;
        granted.user = Some(user);
        granted.waiting_process.take()
    }

    /// Returns a worker to the idle state. `waiting_process` is the program whose process waits for a lease
    /// there, if there is one.
    pub(super) fn release(&mut self, worker: WorkerId, waiting_process: Option<Box<TestProgram>>) {
        if let Some(released) = self.0.get_mut(&worker) {
            (released.user, released.waiting_process) = (None, waiting_process);
        }
    }

    /// Records whether a worker waits for a client that reads nothing. Returns whether the worker exists.
    pub(super) fn set_blocked(&mut self, worker: WorkerId, is_blocked: bool) -> bool {
        self.0.get_mut(&worker).map(|blocked| blocked.is_blocked = is_blocked).is_some()
    }

    pub(super) fn all_blocked_count(&self) -> usize {
        self.0.values().filter(|worker| worker.is_blocked).count()
    }

    /// Returns the workers of a run that are blocked by its client.
    pub(crate) fn blocked_workers<'a>(&'a self, run: &'a RunKey) -> impl Iterator<Item = WorkerId> + 'a {
        let blocked = self.0.iter().filter(move |(_, worker)| worker.is_blocked && worker.run() == Some(run));
        blocked.map(|(id, _)| *id)
    }

    /// Records that a worker without a lease serves this run from now on. Each run counts positions from 1.
    /// All frames of the previous run have been forwarded, because they precede the end of its lease.
    pub(super) fn assign_run(&mut self, worker: WorkerId, run: &RunKey) {
        let Some(assigned) = self.0.get_mut(&worker) else { return };
        if assigned.assigned_run.as_ref() == Some(run) {
            return;
        }
        let before = assigned.forwarded_before.remove(run).unwrap_or(0);
        let relayed = assigned.forwarded.position.swap(before, Ordering::AcqRel);
        if let Some(earlier) = assigned.assigned_run.replace(run.clone()) {
            assigned.forwarded_before.insert(earlier, relayed);
        }
    }

    /// Records the program of a worker's next lease. Returns whether the program must be sent to the worker.
    pub(super) fn set_program(&mut self, worker: WorkerId, program: &Arc<TestProgram>) -> bool {
        let Some(worker) = self.0.get_mut(&worker) else { return false };
        let before = worker.program.replace(Arc::clone(program));
        before.is_none_or(|before| !Arc::ptr_eq(&before, program))
    }

    /// Returns the run of a worker's last lease.
    #[must_use]
    pub(crate) fn assigned_run(&self, worker: WorkerId) -> Option<&RunKey> {
        self.0.get(&worker)?.assigned_run.as_ref()
    }

    pub(super) fn end_run(&mut self, run: &RunKey) {
        for worker in self.0.values_mut() {
            worker.forwarded_before.remove(run);
            worker.assigned_run.take_if(|assigned| assigned == run);
            worker.user.take_if(|user| matches!(user, WorkerUser::Run(key) if key == run));
        }
    }

    /// Records a sign of a worker's death. Returns whether it is dead.
    pub(super) fn on_exit_sign(&mut self, worker: WorkerId, sign: ExitSign) -> bool {
        self.0.get_mut(&worker).is_some_and(|dying| dying.on_exit_sign(sign))
    }

    /// Sets the deadline for the death of a worker that is being killed.
    pub(super) fn expect_death(&mut self, worker: WorkerId) {
        if let Some(dying) = self.0.get_mut(&worker) {
            dying.expect_death();
        }
    }

    /// Restarts the deadline for a worker's death.
    pub(super) fn extend_death_deadline(&mut self, worker: WorkerId, now: Instant) {
        if let Some(dying) = self.0.get_mut(&worker) {
            dying.death_deadline = Some(now + DEATH_DEADLINE);
        }
    }

    pub(super) fn death_deadlines(&self) -> impl Iterator<Item = Instant> + '_ {
        self.0.values().filter_map(|worker| worker.death_deadline)
    }

    /// Returns the workers that should be dead by now.
    pub(super) fn overdue_deaths(&self, now: Instant) -> Vec<WorkerId> {
        let is_overdue =
            |worker: &PooledWorker| worker.death_deadline.is_some_and(|deadline| deadline <= now);
        self.0.iter().filter(|(_, worker)| is_overdue(worker)).map(|(id, _)| *id).collect()
    }
}
