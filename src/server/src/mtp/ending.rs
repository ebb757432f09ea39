//! The phases of a session's end. Pure; `session` acts on them.
//!
//! ```text
//! serving ──`exit`──► draining ──`exit` again, or the owner's command──► cancelling
//!    └──────────the owner's command (a signal)──────────────────────────────▲
//! draining, cancelling ──no request is open──► the session ends
//! any phase ──the client, or a process that the session depends on, is gone──► the session ends at once
//! ```

use crate::listen::SessionEnd;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SessionPhase {
    /// Requests are accepted.
    Serving,
    /// `exit` was received: requests in progress continue, new requests are refused.
    Draining,
    /// Requests in progress are cancelled and get their responses.
    Cancelling,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndOrder {
    /// The client sent `exit`.
    ClientExit,
    /// The session's owner ends it because of a signal.
    OwnerExit,
}

impl SessionPhase {
    /// Returns the next phase after an order to end the session.
    pub(super) fn after(self, order: EndOrder) -> Self {
        match (self, order) {
            (Self::Serving, EndOrder::ClientExit) => Self::Draining,
            (Self::Serving, EndOrder::OwnerExit) | (Self::Draining | Self::Cancelling, _) => Self::Cancelling,
        }
    }

    /// Returns whether new requests are accepted.
    pub(super) fn accepts_requests(self) -> bool {
        self == Self::Serving
    }

    /// Returns whether the session is over, given the number of open requests.
    pub(super) fn is_over(self, open_requests: usize) -> bool {
        self != Self::Serving && open_requests == 0
    }

    /// Returns the reported end of a session. After an order to end, the end is reported as `Exit` even if
    /// the client disconnected before the session was done.
    pub(super) fn reported_end(self, end: SessionEnd) -> SessionEnd {
        match (self, end) {
            (Self::Draining | Self::Cancelling, SessionEnd::Disconnected) => SessionEnd::Exit,
            (_, end) => end,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHASES: [SessionPhase; 3] =
        [SessionPhase::Serving, SessionPhase::Draining, SessionPhase::Cancelling];

    #[test]
    fn first_exit_drains_and_every_further_order_cancels() {
        let after_exit = PHASES.map(|phase| phase.after(EndOrder::ClientExit));
        assert_eq!(after_exit, [SessionPhase::Draining, SessionPhase::Cancelling, SessionPhase::Cancelling]);
        let after_signal = PHASES.map(|phase| phase.after(EndOrder::OwnerExit));
        assert_eq!(after_signal, [SessionPhase::Cancelling; 3]);
    }

    #[test]
    fn ordered_session_ends_with_its_last_request() {
        for open in 0..3 {
            let is_over = PHASES.map(|phase| phase.is_over(open));
            assert_eq!(is_over, [false, open == 0, open == 0], "{open}");
        }
        assert_eq!(PHASES.map(SessionPhase::accepts_requests), [true, false, false]);
    }

    #[test]
    fn disconnect_after_exit_is_reported_as_exit() {
        let reported = |end| PHASES.map(|phase| phase.reported_end(end));
        assert_eq!(
            reported(SessionEnd::Disconnected),
            [SessionEnd::Disconnected, SessionEnd::Exit, SessionEnd::Exit]
        );
        assert_eq!(reported(SessionEnd::Exit), [SessionEnd::Exit; 3]);
        assert_eq!(reported(SessionEnd::ParentDied), [SessionEnd::ParentDied; 3]);
    }
}
