//! Processes of the pool that send nothing any more, not even heartbeats: a test can stop its parents, and so
//! can a user. Those that are stopped are continued once, and then replaced.

use heeler_core::silence::{SILENCE_LIMIT, SilenceStep};
use heeler_protocol::control::WorkerId;
use heeler_sys::process::{self, Pid, ProcessStat, Signal, signal_child_of};

/// Continues a silent worker of this watchdog, or kills it.
pub(super) fn on_silent_worker(watchdog: Pid, worker: WorkerId, pid: Pid, step: SilenceStep) {
    let signal = match step {
        SilenceStep::Continue => Signal::CONT,
        SilenceStep::Replace => Signal::KILL,
    };
    let is_sent = signal_child_of(watchdog, pid, signal);
    let limit = SILENCE_LIMIT.as_secs();
    match step {
        _ if !is_sent => tracing::debug!(%worker, "a silent worker is gone already"),
        SilenceStep::Continue => {
            tracing::warn!(%worker, "a worker has been silent for {limit} s and is continued")
        }
        // The watchdog reports the exit of a killed worker like any other exit.
        SilenceStep::Replace => tracing::warn!(%worker, "a worker stays silent and is replaced"),
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
