//! Dialogues that do not go on: an unread request, closed reports.

use super::*;
use crate::batch::DialogueStall;

const STARTUP_MS: u64 = 60_000;

fn stalled(bench: &mut BatchHarness, since_ms: u64, stall: DialogueStall) {
    bench.batch.set_dialogue_stall(Some(stall), at(since_ms));
    // The limit counts from the beginning.
    bench.batch.set_dialogue_stall(Some(stall), at(since_ms + 10));
}

#[test]
fn unread_request_ends_the_process_whatever_runs() {
    let mut bench = BatchHarness::with_tests(3);
    bench.batch.limits.timeout_ms = None;
    bench.chunk(1, [begun(0), passed(0), begun(1)], "");
    stalled(&mut bench, 5, DialogueStall::RequestUnread);
    assert_eq!(bench.batch.deadline(), Some(Duration::from_millis(5 + STARTUP_MS)));
    assert_eq!(bench.batch.on_deadline(at(4 + STARTUP_MS)), DeadlineAction::Nothing);
    assert_eq!(bench.batch.on_deadline(at(5 + STARTUP_MS)), DeadlineAction::Terminate);
    bench.finish(STARTUP_MS + 6, signal(15), INCOMPLETE);
    let nodes = bench.results();
    assert_eq!(nodes.iter().map(|node| node.display_name.as_str()).collect::<Vec<_>>(), ["A.t0", "A.t1"]);
    assert_eq!(nodes[1].error_message.as_deref(), Some("idle for 60 s, and was terminated"));
    let log = bench.updates.logs.iter().map(|line| line.message.as_str()).collect::<Vec<_>>();
    assert_eq!(log, ["the process did not read its next request within 60 s, and was ended"]);
}

#[test]
fn dialogue_that_goes_on_has_no_limit() {
    let mut bench = BatchHarness::with_tests(2);
    bench.batch.limits.timeout_ms = None;
    bench.chunk(1, [begun(0)], "");
    stalled(&mut bench, 5, DialogueStall::RequestUnread);
    bench.batch.set_dialogue_stall(None, at(100));
    assert_eq!(bench.batch.deadline(), None);
    stalled(&mut bench, 200, DialogueStall::ReportsClosed);
    assert_eq!(bench.batch.deadline(), Some(Duration::from_millis(200 + STARTUP_MS)));
}

#[test]
fn of_several_tests_in_a_stalled_process_none_is_decided() {
    let mut bench = BatchHarness::with_tests(3);
    bench.batch.limits.timeout_ms = None;
    bench.chunk(1, [begun(0), begun(1)], "");
    stalled(&mut bench, 5, DialogueStall::ReportsClosed);
    assert_eq!(bench.batch.on_deadline(at(5 + STARTUP_MS)), DeadlineAction::Terminate);
    bench.finish(STARTUP_MS + 6, signal(15), INCOMPLETE);
    let provisional =
        bench.updates.reports.iter().filter(|one| matches!(one, LeaseEvent::CrashedProvisionally { .. }));
    assert_eq!(provisional.count(), 2);
}
