//! Tests that could not open a standard stream by its name.

use super::*;

const REFUSAL: &str = "sh: 1: cannot create /dev/stdout: No such device or address";

/// Returns a process of two tests. The first one fails with this message.
fn failing(is_socket: bool, words: &str) -> BatchHarness {
    let mut process = BatchHarness::with_tests(2);
    process.batch.held_tests.hold_results(process.batch.tests().len());
    process.batch.settlement.stream_names.set_socket(is_socket);
    process.chunk(1, [begun(0), ended(0, FrameworkResult::Failed)], words);
    process.chunk(1, [begun(1), passed(1)], "");
    process
}

#[test]
fn refused_test_has_no_result_of_the_process_with_the_socket() {
    for (is_socket, words, refused) in
        [(true, REFUSAL, vec![TestId(0)]), (false, REFUSAL, vec![]), (true, "bad", vec![])]
    {
        let mut process = failing(is_socket, words);
        assert_eq!(process.finish(2, exit(1), COMPLETE), LeaseEnd::Complete);
        let taken: Vec<_> =
            process.batch.settlement.stream_names.take_refused().into_iter().map(|test| test.test).collect();
        assert_eq!(taken, refused, "{is_socket} {words}");
        assert_eq!(process.results().len(), 2 - refused.len(), "{is_socket} {words}");
        assert_eq!(process.updates().logs.len(), refused.len());
    }
}

#[test]
fn failure_stands_in_a_process_that_is_cancelled() {
    let mut process = failing(true, REFUSAL);
    process.batch.deadlines.on_terminated(BatchTerminateReason::Cancelled);
    process.finish(2, signal(9), INCOMPLETE);
    assert!(process.batch.settlement.stream_names.take_refused().is_empty());
}

#[test]
fn refusal_of_a_socket_with_reports_is_a_hint_and_the_failure_stands() {
    for (words, hints) in [(REFUSAL, 1), ("bad", 0)] {
        let mut process = BatchHarness::with_tests(1);
        process.batch.settlement.stream_names.set_report_socket(true);
        process.chunk(1, [begun(0), ended(0, FrameworkResult::Failed)], words);
        process.finish(2, exit(0), COMPLETE);
        assert!(process.batch.settlement.stream_names.take_refused().is_empty());
        assert_eq!(process.states(), [("A.t0".to_owned(), ExecutionState::Failed)]);
        let logs = &process.updates().logs;
        assert_eq!(logs.len(), hints, "{logs:?}");
        assert!(logs.iter().all(|line| line.message.contains("write to file descriptor 1")), "{logs:?}");
    }
}
