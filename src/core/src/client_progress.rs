//! A client's answers on all its connections, and how long to wait for an answer on one of them.
//!
//! A client may handle all its connections in one queue, so an answer on any connection counts as progress.
//! After one timeout, the other connections do not each wait for the full timeout.

use std::time::Duration;

/// Time of a client's last answer on any connection, by the machine's monotonic clock, which all processes
/// share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LastAnswer(pub Duration);

/// Timeouts for the answers of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerLimits {
    /// Timeout for the client's first answer. Only the route of the results depends on it.
    pub first: Duration,
    /// Timeout for every later answer.
    pub next: Duration,
}

/// Answers of a client so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClientAnswers {
    /// Last answer; `None` if there was none, or it is unknown.
    pub last: Option<LastAnswer>,
    /// Time of the last timeout.
    pub given_up: Option<Duration>,
    /// Whether the client has answered a log request, or a barrier that uses the method of updates.
    pub answers_bound_methods: bool,
    /// Whether the client has answered a log request; `None` if unknown.
    pub answers_log_requests: Option<bool>,
    /// Whether the client has sent a result for a request with an unknown method. Such a client handles these
    /// requests in order with other messages.
    pub accepts_unknown_methods: bool,
}

/// Decision after a timeout on one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OverdueDecision {
    /// The client has answered elsewhere within the timeout: wait for the rest of the timeout, counted from
    /// that answer.
    WaitOn(Duration),
    /// The client has not answered on any connection.
    GiveUp,
}

impl ClientAnswers {
    /// Returns whether the client has not answered since its last timeout.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        self.given_up.is_some_and(|given_up| self.last.is_none_or(|LastAnswer(at)| at <= given_up))
    }

    /// Returns the timeout for opening a connection. The timeout is zero if the client has stopped answering:
    /// nothing is sent before the connection is open, so giving it up loses nothing.
    #[must_use]
    pub fn opening_limit(&self, limits: AnswerLimits) -> Duration {
        match self.last {
            _ if self.has_stopped() => Duration::ZERO,
            Some(_) => limits.next,
            None => limits.first,
        }
    }

    /// Returns the timeout for an answer on an open connection. Once the client has stopped answering on one
    /// connection, the timeout on the others is shorter.
    #[must_use]
    pub fn answer_limit(&self, limits: AnswerLimits) -> Duration {
        if self.has_stopped() { limits.first.min(limits.next) } else { limits.next }
    }

    /// Returns whether the client is known to answer only requests with unknown methods, which it handles in
    /// order with its notifications.
    #[must_use]
    pub fn needs_unknown_methods(&self) -> bool {
        self.accepts_unknown_methods && !self.answers_bound_methods
    }

    /// Decides whether to keep waiting after `limit` has passed on one connection. `now` is a time of the
    /// monotonic clock.
    #[must_use]
    pub fn on_overdue(&self, now: Duration, limit: Duration) -> OverdueDecision {
        let rest = self.last.and_then(|LastAnswer(at)| limit.checked_sub(now.saturating_sub(at)));
        match rest.filter(|rest| !rest.is_zero()) {
            Some(rest) => OverdueDecision::WaitOn(rest),
            None => OverdueDecision::GiveUp,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the end of a wait that begins at `begin` and is extended by `on_overdue`.
    fn wait_ends(begin: u64, answers: &[u64], limit: u64) -> u64 {
        let mut now = begin + limit;
        loop {
            let last =
                answers.iter().rev().find(|at| **at <= now).map(|at| LastAnswer(Duration::from_secs(*at)));
            let answers = ClientAnswers { last, ..ClientAnswers::default() };
            match answers.on_overdue(Duration::from_secs(now), Duration::from_secs(limit)) {
                OverdueDecision::WaitOn(rest) => now += rest.as_secs(),
                OverdueDecision::GiveUp => return now,
            }
        }
    }

    #[test]
    fn wait_ends_one_limit_after_the_last_answer_in_every_sequence_of_answers() {
        const LIMIT: u64 = 4;
        const BEGIN: u64 = 5;
        for mask in 0_u32..1 << 16 {
            let answers: Vec<u64> = (0..16).filter(|tick| mask & (1 << tick) != 0).collect();
            // The wait ends after the last answer, from `BEGIN` on, that is followed by a pause of `LIMIT`.
            let mut end = BEGIN + LIMIT;
            for at in answers.iter().filter(|at| **at > BEGIN) {
                if *at <= end {
                    end = end.max(at + LIMIT);
                }
            }
            assert_eq!(wait_ends(BEGIN, &answers, LIMIT), end, "answers at {answers:?}");
        }
    }

    #[test]
    fn client_without_any_answer_is_given_up() {
        let limit = Duration::from_secs(1);
        assert_eq!(ClientAnswers::default().on_overdue(limit, limit), OverdueDecision::GiveUp);
        // Clocks of two processors may differ; an answer from the future does not extend the limit.
        let later = ClientAnswers { last: Some(LastAnswer(limit * 2)), ..ClientAnswers::default() };
        assert_eq!(later.on_overdue(limit, limit), OverdueDecision::WaitOn(limit));
    }

    #[test]
    fn limits_are_those_of_what_the_client_has_answered() {
        let limits = AnswerLimits { first: Duration::from_secs(2), next: Duration::from_secs(30) };
        let at = |last: Option<u64>, given_up: Option<u64>| ClientAnswers {
            last: last.map(|at| LastAnswer(Duration::from_secs(at))),
            given_up: given_up.map(Duration::from_secs),
            ..ClientAnswers::default()
        };
        let of = |answers: ClientAnswers| [answers.opening_limit(limits), answers.answer_limit(limits)];
        assert_eq!(of(at(None, None)), [limits.first, limits.next]);
        assert_eq!(of(at(Some(1), None)), [limits.next; 2]);
        // After one timeout.
        assert_eq!(of(at(None, Some(2))), [Duration::ZERO, limits.first]);
        assert_eq!(of(at(Some(1), Some(31))), [Duration::ZERO, limits.first]);
        // After the client answers again.
        assert_eq!(of(at(Some(32), Some(31))), [limits.next; 2]);
    }
}
