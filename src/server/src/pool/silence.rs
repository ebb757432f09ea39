//! Processes of the pool that send nothing any more, not even heartbeats: a test can stop its parents, and so
//! can a user. Those that are stopped are continued once, and then replaced.

use std::time::Duration;

use heeler_core::silence::{SILENCE_LIMIT, SilenceStep, SilenceWatch};
use heeler_protocol::control::WorkerId;
use heeler_sys::process::{self, Pid, ProcessStat, Signal, signal_child_of};

use super::workers::WorkerPool;

impl WorkerPool {
    pub(super) fn on_silent_worker(&mut self, worker: WorkerId, step: SilenceStep) {
        let Some(link) = self.workers.get(&worker).filter(|link| !link.is_dying()) else { return };
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

    /// Checks a watchdog that has not joined yet; returns whether it was stopped.
    pub(super) fn check_starting_watchdog(&mut self, silence: &mut SilenceWatch, now: Duration) -> bool {
        let pid = self.watchdog.child.pid();
        let step = silence.on_check(now, || is_stopped(pid));
        step.into_iter().for_each(|step| self.on_silent_watchdog(step));
        step.is_some()
    }

    pub(super) fn on_silent_watchdog(&mut self, step: SilenceStep) {
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
    }
}

/// Returns whether a process is stopped, and not by a debugger. One that is only slow must not be killed: all
/// its tests would run again.
pub(super) fn is_stopped(pid: Pid) -> bool {
    let is_stopped = process::stat(pid).is_some_and(ProcessStat::is_stopped);
    if !is_stopped {
        tracing::debug!(%pid, "a process is silent and not stopped: its machine is busy, or its disk");
    }
    is_stopped
}
