//! Set-ups of session fixtures in one process. If a set-up makes no progress while another process of the
//! program has set up the same fixture, it probably waits for a resource of the other process, such as a
//! port. The process is then ended, its tests return to the queue, and the program is limited to one process.

use std::collections::BTreeSet;

use crate::SetUpProgress;

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct LeaseSetUps {
    /// Fixtures that are being set up. Each fixture is needed by the previous one, so the last one is
    /// current.
    standing: Vec<String>,
    done: BTreeSet<String>,
    /// Current fixture, once its time limit runs; [`RunEvent::SetUpDue`](super::RunEvent::SetUpDue) follows.
    limited: Option<String>,
}

impl LeaseSetUps {
    pub(super) fn record(&mut self, fixture: String, progress: SetUpProgress) {
        self.limited = None;
        if progress == SetUpProgress::Begun {
            self.standing.push(fixture);
        } else {
            self.standing.retain(|standing| *standing != fixture);
            if progress == SetUpProgress::Done {
                self.done.insert(fixture);
            }
        }
    }

    pub(super) fn has(&self, fixture: &str) -> bool {
        self.done.contains(fixture)
    }

    /// Returns the fixture that is being set up, unless its time limit has started.
    pub(super) fn unlimited(&self) -> Option<&str> {
        self.standing.last().filter(|_| self.limited.is_none()).map(String::as_str)
    }

    /// Starts the time limit of the current fixture.
    pub(super) fn limit(&mut self) {
        self.limited = self.standing.last().cloned();
    }

    /// Removes and returns the fixture that has reached its time limit.
    pub(super) fn take_limited(&mut self) -> Option<String> {
        self.limited.take()
    }
}
