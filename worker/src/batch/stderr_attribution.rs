//! Attributes standard error to tests. Standard error has its own pipe, so its bytes have no order relative
//! to the framework's markers. Bytes that a test wrote before its end marker are read before the marker is
//! handled. But if several tests ran within one read, the writer is unknown. Pure.

use heeler_adapters::{FrameworkResult, StackPosition, TranscriptEvent};

use super::{
    framework_queries::FrameworkQueries,
    held_tests::HeldTest,
    run_evidence::{has_sanitizer_report, sanitizer_summary},
    test_order::TestOrder,
};

pub(super) const SHARED_OUTPUT_NOTE: &[u8] =
    b"[heeler: several tests ran while this was written; any of them may have written it]\n";

/// Returns the last part of a test's standard error, written while several tests ran, if it contains a
/// sanitizer report.
fn shared_report(stderr: &str) -> Option<String> {
    let note = std::str::from_utf8(SHARED_OUTPUT_NOTE).unwrap_or_default();
    let (_, report) = stderr.rsplit_once(note)?;
    sanitizer_summary(report).is_some().then(|| report.to_owned())
}

/// Removes the shared-output note from the end of a test's standard error, after its shared part went to
/// another test.
fn remove_shared_note(stderr: &mut String) {
    if stderr.as_bytes().ends_with(SHARED_OUTPUT_NOTE) {
        stderr.truncate(stderr.len() - SHARED_OUTPUT_NOTE.len());
    }
}

/// Tests that receive the standard error of one chunk.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct StderrAttribution {
    /// Places of tests, sorted. Empty if no test can have written the bytes.
    pub(crate) receivers: Vec<usize>,
    /// More than one test can have written the bytes.
    pub(crate) is_shared: bool,
}

/// Decides which tests receive the standard error that came with a chunk's events.
///
/// If several tests can have written it, the failed tests and the tests still running receive it, since a
/// running test may be about to crash. If no test has failed or is running, the test that ended last receives
/// it. `is_open` returns whether a test has no result yet.
pub(crate) fn attribute_stderr(
    flights: impl Iterator<Item = usize>,
    events: &[TranscriptEvent],
    is_open: impl Fn(usize) -> bool,
) -> StderrAttribution {
    let mut in_flight: Vec<usize> = flights.collect();
    let mut writers = in_flight.len();
    // Replay the events to find every test that was running at some point.
    let (mut failed, mut last_ended) = (Vec::new(), None);
    for event in events {
        match event {
            TranscriptEvent::Begun { place } if is_open(*place) && !in_flight.contains(place) => {
                writers += 1;
                in_flight.push(*place);
            }
            TranscriptEvent::Ended { place, verdict } if is_open(*place) => {
                let before = in_flight.len();
                in_flight.retain(|one| one != place);
                // An end event without a begin event: the test was running for part of this chunk.
                writers += usize::from(in_flight.len() == before);
                last_ended = Some(*place);
                if verdict.result == FrameworkResult::Failed {
                    failed.push(*place);
                }
            }
            TranscriptEvent::Begun { .. }
            | TranscriptEvent::Ended { .. }
            | TranscriptEvent::Part { .. }
            | TranscriptEvent::TimeLimit { .. }
            | TranscriptEvent::File { .. }
            | TranscriptEvent::Output(_)
            | TranscriptEvent::ErrorOutput(_)
            | TranscriptEvent::TestOutput { .. }
            | TranscriptEvent::Paused { .. }
            | TranscriptEvent::Resumed { .. }
            | TranscriptEvent::Confirmed => {}
        }
    }
    // Failed and running tests receive the output, otherwise the test that ended last.
    let mut receivers = failed;
    receivers.extend(in_flight);
    if receivers.is_empty() {
        receivers.extend(last_ended);
    }
    receivers.sort_unstable();
    receivers.dedup();
    StderrAttribution { receivers, is_shared: writers > 1 }
}

/// Returns which tests receive the standard error that came with these events. If several may have written a
/// sanitizer report, the test whose body is in its stack trace receives it.
pub(super) fn attribution_of(
    order: &TestOrder,
    framework: &dyn FrameworkQueries,
    events: &[TranscriptEvent],
    stderr: &[u8],
) -> StderrAttribution {
    let is_open = |place| order.is_open(place);
    let attribution = attribute_stderr(order.active(), events, is_open);
    if !attribution.is_shared {
        return attribution;
    }
    let stderr = String::from_utf8_lossy(stderr);
    if !has_sanitizer_report(&stderr) {
        return attribution;
    }
    // Find the only running or mentioned test whose body is in the stack trace.
    let mentioned = events.iter().filter_map(|event| match event {
        TranscriptEvent::Begun { place } | TranscriptEvent::Ended { place, .. } => Some(*place),
        TranscriptEvent::Part { .. }
        | TranscriptEvent::TimeLimit { .. }
        | TranscriptEvent::File { .. }
        | TranscriptEvent::Output(_)
        | TranscriptEvent::ErrorOutput(_)
        | TranscriptEvent::TestOutput { .. }
        | TranscriptEvent::Paused { .. }
        | TranscriptEvent::Resumed { .. }
        | TranscriptEvent::Confirmed => None,
    });
    let is_in_body = |place: usize| {
        framework.stack_position(&stderr, Some(order.listed(place))) == StackPosition::RunningTest
    };
    let mut writers: Vec<usize> = order.active().chain(mentioned).collect();
    writers.sort_unstable();
    writers.dedup();
    writers.retain(|place| is_open(*place) && is_in_body(*place));
    // A stack trace that names no test body matches every test.
    if writers.len() == 1 { StderrAttribution { receivers: writers, is_shared: false } } else { attribution }
}

/// Moves the rest of a sanitizer report to the held test whose body is in the report's stack trace. Needed if
/// the report was read while another test was running.
pub(super) fn give_reports_to_writers(
    held: &mut [HeldTest],
    order: &TestOrder,
    framework: &dyn FrameworkQueries,
) {
    for receiver in 0..held.len() {
        let Some(report) = shared_report(&held[receiver].ended.outputs.stderr) else { continue };
        let is_in_body = |one: &HeldTest| {
            let test = order.listed(one.ended.place);
            framework.stack_position(&report, Some(test)) == StackPosition::RunningTest
        };
        let Some(writer) = held.iter().position(is_in_body) else { continue };
        // A stack trace that names no test body matches every test.
        if is_in_body(&held[receiver]) {
            continue;
        }
        let stderr = &mut held[receiver].ended.outputs.stderr;
        stderr.truncate(stderr.len() - report.len());
        remove_shared_note(stderr);
        held[writer].ended.outputs.stderr.push_str(&report);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_values::verdict;

    fn begun(place: usize) -> TranscriptEvent {
        TranscriptEvent::Begun { place }
    }

    fn ended(place: usize, result: FrameworkResult) -> TranscriptEvent {
        TranscriptEvent::Ended { place, verdict: verdict(result) }
    }

    fn passed(place: usize) -> TranscriptEvent {
        ended(place, FrameworkResult::Passed)
    }

    fn check(flights: &[usize], events: &[TranscriptEvent], receivers: &[usize], is_shared: bool) {
        let seen = attribute_stderr(flights.iter().copied(), events, |_| true);
        assert_eq!(
            seen,
            StderrAttribution { receivers: receivers.to_vec(), is_shared },
            "{flights:?} {events:?}"
        );
    }

    #[test]
    fn stderr_of_one_test_is_attributed_to_it() {
        check(&[3], &[], &[3], false);
        check(&[3], &[passed(3)], &[3], false);
        check(&[], &[begun(3)], &[3], false);
        check(&[], &[begun(3), passed(3)], &[3], false);
        check(&[], &[passed(3)], &[3], false);
    }

    #[test]
    fn shared_stderr_goes_to_failed_and_running_tests() {
        let failed = ended(1, FrameworkResult::Failed);
        check(&[0], &[passed(0), begun(1), failed.clone(), begun(2), passed(2)], &[1], true);
        check(&[0], &[passed(0), begun(1), failed, begun(2)], &[1, 2], true);
        check(&[0], &[passed(0), begun(1)], &[1], true);
        check(&[0], &[passed(0), begun(1), passed(1)], &[1], true);
    }

    #[test]
    fn stderr_outside_tests_has_no_receiver() {
        check(&[], &[TranscriptEvent::Output(b"x".to_vec())], &[], false);
    }

    #[test]
    fn settled_test_receives_no_stderr() {
        let seen = attribute_stderr([].into_iter(), &[begun(1), passed(1)], |_| false);
        assert_eq!(seen, StderrAttribution::default());
    }
}
