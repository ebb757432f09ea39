//! The pool's watchdog: process, connection, and restart count.

use std::time::Duration;

use heeler_core::silence::{SILENCE_LIMIT, SilenceStep, SilenceWatch};
use heeler_protocol::control::ToWatchdog;
use heeler_sys::{
    process::{Pid, Signal},
    spawn::SpawnedChild,
};
use heeler_transport::control::ControlSender;
use tokio::time::timeout;

use super::{
    deadlines::SEND_DEADLINE, orphans, silence::is_stopped, watchdog_process::WatchdogStart,
    workers::PoolError,
};

/// Maximum number of watchdogs that a pool starts, including replacements.
pub(super) const MAX_WATCHDOGS: u32 = 4;

/// The current watchdog. Dropping it ends the watchdog's process.
pub(super) struct Watchdog {
    /// Starts each watchdog.
    start: WatchdogStart,
    child: SpawnedChild,
    /// The connection, once the process has joined.
    sender: Option<ControlSender>,
    /// Number of watchdogs started so far.
    started: u32,
}

impl Watchdog {
    /// Starts the first watchdog, which joins at the socket.
    ///
    /// Cancel safe: yes, because it waits only before the process is started.
    pub(super) async fn start(start: WatchdogStart) -> Result<Self, PoolError> {
        let child = start.spawn_first().await.map_err(PoolError::Spawn)?;
        Ok(Self { start, child, sender: None, started: 1 })
    }

    /// Starts the successor of a dead watchdog.
    pub(super) fn start_next(&mut self) -> Result<(), PoolError> {
        if self.started >= MAX_WATCHDOGS {
            return Err(PoolError::TooManyWatchdogs);
        }
        self.started += 1;
        self.child = self.start.spawn().map_err(PoolError::Spawn)?;
        Ok(())
    }

    pub(super) fn pid(&self) -> Pid {
        self.child.pid()
    }

    /// Returns whether a process id belongs to the current watchdog, not to a predecessor.
    pub(super) fn is_current(&self, pid: u32) -> bool {
        pid == self.child.pid().as_u32()
    }

    pub(super) fn has_joined(&self) -> bool {
        self.sender.is_some()
    }

    pub(super) fn on_joined(&mut self, sender: ControlSender) {
        self.sender = Some(sender);
    }

    /// Sends a message. A watchdog that does not accept it in time is killed.
    ///
    /// Cancel safe: no, because the message may or may not be queued.
    pub(super) async fn send(&mut self, message: &ToWatchdog) {
        let Some(sender) = self.sender.clone() else { return };
        if timeout(SEND_DEADLINE, sender.send(message)).await.is_err() {
            tracing::warn!("the watchdog accepts no messages; killing it");
            self.kill();
        }
    }

    /// Sends a message and waits until it is written to the socket. A watchdog that does not read is killed.
    ///
    /// Cancel safe: no, as [`Watchdog::send`].
    pub(super) async fn send_flushed(&mut self, message: &ToWatchdog) {
        self.send(message).await;
        let Some(sender) = self.sender.clone() else { return };
        match timeout(SEND_DEADLINE, sender.flush()).await {
            // On an error, the event for the watchdog's death follows.
            Ok(Ok(()) | Err(_)) => {}
            Err(_elapsed) => {
                tracing::warn!("the watchdog reads no messages; killing it");
                self.kill();
            }
        }
    }

    /// Kills the watchdog and with it all workers and tests.
    pub(super) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Kills the watchdog and waits for its exit.
    pub(super) fn reap(&mut self) {
        self.kill();
        if let Err(error) = self.child.wait() {
            tracing::debug!(%error, "failed to wait for the watchdog");
        }
        orphans::unregister_watchdog(self.child.pid());
    }

    /// Reaps a watchdog that is dead or is to be replaced, and kills the processes it leaves behind.
    pub(super) fn bury(&mut self) {
        self.reap();
        orphans::kill_orphans();
        self.sender = None;
    }

    /// Checks a watchdog that has not joined yet. Returns whether it was stopped.
    pub(super) fn check_starting(&self, silence: &mut SilenceWatch, now: Duration) -> bool {
        let step = silence.on_check(now, || is_stopped(self.pid()));
        step.into_iter().for_each(|step| self.on_silent(step));
        step.is_some()
    }

    pub(super) fn on_silent(&self, step: SilenceStep) {
        match step {
            SilenceStep::Continue => {
                let limit = SILENCE_LIMIT.as_secs();
                tracing::warn!("the watchdog has not responded for {limit} s; sending SIGCONT");
                self.signal(Signal::CONT);
            }
            SilenceStep::Replace => {
                tracing::warn!("the watchdog does not respond; starting a new one");
                self.kill();
            }
        }
    }

    fn signal(&self, signal: Signal) {
        if let Err(error) = self.child.signal(signal) {
            tracing::debug!(%error, "the watchdog has exited already");
        }
    }
}

/// Ends the watchdog of a pool that is dropped without a shutdown because its client is gone. Without the
/// signal, the watchdog would interpret the end of its connection as the coordinator's death, and would
/// finish the run for a client that has gone.
impl Drop for Watchdog {
    fn drop(&mut self) {
        let watchdog = self.child.pid();
        // After a panic, the watchdog should finish the run. The signal fails if the watchdog has exited.
        if std::thread::panicking() || self.child.signal(Signal::TERM).is_err() {
            return;
        }
        let reap = move || {
            drop(heeler_sys::process::reap_child(watchdog));
            orphans::unregister_watchdog(watchdog);
        };
        // Without this thread, the watchdog stays a zombie until this process exits.
        drop(std::thread::Builder::new().name("heeler-reaper".to_owned()).spawn(reap));
    }
}
