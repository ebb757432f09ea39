//! How long a client is waited for that answers on other streams than the one that is waited for. A client
//! may handle all its streams in one queue: what the others hold comes first, and as long as it answers
//! anything, it makes progress.

use std::time::Duration;

/// When a client last answered a barrier, on whichever stream: the reading of the machine's monotonic clock,
/// which all processes share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LastAnswer(pub Duration);

/// What follows when a time limit for answers has passed on one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OverdueDecision {
    /// The client has answered elsewhere within the limit: it gets the rest of the limit, counted from that
    /// answer.
    WaitOn(Duration),
    /// It has not.
    GiveUp,
}

/// Decides what follows at the time `now` of the monotonic clock, when `limit` has passed on one stream;
/// `last` is `None` before the client's first answer, or if it is not known.
#[must_use]
pub fn on_overdue(last: Option<LastAnswer>, now: Duration, limit: Duration) -> OverdueDecision {
    let rest = last.and_then(|LastAnswer(at)| limit.checked_sub(now.saturating_sub(at)));
    match rest.filter(|rest| !rest.is_zero()) {
        Some(rest) => OverdueDecision::WaitOn(rest),
        None => OverdueDecision::GiveUp,
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
            match on_overdue(last, Duration::from_secs(now), Duration::from_secs(limit)) {
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
        assert_eq!(on_overdue(None, limit, limit), OverdueDecision::GiveUp);
        // A clock that two processors show differently extends nothing beyond the limit.
        let later = Some(LastAnswer(limit * 2));
        assert_eq!(on_overdue(later, limit, limit), OverdueDecision::WaitOn(limit));
    }
}
