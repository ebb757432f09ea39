//! Signals from the terminal and the system, as events.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The user's request, as a signal expresses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignalRequest {
    /// Ctrl-C (SIGINT), SIGTERM or SIGHUP.
    End,
    /// Ctrl-Z, which sends SIGTSTP.
    Pause,
}

/// The installed signal handlers.
pub(super) struct SignalListener {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
    stop: Signal,
}

impl SignalListener {
    /// Installs the handlers; after this, the signals no longer end or stop the process by default.
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
            stop: signal(SignalKind::from_raw(heeler_sys::process::Signal::TSTP.0))?,
        })
    }

    /// Waits for the next signal.
    ///
    /// Cancel safe: yes, because tokio keeps a signal until it is received.
    pub(super) async fn next(&mut self) -> SignalRequest {
        tokio::select! {
            _ = self.interrupt.recv() => SignalRequest::End,
            _ = self.terminate.recv() => SignalRequest::End,
            _ = self.hang_up.recv() => SignalRequest::End,
            _ = self.stop.recv() => SignalRequest::Pause,
        }
    }
}
