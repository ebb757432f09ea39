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
