//! The user of a long-running command: signals, and display ticks.

use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior};

use super::{
    exit::CommandError,
    signals::{SignalListener, SignalRequest},
};

const TICK: Duration = Duration::from_millis(100);

/// Receives the user's signals and the display ticks of a command.
pub(super) struct CommandUser {
    pub(super) signals: SignalListener,
    ticks: Interval,
}

/// Event that a command handles for its user.
pub(super) enum UserEvent {
    Signal(SignalRequest),
    /// The display is due.
    Tick,
}

impl CommandUser {
    /// Installs the signal handlers. Signals then become events, and no longer end or stop the process.
    pub(super) fn listen() -> Result<Self, CommandError> {
        let signals = SignalListener::listen().map_err(CommandError::Signals)?;
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        Ok(Self { signals, ticks })
    }

    /// Waits for the next event.
    ///
    /// Cancel safe: yes, because [`SignalListener::next`] is.
    pub(super) async fn next_event(&mut self) -> UserEvent {
        tokio::select! {
            biased;
            request = self.signals.next() => UserEvent::Signal(request),
            _ = self.ticks.tick() => UserEvent::Tick,
        }
    }
}

/// Stops this process, as Ctrl-Z does, until the user continues it.
pub(super) fn stop_process() {
    if let Err(error) = heeler_sys::process::Signal::STOP.raise() {
        tracing::warn!(%error, "failed to stop the process");
    }
}
