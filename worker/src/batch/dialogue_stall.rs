//! Dialogues that do not go on: a process that does not take its next request, or can report no more.

use std::time::Duration;

use super::RunningBatch;
use crate::process::process_clock::ClockReading;

/// Why a dialogue with a process cannot go on while this lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DialogueStall {
    /// The process does not read its next request.
    RequestUnread,
    /// The process has closed what it reports on.
    ReportsClosed,
}

impl DialogueStall {
    /// Returns what the process did, for a message that begins with it.
    pub(super) fn description(self) -> &'static str {
        match self {
            Self::RequestUnread => "the process did not read its next request",
            Self::ReportsClosed => "the process closed its reports and did not exit",
        }
    }
}

impl RunningBatch {
    pub(super) fn startup_limit(&self) -> Duration {
        Duration::from_millis(self.limits.startup_ms)
    }

    pub(super) fn stall_deadline(&self) -> Option<Duration> {
        self.dialogue_stall.map(|(_, since)| since.saturating_add(self.startup_limit()))
    }

    /// Records whether the dialogue with the process can go on. A process under which it does not within the
    /// startup limit is ended.
    pub(crate) fn set_dialogue_stall(&mut self, stall: Option<DialogueStall>, now: ClockReading) {
        if self.dialogue_stall.map(|(known, _)| known) != stall {
            self.dialogue_stall = stall.map(|stall| (stall, now.running));
        }
    }

    /// Returns why the process is to be ended now.
    pub(super) fn due_stall(&self, now: ClockReading) -> Option<DialogueStall> {
        let is_due = self.stall_deadline().is_some_and(|deadline| deadline <= now.running);
        self.dialogue_stall.filter(|_| is_due).map(|(stall, _)| stall)
    }
}
