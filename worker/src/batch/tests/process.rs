//! Leaked processes, and the result of the only test of a process.

use wire::control::{Leaked, Report};

use super::*;

fn leaked(started_ms: u64) -> Leaked {
    Leaked { pid: 7, command: "sleep 9".into(), started_ms: Some(started_ms) }
}

#[test]
fn the_only_test_of_a_process_is_told_with_what_the_process_left_behind() {
    let mut bench = Bench::with_tests(1);
    bench.chunk(5, [begun(0), passed(0)], "oops");
    assert_eq!(bench.states(), []);
    let end = RawEnd { leaked: vec![leaked(3)], ..exit(0) };
    assert_eq!(bench.finish(120, end, COMPLETE), LeaseEnd::Complete);
    let results = bench.results();
    assert_eq!((results.len(), results[0].outcome_kind.as_deref()), (1, Some("leaky")));
    assert_eq!(results[0].other["heeler.leaked"][0]["command"], "sleep 9");
    assert!(results[0].standard_error.as_ref().unwrap().starts_with("oops\n[heeler: the test left"));
    assert_eq!(results[0].stop_utc.as_deref(), Some("1970-01-01T00:00:00.005Z"), "it ended when it ended");
    let told = bench.parcel.reports.iter().filter(|report| matches!(report, Report::Leaked { .. }));
    assert_eq!((told.count(), bench.parcel.logs.len()), (1, 1));
}

#[test]
fn a_process_that_does_not_leave_keeps_its_tests_result_back_for_no_more_than_a_second() {
    let mut bench = Bench::with_tests(1);
    bench.chunk(5, [begun(0), passed(0)], "");
    assert_eq!(bench.batch.deadline(), Some(Duration::from_millis(1005)));
    assert_eq!(bench.batch.on_time(at(1005)), Due::Result);
    bench.batch.tell_kept(&mut bench.parcel);
    assert_eq!(bench.states().len(), 1);
    assert!(bench.batch.deadline() > Some(Duration::from_secs(60)), "now it may take its time");
    bench.finish(2000, RawEnd { leaked: vec![leaked(3)], ..exit(0) }, COMPLETE);
    assert_eq!(bench.states().len(), 1, "a result is told once");
    assert!(matches!(bench.parcel.reports.last(), Some(Report::Leaked { tests, .. }) if tests.len() == 1));
}

#[test]
fn a_batch_does_not_wait_with_its_results_and_charges_what_is_left_behind_by_time() {
    let mut bench = Bench::with_tests(2);
    bench.chunk(5, [begun(0)], "");
    bench.chunk(500, [passed(0), begun(1)], "");
    assert_eq!(bench.states().len(), 1);
    bench.chunk(900, [passed(1)], "");
    assert_eq!(bench.states().len(), 2);
    // The framework reports no durations here, so the second test may have begun at any time after the first.
    bench.finish(1000, RawEnd { leaked: vec![leaked(100), leaked(700), leaked(950)], ..exit(0) }, COMPLETE);
    let tests: Vec<Vec<u32>> = bench
        .parcel
        .reports
        .iter()
        .filter_map(|report| match report {
            Report::Leaked { tests, .. } => Some(tests.iter().map(|test| test.0).collect()),
            _ => None,
        })
        .collect();
    assert_eq!(tests, [vec![0, 1], vec![1], vec![]]);
    assert!(bench.results().iter().all(|node| node.outcome_kind.is_none()));
}

#[test]
fn a_process_that_the_system_killed_at_its_limit_is_told_as_out_of_memory_with_its_peak() {
    let mut lease = lease(1);
    lease.limits.memory_bytes = Some(100 << 20);
    let mut bench = Bench::of(lease);
    bench.chunk(5, [begun(0)], "");
    bench.finish(9, RawEnd { limit_peak_bytes: Some(99 << 20), ..signal(9) }, CUT_OFF);
    let node = &bench.results()[0];
    assert_eq!(node.outcome_kind.as_deref(), Some("out-of-memory"));
    let message = node.error_message.as_deref().unwrap();
    assert_eq!(message, "killed because it used 99 MiB of memory, at its limit of 100 MiB");
}
