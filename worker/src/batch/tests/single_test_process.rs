//! Leaked processes, and the result of the only test of a process.

use heeler_protocol::control::{LeakedProcess, LeaseEvent};

use super::*;

fn leaked(started_ms: u64) -> LeakedProcess {
    LeakedProcess { pid: 7, command: "sleep 9".into(), started_ms: Some(started_ms), facts: None }
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
    assert_eq!(results[0].members["heeler.leaked"][0]["command"], "sleep 9");
    assert!(results[0].standard_error.as_ref().unwrap().starts_with("oops\n[heeler: the test left"));
    assert_eq!(results[0].stop_utc.as_deref(), Some("1970-01-01T00:00:00.005Z"), "it ended when it ended");
    let leak_reports =
        bench.updates.reports.iter().filter(|report| matches!(report, LeaseEvent::ProcessesLeaked { .. }));
    assert_eq!((leak_reports.count(), bench.updates.logs.len()), (1, 1));
}

#[test]
fn deferred_result_is_sent_after_one_second() {
    let mut bench = BatchHarness::with_tests(1);
    bench.chunk(5, [begun(0), passed(0)], "");
    assert_eq!(bench.batch.deadline(), Some(Duration::from_millis(1005)));
    assert_eq!(bench.batch.on_deadline(at(1005)), DeadlineAction::SendDeferredResult);
    bench.batch.send_deferred_result(&mut bench.updates);
    assert_eq!(bench.states().len(), 1);
    assert!(bench.batch.deadline() > Some(Duration::from_secs(60)), "now it may take its time");
    bench.finish(2000, ProcessExit { leaked: vec![leaked(3)], ..exit(0) }, COMPLETE);
    assert_eq!(bench.states().len(), 1, "a result is reported once");
    assert!(
        matches!(bench.updates.reports.last(), Some(LeaseEvent::ProcessesLeaked { tests, .. }) if tests.len() == 1)
    );
}

#[test]
fn batch_results_are_immediate_and_leaks_attributed_later() {
    let mut bench = BatchHarness::with_tests(2);
    bench.chunk(5, [begun(0)], "");
    bench.chunk(500, [passed(0), begun(1)], "");
    assert_eq!(bench.states().len(), 1);
    bench.chunk(900, [passed(1)], "");
    assert_eq!(bench.states().len(), 2);
    // The framework reports no durations here, so the second test may have begun at any time after the first.
    // The last process was started after both, and may be of either.
    bench.finish(
        1000,
        ProcessExit { leaked: vec![leaked(100), leaked(700), leaked(950)], ..exit(0) },
        COMPLETE,
    );
    let tests: Vec<Vec<u32>> = bench
        .updates
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
