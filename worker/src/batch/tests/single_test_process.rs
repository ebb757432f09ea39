//! Leaked processes, and the result of the only test of a process.

use heeler_protocol::control::{LeakedProcess, LeaseEvent};

use super::*;

fn leaked(started_ms: u64) -> LeakedProcess {
    LeakedProcess {
        pid: 7,
        command: "sleep 9".into(),
        started_ms: Some(started_ms),
        ..LeakedProcess::default()
    }
}

#[test]
fn single_test_result_includes_leaked_processes() {
    let mut bench = BatchHarness::with_tests(1);
    bench.chunk(5, [begun(0), passed(0)], "oops");
    assert_eq!(bench.states(), []);
    let end = ProcessExit { leaked: vec![leaked(3)], ..exit(0) };
    assert_eq!(bench.finish(120, end, COMPLETE), LeaseEnd::Complete);
    let results = bench.results();
    assert_eq!((results.len(), results[0].outcome_kind.as_deref()), (1, Some("leaky")));
    // Arguments are reported only on request.
    assert_eq!(results[0].members["heeler.leaked"][0]["command"], "sleep");
    assert!(results[0].standard_error.as_ref().unwrap().starts_with("oops\n[heeler: the test leaked"));
    assert_eq!(results[0].stop_utc.as_deref(), Some("1970-01-01T00:00:00.005Z"), "it ended when it ended");
    let leak_reports =
        bench.updates().reports.iter().filter(|report| matches!(report, LeaseEvent::ProcessesLeaked { .. }));
    assert_eq!((leak_reports.count(), bench.updates().logs.len()), (1, 1));
}

#[test]
fn end_of_process_decides_about_its_only_test() {
    let ends = [
        (
            signal(11),
            COMPLETE,
            "crashed with SIGSEGV after the test ended; the test result does not explain it",
        ),
        (
            exit(0),
            INCOMPLETE,
            "the process exited with code 0 after the test ended; the test result does not explain it",
        ),
        (
            exit(7),
            (true, false),
            "the process exited with code 7 after the test ended; the test result does not explain it",
        ),
    ];
    for (end, word, message) in ends {
        let mut bench = BatchHarness::with_tests(1);
        bench.chunk(5, [begun(0), passed(0)], "");
        assert_eq!(bench.batch.deadline(), Some(Duration::from_millis(60_005)), "it waits for the end");
        assert!(matches!(bench.finish(2000, end, word), LeaseEnd::DiedInTest { .. }));
        let results = bench.results();
        assert_eq!((results.len(), results[0].state), (1, Some(ExecutionState::Error)));
        assert_eq!(results[0].error_message.as_deref(), Some(message));
    }
}

#[test]
fn failure_of_the_only_test_explains_any_end() {
    let mut bench = BatchHarness::with_tests(1);
    bench.chunk(5, [begun(0), ended(0, FrameworkResult::Failed)], "");
    bench.finish(9, signal(11), COMPLETE);
    assert_eq!(bench.results()[0].state, Some(ExecutionState::Failed));
}

#[test]
fn only_test_passes_if_its_process_does_not_exit_in_time() {
    let mut bench = BatchHarness::with_tests(1);
    bench.chunk(5, [begun(0), passed(0)], "");
    assert_eq!(bench.batch.on_deadline(at(60_005), false), DeadlineAction::Terminate);
    assert!(matches!(bench.finish(60_100, signal(15), COMPLETE), LeaseEnd::BadExit { .. }));
    assert_eq!(bench.states(), [("A.t0".to_owned(), ExecutionState::Passed)]);
}

#[test]
fn report_of_a_sanitizer_is_the_message_of_the_only_test() {
    let mut bench = BatchHarness::with_tests(1);
    bench.chunk(5, [begun(0)], "SUMMARY: ThreadSanitizer: data race a.cc:3 in f\n");
    bench.chunk(6, [passed(0)], "");
    bench.finish(9, exit(66), (true, false));
    let node = &bench.results()[0];
    assert_eq!(node.state, Some(ExecutionState::Failed));
    assert_eq!(node.error_message.as_deref(), Some("ThreadSanitizer: data race a.cc:3 in f"));
}

#[test]
fn batch_results_are_immediate_and_leaks_attributed_later() {
    let mut bench = BatchHarness::with_tests(2);
    bench.chunk(5, [begun(0)], "");
    bench.chunk(500, [passed(0), begun(1)], "");
    assert_eq!(bench.states().len(), 1);
    bench.chunk(900, [passed(1)], "");
    assert_eq!(bench.states().len(), 2);
    // Without reported durations, the second test may have begun at any time after the first.
    // The last process started after both tests, so either may have started it.
    bench.finish(
        1000,
        ProcessExit { leaked: vec![leaked(100), leaked(700), leaked(950)], ..exit(0) },
        COMPLETE,
    );
    let tests: Vec<Vec<u32>> = bench
        .updates()
        .reports
        .iter()
        .filter_map(|report| match report {
            LeaseEvent::ProcessesLeaked { tests, .. } => Some(tests.iter().map(|test| test.0).collect()),
            _ => None,
        })
        .collect();
    assert_eq!(tests, [vec![0, 1], vec![1]]);
    assert!(bench.results().iter().all(|node| node.outcome_kind.is_none()));
}

#[test]
fn memory_limit_kill_is_reported_with_peak() {
    let mut lease = lease(1);
    lease.limits.memory_bytes = Some(100 << 20);
    let mut bench = BatchHarness::with_lease(lease);
    bench.chunk(5, [begun(0)], "");
    bench.finish(9, ProcessExit { limit_peak_bytes: Some(99 << 20), ..signal(9) }, INCOMPLETE);
    let node = &bench.results()[0];
    assert_eq!(node.outcome_kind.as_deref(), Some("out-of-memory"));
    let message = node.error_message.as_deref().unwrap();
    assert_eq!(message, "killed because it used 99 MiB of memory, at its limit of 100 MiB");
}
