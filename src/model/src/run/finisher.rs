//! What becomes of a run whose finisher is late or dead, and of one that can't have a finisher any more.

use std::time::Duration;

use super::{Action, Due, Event, Run, Stage, Succession};
use crate::{NotRun, Outcome, TestId, WorkerId};

impl Run {
    /// Returns what a finisher is to do that takes a dead one's place.
    #[must_use]
    pub fn succession(&self) -> Succession {
        match self.stage {
            Stage::Running | Stage::Draining => Succession::Begin,
            Stage::Finishing if self.is_finisher_given_up => Succession::Alone,
            Stage::Finishing => self.what_is_left(),
            Stage::Completed => Succession::Nothing,
        }
    }

    /// Returns whether the finisher was too slow, and its death is awaited.
    #[must_use]
    pub fn is_finisher_given_up(&self) -> bool {
        self.is_finisher_given_up
    }

    /// Ends the run at once, because there is no finisher and so no worker any more: what workers have in hand or
    /// still had to prove is settled by their journals, the rest is told as not run for want of workers. Returns what is
    /// to be done in the finisher's place; then the run is complete.
    pub fn end_alone(
        &mut self,
        mut journal: impl FnMut(WorkerId) -> Vec<(TestId, Outcome, Duration)>,
    ) -> Succession {
        // First the stop: what a lost worker gives back must not be handed to the next one.
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

    /// Returns what the client may not have, now that all streams are closed.
    pub(super) fn due(&self) -> Due {
        Due { resend: self.ledger.unproven(), told: self.ledger.told() }
    }
}
