//! A process whose guard is lost.

use heeler_core::{GuardLoss, RunRecord};

use super::*;

const LOSS: GuardLoss = GuardLoss::Killed { signal: 9 };

fn lost(word: TranscriptState) -> ProcessExitSummary {
    ProcessExitSummary { guard_loss: Some(LOSS), ..process_exit(ProcessExit::default(), word) }
}

#[test]
fn tests_without_result_wait_again_after_guard_loss() {
    let mut bench = BatchHarness::with_tests(4);
    bench.chunk(5, [begun(0), passed(0), begun(1), begun(2)], "");
    assert_eq!(bench.finish_as(9, lost(INCOMPLETE)), LeaseEnd::GuardLost { loss: LOSS });
    assert_eq!(bench.states(), [("A.t0".to_owned(), ExecutionState::Passed)]);
    let is_provisional = |record: &RunRecord| matches!(record, RunRecord::Provisional { .. });
    assert!(!bench.records().iter().any(is_provisional), "no attempt is counted");
    let is_waiting = [0, 1, 2, 3].map(|place| bench.batch.order.is_waiting(place));
    assert_eq!(is_waiting, [false, true, true, true]);
    let [log] = &bench.updates().logs[..] else { panic!("{:?}", bench.updates().logs) };
    let text = "Heeler's guard was killed by signal 9; rerunning the unfinished tests of its process";
    assert_eq!((log.test, log.message.as_str()), (None, text));
}

#[test]
fn guard_loss_after_all_results_is_no_failure_of_the_program() {
    let mut bench = BatchHarness::with_tests(2);
    bench.chunk(5, [begun(0), passed(0), begun(1), passed(1)], "");
    for word in [COMPLETE, INCOMPLETE] {
        assert_eq!(bench.finish_as(9, lost(word)), LeaseEnd::GuardLost { loss: LOSS });
    }
    assert_eq!(bench.states().len(), 2);
    assert!(bench.updates().logs[0].message.ends_with("; the exit status of its process is unknown"));
}

#[test]
fn held_test_that_seems_to_have_passed_runs_again_after_guard_loss_and_a_failure_stays() {
    // The only test of a process is held until the process ends.
    for (seen, states) in [(passed(0), 0), (ended(0, FrameworkResult::Failed), 1)] {
        let mut bench = BatchHarness::with_tests(1);
        bench.chunk(5, [begun(0), seen], "");
        assert_eq!(bench.finish_as(9, lost(COMPLETE)), LeaseEnd::GuardLost { loss: LOSS });
        assert_eq!(bench.states().len(), states);
        assert_eq!(bench.batch.order.is_waiting(0), states == 0);
    }
}

#[test]
fn guard_loss_during_termination_keeps_the_reason_of_the_termination() {
    let mut bench = BatchHarness::with_tests(2);
    bench.chunk(5, [begun(0)], "");
    assert_eq!(bench.batch.on_deadline(at(60_005), false), DeadlineAction::Terminate);
    assert!(matches!(bench.finish_as(60_010, lost(INCOMPLETE)), LeaseEnd::DiedInTest { .. }));
    assert_eq!(bench.states(), [("A.t0".to_owned(), ExecutionState::TimedOut)]);
    let mut bench = BatchHarness::with_tests(2);
    bench.chunk(5, [begun(0)], "");
    bench.batch.deadlines.on_terminated(BatchTerminateReason::Cancelled);
    assert_eq!(bench.finish_as(9, lost(INCOMPLETE)), LeaseEnd::Cancelled);
    assert_eq!(bench.states(), [("A.t0".to_owned(), ExecutionState::Cancelled)]);
}
