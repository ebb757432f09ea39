//! Decides which reports reach the coordinator before the client gets the batch, if no journal has the
//! results.

use std::collections::HashSet;

use heeler_core::TestId;
use heeler_protocol::control::LeaseEvent;

/// Takes the reports that the coordinator needs before the client gets any result of the batch. The remaining
/// reports cause reruns, and must wait until the client has handled everything this worker sent about these
/// tests. Otherwise the client could see the old start of a test after its new result. A test with a result
/// in the same batch does not run again.
pub(super) fn take_early_reports(reports: &mut Vec<LeaseEvent>) -> Vec<LeaseEvent> {
    let settled: HashSet<TestId> = reports
        .iter()
        .filter_map(|report| match report {
            LeaseEvent::Settled { test, .. } => Some(*test),
            _ => None,
        })
        .collect();
    let mut again = HashSet::new();
    let is_late = |report: &mut LeaseEvent| match report {
        LeaseEvent::FailedProvisionally { test, .. }
        | LeaseEvent::CrashedProvisionally { test, .. }
        | LeaseEvent::IterationPassed { test, .. } => {
            let runs_again = !settled.contains(test);
            if runs_again {
                again.insert(*test);
            }
            runs_again
        }
        // The next start of the test comes after the report that causes its rerun.
        LeaseEvent::Started(test) => again.contains(test),
        _ => false,
    };
    let late: Vec<LeaseEvent> = reports.extract_if(.., is_late).collect();
    std::mem::replace(reports, late)
}

#[cfg(test)]
mod tests {
    use heeler_core::{Attempt, Outcome};

    use super::*;

    fn crashed(test: TestId) -> LeaseEvent {
        let attempt = Attempt::new(Outcome::Crashed, "");
        LeaseEvent::CrashedProvisionally { test, attempt: Box::new(attempt) }
    }

    #[test]
    fn reports_that_let_a_test_run_again_are_late_unless_it_has_its_result() {
        let [one, two, three] = [1, 2, 3].map(TestId);
        let passed = |test| LeaseEvent::IterationPassed { test, duration_us: 1 };
        let settled =
            |test| LeaseEvent::Settled { test, outcome: Outcome::Passed, duration_us: 1, position: 1 };
        let early = [
            LeaseEvent::Started(one),
            passed(one),
            LeaseEvent::Started(one),
            settled(one),
            LeaseEvent::Started(two),
            LeaseEvent::Started(three),
        ];
        let late = [passed(two), LeaseEvent::Started(two), crashed(three)];
        let mut reports: Vec<_> = early[..5].to_vec();
        reports.extend_from_slice(&late[..2]);
        reports.extend([early[5].clone(), late[2].clone()]);
        assert_eq!(take_early_reports(&mut reports), early);
        assert_eq!(reports, late);
    }
}
