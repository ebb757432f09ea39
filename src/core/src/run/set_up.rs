//! Set-ups of a session's fixtures in one process. One that stands still while another process of the program
//! has the same fixture set up waits for something that the other one holds, such as a port. The process is
//! ended, its tests return to the queue, and the program runs in one process from then on.

use std::collections::BTreeSet;

use crate::SetUpProgress;

/// The set-ups of one process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct LeaseSetUps {
    /// Fixtures that are being set up; the last one by those before it.
    standing: Vec<String>,
    done: BTreeSet<String>,
    /// The standing fixture for which [`RunEvent::SetUpDue`](super::RunEvent::SetUpDue) follows.
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

    /// Returns the fixture that is being set up, if no limit has begun for it.
    pub(super) fn unlimited(&self) -> Option<&str> {
        self.standing.last().filter(|_| self.limited.is_none()).map(String::as_str)
    }

    /// Begins the limit of the fixture that is being set up.
    pub(super) fn limit(&mut self) {
        self.limited = self.standing.last().cloned();
    }

    /// Removes and returns the fixture whose limit is over.
    pub(super) fn take_limited(&mut self) -> Option<String> {
        self.limited.take()
    }
}
