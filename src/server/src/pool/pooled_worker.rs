//! One worker of the pool.

use std::{collections::BTreeMap, sync::Arc};

use heeler_protocol::control::{RunKey, TestProgram};
use heeler_sys::process::Pid;
use heeler_transport::control::ControlSender;
use tokio::time::Instant;

use super::{connection::ForwardedUpdates, grants::WorkerUser};

/// A worker that has joined.
pub(super) struct PooledWorker {
    pub(super) pid: Pid,
    pub(super) sender: ControlSender,
    pub(super) forwarded: Arc<ForwardedUpdates>,
    /// What it is granted to; `None` while it is idle.
    pub(super) user: Option<WorkerUser>,
    /// The program whose process waits for a lease, if that of its last listing does.
    pub(super) waiting_process: Option<Box<TestProgram>>,
    /// It waits for a client that takes no frames.
    pub(super) is_blocked: bool,
    /// The run of its last lease.
    pub(super) assigned_run: Option<RunKey>,
    /// Positions of the runs that it served before, for as long as those runs last.
    pub(super) forwarded_before: BTreeMap<RunKey, u64>,
    /// Its connection has ended.
    pub(super) is_disconnected: bool,
    /// The watchdog has reported its exit, or is dead itself.
    pub(super) is_exit_reported: bool,
    /// The watchdog has died before it could report its exit.
    pub(super) is_lost_with_watchdog: bool,
    /// Deadline for the second sign of death, set at the first one.
    pub(super) death_deadline: Option<Instant>,
}

impl PooledWorker {
    /// Returns a worker that has just joined, and is idle.
    pub(super) fn joined(pid: Pid, sender: ControlSender, forwarded: Arc<ForwardedUpdates>) -> Self {
        Self {
            pid,
            sender,
            forwarded,
            user: None,
            waiting_process: None,
            is_blocked: false,
            assigned_run: None,
            forwarded_before: BTreeMap::new(),
            is_disconnected: false,
            is_exit_reported: false,
            is_lost_with_watchdog: false,
            death_deadline: None,
        }
    }

    pub(super) fn is_dying(&self) -> bool {
        self.death_deadline.is_some()
    }
}
