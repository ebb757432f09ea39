//! Answers of a client on all its connections, and how long to wait for the client on one of them.
//! A client may handle all its connections in one queue: what the others hold comes first, and as long as it
//! answers anything, it makes progress. A client that was waited for in vain is not waited for again on each
//! of its connections.

use std::time::Duration;

/// When a client last answered a request, on whichever connection: the reading of the machine's monotonic
/// clock, which all processes share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LastAnswer(pub Duration);

/// Time limits for the answers of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerLimits {
    /// Limit for the first answer of all. Only the route of the results depends on this limit.
    pub first: Duration,
    /// For each answer of a client that has answered before.
    pub next: Duration,
}

/// Answers of a client so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClientAnswers {
    /// The last answer; `None` before the first one, or if it is not known.
    pub last: Option<LastAnswer>,
    /// When the client was last waited for in vain.
    pub given_up: Option<Duration>,
    /// The client has answered a barrier with the method of updates, or a log request.
    pub answers_bound_methods: bool,
    /// Whether it has answered a request for its log; `None` while that is unknown.
    pub answers_log_requests: Option<bool>,
    /// The client has answered a request of an unknown method with a result: its dispatcher handles such
    /// requests in order with other messages.
    pub accepts_unknown_methods: bool,
}

/// What follows when a time limit for answers has passed on one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OverdueDecision {
    /// The client has answered elsewhere within the limit: it gets the rest of the limit, counted from that
    /// answer.
    WaitOn(Duration),
    /// It has not.
    GiveUp,
}

impl ClientAnswers {
    /// Returns whether the client was waited for in vain, and has answered nothing since.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        self.given_up.is_some_and(|given_up| self.last.is_none_or(|LastAnswer(at)| at <= given_up))
    }

    /// Returns how long a connection may take to be opened by an answer. Nothing is sent on it before, so
    /// that giving it up costs nothing: a client that was waited for in vain is not waited for at all.
    #[must_use]
    pub fn opening_limit(&self, limits: AnswerLimits) -> Duration {
        match self.last {
            _ if self.has_stopped() => Duration::ZERO,
            Some(_) => limits.next,
            None => limits.first,
        }
    }

    /// Returns how long an answer on an open connection may take. When the client has stopped answering on
    /// one connection, the others do not cost the whole limit again, one after the other.
    #[must_use]
    pub fn answer_limit(&self, limits: AnswerLimits) -> Duration {
        if self.has_stopped() { limits.first.min(limits.next) } else { limits.next }
    }

    /// Returns whether the client is known to answer requests of unknown methods only, which it handles in
    /// order with its notifications.
    #[must_use]
    pub fn needs_unknown_methods(&self) -> bool {
        self.accepts_unknown_methods && !self.answers_bound_methods
    }

    /// Decides what follows at the time `now` of the monotonic clock, when `limit` has passed on one
    /// connection.
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

    /// Ticks until the wait ends, which begins at `begin` and looks as often as it is told to.
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
            // The last answer that is followed by a pause of the limit, from the beginning of the wait on.
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
        // A clock that two processors show differently extends nothing beyond the limit.
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
        // One wait in vain.
        assert_eq!(of(at(None, Some(2))), [Duration::ZERO, limits.first]);
        assert_eq!(of(at(Some(1), Some(31))), [Duration::ZERO, limits.first]);
        // The client answers again.
        assert_eq!(of(at(Some(32), Some(31))), [limits.next; 2]);
    }
}
