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
        let Some(held) = self.leases.get(&worker).filter(|held| held.lease == lease) else {
            return Vec::new();
        };
        let program = held.batch.program;
        let set_ups = self.set_ups.entry(lease).or_default();
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
        let due = self.set_ups.get_mut(&lease).and_then(|set_ups| set_ups.limited.take());
        let is_held = |worker: &WorkerId| self.leases[worker].lease == lease;
        let (Some(fixture), Some(worker)) = (due, self.leases.keys().copied().find(is_held)) else {
            return Vec::new();
        };
        let program = self.leases[&worker].batch.program;
        self.queue.limit_to_one_process(program);
        if let Some(held) = self.leases.get_mut(&worker) {
            held.cancel_mode = Some(CancelMode::Now);
        }
        vec![RunAction::ReturnTests { worker, program, fixture }]
    }

    /// Has a limit begin for each standing set-up of a fixture that another process has set up.
    fn limit_set_ups(&mut self, program: ProgramId) -> Vec<RunAction> {
        let mut actions = Vec::new();
        let own = self.leases.values().filter(|held| held.batch.program == program);
        let leases: Vec<_> = own.filter(|held| held.cancel_mode.is_none()).map(|held| held.lease).collect();
        for lease in leases {
            let Some(set_ups) = self.set_ups.get(&lease).filter(|set_ups| set_ups.limited.is_none()) else {
                continue;
            };
            let Some(fixture) = set_ups.standing.last().cloned() else { continue };
            if self.is_set_up_elsewhere(lease, program, &fixture)
                && let Some(set_ups) = self.set_ups.get_mut(&lease)
            {
                set_ups.limited = Some(fixture);
                actions.push(RunAction::LimitSetUp { lease, program });
            }
        }
        actions
    }

    fn is_set_up_elsewhere(&self, lease: LeaseId, program: ProgramId, fixture: &str) -> bool {
        let others = self.leases.values().filter(|held| held.lease != lease && held.batch.program == program);
        let mut set_ups = others.filter_map(|held| self.set_ups.get(&held.lease));
        set_ups.any(|set_ups| set_ups.done.contains(fixture))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        LeaseOutcome, Outcome, RetryPolicy,
        batching::{ProcessTraits, ProgramCosts},
        run::{BatchLease, RunEvent, ScheduledTest, SchedulingPlan},
    };

    const FIRST: WorkerId = WorkerId(1);
    const SECOND: WorkerId = WorkerId(2);
    const PROGRAM: ProgramId = ProgramId(0);

    /// Returns a run of 40 tests with a lease at each of two workers.
    fn run_of_two() -> (RunState, BatchLease, BatchLease) {
        let test = ScheduledTest {
            program: PROGRAM,
            weight: Some(Duration::from_millis(100)),
            is_isolated: false,
            retries: RetryPolicy::immediate(0),
            selection_bytes: 0,
            is_unrunnable: false,
            prerequisites: Vec::new(),
        };
        let process = ProcessTraits { takes_more_tests: true, ..ProcessTraits::NONE };
        let mut run = RunState::new(SchedulingPlan {
            programs: vec![ProgramCosts { process, ..ProgramCosts::default() }],
            tests: vec![test; 40],
            batch_limit: None,
            slots: 2,
            is_open: false,
            failure_limit: None,
            max_startup_crashes: 3,
            retry_seed: 0,
        });
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
