//! Repeats the tests of a lease. Each iteration is a separate process, with the tests that passed all earlier
//! iterations.

use heeler_core::Iteration;
use heeler_protocol::control::LeaseEnd;
use tokio::sync::mpsc::{self, error::TryRecvError};

use crate::process::job_order::JobOrder;

/// How the process of one iteration ended.
#[derive(Debug)]
pub(super) struct IterationEnd {
    pub(super) iteration: Iteration,
    /// End of the lease if no iteration follows.
    pub(super) end: LeaseEnd,
    /// Some tests have passed this iteration and have more to run.
    pub(super) has_repeatable_tests: bool,
    /// The coordinator has ordered that no more tests begin.
    pub(super) is_ending: bool,
}

/// Next step after an iteration.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum RepetitionStep {
    /// Run the next iteration with the tests that passed this one.
    Continue(Iteration, LeaseEnd),
    /// End the lease. Tests with iterations left have no result, and the coordinator decides about them.
    End(LeaseEnd),
}

/// Decides what follows an iteration. A process that did not end by itself, or that died in or between tests,
/// ends the lease, as it would without repetition. A bad exit after all tests is reported at the end of the
/// lease.
pub(super) fn step_after(ended: IterationEnd) -> RepetitionStep {
    let IterationEnd { iteration, end, has_repeatable_tests, is_ending } = ended;
    let is_over = match &end {
        LeaseEnd::Complete | LeaseEnd::BadExit { .. } => !has_repeatable_tests,
        LeaseEnd::DiedInTest { .. }
        | LeaseEnd::DiedOutsideTest { .. }
        | LeaseEnd::StartTimedOut { .. }
        | LeaseEnd::NotStarted { .. }
        | LeaseEnd::GuardLost { .. }
        | LeaseEnd::Cancelled => true,
    };
    match iteration.next() {
        _ if is_over => RepetitionStep::End(end),
        Some(next) if !is_ending => RepetitionStep::Continue(next, end),
        Some(_) | None => RepetitionStep::End(LeaseEnd::Cancelled),
    }
}

/// Combines the ends of a lease's earlier processes and its last one. The first bad exit is kept.
pub(super) fn end_of_lease(earlier: Option<LeaseEnd>, last: LeaseEnd) -> LeaseEnd {
    match (earlier, last) {
        (Some(earlier @ LeaseEnd::BadExit { .. }), LeaseEnd::Complete | LeaseEnd::BadExit { .. }) => earlier,
        (_, last) => last,
    }
}

/// Returns whether a process ended by itself, rather than on request or because of a fault in Heeler.
pub(super) fn has_ended_by_itself(end: &LeaseEnd) -> bool {
    match end {
        LeaseEnd::Complete
        | LeaseEnd::BadExit { .. }
        | LeaseEnd::DiedInTest { .. }
        | LeaseEnd::DiedOutsideTest { .. } => true,
        LeaseEnd::StartTimedOut { .. }
        | LeaseEnd::NotStarted { .. }
        | LeaseEnd::GuardLost { .. }
        | LeaseEnd::Cancelled => false,
    }
}

/// Combines the ends of a process and of the process that reran one of its tests. A failure of the program is
/// kept, and so is the reason why the second process has no result.
pub(super) fn end_after_rerun(first: LeaseEnd, again: LeaseEnd) -> LeaseEnd {
    use LeaseEnd::{BadExit, Complete, DiedInTest, DiedOutsideTest};
    match (first, again) {
        // The rerun may replace the test that died.
        (Complete | DiedInTest { .. }, again) => again,
        (first, Complete | DiedInTest { .. } | BadExit { .. } | DiedOutsideTest { .. }) => first,
        (_, again) => again,
    }
}

/// Handles the orders that arrived between two processes, waiting while the lease is paused. Returns whether
/// the next process may start.
///
/// Cancel safe: no, because a received order may be lost.
pub(super) async fn may_continue(orders: &mut mpsc::Receiver<JobOrder>, is_paused: bool) -> bool {
    let mut is_paused = is_paused;
    loop {
        let order = match orders.try_recv() {
            Ok(order) => Some(order),
            // The coordinator ends each pause, and the worker's exit closes the channel, so this wait ends.
            Err(TryRecvError::Empty) if is_paused => orders.recv().await,
            Err(TryRecvError::Empty) => return true,
            Err(TryRecvError::Disconnected) => None,
        };
        match order {
            // Dropping the sender confirms the pause.
            Some(JobOrder::Pause { .. }) => is_paused = true,
            Some(JobOrder::Resume) => is_paused = false,
            Some(JobOrder::Debugger { .. } | JobOrder::Extend(_) | JobOrder::EndIdle { .. }) => {}
            Some(
                JobOrder::Cancel { .. }
                | JobOrder::ReturnTests { .. }
                | JobOrder::CancelAfterRunningTests { .. }
                | JobOrder::Kill,
            )
            | None => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use heeler_protocol::control::ProcessExit;
    use tokio::sync::oneshot;

    use super::*;

    fn bad_exit(code: i32) -> LeaseEnd {
        let end = ProcessExit { code: Some(code), ..ProcessExit::default() };
        LeaseEnd::BadExit { end, message: String::new() }
    }

    fn ends() -> Vec<LeaseEnd> {
        let end = ProcessExit::default();
        vec![
            LeaseEnd::Complete,
            bad_exit(3),
            LeaseEnd::DiedInTest { end: end.clone() },
            LeaseEnd::DiedOutsideTest { end: end.clone(), message: String::new() },
            LeaseEnd::StartTimedOut { end, message: String::new() },
            LeaseEnd::NotStarted { error: String::new() },
            LeaseEnd::GuardLost { loss: heeler_core::GuardLoss::Unknown },
            LeaseEnd::Cancelled,
        ]
    }

    #[test]
    fn rerun_hides_no_failure_of_the_program_and_no_lack_of_a_result() {
        for first in ends().into_iter().filter(has_ended_by_itself) {
            for again in ends() {
                let end = end_after_rerun(first.clone(), again.clone());
                let is_of_program = |end: &LeaseEnd| {
                    matches!(end, LeaseEnd::BadExit { .. } | LeaseEnd::DiedOutsideTest { .. })
                };
                let lacks_result = !has_ended_by_itself(&again);
                assert_eq!(has_ended_by_itself(&end), !lacks_result, "{first:?} {again:?}");
                if !lacks_result {
                    let expected = is_of_program(&first) || is_of_program(&again);
                    assert_eq!(is_of_program(&end), expected, "{first:?} {again:?}");
                }
            }
        }
    }

    #[test]
    fn only_an_orderly_process_is_followed_by_another() {
        let first = Iteration::first_of(NonZeroU32::new(2).unwrap());
        let last = first.next().unwrap();
        for end in ends() {
            for (iteration, has_repeatable_tests, is_ending) in [
                (first, true, false),
                (first, true, true),
                (first, false, false),
                (first, false, true),
                (last, false, false),
                (last, false, true),
            ] {
                let is_orderly = matches!(end, LeaseEnd::Complete | LeaseEnd::BadExit { .. });
                let ended = IterationEnd { iteration, end: end.clone(), has_repeatable_tests, is_ending };
                let expected = match (is_orderly && has_repeatable_tests, is_ending) {
                    (true, false) => RepetitionStep::Continue(last, end.clone()),
                    (true, true) => RepetitionStep::End(LeaseEnd::Cancelled),
                    (false, _) => RepetitionStep::End(end.clone()),
                };
                assert_eq!(step_after(ended), expected, "{end:?} {has_repeatable_tests} {is_ending}");
            }
        }
    }

    #[test]
    fn first_bad_exit_is_the_end_of_an_orderly_lease() {
        for last in ends() {
            let is_orderly = matches!(last, LeaseEnd::Complete | LeaseEnd::BadExit { .. });
            let expected = if is_orderly { bad_exit(9) } else { last.clone() };
            assert_eq!(end_of_lease(Some(bad_exit(9)), last.clone()), expected);
            assert_eq!(end_of_lease(Some(LeaseEnd::Complete), last.clone()), last);
            assert_eq!(end_of_lease(None, last.clone()), last);
        }
    }

    #[tokio::test]
    async fn orders_between_processes_are_carried_out() {
        let grace_ms = 1;
        let (sender, mut orders) = mpsc::channel(8);
        assert!(may_continue(&mut orders, false).await);
        sender.send(JobOrder::Resume).await.unwrap();
        assert!(may_continue(&mut orders, true).await);
        let (paused, confirmation) = oneshot::channel();
        sender.send(JobOrder::Pause { paused }).await.unwrap();
        sender.send(JobOrder::Resume).await.unwrap();
        assert!(may_continue(&mut orders, false).await);
        assert!(confirmation.await.is_err(), "dropped");
        for order in
            [JobOrder::Cancel { grace_ms }, JobOrder::CancelAfterRunningTests { grace_ms }, JobOrder::Kill]
        {
            sender.send(order).await.unwrap();
            assert!(!may_continue(&mut orders, true).await);
        }
        drop(sender);
        assert!(!may_continue(&mut orders, false).await);
    }
}
