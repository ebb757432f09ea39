//! Stalled dialogues: an unread request, closed reports. Also servers, which keep running after their last
//! answer.

use super::*;
use crate::batch::DialogueStall;

const STARTUP_MS: u64 = 60_000;

fn with_timeout(tests: u32, timeout_ms: Option<u64>) -> BatchHarness {
    let mut lease = lease(tests);
    lease.limits.timeout_ms = timeout_ms;
    BatchHarness::with_lease(lease)
}

fn stalled(bench: &mut BatchHarness, since_ms: u64, stall: DialogueStall) {
    bench.batch.deadlines.dialogue.set_stall(Some(stall), at(since_ms));
    // The limit counts from the beginning of the stall.
    bench.batch.deadlines.dialogue.set_stall(Some(stall), at(since_ms + 10));
}

#[test]
fn unread_request_ends_the_process_whatever_runs() {
    let mut bench = with_timeout(3, None);
    bench.chunk(1, [begun(0), passed(0), begun(1)], "");
    stalled(&mut bench, 5, DialogueStall::RequestUnread);
    assert_eq!(bench.batch.deadline(), Some(Duration::from_millis(5 + STARTUP_MS)));
    assert_eq!(bench.batch.on_deadline(at(4 + STARTUP_MS), false), DeadlineAction::Nothing);
    assert_eq!(bench.batch.on_deadline(at(5 + STARTUP_MS), false), DeadlineAction::Terminate);
    bench.finish(STARTUP_MS + 6, signal(15), INCOMPLETE);
    let nodes = bench.results();
    assert_eq!(nodes.iter().map(|node| node.display_name.as_str()).collect::<Vec<_>>(), ["A.t0", "A.t1"]);
    assert_eq!(nodes[1].error_message.as_deref(), Some("idle for 60 s, terminated"));
    let log = bench.updates().logs.iter().map(|line| line.message.as_str()).collect::<Vec<_>>();
    assert_eq!(log, ["the process did not read its next request within 60 s and was terminated"]);
}

#[test]
fn dialogue_that_goes_on_has_no_limit() {
    let mut bench = with_timeout(2, None);
    bench.chunk(1, [begun(0)], "");
    stalled(&mut bench, 5, DialogueStall::RequestUnread);
    bench.batch.deadlines.dialogue.set_stall(None, at(100));
    assert_eq!(bench.batch.deadline(), None);
    stalled(&mut bench, 200, DialogueStall::ReportsClosed);
    assert_eq!(bench.batch.deadline(), Some(Duration::from_millis(200 + STARTUP_MS)));
}

#[test]
fn of_several_tests_in_a_stalled_process_none_is_decided() {
    let mut bench = with_timeout(3, None);
    bench.chunk(1, [begun(0), begun(1)], "");
    stalled(&mut bench, 5, DialogueStall::ReportsClosed);
    assert_eq!(bench.batch.on_deadline(at(5 + STARTUP_MS), false), DeadlineAction::Terminate);
    bench.finish(STARTUP_MS + 6, signal(15), INCOMPLETE);
    let provisional =
        bench.updates().reports.iter().filter(|one| matches!(one, LeaseEvent::CrashedProvisionally { .. }));
    assert_eq!(provisional.count(), 2);
}

#[test]
fn clock_of_a_test_stands_until_its_request_is_taken() {
    let mut bench = with_timeout(2, Some(100));
    bench.batch.deadlines.dialogue.expect_requests_taken();
    bench.chunk(1, [begun(0)], "");
    for now in [1, 51, 101, 151, 201] {
        bench.batch.deadlines.set_request_taken(false, at(now));
        assert_eq!(bench.batch.deadline(), Some(Duration::from_millis(now + 50)));
        assert_eq!(bench.batch.on_deadline(at(now + 50), false), DeadlineAction::Nothing);
    }
    bench.batch.deadlines.set_request_taken(true, at(251));
    assert_eq!(bench.batch.deadline(), Some(Duration::from_millis(301)));
    bench.chunk(290, [passed(0), begun(1)], "");
    assert_eq!(bench.results()[0].duration_ms, Some(89.0));
    // The next request has its own limit.
    bench.batch.deadlines.set_request_taken(true, at(290));
    assert_eq!(bench.batch.deadline(), Some(Duration::from_millis(390)));
    assert_eq!(bench.batch.on_deadline(at(390), false), DeadlineAction::Terminate);
}

#[test]
fn test_whose_request_is_never_taken_waits_for_another_process() {
    for ended in [0, 1] {
        let mut bench = BatchHarness::with_tests(2);
        bench.batch.deadlines.dialogue.expect_requests_taken();
        bench.chunk(1, [begun(0)], "");
        if ended == 1 {
            bench.batch.deadlines.set_request_taken(true, at(1));
            bench.chunk(5, [passed(0), begun(1)], "");
        }
        bench.batch.deadlines.set_request_taken(false, at(10));
        bench.batch.deadlines.set_request_taken(false, at(9 + STARTUP_MS));
        assert_eq!(bench.batch.on_deadline(at(9 + STARTUP_MS), false), DeadlineAction::Nothing);
        bench.batch.deadlines.set_request_taken(false, at(10 + STARTUP_MS));
        assert_eq!(bench.batch.on_deadline(at(10 + STARTUP_MS), false), DeadlineAction::Terminate);
        let end = bench.finish(STARTUP_MS + 11, signal(15), INCOMPLETE);
        match ended {
            // The failure to start is counted, so that the run ends.
            0 => assert!(matches!(end, LeaseEnd::StartTimedOut { .. }), "{end:?}"),
            _ => assert_eq!(end, LeaseEnd::Complete),
        }
        assert_eq!(bench.results().len(), ended);
        let log = bench.updates().logs.iter().map(|line| line.message.as_str()).collect::<Vec<_>>();
        assert_eq!(log, ["the process did not read its next request within 60 s and was terminated"]);
    }
}

/// A server whose last request was answered after 10 ms.
fn answered_server(tests: u32) -> BatchHarness {
    let mut bench = BatchHarness::with_tests(tests);
    bench.batch.deadlines.expect_server(100);
    for place in 0..tests as usize {
        bench.chunk(1, [begun(place), passed(place)], "");
    }
    bench.batch.deadlines.on_requests_finished(at(10));
    bench.batch.deadlines.on_requests_finished(at(90));
    bench
}

#[test]
fn server_that_goes_on_after_its_last_answer_is_ended_without_a_failure() {
    for (tests, end) in [(1, signal(15)), (3, signal(15)), (3, signal(9)), (3, exit(143)), (1, exit(1))] {
        let mut bench = answered_server(tests);
        assert_eq!(bench.batch.deadline(), Some(Duration::from_millis(110)));
        assert_eq!(bench.batch.on_deadline(at(109), false), DeadlineAction::Nothing);
        assert_eq!(bench.batch.on_deadline(at(110), false), DeadlineAction::EndServer);
        let ended = bench.finish(120, end.clone(), (true, false));
        assert_eq!(ended, LeaseEnd::Complete, "{end:?}");
        assert!(bench.results().iter().all(|node| node.error_message.is_none()));
    }
}

#[test]
fn server_that_ends_badly_by_itself_fails() {
    let mut bench = answered_server(3);
    assert!(matches!(bench.finish(50, exit(1), (true, false)), LeaseEnd::BadExit { .. }));
    // The server crashes when it is ended.
    let mut bench = answered_server(3);
    assert_eq!(bench.batch.on_deadline(at(110), false), DeadlineAction::EndServer);
    assert!(matches!(bench.finish(120, signal(11), (true, false)), LeaseEnd::BadExit { .. }));
}
