//! Handling of a late or dead finisher, and of a run that cannot have a finisher any more.

use std::time::Duration;

use super::{Action, Due, Event, Run, Stage, Succession};
use crate::{NotRun, Outcome, TestId, WorkerId};

impl Run {
    /// Returns the task of a finisher that replaces a dead one.
    #[must_use]
    pub fn succession(&self) -> Succession {
        match self.stage {
            Stage::Running | Stage::Draining => Succession::Begin,
            Stage::Finishing if self.is_finisher_given_up => Succession::Alone,
            Stage::Finishing => self.what_is_left(),
            Stage::Completed => Succession::Nothing,
        }
    }

    /// Returns whether the finisher exceeded its time limit, and its death is awaited.
    #[must_use]
    pub fn is_finisher_given_up(&self) -> bool {
        self.is_finisher_given_up
    }

    /// Completes the run immediately, because there is no finisher and therefore no worker any more: leases
    /// and unproven streams of workers are settled by their journals, all other tests are recorded as not run
    /// for lack of workers. Returns what remains to be done in the finisher's place; the run is complete
    /// afterwards.
    pub fn end_alone(
        &mut self,
        mut journal: impl FnMut(WorkerId) -> Vec<(TestId, Outcome, Duration)>,
    ) -> Succession {
        // The stop comes first: tests that a lost worker returns must not be assigned to the next one.
        self.stop(NotRun::NoWorker);
        while let Some(worker) = self.awaited_workers().first().copied() {
            let settled = journal(worker);
            let _ordered_of_nobody = self.handle(Event::WorkerLost { worker, proven: 0, settled });
        }
        let is_over = self.stage == Stage::Completed;
        self.stage = Stage::Completed;
        if is_over { Succession::Nothing } else { self.what_is_left() }
    }

    fn what_is_left(&self) -> Succession {
        if self.is_completing { Succession::Complete } else { Succession::Finish(self.due()) }
    }

    pub(super) fn finisher_late(&mut self) -> Vec<Action> {
        let is_given_up = self.stage == Stage::Finishing && !self.is_finisher_given_up;
        self.is_finisher_given_up |= is_given_up;
        if is_given_up { vec![Action::KillFinisher] } else { Vec::new() }
    }

    /// Returns the results that the client may lack, now that all streams are closed.
    pub(super) fn due(&self) -> Due {
        Due { resend: self.ledger.unproven(), told: self.ledger.told() }
    }
}
