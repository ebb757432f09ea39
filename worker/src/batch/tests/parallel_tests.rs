//! Several tests running in one process: their output, paused tests, and deaths.

use heeler_adapters::{DeathCulprit, OutputStream};

use super::*;

fn written(place: usize, text: &str) -> TranscriptEvent {
    TranscriptEvent::TestOutput { place, stream: OutputStream::Output, bytes: text.as_bytes().to_vec() }
}

fn paused(place: usize) -> TranscriptEvent {
    TranscriptEvent::Paused { place }
}

fn resumed(place: usize) -> TranscriptEvent {
    TranscriptEvent::Resumed { place }
}

fn died_in(culprit: DeathCulprit) -> ProcessExitSummary {
    ProcessExitSummary { culprit, ..process_exit(exit(2), INCOMPLETE) }
}

/// Returns the tests that died and must be rerun in isolation, with the number of other suspects.
fn suspects(bench: &BatchHarness) -> Vec<(u32, u32)> {
    let test = |report: &LeaseEvent| match report {
        LeaseEvent::CrashedProvisionally { test, attempt } => {
            Some((test.0, attempt.exit_reason.as_ref().unwrap().other_suspects))
        }
        _ => None,
    };
    bench.updates().reports.iter().filter_map(test).collect()
}

#[test]
fn output_of_a_running_test_is_its_own_and_other_output_is_shared() {
    let mut bench = BatchHarness::with_tests(3);
    bench.chunk(1, [begun(0), begun(1), begun(2), paused(2)], "");
    bench.chunk(
        2,
        [written(0, "of 0\n"), output("anybody's\n"), written(1, "of 1\n"), passed(0), passed(1)],
        "",
    );
    let outputs: Vec<_> =
        bench.results().into_iter().map(|node| node.standard_output.unwrap_or_default()).collect();
    let note = String::from_utf8(SHARED_OUTPUT_NOTE.to_vec()).unwrap();
    assert_eq!(outputs, [format!("of 0\n{note}anybody's\n"), format!("{note}anybody's\nof 1\n")]);
}

#[test]
fn time_in_which_a_test_waits_for_others_does_not_count() {
    let mut bench = BatchHarness::with_tests(2);
    bench.chunk(10, [begun(0), paused(0), begun(1)], "");
    assert_eq!(bench.batch.deadline(), Some(Duration::from_millis(2010)));
    bench.chunk(1500, [passed(1), resumed(0)], "");
    assert_eq!(bench.batch.deadline(), Some(Duration::from_millis(3500)));
    bench.chunk(1600, [passed(0)], "");
    assert_eq!(bench.results()[1].duration_ms, Some(100.0));
}

#[test]
fn process_in_which_all_tests_wait_is_stalled() {
    let mut bench = BatchHarness::with_tests(2);
    bench.chunk(10, [begun(0), paused(0)], "");
    assert_eq!(bench.batch.deadline(), Some(Duration::from_millis(60_010)));
    assert_eq!(bench.batch.on_deadline(at(60_010), false), DeadlineAction::Terminate);
    let end = bench.finish(60_020, signal(9), INCOMPLETE);
    assert!(matches!(end, LeaseEnd::DiedOutsideTest { .. }), "{end:?}");
    assert!(bench.results().is_empty() && suspects(&bench).is_empty(), "both run again");
}

#[test]
fn test_at_its_limit_is_the_one_that_runs() {
    let mut bench = BatchHarness::with_tests(3);
    bench.chunk(10, [begun(0), paused(0), begun(1), begun(2)], "");
    bench.chunk(500, [passed(1)], "");
    assert_eq!(bench.batch.on_deadline(at(2010), false), DeadlineAction::Terminate);
    assert_eq!(bench.batch.running_test().unwrap().0.test, TestId(2));
    bench.finish(2020, exit(2), INCOMPLETE);
    assert_eq!(bench.states()[1], ("A.t2".to_owned(), ExecutionState::TimedOut));
    assert_eq!(bench.states().len(), 2, "the one that waited runs again");
}

#[test]
fn process_does_not_die_in_a_test_that_waits() {
    let mut bench = BatchHarness::with_tests(3);
    bench.chunk(1, [begun(0), paused(0), begun(1)], "");
    let end = bench.finish_as(5, died_in(DeathCulprit::RunningTests));
    assert!(matches!(end, LeaseEnd::DiedInTest { .. }), "{end:?}");
    assert_eq!(suspects(&bench), [(1, 0)]);
}

#[test]
fn named_test_has_died_although_its_end_was_read() {
    for result in [FrameworkResult::Failed, FrameworkResult::Passed] {
        let mut bench = BatchHarness::with_tests(3);
        bench.batch.held_tests.hold_results(bench.batch.tests().len());
        bench.chunk(1, [begun(0), begun(1), begun(2), written(1, "before\n")], "");
        bench.chunk(2, [ended(1, result), passed(0)], "panic");
        assert_eq!(bench.batch.test_of_death(DeathCulprit::Test(1)).unwrap().1.stdout, "before\n");
        let end = bench.finish_as(5, died_in(DeathCulprit::Test(1)));
        assert!(matches!(end, LeaseEnd::DiedInTest { .. }), "{end:?}");
        assert_eq!(suspects(&bench), [(1, 0)]);
        assert_eq!(bench.states(), [("A.t0".to_owned(), ExecutionState::Passed)], "what had ended is kept");
    }
}

#[test]
fn end_that_was_sent_is_not_taken_back() {
    let mut bench = BatchHarness::with_tests(2);
    bench.chunk(1, [begun(0), passed(0), begun(1)], "");
    let end = bench.finish_as(5, died_in(DeathCulprit::Test(0)));
    assert!(matches!(end, LeaseEnd::DiedOutsideTest { .. } | LeaseEnd::DiedInTest { .. }), "{end:?}");
    assert_eq!(bench.states(), [("A.t0".to_owned(), ExecutionState::Passed)]);
    assert!(suspects(&bench).is_empty(), "the other test is innocent, and runs again");
}
