//! A process that runs one of several iterations.

use std::num::NonZeroU32;

use super::*;

const COUNT: NonZeroU32 = NonZeroU32::new(3).unwrap();

/// Returns a process with two tests that runs this iteration of three.
fn iteration(number: u32) -> BatchHarness {
    let first = Iteration::first_of(COUNT);
    let iteration = std::iter::successors(Some(first), |one| one.next()).find(|one| one.number() == number);
    BatchHarness::with_iteration(WorkerLease { repeat: COUNT, ..lease(2) }, iteration.unwrap())
}

fn repeatable(harness: &mut BatchHarness) -> Vec<TestId> {
    harness.batch.settlement.iterations.take_repeatable().into_iter().map(|test| test.test).collect()
}

fn messages(harness: &BatchHarness) -> Vec<String> {
    harness.results().iter().map(|node| node.error_message.clone().unwrap_or_default()).collect()
}

#[test]
fn test_that_passes_has_its_result_in_the_last_iteration() {
    for number in 1..=COUNT.get() {
        let mut process = iteration(number);
        process.chunk(1, [begun(0), passed(0), begun(1), passed(1)], "");
        assert_eq!(process.finish(2, exit(0), COMPLETE), LeaseEnd::Complete);
        let is_last = number == COUNT.get();
        assert_eq!(process.results().len(), if is_last { 2 } else { 0 });
        assert_eq!(repeatable(&mut process), if is_last { vec![] } else { vec![TestId(0), TestId(1)] });
        let starts = process.nodes().len() - process.results().len();
        assert_eq!(starts, if number == 1 { 2 } else { 0 }, "the client receives one start of a test");
        let settled =
            process.updates().reports.iter().filter(|report| matches!(report, LeaseEvent::Settled { .. }));
        assert_eq!(settled.count(), process.results().len());
        for node in process.results() {
            assert_eq!(node.members["heeler.iterations"], COUNT.get());
        }
    }
}

#[test]
fn test_that_does_not_pass_ends_in_its_iteration() {
    let mut process = iteration(2);
    process.chunk(1, [begun(0), ended(0, FrameworkResult::Failed)], "bad");
    process.chunk(1, [begun(1), ended(1, FrameworkResult::Skipped)], "");
    process.finish(2, exit(1), COMPLETE);
    assert_eq!(messages(&process), ["in iteration 2 of 3: said: bad", ""]);
    for node in process.results() {
        assert_eq!(node.members["heeler.iterations"], 2);
    }
    assert!(repeatable(&mut process).is_empty());
}

#[test]
fn test_that_dies_or_exceeds_its_limit_names_the_iteration() {
    let mut process = iteration(2);
    process.chunk(1, [begun(0), passed(0), begun(1)], "");
    let end = process.finish(2, signal(11), INCOMPLETE);
    assert!(matches!(end, LeaseEnd::DiedInTest { .. }), "{end:?}");
    let held = process.updates().reports.iter().find_map(|report| match report {
        LeaseEvent::CrashedProvisionally { attempt, .. } => Some(attempt.message.clone()),
        _ => None,
    });
    assert_eq!(held.as_deref(), Some("crashed with SIGSEGV in iteration 2 of 3"));
    assert!(process.results().is_empty(), "the test that passed before has iterations left");
    assert_eq!(repeatable(&mut process), [TestId(0)]);

    let mut process = iteration(3);
    process.chunk(1, [begun(0)], "");
    assert_eq!(process.batch.on_deadline(at(5000), false), DeadlineAction::Terminate);
    process.finish(5001, signal(15), INCOMPLETE);
    assert_eq!(messages(&process), ["timed out after 2 s in iteration 3 of 3"]);
}

#[test]
fn cancelled_test_counts_the_iterations_before() {
    let mut process = iteration(2);
    process.chunk(1, [begun(0), passed(0), begun(1)], "");
    process.batch.deadlines.on_terminated(BatchTerminateReason::Cancelled);
    assert_eq!(process.finish(2, signal(15), INCOMPLETE), LeaseEnd::Cancelled);
    let results = process.results();
    assert_eq!(results.len(), 1);
    assert_eq!(results[0].members["heeler.iterations"], 1);
    assert_eq!(messages(&process), ["cancelled while running"]);
}
