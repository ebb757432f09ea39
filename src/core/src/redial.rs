//! Decides whether a finisher dials its client again after the coordinator's death. No other route is left
//! then, so a dropped connection is replaced as long as the client's port listens.
//!
//! ```text
//! dial ──► due results ──proof──► completion ──acknowledged──► delivered
//!   ▲           │ dropped            │ dropped
//!   └───────────┴── after a pause ───┘        port closed, or dropped too often ──► given up
//! ```
//!
//! Proven messages are not sent again: once the due results are proven, only the completion is sent. A
//! completion that the client's kernel has acknowledged is never resent, because a client must not receive it
//! twice.

use std::time::Duration;

/// Maximum number of dials for one run. A client that drops this many connections will drop every connection.
const MAX_DIALS: u32 = 10;
/// Pause before the second dial. Each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// Maximum pause. All pauses together are shorter than the finish timeout.
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// How far the delivery got on one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ConnectionEnd {
    /// Nothing listens on the client's port.
    Refused,
    /// The client was not reached before the timeout.
    Unreached,
    /// The connection ended before the client had confirmed all due results.
    DueUnproven,
    /// All due results are proven, but the completion is not.
    CompletionUnproven,
    /// The client has received the completion.
    Delivered,
}

/// Why a finisher stops dialling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GiveUpReason {
    /// Nothing listens on the client's port.
    PortClosed,
    /// The client was not reached, or has dropped every connection.
    TooManyDials {
        /// How far the delivery got on the last connection.
        last: ConnectionEnd,
    },
}

/// Decision at the end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AfterConnection {
    /// The run is delivered.
    Done,
    /// Dial again after this pause. If `has_due`, the due results are sent before the completion.
    Redial { pause: Duration, has_due: bool },
    /// Stop dialling.
    GiveUp(GiveUpReason),
}

/// The attempts so far of a finisher to reach the client of one run, after the coordinator's death.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RedialState {
    dials: u32,
    has_due: bool,
}

impl RedialState {
    /// Returns the state before the first dial.
    #[must_use]
    pub fn new(has_due: bool) -> Self {
        Self { dials: 0, has_due }
    }

    /// Decides what to do when a connection has ended.
    #[must_use]
    pub fn on_connection_end(&mut self, end: ConnectionEnd) -> AfterConnection {
        self.dials += 1;
        match end {
            ConnectionEnd::Delivered => return AfterConnection::Done,
            ConnectionEnd::Refused => return AfterConnection::GiveUp(GiveUpReason::PortClosed),
            ConnectionEnd::CompletionUnproven => self.has_due = false,
            ConnectionEnd::Unreached | ConnectionEnd::DueUnproven => {}
        }
        if self.dials >= MAX_DIALS {
            return AfterConnection::GiveUp(GiveUpReason::TooManyDials { last: end });
        }
        let pause = FIRST_PAUSE.saturating_mul(1 << (self.dials - 1).min(16)).min(MAX_PAUSE);
        AfterConnection::Redial { pause, has_due: self.has_due }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDS: [ConnectionEnd; 5] = [
        ConnectionEnd::Refused,
        ConnectionEnd::Unreached,
        ConnectionEnd::DueUnproven,
        ConnectionEnd::CompletionUnproven,
        ConnectionEnd::Delivered,
    ];

    /// Calls `visit` with every sequence of connection ends that the decisions allow, and with the last
    /// decision.
    fn every_sequence(has_due: bool, most: usize, visit: &mut impl FnMut(&[ConnectionEnd], AfterConnection)) {
        fn extend(
            state: RedialState,
            ends: &mut Vec<ConnectionEnd>,
            most: usize,
            visit: &mut impl FnMut(&[ConnectionEnd], AfterConnection),
        ) {
            for end in ENDS {
                let mut state = state;
                let next = state.on_connection_end(end);
                ends.push(end);
                visit(ends, next);
                if matches!(next, AfterConnection::Redial { .. }) && ends.len() < most {
                    extend(state, ends, most, visit);
                }
                ends.pop();
            }
        }
        extend(RedialState::new(has_due), &mut Vec::new(), most, visit);
    }

    #[test]
    fn every_sequence_of_connections_ends_and_repeats_nothing_proven() {
        for has_due in [false, true] {
            let mut pauses_of_longest = Duration::ZERO;
            every_sequence(has_due, usize::MAX, &mut |ends, next| {
                assert!(ends.len() <= MAX_DIALS as usize, "{ends:?}");
                let last = *ends.last().unwrap();
                let is_due_proven = ends.contains(&ConnectionEnd::CompletionUnproven);
                match next {
                    AfterConnection::Done => assert_eq!(last, ConnectionEnd::Delivered),
                    AfterConnection::Redial { has_due: is_sent, pause } => {
                        assert!(!matches!(last, ConnectionEnd::Delivered | ConnectionEnd::Refused));
                        assert_eq!(is_sent, has_due && !is_due_proven, "{ends:?}");
                        assert!((FIRST_PAUSE..=MAX_PAUSE).contains(&pause));
                    }
                    AfterConnection::GiveUp(GiveUpReason::PortClosed) => {
                        assert_eq!(last, ConnectionEnd::Refused)
                    }
                    AfterConnection::GiveUp(GiveUpReason::TooManyDials { last: named }) => {
                        assert_eq!((named, ends.len()), (last, MAX_DIALS as usize));
                    }
                }
            });
            let mut state = RedialState::new(has_due);
            while let AfterConnection::Redial { pause, .. } =
                state.on_connection_end(ConnectionEnd::DueUnproven)
            {
                pauses_of_longest += pause;
            }
            assert!(pauses_of_longest < Duration::from_secs(15), "{pauses_of_longest:?}");
        }
    }
}
