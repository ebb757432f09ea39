//! Signals of the terminal and of whoever ends us, as events.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What the user wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// Ctrl-C, or an orderly end.
    End,
    /// Ctrl-Z.
    Pause,
}

/// The signals that we listen to.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
    stop: Signal,
}

impl Signals {
    /// Begins to listen; from now on these signals no longer end or stop the process by themselves.
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
            stop: signal(SignalKind::from_raw(host::process::Signal::TSTP.0))?,
        })
    }

    /// Waits for the next wish.
    ///
    /// Cancel safe: yes, because tokio keeps a signal until it is received.
    pub(super) async fn next(&mut self) -> Wish {
        tokio::select! {
            _ = self.interrupt.recv() => Wish::End,
            _ = self.terminate.recv() => Wish::End,
            _ = self.hang_up.recv() => Wish::End,
            _ = self.stop.recv() => Wish::Pause,
        }
    }
}
