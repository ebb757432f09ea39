//! Processes of the pool that have stopped sending even heartbeats, for example because a test or a user
//! stopped them. A stopped process is continued once, and replaced if it stays silent.

use heeler_core::silence::{SILENCE_LIMIT, SilenceStep};
use heeler_protocol::control::WorkerId;
use heeler_sys::process::{self, Pid, ProcessStat, Signal, signal_child_of};

/// Continues or kills a silent worker of this watchdog.
pub(super) fn on_silent_worker(watchdog: Pid, worker: WorkerId, pid: Pid, step: SilenceStep) {
    let signal = match step {
        SilenceStep::Continue => Signal::CONT,
        SilenceStep::Replace => Signal::KILL,
    };
    let is_sent = signal_child_of(watchdog, pid, signal);
    let limit = SILENCE_LIMIT.as_secs();
    match step {
        _ if !is_sent => tracing::debug!(%worker, "an unresponsive worker has exited already"),
        SilenceStep::Continue => {
            tracing::warn!(%worker, "a worker has not responded for {limit} s; sending SIGCONT")
        }
        // The watchdog reports the exit of a killed worker like any other exit.
        SilenceStep::Replace => tracing::warn!(%worker, "a worker does not respond; replacing it"),
    }
}

/// Returns whether a process is stopped, but not by a debugger. A process that is only slow must not be
/// killed, because all its tests would run again.
pub(super) fn is_stopped(pid: Pid) -> bool {
    let is_stopped = process::stat(pid).is_some_and(ProcessStat::is_stopped);
    if !is_stopped {
        tracing::debug!(%pid, "a process does not respond but is not stopped; the machine may be overloaded");
    }
    is_stopped
}
