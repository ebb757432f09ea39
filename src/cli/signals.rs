//! Signals from the terminal and the system, as events.

use std::{
    io,
    time::{Duration, Instant},
};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The user's request expressed by a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignalRequest {
    /// Ctrl-C (SIGINT), SIGTERM or SIGHUP.
    End,
    /// Ctrl-Z, which sends SIGTSTP.
    Pause,
}

/// Maximum time between two SIGTERM that count as one request. `timeout` sends SIGTERM to its child, and
/// then to the process group, which contains the child.
const SAME_REQUEST: Duration = Duration::from_secs(1);

/// Handlers of the user's signals.
pub(super) struct SignalListener {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
    stop: Signal,
    /// Time of the last SIGTERM.
    terminated: Option<Instant>,
}

impl SignalListener {
    /// Installs the handlers. The signals then become events, and no longer end or stop the process.
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
            stop: signal(SignalKind::from_raw(heeler_sys::process::Signal::TSTP.0))?,
            terminated: None,
        })
    }

    /// Waits for the next request.
    ///
    /// Cancel safe: yes, because tokio keeps a signal until it is received, and a received signal is
    /// returned at once or was a duplicate.
    pub(super) async fn next(&mut self) -> SignalRequest {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => return SignalRequest::End,
                _ = self.hang_up.recv() => return SignalRequest::End,
                _ = self.stop.recv() => return SignalRequest::Pause,
                _ = self.terminate.recv() => {}
            }
            let now = Instant::now();
            if self.terminated.replace(now).is_none_or(|before| now - before > SAME_REQUEST) {
                return SignalRequest::End;
            }
        }
    }

    /// Waits until the user requests the end.
    ///
    /// Cancel safe: yes, because [`SignalListener::next`] is.
    pub(super) async fn end_requested(&mut self) {
        while self.next().await != SignalRequest::End {}
    }
}

/// Handlers of signals that are forwarded to a wrapped process.
pub(super) struct SignalForwarder {
    handlers: Vec<(heeler_sys::process::Signal, Signal)>,
}

impl SignalForwarder {
    /// Installs handlers of termination and user-defined signals; from then on, they do not end this
    /// process.
    pub(super) fn listen() -> io::Result<Self> {
        let kinds = [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
            SignalKind::quit(),
            SignalKind::user_defined1(),
            SignalKind::user_defined2(),
        ];
        let handler =
            |kind: SignalKind| Ok((heeler_sys::process::Signal(kind.as_raw_value()), signal(kind)?));
        Ok(Self { handlers: kinds.into_iter().map(handler).collect::<io::Result<_>>()? })
    }

    /// Waits for the next signal.
    ///
    /// Cancel safe: yes, because tokio keeps a signal until it is received.
    pub(super) async fn next(&mut self) -> heeler_sys::process::Signal {
        std::future::poll_fn(|context| {
            let mut is_received = |(_, handler): &mut (_, Signal)| handler.poll_recv(context).is_ready();
            match self.handlers.iter_mut().find_map(|one| is_received(one).then_some(one.0)) {
                Some(signal) => std::task::Poll::Ready(signal),
                None => std::task::Poll::Pending,
            }
        })
        .await
    }
}
