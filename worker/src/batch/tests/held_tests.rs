//! Tests that are held until something proves their results.

use heeler_adapters::{FixtureFailure, RunReport, SuitePhase};
use heeler_core::{FixturePhase, SuiteFixture, TestDiagnostics};

use super::*;

fn holding(count: u32) -> BatchHarness {
    let mut bench = BatchHarness::with_tests(count);
    bench.batch.held_tests.hold_results(bench.batch.tests().len());
    bench
}

/// Runs three tests that all seem to pass.
fn three_passed() -> BatchHarness {
    let mut bench = holding(3);
    bench.chunk(1, [begun(0), passed(0), begun(1), passed(1), begun(2), passed(2)], "");
    assert!(bench.nodes().is_empty(), "neither results nor starts are sent");
    bench
}

fn reported(results: &[Option<FrameworkResult>]) -> RunEvidence {
    let verdicts = results.iter().map(|result| result.map(verdict)).collect();
    RunEvidence::Report(RunReport { verdicts, ..RunReport::default() })
}

fn evidence(stack: &str) -> Option<Box<TestDiagnostics>> {
    Some(Box::new(TestDiagnostics { stack: stack.to_owned(), ..TestDiagnostics::default() }))
}

/// Returns the tests to rerun in isolation.
fn unproven(bench: &BatchHarness) -> Vec<u32> {
    let test = |report: &LeaseEvent| match report {
        LeaseEvent::CrashedProvisionally { test, attempt } => {
            assert!(attempt.exit_reason.as_ref().unwrap().other_suspects > 0);
            Some(test.0)
        }
        _ => None,
    };
    bench.updates().reports.iter().filter_map(test).collect()
}

/// Only the process itself has written output.
const ALONE: ReleaseConditions =
    ReleaseConditions { doubtful_since: None, is_complete: false, alone: Some(span(0, 1000)) };

const fn span(after: u64, until: u64) -> SoleWriterSpan {
    SoleWriterSpan { after: Duration::from_millis(after), until: Duration::from_millis(until) }
}

const GOOD: Option<FrameworkResult> = Some(FrameworkResult::Passed);
const BAD: Option<FrameworkResult> = Some(FrameworkResult::Failed);

#[test]
fn results_are_settled_after_a_while() {
    let mut bench = holding(3);
    bench.chunk(1, [begun(0), passed(0)], "");
    bench.chunk(50, [begun(1), passed(1), begun(2)], "");
    let (good, bad) = (
        ALONE,
        [
            ReleaseConditions::default(),
            ReleaseConditions { is_complete: true, ..ALONE },
            ReleaseConditions { doubtful_since: Some(2), ..ALONE },
        ],
    );
    assert_eq!(bench.batch.deadline(), Some(Duration::from_millis(101)));
    assert_eq!(bench.batch.on_deadline(at(101), false), DeadlineAction::CheckHeldTests);
    for conditions in bad {
        bench.batch.check_held_tests(at(101), conditions, &mut bench.sink);
        assert!(bench.states().is_empty());
    }
    bench.batch.check_held_tests(at(101), good, &mut bench.sink);
    assert_eq!(bench.states(), [("A.t0".to_owned(), ExecutionState::Passed)]);
    assert_eq!(bench.batch.deadline(), Some(Duration::from_millis(201)));
    bench.batch.check_held_tests(at(201), good, &mut bench.sink);
    assert_eq!((bench.states().len(), bench.batch.deadline()), (2, Some(Duration::from_millis(2050))));
}

#[test]
fn end_that_the_process_itself_reports_proves_those_before_it() {
    let mut bench = holding(3);
    bench.chunk(10, [begun(0), passed(0), begun(1)], "");
    bench.chunk(50, [passed(1), begun(2)], "");
    for (alone, settled) in [(span(10, 49), 0), (span(50, 200), 0), (span(10, 50), 2)] {
        let conditions = ReleaseConditions { alone: Some(alone), ..ALONE };
        bench.batch.check_held_tests(at(200), conditions, &mut bench.sink);
        assert_eq!(bench.states().len(), settled, "{alone:?}");
    }
}

#[test]
fn cancelled_process_proves_only_what_it_has_reported_itself() {
    for (alone, settled) in [(Some(span(0, 60)), 2), (Some(span(0, 20)), 1), (None, 0)] {
        let mut bench = holding(4);
        bench.chunk(10, [begun(0), passed(0), begun(1)], "");
        bench.chunk(50, [passed(1), begun(2)], "");
        let conditions = ReleaseConditions { alone, ..ALONE };
        bench.batch.settle_proven(conditions, &mut bench.sink);
        bench.batch.deadlines.on_terminated(BatchTerminateReason::Cancelled);
        let gone = ProcessExitSummary { ..process_exit(signal(15), INCOMPLETE) };
        bench.finish_as(60, gone);
        let passes = bench.states().iter().filter(|(_, state)| *state == ExecutionState::Passed).count();
        assert_eq!(passes, settled, "{alone:?}");
    }
    // The end of the process would have decided.
    let mut bench = BatchHarness::with_tests(1);
    bench.chunk(1, [begun(0), passed(0)], "");
    bench.batch.settle_proven(ALONE, &mut bench.sink);
    bench.batch.deadlines.on_terminated(BatchTerminateReason::Cancelled);
    bench.finish_as(2, process_exit(signal(15), COMPLETE));
    assert!(bench.states().iter().all(|(_, state)| *state != ExecutionState::Passed), "{:?}", bench.states());
}

#[test]
fn report_of_the_framework_decides() {
    let mut bench = three_passed();
    let gone = ProcessExitSummary {
        run_evidence: reported(&[GOOD, BAD, None]),
        doubtful_since: Some(0),
        ..process_exit(exit(1), (true, false))
    };
    assert_eq!(bench.finish_as(9, gone), LeaseEnd::Complete);
    let expected = [("A.t0", ExecutionState::Passed), ("A.t1", ExecutionState::Failed)];
    assert_eq!(bench.states(), expected.map(|(name, state)| (name.to_owned(), state)));
    assert_eq!(unproven(&bench), [] as [u32; 0], "the third waits, because it was not run");
}

#[test]
fn report_has_the_results_of_tests_without_markers() {
    let mut bench = holding(3);
    bench.chunk(1, [begun(0)], "");
    let gone = ProcessExitSummary {
        run_evidence: reported(&[GOOD, GOOD, GOOD]),
        ..process_exit(exit(0), INCOMPLETE)
    };
    assert_eq!(bench.finish_as(9, gone), LeaseEnd::Complete);
    assert_eq!(bench.states().len(), 3);
    assert!(bench.states().iter().all(|(_, state)| *state == ExecutionState::Passed));
}

#[test]
fn contradicted_early_result_is_a_failure_of_the_program() {
    let mut bench = holding(2);
    bench.chunk(1, [begun(0), passed(0), begun(1)], "");
    bench.batch.check_held_tests(at(101), ALONE, &mut bench.sink);
    let gone = ProcessExitSummary { run_evidence: reported(&[BAD, GOOD]), ..process_exit(exit(1), COMPLETE) };
    let LeaseEnd::BadExit { message, .. } = bench.finish_as(200, gone) else { panic!() };
    assert!(
        message.contains("A.t0: passed in the output, but failed in the framework's report"),
        "{message}"
    );
    assert_eq!(bench.states().len(), 2, "each has one result");
}

#[test]
fn unselected_test_is_a_failure_of_the_program_however_its_process_ends() {
    let other = || Some("B.x".to_owned());
    for (end, ended) in [(exit(0), 1), (exit(3), 1), (signal(11), 1), (signal(11), 2)] {
        let mut bench = holding(2);
        let events = [begun(0), passed(0), begun(1), passed(1)];
        bench.chunk(1, events.into_iter().take(2 * ended).collect::<Vec<_>>(), "");
        let is_good = end.code == Some(0);
        let gone = ProcessExitSummary {
            unselected_test: other(),
            ..process_exit(end, (ended == 2 || is_good, is_good))
        };
        let (LeaseEnd::BadExit { message, .. } | LeaseEnd::DiedOutsideTest { message, .. }) =
            bench.finish_as(9, gone)
        else {
            panic!()
        };
        assert!(message.contains("B.x ran but was not selected"), "{message}");
    }
}

#[test]
fn death_behind_the_tests_of_a_suite_is_that_of_its_tear_down() {
    for (stack, is_tear_down) in [("suite", true), ("", false)] {
        let mut bench = BatchHarness::with_tests(1);
        bench.chunk(1, [begun(0), passed(0)], "");
        let gone = ProcessExitSummary {
            suite_phase: Some(SuitePhase::AfterTests { suite: "A".into() }),
            evidence: evidence(stack),
            ..process_exit(signal(11), INCOMPLETE)
        };
        assert!(matches!(bench.finish_as(9, gone), LeaseEnd::DiedInTest { .. }));
        let state = if is_tear_down { ExecutionState::Passed } else { ExecutionState::Error };
        assert_eq!(bench.states(), [("A.t0".to_owned(), state)]);
        assert_eq!(bench.fixture_failures().len(), usize::from(is_tear_down));
    }
}

#[test]
fn unselected_test_is_a_failure_of_the_program() {
    let mut bench = three_passed();
    let verdicts = vec![Some(verdict(FrameworkResult::Passed)); 3];
    let report = RunReport { verdicts, unselected: Some("B.x".into()), ..RunReport::default() };
    let gone =
        ProcessExitSummary { run_evidence: RunEvidence::Report(report), ..process_exit(exit(0), COMPLETE) };
    let LeaseEnd::BadExit { message, .. } = bench.finish_as(9, gone) else { panic!() };
    assert!(message.contains("B.x ran but was not selected"), "{message}");
    assert_eq!(bench.states().len(), 3);
}

#[test]
fn crash_that_contradicts_the_output_leaves_results_unproven() {
    let crash =
        |stack| ProcessExitSummary { evidence: evidence(stack), ..process_exit(signal(11), (true, false)) };
    let mut bench = three_passed();
    let LeaseEnd::DiedOutsideTest { message, .. } = bench.finish_as(9, crash("A.t0")) else { panic!() };
    assert!(
        message.contains("SIGSEGV, which contradicts its output") && message.ends_with("(3 tests)"),
        "{message}"
    );
    assert_eq!((bench.states().len(), unproven(&bench)), (0, vec![0, 1, 2]));
    // The process crashes after the last test, in a destructor.
    let mut bench = three_passed();
    assert!(matches!(bench.finish_as(9, crash("")), LeaseEnd::BadExit { .. }));
    assert_eq!((bench.states().len(), unproven(&bench)), (3, vec![]));
}

#[test]
fn complete_output_of_a_run_left_in_the_middle_proves_nothing() {
    let mut bench = three_passed();
    let gone = ProcessExitSummary { run_evidence: RunEvidence::LeftOpen, ..process_exit(exit(0), COMPLETE) };
    assert!(matches!(bench.finish_as(9, gone), LeaseEnd::DiedOutsideTest { .. }));
    assert_eq!((bench.states().len(), unproven(&bench)), (0, vec![0, 1, 2]));
}

#[test]
fn results_since_a_misplaced_marker_are_unproven_without_report() {
    let mut bench = three_passed();
    let gone = ProcessExitSummary { doubtful_since: Some(1), ..process_exit(signal(6), INCOMPLETE) };
    bench.finish_as(9, gone);
    assert_eq!((bench.states().len(), unproven(&bench)), (1, vec![1, 2]));
    // A process that ends well anyway has no error.
    let mut bench = three_passed();
    let gone = ProcessExitSummary { doubtful_since: Some(1), ..process_exit(exit(0), COMPLETE) };
    assert_eq!(bench.finish_as(9, gone), LeaseEnd::Complete);
    assert_eq!((bench.states().len(), unproven(&bench)), (1, vec![1, 2]));
}

#[test]
fn test_that_is_running_by_its_stack_proves_those_before_it() {
    for (stack, charged, proven) in [("A.t2", vec![2], 2), ("A.t0", vec![0, 1, 2], 0)] {
        let mut bench = holding(3);
        bench.chunk(1, [begun(0), passed(0), begun(1), passed(1), begun(2)], "");
        let gone = ProcessExitSummary {
            doubtful_since: Some(0),
            evidence: evidence(stack),
            ..process_exit(signal(6), INCOMPLETE)
        };
        bench.finish_as(9, gone);
        let crashes = bench.updates().reports.iter().filter_map(|report| match report {
            LeaseEvent::CrashedProvisionally { test, .. } => Some(test.0),
            _ => None,
        });
        assert_eq!((crashes.collect::<Vec<_>>(), bench.states().len()), (charged, proven));
    }
}

#[test]
fn death_in_suite_set_up_is_charged_to_its_tests() {
    for count in [1, 3] {
        let mut bench = BatchHarness::with_tests(count);
        let places = (0..count as usize).take(2).collect();
        let gone = ProcessExitSummary {
            suite_phase: Some(SuitePhase::SetUp { suite: "A".into(), places }),
            evidence: evidence("suite"),
            ..process_exit(signal(6), INCOMPLETE)
        };
        assert!(matches!(bench.finish_as(9, gone), LeaseEnd::DiedInTest { .. }));
        assert_eq!(bench.batch.order.first_begun(), None, "a start is measured at a test that ran");
        let results = bench.results();
        assert_eq!(results.len(), count.min(2) as usize);
        for node in results {
            let message = node.error_message.as_deref().unwrap();
            assert_eq!(message, "crashed with SIGABRT in the set-up of suite A");
        }
    }
}

#[test]
fn set_up_that_stands_still_is_charged_to_its_tests() {
    let in_set_up = |stack: &str| ProcessExitSummary {
        suite_phase: Some(SuitePhase::SetUp { suite: "A".into(), places: vec![1, 2] }),
        evidence: evidence(stack),
        ..process_exit(signal(15), INCOMPLETE)
    };
    for (stack, is_charged) in [("suite", true), ("", true), ("A.t0", false)] {
        let mut bench = BatchHarness::with_tests(4);
        bench.chunk(0, [begun(0), passed(0)], "");
        // The last attempt to start gets the same time. A known set-up gets it without earlier attempts.
        assert_eq!(bench.batch.on_deadline(at(60_000), true), DeadlineAction::Nothing);
        assert_eq!(bench.batch.deadline(), Some(std::time::Duration::from_secs(240)));
        assert_eq!(bench.batch.on_deadline(at(240_000), true), DeadlineAction::Terminate);
        let end = bench.finish_as(240_100, in_set_up(stack));
        assert_eq!(matches!(end, LeaseEnd::DiedInTest { .. }), is_charged, "{stack}: {end:?}");
        let results = bench.results();
        let timed_out = results.iter().filter_map(|node| node.error_message.as_deref());
        let expected: &[&str] = match is_charged {
            true => &["timed out after 240 s in the set-up of suite A"; 2],
            false => &[],
        };
        assert_eq!(timed_out.collect::<Vec<_>>(), expected);
    }
}

/// Returns a batch of two tests without a time limit. The second has ended except for a tear-down.
fn standing_in_tear_down() -> BatchHarness {
    let mut unlimited = lease(2);
    unlimited.limits.timeout_ms = None;
    let mut bench = BatchHarness::with_lease(unlimited);
    bench.chunk(0, [begun(0), passed(0), begun(1)], "");
    bench.batch.deadlines.note_tear_down(false, at(0));
    assert_eq!(bench.batch.deadline(), None);
    bench.batch.deadlines.note_tear_down(true, at(1000));
    bench.batch.deadlines.note_tear_down(true, at(2000));
    assert_eq!(bench.batch.deadline(), Some(std::time::Duration::from_secs(241)));
    bench
}

#[test]
fn tear_down_that_stands_still_has_a_limit_of_its_own() {
    // Without an announcement, no tear-down is known, so the check is repeated later.
    let mut bench = standing_in_tear_down();
    bench.batch.on_deadline(at(241_000), false);
    assert_eq!(bench.batch.deadline(), Some(std::time::Duration::from_secs(481)));
    let suite = || SuitePhase::TearDown { suite: "A".into(), verdict: verdict(FrameworkResult::Passed) };
    let fixture = || SuitePhase::FixtureTearDown { fixture: "f (a.py:1)".into() };
    let limit = "240 s (four times startup-timeout) in the tear-down of";
    for (phase, stack, message) in [
        (suite(), "suite", None),
        (suite(), "", Some(format!("timed out after {limit} suite A"))),
        (suite(), "A.t1", Some("timed out after 241 s".to_owned())),
        (fixture(), "", Some(format!("timed out after {limit} the fixture f (a.py:1)"))),
    ] {
        let mut bench = standing_in_tear_down();
        assert_eq!(bench.batch.on_deadline(at(240_999), true), DeadlineAction::Nothing);
        assert_eq!(bench.batch.on_deadline(at(241_000), true), DeadlineAction::Terminate);
        let gone = ProcessExitSummary {
            suite_phase: Some(phase),
            evidence: evidence(stack),
            is_after_end_marker: true,
            ..process_exit(signal(15), INCOMPLETE)
        };
        assert!(matches!(bench.finish_as(241_000, gone), LeaseEnd::DiedInTest { .. }));
        let results = bench.results();
        let messages: Vec<_> = results.iter().filter_map(|node| node.error_message.clone()).collect();
        assert_eq!(messages, message.into_iter().collect::<Vec<_>>(), "{stack}");
        let of_suite: Vec<_> = bench.fixture_failures();
        assert_eq!(of_suite.len(), usize::from(stack == "suite"));
        for (fixture, message) in of_suite {
            assert_eq!(fixture, "A (tear-down)");
            let expected = format!("the process exceeded {limit} the suite");
            assert!(message.starts_with(&expected), "{message}");
        }
    }
}

#[test]
fn time_limit_of_a_test_covers_its_tear_down() {
    let mut bench = holding(1);
    bench.chunk(0, [begun(0)], "");
    bench.batch.deadlines.note_tear_down(true, at(1));
    assert_eq!(bench.batch.deadline(), Some(std::time::Duration::from_millis(2000)));
}

#[test]
fn tear_down_behind_all_tests_has_the_limit_of_a_set_up() {
    let mut bench = BatchHarness::with_tests(1);
    bench.chunk(0, [begun(0), passed(0)], "");
    assert_eq!(bench.batch.on_deadline(at(60_000), true), DeadlineAction::Nothing);
    assert_eq!(bench.batch.on_deadline(at(240_000), true), DeadlineAction::Terminate);
    let gone = ProcessExitSummary {
        suite_phase: Some(SuitePhase::AfterTests { suite: "A".into() }),
        ..process_exit(signal(15), INCOMPLETE)
    };
    assert!(matches!(bench.finish_as(240_100, gone), LeaseEnd::DiedInTest { .. }));
    let (fixture, message) = bench.fixture_failures().remove(0);
    assert_eq!(fixture, "A (tear-down)");
    assert!(message.starts_with("the process exceeded 240 s (four times startup-timeout)"), "{message}");
}

#[test]
fn death_in_suite_tear_down_changes_no_result() {
    let phase =
        || Some(SuitePhase::TearDown { suite: "A".into(), verdict: verdict(FrameworkResult::Passed) });
    let ends =
        [(signal(6), "suite", true), (signal(6), "A.t1", false), (signal(6), "", false), (exit(3), "", true)];
    for (end, stack, is_tear_down) in ends {
        let mut bench = holding(2);
        bench.chunk(1, [begun(0), passed(0), begun(1)], "");
        let gone = ProcessExitSummary {
            suite_phase: phase(),
            evidence: evidence(stack),
            is_after_end_marker: true,
            ..process_exit(end, INCOMPLETE)
        };
        let end = bench.finish_as(9, gone);
        assert_eq!(bench.states().len(), if is_tear_down { 2 } else { 1 }, "{stack}");
        assert!(matches!(end, LeaseEnd::DiedInTest { .. }), "{end:?}");
        assert_eq!(bench.fixture_failures().len(), usize::from(is_tear_down), "{stack}");
        for (fixture, message) in bench.fixture_failures() {
            assert_eq!(fixture, "A (tear-down)");
            assert!(message.contains("in the tear-down of the suite"), "{message}");
        }
    }
    // The end of a single test's process decides, unless the stack trace shows where it died.
    for (stack, state) in [("", ExecutionState::Error), ("suite", ExecutionState::Passed)] {
        let mut bench = BatchHarness::with_tests(1);
        bench.chunk(1, [begun(0)], "");
        let gone = ProcessExitSummary {
            suite_phase: phase(),
            evidence: evidence(stack),
            is_after_end_marker: true,
            ..process_exit(exit(3), INCOMPLETE)
        };
        bench.finish_as(9, gone);
        assert_eq!(bench.states(), [("A.t0".to_owned(), state)]);
    }
}

#[test]
fn exit_in_a_test_contradicts_what_a_forked_copy_has_reported() {
    // The copy has written the end of the run and the report, and has removed the run mark.
    let gone = |stack: &str, count| ProcessExitSummary {
        exit_stack: Some(stack.to_owned()),
        run_evidence: reported(&vec![GOOD; count]),
        ..process_exit(exit(0), COMPLETE)
    };
    let mut bench = three_passed();
    assert!(matches!(bench.finish_as(9, gone("A.t1", 3)), LeaseEnd::DiedOutsideTest { .. }));
    assert_eq!((bench.states().len(), unproven(&bench)), (0, vec![0, 1, 2]));
    let mut bench = BatchHarness::with_tests(1);
    bench.chunk(1, [begun(0), passed(0)], "");
    assert!(matches!(bench.finish_as(9, gone("A.t0", 1)), LeaseEnd::DiedInTest { .. }));
    assert_eq!(bench.states(), [("A.t0".to_owned(), ExecutionState::Error)]);
    // After the run, in a program that had children.
    let mut bench = three_passed();
    assert_eq!(bench.finish_as(9, gone("", 3)), LeaseEnd::Complete);
    assert_eq!(bench.states().len(), 3);
}

#[test]
fn stack_of_an_exit_tells_the_tear_down_of_a_suite_from_its_last_test() {
    for (stack, state) in [("A.t0", ExecutionState::Error), ("suite", ExecutionState::Passed)] {
        let mut bench = BatchHarness::with_tests(1);
        bench.chunk(1, [begun(0)], "");
        let verdict = verdict(FrameworkResult::Passed);
        let gone = ProcessExitSummary {
            suite_phase: Some(SuitePhase::TearDown { suite: "A".into(), verdict }),
            exit_stack: Some(stack.to_owned()),
            is_after_end_marker: true,
            run_evidence: RunEvidence::LeftOpen,
            ..process_exit(exit(0), INCOMPLETE)
        };
        assert!(matches!(bench.finish_as(9, gone), LeaseEnd::DiedInTest { .. }));
        assert_eq!(bench.states(), [("A.t0".to_owned(), state)]);
        let failures = bench.fixture_failures();
        assert_eq!(failures.len(), usize::from(state == ExecutionState::Passed));
        assert!(
            failures.iter().all(|(_, message)| message.ends_with("--- stack ---\nsuite")),
            "{failures:?}"
        );
    }
}

#[test]
fn failed_assertions_of_suites_explain_the_exit() {
    let failure = |suite: &str, phase| FixtureFailure {
        fixture: SuiteFixture { suite: suite.into(), phase },
        message: "bad".into(),
    };
    for count in [1, 2] {
        let mut bench = if count == 1 { BatchHarness::with_tests(1) } else { holding(count) };
        bench.chunk(
            1,
            (0..count as usize).flat_map(|place| [begun(place), passed(place)]).collect::<Vec<_>>(),
            "",
        );
        let report = RunReport {
            verdicts: vec![Some(verdict(FrameworkResult::Passed)); count as usize],
            fixture_failures: vec![failure("A", FixturePhase::Either), failure("B", FixturePhase::Either)],
            ..RunReport::default()
        };
        let gone = ProcessExitSummary {
            fixture_failures: vec![failure("A", FixturePhase::SetUp)],
            run_evidence: RunEvidence::Report(report),
            ..process_exit(exit(1), COMPLETE)
        };
        assert_eq!(bench.finish_as(9, gone), LeaseEnd::Complete);
        assert!(bench.states().iter().all(|(_, state)| *state == ExecutionState::Passed));
        let fixtures: Vec<_> = bench.fixture_failures().into_iter().map(|(fixture, _)| fixture).collect();
        assert_eq!(fixtures, ["A (set-up)", "B (set-up or tear-down)"]);
    }
}

#[test]
fn time_limit_in_suite_tear_down_changes_no_result() {
    let mut bench = holding(2);
    bench.chunk(1, [begun(0), passed(0), begun(1)], "");
    bench.batch.check_held_tests(at(500), ALONE, &mut bench.sink);
    assert_eq!(bench.batch.on_deadline(at(2001), false), DeadlineAction::Terminate);
    let gone = ProcessExitSummary {
        suite_phase: Some(SuitePhase::TearDown {
            suite: "A".into(),
            verdict: verdict(FrameworkResult::Passed),
        }),
        evidence: evidence("suite"),
        ..process_exit(signal(15), INCOMPLETE)
    };
    assert!(matches!(bench.finish_as(2100, gone), LeaseEnd::DiedInTest { .. }));
    let [(_, message)] = bench.fixture_failures().try_into().unwrap();
    assert!(message.starts_with("the process exceeded the time limit"), "{message}");
    assert!(bench.states().iter().all(|(_, state)| *state == ExecutionState::Passed));
    assert_eq!(bench.states().len(), 2);
}

#[test]
fn report_of_a_sanitizer_fails_the_held_test_that_wrote_it() {
    let mut bench = holding(2);
    bench.chunk(1, [begun(0)], "SUMMARY: ThreadSanitizer: data race a.cc:3 in f\n");
    bench.chunk(2, [passed(0), begun(1)], "");
    bench.batch.check_held_tests(at(300), ALONE, &mut bench.sink);
    assert!(bench.states().is_empty(), "the process may exit for this");
    bench.chunk(301, [passed(1)], "");
    assert_eq!(bench.finish(302, exit(66), (true, false)), LeaseEnd::Complete);
    let results = bench.results();
    assert_eq!(results[0].error_message.as_deref(), Some("ThreadSanitizer: data race a.cc:3 in f"));
    assert_eq!(results[1].state, Some(ExecutionState::Passed));
}

#[test]
fn run_left_in_the_middle_fails_its_only_test() {
    let mut bench = BatchHarness::with_tests(1);
    bench.chunk(5, [begun(0), passed(0)], "");
    let gone = ProcessExitSummary { run_evidence: RunEvidence::LeftOpen, ..process_exit(exit(0), COMPLETE) };
    assert!(matches!(bench.finish_as(9, gone), LeaseEnd::DiedInTest { .. }));
    assert_eq!(bench.results()[0].outcome_kind.as_deref(), Some("exited-early"));
}

#[test]
fn unexplained_exit_code_fails_the_only_test_despite_its_report() {
    let mut bench = BatchHarness::with_tests(1);
    bench.chunk(5, [begun(0), passed(0)], "");
    let gone = ProcessExitSummary { run_evidence: reported(&[GOOD]), ..process_exit(exit(1), COMPLETE) };
    assert!(matches!(bench.finish_as(9, gone), LeaseEnd::DiedInTest { .. }));
    assert_eq!(bench.results()[0].outcome_kind.as_deref(), Some("exited-early"));
}

#[test]
fn test_whose_suite_ends_the_process_has_its_own_duration() {
    let set_up = SuitePhase::SetUp { suite: "B".into(), places: vec![1] };
    let tear_down = SuitePhase::TearDown { suite: "A".into(), verdict: verdict(FrameworkResult::Passed) };
    for (phase, begins, durations) in [(set_up, false, [500.0, 0.0]), (tear_down, true, [500.0, 10.0])] {
        let mut bench = BatchHarness::with_tests(2);
        bench.chunk(10, [begun(0)], "");
        bench.chunk(510, [passed(0)], "");
        if begins {
            bench.chunk(510, [begun(1)], "");
        }
        let gone = ProcessExitSummary {
            suite_phase: Some(phase),
            evidence: evidence("suite"),
            is_after_end_marker: begins,
            ..process_exit(signal(6), INCOMPLETE)
        };
        bench.finish_as(520, gone);
        let measured: Vec<_> = bench.results().iter().map(|node| node.duration_ms.unwrap()).collect();
        assert_eq!(measured, durations);
    }
}
