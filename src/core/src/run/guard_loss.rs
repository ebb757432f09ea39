//! Consecutive guard losses of a test's or a program's processes.

use crate::{GuardLoss, NotRunReason};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct GuardLosses {
    count: u32,
    /// How the guards were lost.
    loss: Option<GuardLoss>,
    /// Whether the test had started before any of the losses.
    has_begun: bool,
}

impl GuardLosses {
    pub(super) fn record(&mut self, loss: GuardLoss, has_begun: bool) {
        self.count += 1;
        self.loss = Some(self.loss.map_or(loss, |earlier| earlier.and(loss)));
        self.has_begun |= has_begun;
    }

    pub(super) fn count(self) -> u32 {
        self.count
    }

    fn loss(self) -> GuardLoss {
        self.loss.unwrap_or(GuardLoss::Unknown)
    }

    /// Returns why a test with these losses is not run again.
    pub(super) fn reason_of_test(self) -> NotRunReason {
        NotRunReason::GuardLost { losses: self.count, loss: self.loss(), has_begun: self.has_begun }
    }

    /// Returns why the tests of a program with these losses are not run.
    pub(super) fn reason_of_program(self) -> NotRunReason {
        NotRunReason::ProgramGuardsLost { losses: self.count, loss: self.loss() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KILLED: GuardLoss = GuardLoss::Killed { signal: 9 };

    #[test]
    fn only_consecutive_losses_of_one_kind_are_reported_as_such() {
        let mut losses = GuardLosses::default();
        let mut record = |loss| {
            losses.record(loss, false);
            (losses.count(), losses.loss())
        };
        assert_eq!(record(KILLED), (1, KILLED));
        assert_eq!(record(KILLED), (2, KILLED));
        assert_eq!(record(GuardLoss::Exited { code: 1 }), (3, GuardLoss::Unknown));
        assert_eq!(record(KILLED), (4, GuardLoss::Unknown));
    }
}
