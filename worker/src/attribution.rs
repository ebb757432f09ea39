//! Attributes standard error to tests. A test's standard error has a pipe of its own, so its bytes have no
//! order relative to the framework's markers. Bytes that a test wrote before its end marker are read before
//! that marker is handled; but among several tests within one read the writer is unknown. Pure.

use wire::mtp::ExecutionState;

use crate::adapter::Event;

/// The tests that receive the standard error of one chunk.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Attribution {
    /// Indexes of tests; empty when no test can have written the bytes.
    pub(crate) receivers: Vec<usize>,
    /// Whether more than one test can have written them.
    pub(crate) is_shared: bool,
}

/// Decides which tests receive the standard error that came with a chunk's events.
///
/// Where several tests can have written it, those that failed receive it, and the one still running, because
/// it may yet crash; if there are none, the last that ended. `is_open` returns whether a test has no result
/// yet.
pub(crate) fn attribute(
    flights: impl Iterator<Item = usize>,
    events: &[Event],
    is_open: impl Fn(usize) -> bool,
) -> Attribution {
    let mut in_flight: Vec<usize> = flights.collect();
    let mut writers = in_flight.len();
    let (mut failed, mut last_ended) = (Vec::new(), None);
    for event in events {
        match event {
            Event::Begun { place } if is_open(*place) && !in_flight.contains(place) => {
                writers += 1;
                in_flight.push(*place);
            }
            Event::Ended { place, verdict } if is_open(*place) => {
                let before = in_flight.len();
                in_flight.retain(|one| one != place);
                // An end without a beginning: the test was running for a moment all the same.
                writers += usize::from(in_flight.len() == before);
                last_ended = Some(*place);
                if verdict.state == ExecutionState::Failed {
                    failed.push(*place);
                }
            }
            Event::Begun { .. } | Event::Ended { .. } | Event::Output(_) => {}
        }
    }
    let mut receivers = failed;
    receivers.extend(in_flight);
    if receivers.is_empty() {
        receivers.extend(last_ended);
    }
    Attribution { receivers, is_shared: writers > 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::verdict;

    fn begun(place: usize) -> Event {
        Event::Begun { place }
    }

    fn ended(place: usize, state: ExecutionState) -> Event {
        Event::Ended { place, verdict: verdict(state) }
    }

    fn passed(place: usize) -> Event {
        ended(place, ExecutionState::Passed)
    }

    fn check(flights: &[usize], events: &[Event], receivers: &[usize], is_shared: bool) {
        let seen = attribute(flights.iter().copied(), events, |_| true);
        assert_eq!(seen, Attribution { receivers: receivers.to_vec(), is_shared }, "{flights:?} {events:?}");
    }

    #[test]
    fn errors_of_one_test_are_its_own() {
        check(&[3], &[], &[3], false);
        check(&[3], &[passed(3)], &[3], false);
        check(&[], &[begun(3)], &[3], false);
        check(&[], &[begun(3), passed(3)], &[3], false);
        check(&[], &[passed(3)], &[3], false);
    }

    #[test]
    fn errors_of_several_tests_go_to_those_that_failed_and_to_the_one_in_flight() {
        let failed = ended(1, ExecutionState::Failed);
        check(&[0], &[passed(0), begun(1), failed.clone(), begun(2), passed(2)], &[1], true);
        check(&[0], &[passed(0), begun(1), failed, begun(2)], &[1, 2], true);
        check(&[0], &[passed(0), begun(1)], &[1], true);
        check(&[0], &[passed(0), begun(1), passed(1)], &[1], true);
    }

    #[test]
    fn errors_outside_tests_are_nobodys() {
        check(&[], &[Event::Output(b"x".to_vec())], &[], false);
    }

    #[test]
    fn a_test_that_has_its_result_gets_nothing_more() {
        let seen = attribute([].into_iter(), &[begun(1), passed(1)], |_| false);
        assert_eq!(seen, Attribution::default());
    }
}
