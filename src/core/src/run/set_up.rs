//! Set-ups of a session's fixtures that stand still in one process while other processes of the program have
//! the same fixture set up: they wait for something that those hold, such as a port. The process is ended,
//! its tests return to the queue, and the program runs in one process from then on.

use std::collections::BTreeSet;

use super::{CancelMode, RunAction, state::RunState};
use crate::{LeaseId, ProgramId, SetUpProgress, WorkerId};

/// The set-ups of one process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct LeaseSetUps {
    /// Fixtures that are being set up; the last one by those before it.
    standing: Vec<String>,
    done: BTreeSet<String>,
    /// The standing fixture for which [`RunEvent::SetUpDue`](super::RunEvent::SetUpDue) follows.
    limited: Option<String>,
}

impl RunState {
    pub(super) fn on_set_up(
        &mut self,
        worker: WorkerId,
        lease: LeaseId,
        fixture: String,
        progress: SetUpProgress,
    ) -> Vec<RunAction> {
        let Some(held) = self.leases.get_mut(&worker).filter(|held| held.lease == lease) else {
            return Vec::new();
        };
        let (program, set_ups) = (held.batch.program, &mut held.set_ups);
        set_ups.limited = None;
        if progress == SetUpProgress::Begun {
            set_ups.standing.push(fixture);
        } else {
            set_ups.standing.retain(|standing| *standing != fixture);
            if progress == SetUpProgress::Done {
                set_ups.done.insert(fixture);
            }
        }
        self.limit_set_ups(program)
    }

    /// Ends a process whose set-up has stood for the whole limit. The process that had the fixture may have
    /// ended meanwhile: what this one waits for does not come.
    pub(super) fn on_set_up_due(&mut self, lease: LeaseId) -> Vec<RunAction> {
        let Some((&worker, held)) = self.leases.iter_mut().find(|(_, held)| held.lease == lease) else {
            return Vec::new();
        };
        let Some(fixture) = held.set_ups.limited.take() else { return Vec::new() };
        held.cancel_mode = Some(CancelMode::Now);
        let program = held.batch.program;
        self.queue.limit_to_one_process(program);
        vec![RunAction::ReturnTests { worker, program, fixture }]
    }

    /// Has a limit begin for each standing set-up of a fixture that another process has set up.
    fn limit_set_ups(&mut self, program: ProgramId) -> Vec<RunAction> {
        let own = || self.leases.iter().filter(move |(_, held)| held.batch.program == program);
        let unlimited =
            own().filter(|(_, held)| held.cancel_mode.is_none() && held.set_ups.limited.is_none());
        let due: Vec<_> = unlimited
            .filter_map(|(worker, held)| {
                let fixture = held.set_ups.standing.last()?;
                let mut others = own().filter(|(other, _)| *other != worker);
                others
                    .any(|(_, other)| other.set_ups.done.contains(fixture))
                    .then(|| (*worker, fixture.clone()))
            })
            .collect();
        let mut actions = Vec::new();
        for (worker, fixture) in due {
            if let Some(held) = self.leases.get_mut(&worker) {
                held.set_ups.limited = Some(fixture);
                actions.push(RunAction::LimitSetUp { lease: held.lease, program });
            }
        }
        actions
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        LeaseOutcome, Outcome,
        batching::{ProcessTraits, ProgramCosts},
        run::{BatchLease, RunEvent, SchedulingPlan},
    };

    const FIRST: WorkerId = WorkerId(1);
    const SECOND: WorkerId = WorkerId(2);
    const PROGRAM: ProgramId = ProgramId(0);

    /// Returns a run of 40 tests with a lease at each of two workers.
    fn run_of_two() -> (RunState, BatchLease, BatchLease) {
        let process = ProcessTraits { takes_more_tests: true, ..ProcessTraits::NONE };
        let program = ProgramCosts { process, ..ProgramCosts::default() };
        let mut run =
            RunState::new(SchedulingPlan::of_one_program(program, 40, Some(Duration::from_millis(100))));
        let _requests = run.begin();
        let [first, second] =
            [FIRST, SECOND].map(|worker| match &run.handle(RunEvent::WorkerGranted(worker))[..] {
                [RunAction::Lease(lease), ..] => (**lease).clone(),
                other => panic!("{other:?}"),
            });
        (run, first, second)
    }

    fn set_up(lease: &BatchLease, progress: SetUpProgress) -> RunEvent {
        let (worker, lease) = (lease.worker, lease.lease);
        RunEvent::SetUp { worker, lease, fixture: "server".to_owned(), progress }
    }

    #[test]
    fn set_up_that_stands_while_another_process_has_it_returns_its_tests() {
        let (mut run, first, second) = run_of_two();
        assert_eq!(run.handle(set_up(&first, SetUpProgress::Begun)), []);
        assert_eq!(run.handle(set_up(&second, SetUpProgress::Begun)), []);
        let limit = RunAction::LimitSetUp { lease: second.lease, program: PROGRAM };
        assert_eq!(run.handle(set_up(&first, SetUpProgress::Done)), [limit]);
        let _started = run.handle(RunEvent::Started { lease: second.lease, test: second.batch.tests[0] });
        let due = RunEvent::SetUpDue { lease: second.lease };
        let fixture = "server".to_owned();
        assert_eq!(
            run.handle(due.clone()),
            [RunAction::ReturnTests { worker: SECOND, program: PROGRAM, fixture }]
        );
        assert_eq!(run.handle(due), [], "it is due once");
        let (worker, lease, end) = (SECOND, second.lease, LeaseOutcome::Cancelled);
        let actions = run.handle(RunEvent::LeaseEnded { worker, lease, end, start: None });
        assert_eq!(actions, [RunAction::ReleaseWorker(SECOND)], "one process runs all");
        // The process that has the fixture is given every test.
        let mut tests = first.batch.tests.clone();
        let mut position = 0;
        loop {
            for test in std::mem::take(&mut tests) {
                position += 1;
                let (worker, outcome, duration) = (FIRST, Outcome::Passed, Duration::from_millis(100));
                let _settled = run.handle(RunEvent::Settled { worker, test, outcome, duration, position });
            }
            match &run.handle(RunEvent::LeaseIdle { worker: FIRST, lease: first.lease })[..] {
                [RunAction::ExtendLease(extended), ..] => tests.clone_from(&extended.batch.tests),
                other => break assert!(matches!(other, [RunAction::EndLease { .. }]), "{other:?}"),
            }
        }
        assert_eq!(run.ledger().open_count(), 0);
    }

    #[test]
    fn set_up_that_ends_or_that_no_other_process_has_is_not_limited() {
        let (mut run, first, second) = run_of_two();
        let _begun = run.handle(set_up(&first, SetUpProgress::Begun));
        let _done = run.handle(set_up(&first, SetUpProgress::Done));
        let limit = RunAction::LimitSetUp { lease: second.lease, program: PROGRAM };
        assert_eq!(run.handle(set_up(&second, SetUpProgress::Begun)), [limit]);
        assert_eq!(run.handle(set_up(&second, SetUpProgress::Done)), []);
        assert_eq!(run.handle(RunEvent::SetUpDue { lease: second.lease }), [], "it has ended in time");
        let (mut run, first, second) = run_of_two();
        let _failed = run.handle(set_up(&first, SetUpProgress::Begun));
        let _failed = run.handle(set_up(&first, SetUpProgress::Failed));
        assert_eq!(run.handle(set_up(&second, SetUpProgress::Begun)), []);
        let (worker, lease, end) = (FIRST, first.lease, LeaseOutcome::DiedOutside);
        let _ended = run.handle(RunEvent::LeaseEnded { worker, lease, end, start: None });
        assert_eq!(run.handle(RunEvent::SetUpDue { lease: second.lease }), [], "it stands alone");
    }

    #[test]
    fn set_up_that_goes_on_standing_after_the_end_of_the_other_process_is_ended() {
        let (mut run, first, second) = run_of_two();
        let _done = run.handle(set_up(&first, SetUpProgress::Done));
        let limit = RunAction::LimitSetUp { lease: second.lease, program: PROGRAM };
        assert_eq!(run.handle(set_up(&second, SetUpProgress::Begun)), [limit]);
        let (worker, lease, end) = (FIRST, first.lease, LeaseOutcome::DiedOutside);
        let _ended = run.handle(RunEvent::LeaseEnded { worker, lease, end, start: None });
        let actions = run.handle(RunEvent::SetUpDue { lease: second.lease });
        assert!(matches!(actions[..], [RunAction::ReturnTests { worker: SECOND, .. }]), "{actions:?}");
    }
}
