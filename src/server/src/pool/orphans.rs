//! Orphans of a dead watchdog. Its workers and their tests die with it, but processes that escaped them
//! become our children. A new pool may start while the previous pool's watchdog is still being reaped, so all
//! watchdogs are registered here and are not treated as orphans.

use std::{
    collections::{BTreeSet, HashSet},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use heeler_sys::process::{self, Pid};

/// Time limit for killing orphans. Killing may never catch up with orphans that keep forking.
const KILL_ORPHANS_DEADLINE: Duration = Duration::from_secs(1);

static WATCHDOGS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// Makes this process the subreaper that adopts orphans.
pub(super) fn adopt_orphans() {
    if let Err(error) = process::become_subreaper() {
        tracing::warn!(%error, "if the watchdog dies, processes that it leaves behind will not be killed");
    }
}

pub(super) fn register_watchdog(watchdog: Pid) {
    WATCHDOGS.lock().unwrap_or_else(PoisonError::into_inner).insert(watchdog.0);
}

pub(super) fn unregister_watchdog(watchdog: Pid) {
    WATCHDOGS.lock().unwrap_or_else(PoisonError::into_inner).remove(&watchdog.0);
}

/// Kills and reaps every child except watchdogs. Repeats this for orphans that become our children as a
/// result, until none is left.
pub(super) fn kill_orphans() {
    let deadline = Instant::now() + KILL_ORPHANS_DEADLINE;
    let mut not_killable = HashSet::new();
    loop {
        let known = WATCHDOGS.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let is_orphan = |child: &Pid| !known.contains(&child.0) && !not_killable.contains(child);
        let orphans: Vec<_> = process::children(Pid::own()).into_iter().filter(is_orphan).collect();
        if orphans.is_empty() || Instant::now() > deadline {
            return;
        }
        for orphan in orphans {
            if !process::kill_child(orphan) {
                tracing::warn!(pid = orphan.0, "failed to kill an orphaned process; it is still running");
                not_killable.insert(orphan);
                continue;
            }
            if let Err(error) = process::reap_child(orphan) {
                tracing::debug!(pid = orphan.0, %error, "failed to wait for an orphaned process");
            }
        }
    }
}
