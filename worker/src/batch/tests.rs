//! Tests of a batch: results from events, times and process exits.

mod dialogue_stall;
mod guard_loss;
mod harness;
mod held_tests;
mod parallel_tests;
mod random_steps;
mod repetition;
mod shown_lines;
mod single_test_process;
mod stream_names;

use std::{collections::HashMap, sync::Arc, time::Duration};

use heeler_adapters::{FrameworkResult, FrameworkVerdict, RuntimeStack, StackPosition, TranscriptEvent};
use heeler_core::{Attempt, ExitReason, Failure, Iteration, Outcome, RunRecord, TestId, TestStart};
use heeler_protocol::{
    control::{LeaseEnd, LeaseEvent, ListedTest, ProcessExit, WorkerId, WorkerLease},
    journal::{self, JournalContent, JournalRecord},
    mtp::{ExecutionState, NodeChange, TestNode},
};

use harness::BatchHarness;

use super::{stderr_attribution::SHARED_OUTPUT_NOTE, *};
use crate::process::process_clock::{ClockReading, UtcTime};
use crate::results::{lease_updates::LeaseUpdates, update_batch::UpdateBatch};
use crate::test_values::{lease, verdict};

/// The state of a transcript: (complete, explains the exit code).
type TranscriptState = (bool, bool);

const COMPLETE: TranscriptState = (true, true);
const INCOMPLETE: TranscriptState = (false, false);

fn process_exit(end: ProcessExit, (is_complete, is_explained): TranscriptState) -> ProcessExitSummary {
    ProcessExitSummary { exit: end, is_complete, is_explained, ..ProcessExitSummary::default() }
}

struct FakeFramework;

impl FrameworkQueries for FakeFramework {
    fn divide_stderr(&self, _stderr: &str, _captured: &str, _test: &ListedTest) -> Option<RuntimeStack> {
        None
    }

    fn has_proven_answers(&self) -> bool {
        false
    }

    fn reproduce(&self, test: &ListedTest) -> String {
        format!("run {}", test.name)
    }

    fn complete_verdict(&self, verdict: &mut FrameworkVerdict, _test: &ListedTest, stderr: &str) {
        let message = Some(format!("said: {stderr}"));
        if verdict.failures.is_empty() {
            verdict.push_failure(Failure { message, ..Failure::default() });
        }
    }

    fn is_own_line(&self, line: &[u8]) -> bool {
        line.starts_with(b"[framework]")
    }

    fn stack_position(&self, stack: &str, test: Option<&ListedTest>) -> StackPosition {
        match (stack, test) {
            ("suite", _) => StackPosition::SuiteFixture,
            (name, Some(test)) if name == test.name => StackPosition::RunningTest,
            ("", _) => StackPosition::Unknown,
            _ => StackPosition::OtherTest,
        }
    }
}

fn at(milliseconds: u64) -> ClockReading {
    let running = Duration::from_millis(milliseconds);
    ClockReading {
        running,
        utc: UtcTime::from_epoch(running),
        since_boot: running,
        ..ClockReading::default()
    }
}

fn begun(place: usize) -> TranscriptEvent {
    TranscriptEvent::Begun { place }
}

fn ended(place: usize, result: FrameworkResult) -> TranscriptEvent {
    TranscriptEvent::Ended { place, verdict: verdict(result) }
}

fn passed(place: usize) -> TranscriptEvent {
    ended(place, FrameworkResult::Passed)
}

fn output(text: &str) -> TranscriptEvent {
    TranscriptEvent::Output(text.as_bytes().to_vec())
}

fn exit(code: i32) -> ProcessExit {
    ProcessExit { code: Some(code), ..ProcessExit::default() }
}

fn signal(number: i32) -> ProcessExit {
    ProcessExit { signal: Some(number), ..ProcessExit::default() }
}

#[test]
fn passing_test_is_started_and_settled() {
    let mut bench = BatchHarness::with_tests(2);
    bench.chunk(5, [begun(0)], "");
    assert_eq!(bench.batch.order.first_begun(), Some(Duration::from_millis(5)));
    assert_eq!(bench.nodes()[0].state, Some(ExecutionState::InProgress));
    bench.chunk(9, [output("hello"), passed(0)], "oops");
    // The start is left out because the end is in the same update.
    let nodes = bench.nodes();
    assert_eq!(nodes[0].standard_output.as_deref(), Some("hello"));
    assert_eq!(nodes[0].standard_error.as_deref(), Some("oops"));
    assert_eq!(nodes[0].start_utc.as_deref(), Some("1970-01-01T00:00:00.005Z"));
    assert_eq!(nodes[0].stop_utc.as_deref(), Some("1970-01-01T00:00:00.009Z"));
    assert_eq!(nodes[0].duration_ms, Some(4.0));
    assert!(matches!(
        bench.records()[..],
        [RunRecord::Started(TestStart { test: TestId(0), started_ms: 5, .. }), RunRecord::Finished { .. }]
    ));
    assert!(matches!(
        bench.updates().reports[..],
        [LeaseEvent::Started(TestId(0)), LeaseEvent::Settled { duration_us: 4000, position: 1, .. }]
    ));
}

#[test]
fn skipped_tests_are_settled_without_a_process() {
    let mut lease = lease(3);
    Arc::make_mut(&mut lease.tests[1]).listed.skip = Some("ignored: needs net".into());
    let bench = BatchHarness::with_lease(lease);
    let names: Vec<_> = bench.batch.tests().iter().map(|test| test.listed.name.as_str()).collect();
    assert_eq!(names, ["A.t0", "A.t2"]);
    let node = &bench.results()[0];
    assert_eq!((node.display_name.as_str(), node.state), ("A.t1", Some(ExecutionState::Skipped)));
    assert_eq!(node.error_message.as_deref(), Some("ignored: needs net"));
    assert!(matches!(bench.updates().reports[..], [LeaseEvent::Settled { position: 1, .. }]));
}

#[test]
fn durations_below_a_millisecond_are_measured_by_worker() {
    let with = |place, milliseconds| TranscriptEvent::Ended {
        place,
        verdict: FrameworkVerdict {
            duration: Some(Duration::from_millis(milliseconds)),
            ..verdict(FrameworkResult::Passed)
        },
    };
    let mut bench = BatchHarness::with_tests(8);
    bench.chunk(10, [begun(0)], "");
    bench.chunk(500, [with(0, 7), begun(1)], "");
    // Two ends in one chunk of one millisecond count as half a millisecond each.
    bench.chunk(501, [with(1, 0), begun(2), with(2, 0), begun(3)], "");
    // A reported duration of zero milliseconds counts as at most one millisecond.
    bench.chunk(600, [with(3, 0), begun(4)], "");
    // Without a reported duration, the worker's clock decides.
    bench.chunk(650, [passed(4)], "");
    let durations: Vec<_> = bench.results().iter().map(|node| node.duration_ms.unwrap()).collect();
    assert_eq!(durations, [7.0, 0.5, 0.5, 1.0, 50.0]);
}

#[test]
fn output_between_tests_is_unattributed() {
    let mut bench = BatchHarness::with_tests(2);
    bench.chunk(1, [output("before"), begun(0), output("a"), passed(0), output("between")], "");
    bench.chunk(2, [begun(1), output("b"), passed(1), output("after")], "");
    let outputs: Vec<_> = bench.results().into_iter().map(|node| node.standard_output.unwrap()).collect();
    assert_eq!(outputs, ["a", "b"]);
    let LeaseEnd::BadExit { message, .. } = bench.finish(3, exit(3), INCOMPLETE) else { panic!() };
    assert!(message.contains("exited with code 3 after its last test"), "{message}");
    assert!(message.ends_with("beforebetweenafter"), "{message}");
}

#[test]
fn shared_stderr_is_marked() {
    let mut bench = BatchHarness::with_tests(3);
    bench.chunk(1, [begun(0), passed(0), begun(1), ended(1, FrameworkResult::Failed), begun(2)], "who?");
    bench.chunk(2, [passed(2)], "me");
    let errors: Vec<_> = bench.results().into_iter().map(|node| node.standard_error).collect();
    assert_eq!(errors[0], None);
    let note = String::from_utf8(SHARED_OUTPUT_NOTE.to_vec()).unwrap();
    assert_eq!(errors[1], Some(format!("{note}who?")));
    assert_eq!(errors[2], Some(format!("{note}who?me")));
}

#[test]
fn output_is_capped_and_includes_captured_output() {
    let mut bench = BatchHarness::with_tests(2);
    let captured = TranscriptEvent::Ended {
        place: 0,
        verdict: FrameworkVerdict { stdout: Some("captured".into()), ..verdict(FrameworkResult::Passed) },
    };
    bench.chunk(1, [begun(0), captured, begun(1), output(&"x".repeat(5000)), passed(1)], "");
    let results = bench.results();
    assert_eq!(results[0].standard_output.as_deref(), Some("captured"));
    let capped = results[1].standard_output.as_deref().unwrap();
    assert!(capped.contains("[... 4000 bytes cut ...]") && capped.len() < 1100);
}

#[test]
fn every_failure_is_in_the_result() {
    let mut bench = BatchHarness::with_tests(2);
    let mut failed = verdict(FrameworkResult::Failed);
    for line in 1..=2 {
        let message = Some(format!("bad {line} {}", "x".repeat(40 << 10)));
        failed.push_failure(Failure {
            message,
            file: Some("f".into()),
            line: Some(line),
            ..Failure::default()
        });
    }
    bench.chunk(1, [begun(0), TranscriptEvent::Ended { place: 0, verdict: failed }, begun(1)], "");
    let message = bench.results()[0].error_message.clone().unwrap();
    assert!(message.starts_with("bad 1 x") && message.contains("\nf:2: bad 2 x"), "{message}");
    // All messages share the limit of one message.
    assert!(message.len() < 65 << 10, "{}", message.len());
}

#[test]
fn only_unsuccessful_tests_have_reproduce_command() {
    let mut bench = BatchHarness::with_tests(2);
    bench.chunk(1, [begun(0), ended(0, FrameworkResult::Failed), begun(1), passed(1)], "");
    let results = bench.results();
    assert_eq!(results[0].text_member("heeler.reproduce"), Some("run A.t0"));
    assert_eq!(results[1].text_member("heeler.reproduce"), None);
}

#[test]
fn crash_affects_only_the_running_test() {
    let mut bench = BatchHarness::with_tests(3);
    bench.chunk(1, [begun(0), passed(0), begun(1), output("last words")], "");
    assert_eq!(bench.finish(5, signal(11), INCOMPLETE), LeaseEnd::DiedInTest { end: signal(11) });
    assert_eq!(bench.states(), [("A.t0".to_owned(), ExecutionState::Passed)]);
    let Some(LeaseEvent::CrashedProvisionally { test: TestId(1), attempt }) = bench.updates().reports.last()
    else {
        panic!()
    };
    assert_eq!(attempt.message, "crashed with SIGSEGV");
    assert_eq!(attempt.stdout, "last words");
    assert_eq!(attempt.duration_us, 4000);
    assert!(
        matches!(&bench.records()[..], [.., RunRecord::Provisional { test: TestId(1), attempt: held, .. }] if held == &**attempt)
    );
}

#[test]
fn failure_is_completed_from_stderr() {
    let mut bench = BatchHarness::with_tests(2);
    bench.chunk(1, [begun(0), ended(0, FrameworkResult::Failed)], "panicked");
    assert_eq!(bench.results()[0].error_message.as_deref(), Some("said: panicked"));
}

#[test]
fn unselectable_test_is_settled_as_not_run() {
    let mut bench = BatchHarness::with_tests(3);
    bench.batch.refuse(1, "its name has a newline", &mut bench.sink);
    bench.chunk(1, [begun(1), passed(1)], "");
    let results = bench.results();
    assert_eq!(results[0].display_name, "A.t1");
    assert_eq!(results[0].outcome_kind.as_deref(), Some("not-run"));
    assert_eq!(results[0].error_message.as_deref(), Some("not run: its name has a newline"));
    assert_eq!(results[1].display_name, "A.t2");
}

#[test]
fn failure_outside_tests_is_reported_with_exit() {
    let mut bench = BatchHarness::with_tests(1);
    bench.chunk(1, [begun(0), passed(0)], "");
    let gone = ProcessExitSummary {
        outside_failure: Some("SetUp failed\n".into()),
        ..process_exit(exit(1), (true, false))
    };
    let LeaseEnd::BadExit { message, .. } = bench.finish_as(2, gone) else { panic!() };
    assert!(message.ends_with("--- failed outside tests ---\nSetUp failed"), "{message}");
}

#[test]
fn crash_after_end_marker_is_reported_as_such() {
    let mut bench = BatchHarness::with_tests(1);
    bench.chunk(1, [begun(0)], "");
    bench.finish_as(
        2,
        ProcessExitSummary { is_after_end_marker: true, ..process_exit(signal(11), INCOMPLETE) },
    );
    let message = bench.results()[0].error_message.clone().unwrap();
    assert!(message.starts_with("crashed with SIGSEGV after the test's end marker"), "{message}");
}

#[test]
fn exit_code_zero_during_test_is_an_error() {
    let mut bench = BatchHarness::with_tests(2);
    bench.chunk(1, [begun(0)], "");
    let end = bench.finish(2, exit(0), (false, true));
    assert!(matches!(end, LeaseEnd::DiedInTest { .. }));
    let Some(LeaseEvent::CrashedProvisionally { attempt, .. }) = bench.updates().reports.last() else {
        panic!()
    };
    assert_eq!(attempt.message, "the process exited with code 0 before the test ended");
    assert_eq!(attempt.exit_reason, Some(ExitReason { code: Some(0), ..ExitReason::default() }));
}

#[test]
fn crash_in_isolation_is_final() {
    let mut bench = BatchHarness::with_tests(1);
    bench.chunk(1, [begun(0)], "");
    bench.finish(2, signal(6), INCOMPLETE);
    let node = &bench.results()[0];
    assert_eq!((node.state, node.outcome_kind.as_deref()), (Some(ExecutionState::Error), Some("crashed")));
    assert_eq!(node.text_member("heeler.signal"), Some("SIGABRT"));
    assert_eq!(node.error_message.as_deref(), Some("crashed with SIGABRT"));
}

#[test]
fn timed_out_test_is_settled_after_process_exit() {
    let mut bench = BatchHarness::with_tests(3);
    bench.chunk(100, [begun(0)], "");
    assert_eq!(bench.batch.deadline(), Some(Duration::from_millis(2100)));
    assert_eq!(bench.batch.on_deadline(at(2099), false), DeadlineAction::Nothing);
    assert_eq!(bench.batch.on_deadline(at(2100), false), DeadlineAction::Terminate);
    assert_eq!(bench.batch.deadline(), None);
    assert_eq!(
        bench.batch.on_deadline(at(9000), false),
        DeadlineAction::Nothing,
        "it is ordered to exit once"
    );
    // Output during the grace period changes nothing, and no other test begins.
    bench.chunk(2150, [passed(0), begun(1), passed(1)], "");
    assert!(bench.results().is_empty());
    assert!(matches!(bench.finish(2200, exit(0), COMPLETE), LeaseEnd::DiedInTest { .. }));
    let node = &bench.results()[0];
    assert_eq!(node.state, Some(ExecutionState::TimedOut));
    assert_eq!(node.error_message.as_deref(), Some("timed out after 2 s"));
    assert_eq!(bench.updates().reports.len(), 2);
}

#[test]
fn crash_captured_past_time_limit_stays_a_crash() {
    let mut bench = BatchHarness::with_tests(2);
    bench.chunk(100, [begun(0)], "");
    assert_eq!(bench.batch.on_deadline(at(2100), false), DeadlineAction::Terminate);
    let end = bench
        .finish_as(2900, ProcessExitSummary { is_own_death: true, ..process_exit(signal(11), INCOMPLETE) });
    assert!(matches!(end, LeaseEnd::DiedInTest { .. }), "{end:?}");
    let Some(LeaseEvent::CrashedProvisionally { attempt, .. }) = bench.updates().reports.last() else {
        panic!()
    };
    assert_eq!(attempt.message, "crashed with SIGSEGV");
}

#[test]
fn late_test_is_not_blamed_for_next_crash() {
    let mut bench = BatchHarness::with_tests(2);
    bench.chunk(100, [begun(0)], "");
    assert_eq!(bench.batch.on_deadline(at(2100), false), DeadlineAction::Terminate);
    bench.chunk(2150, [passed(0), begun(1)], "");
    bench.finish_as(2900, ProcessExitSummary { is_own_death: true, ..process_exit(signal(11), INCOMPLETE) });
    assert_eq!(bench.states(), [("A.t0".to_owned(), ExecutionState::TimedOut)]);
}

#[test]
fn crash_before_first_test_is_not_a_stall() {
    let mut bench = BatchHarness::with_tests(1);
    assert_eq!(bench.batch.on_deadline(at(60_000), false), DeadlineAction::Terminate);
    let end = bench
        .finish_as(60_900, ProcessExitSummary { is_own_death: true, ..process_exit(signal(11), INCOMPLETE) });
    let LeaseEnd::DiedOutsideTest { message, .. } = end else { panic!("{end:?}") };
    assert!(message.starts_with("the process was killed by SIGSEGV before its first test"), "{message}");
}

#[test]
fn timeout_with_retries_left_is_provisional() {
    let mut lease = lease(2);
    Arc::make_mut(&mut lease.tests[0]).is_failure_provisional = true;
    let mut bench = BatchHarness::with_lease(lease);
    bench.chunk(0, [begun(0)], "");
    assert_eq!(bench.batch.on_deadline(at(2000), false), DeadlineAction::Terminate);
    bench.finish(2001, signal(15), INCOMPLETE);
    let Some(LeaseEvent::FailedProvisionally { attempt, .. }) = bench.updates().reports.last() else {
        panic!()
    };
    assert_eq!((attempt.outcome, attempt.exit_reason.clone()), (Outcome::TimedOut, None));
    assert!(bench.results().is_empty());
}

#[test]
fn failure_with_retries_left_is_provisional() {
    let mut lease = lease(2);
    Arc::make_mut(&mut lease.tests[0]).is_failure_provisional = true;
    let mut bench = BatchHarness::with_lease(lease);
    bench.chunk(0, [begun(0), ended(0, FrameworkResult::Failed), begun(1), passed(1)], "");
    assert!(matches!(bench.updates().reports[1], LeaseEvent::FailedProvisionally { test: TestId(0), .. }));
    assert_eq!(bench.states(), [("A.t1".to_owned(), ExecutionState::Passed)]);
    assert_eq!(bench.finish(1, exit(1), COMPLETE), LeaseEnd::Complete);
}

#[test]
fn second_attempt_lists_the_first() {
    let mut lease = lease(1);
    Arc::make_mut(&mut lease.tests[0]).attempts.push(Attempt::new(Outcome::Failed, "1 is not 2"));
    let mut bench = BatchHarness::with_lease(lease);
    bench.chunk(0, [begun(0), passed(0)], "");
    bench.finish(1, exit(0), COMPLETE);
    let node = &bench.results()[0];
    assert_eq!(node.outcome_kind.as_deref(), Some("passed-with-retries"));
    assert_eq!(node.members["retry.attempt"], 2);
    assert_eq!(node.standard_output.as_deref(), Some("attempt 1 (failed): 1 is not 2\n"));
}

#[test]
fn cancel_ends_running_test_and_keeps_others_waiting() {
    let mut bench = BatchHarness::with_tests(3);
    bench.chunk(0, [begun(0), passed(0), begun(1)], "");
    bench.batch.deadlines.on_terminated(BatchTerminateReason::Cancelled);
    assert_eq!(bench.batch.deadline(), None);
    assert_eq!(bench.finish(9, signal(15), INCOMPLETE), LeaseEnd::Cancelled);
    assert_eq!(
        bench.states(),
        [("A.t0".to_owned(), ExecutionState::Passed), ("A.t1".to_owned(), ExecutionState::Cancelled)]
    );
}

#[test]
fn test_ended_before_cancel_keeps_its_result() {
    let mut bench = BatchHarness::with_tests(2);
    bench.chunk(0, [begun(0)], "");
    bench.batch.deadlines.on_terminated(BatchTerminateReason::Cancelled);
    bench.chunk(1, [passed(0), begun(1)], "");
    assert_eq!(bench.finish(9, signal(15), INCOMPLETE), LeaseEnd::Cancelled);
    assert_eq!(bench.states(), [("A.t0".to_owned(), ExecutionState::Passed)]);
}

#[test]
fn cancel_between_tests_settles_nothing() {
    let mut bench = BatchHarness::with_tests(2);
    bench.batch.deadlines.on_terminated(BatchTerminateReason::Cancelled);
    assert_eq!(bench.finish(9, signal(15), INCOMPLETE), LeaseEnd::Cancelled);
    assert!(bench.updates().reports.is_empty());
}

#[test]
fn worker_exit_leaves_running_test_undecided() {
    let mut bench = BatchHarness::with_tests(2);
    bench.chunk(0, [begun(0), passed(0), begun(1)], "");
    bench.batch.deadlines.on_terminated(BatchTerminateReason::Abandoned);
    assert_eq!(bench.finish(1, signal(9), INCOMPLETE), LeaseEnd::Cancelled);
    assert_eq!(bench.states(), [("A.t0".to_owned(), ExecutionState::Passed)]);
    assert!(matches!(bench.updates().reports.last(), Some(LeaseEvent::Started(TestId(1)))));
}

#[test]
fn process_without_tests_is_terminated_and_reported() {
    let mut bench = BatchHarness::with_tests(1);
    bench.chunk(5, [output("loading")], "warning");
    assert_eq!(bench.batch.on_deadline(at(59_999), false), DeadlineAction::Nothing);
    assert_eq!(bench.batch.on_deadline(at(60_000), false), DeadlineAction::Terminate);
    let LeaseEnd::StartTimedOut { message, .. } = bench.finish(60_100, signal(15), INCOMPLETE) else {
        panic!()
    };
    assert!(message.starts_with("the process started no test within 60 s (startup-timeout)"), "{message}");
    assert!(message.contains("loading") && message.ends_with("warning"), "{message}");
}

#[test]
fn process_that_does_not_exit_is_terminated() {
    let mut bench = BatchHarness::with_tests(1);
    bench.chunk(5, [begun(0), passed(0)], "");
    assert_eq!(bench.batch.on_deadline(at(60_005), false), DeadlineAction::Terminate);
    let LeaseEnd::BadExit { message, .. } = bench.finish(60_100, exit(0), COMPLETE) else { panic!() };
    assert!(message.contains("not exit within 60 s (startup-timeout) after its last test"), "{message}");
}

#[test]
fn crash_between_tests_is_outside_tests() {
    let mut bench = BatchHarness::with_tests(2);
    let LeaseEnd::DiedOutsideTest { message, .. } =
        BatchHarness::with_tests(1).finish(1, signal(11), INCOMPLETE)
    else {
        panic!()
    };
    assert_eq!(message, "the process was killed by SIGSEGV before its first test");
    bench.chunk(1, [begun(0), passed(0)], "");
    let LeaseEnd::DiedOutsideTest { message, .. } = bench.finish(2, exit(0), INCOMPLETE) else { panic!() };
    assert_eq!(message, "the process exited with code 0 after A.t0, with tests left to run");
}

#[test]
fn unexplained_exit_is_reported_beside_results() {
    for (end, word) in [(exit(1), (true, false)), (exit(0), (false, true)), (signal(11), (true, false))] {
        let mut bench = BatchHarness::with_tests(2);
        bench.chunk(1, [begun(0), passed(0), begun(1), passed(1)], "");
        assert!(matches!(bench.finish(2, end, word), LeaseEnd::BadExit { .. }));
        assert_eq!(bench.results().len(), 2);
    }
}

#[test]
fn complete_run_leaves_missing_tests_waiting() {
    let mut bench = BatchHarness::with_tests(2);
    bench.chunk(1, [begun(0), passed(0)], "");
    assert_eq!((bench.finish(2, exit(0), COMPLETE), bench.results().len()), (LeaseEnd::Complete, 1));
}

#[test]
fn slow_test_without_limit_has_no_deadline() {
    let mut lease = lease(1);
    lease.limits.timeout_ms = None;
    let mut bench = BatchHarness::with_lease(lease);
    bench.chunk(1, [begun(0)], "");
    assert_eq!(bench.batch.deadline(), None);
    assert_eq!(bench.batch.on_deadline(at(u64::from(u32::MAX)), false), DeadlineAction::Nothing);
}

#[derive(Debug, Clone)]
enum BatchStep {
    Chunk(Vec<TranscriptEvent>, bool),
    Time(u64),
    Cancel,
}
