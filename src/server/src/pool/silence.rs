//! Processes of the pool that send nothing any more, not even heartbeats: a test can stop its parents, and so
//! can a user. Those that are stopped are continued once, and then replaced.

use heeler_core::silence::{SILENCE_LIMIT, SilenceStep};
use heeler_protocol::control::WorkerId;
use heeler_sys::process::{self, Pid, ProcessStat, Signal, signal_child_of};

use super::workers::WorkerPool;

impl WorkerPool {
    pub(super) fn on_silent_worker(&mut self, worker: WorkerId, step: SilenceStep) {
        let Some(link) = self.workers.get(&worker).filter(|link| !link.is_dying()) else { return };
        if !is_stopped(link.pid) {
            tracing::debug!(%worker, "a worker is silent and not stopped: its machine is busy, or its disk");
            return;
        }
        let signal = match step {
            SilenceStep::Continue => Signal::CONT,
            SilenceStep::Replace => Signal::KILL,
        };
        let is_sent = signal_child_of(self.watchdog.child.pid(), link.pid, signal);
        let limit = SILENCE_LIMIT.as_secs();
        match step {
            _ if !is_sent => tracing::debug!(%worker, "a silent worker is gone already"),
            SilenceStep::Continue => {
                tracing::warn!(%worker, "a worker has been silent for {limit} s and is continued")
            }
            // Its exit is reported by the watchdog, as any other.
            SilenceStep::Replace => tracing::warn!(%worker, "a worker stays silent and is replaced"),
        }
    }

    /// Returns whether the watchdog was stopped.
    pub(super) fn on_silent_watchdog(&mut self, step: SilenceStep) -> bool {
        if !is_stopped(self.watchdog.child.pid()) {
            tracing::debug!("the watchdog is silent and not stopped: its machine is busy, or its disk");
            return false;
        }
        match step {
            SilenceStep::Continue => {
                let limit = SILENCE_LIMIT.as_secs();
                tracing::warn!("the watchdog has been silent for {limit} s and is continued");
                if let Err(error) = self.watchdog.child.signal(Signal::CONT) {
                    tracing::debug!(%error, "the watchdog is gone already");
                }
            }
            SilenceStep::Replace => {
                tracing::warn!("the watchdog stays silent and is replaced");
                self.kill_watchdog();
            }
        }
        true
    }
}

/// Returns whether a process is stopped, and not by a debugger. One that is only slow must not be killed: all
/// its tests would run again.
fn is_stopped(pid: Pid) -> bool {
    process::stat(pid).is_some_and(ProcessStat::is_stopped)
}
