//! Dialogues that do not go on: a process that does not take its next request, or can report no more.
//!
//! Where a test begins with its request, its clock runs from the moment at which the process takes the
//! request: a process that the system does not schedule would otherwise use up the time of its test.

use std::time::Duration;

use super::{BatchTerminateReason, RunningBatch};
use crate::process::process_clock::ClockReading;

/// Time between two looks whether the process has taken its request: pipes do not notify their writer.
const REQUEST_LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// A request that the process has not begun to read.
#[derive(Debug, Clone, Copy)]
pub(super) struct UntakenRequest {
    place: usize,
    since: Duration,
    look_at: Duration,
}

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

    /// Stops the clock of each test until the process takes the request that begins the test. Not for
    /// frameworks whose processes report that a test begins: the report proves that the test runs.
    pub(crate) fn expect_requests_taken(&mut self) {
        self.begins_with_request = true;
    }

    /// Returns whether clocks stand until requests are taken, so that each read has to look at the request.
    pub(crate) fn awaits_requests_taken(&self) -> bool {
        self.begins_with_request
    }

    /// Records whether the process has begun to read its last request.
    pub(crate) fn set_request_taken(&mut self, is_taken: bool, now: ClockReading) {
        let ([flight], false) = (&mut self.running_tests[..], is_taken) else {
            self.untaken_request = None;
            return;
        };
        (flight.started_at.running, flight.last_activity) = (now.running, now.running);
        let known = self.untaken_request.filter(|untaken| untaken.place == flight.place);
        self.untaken_request = Some(UntakenRequest {
            place: flight.place,
            since: known.map_or(now.running, |untaken| untaken.since),
            look_at: now.running.saturating_add(REQUEST_LOOK_INTERVAL),
        });
    }

    /// Returns when the request that was not taken is to be looked at again, or is waited for no longer.
    pub(super) fn request_look_deadline(&self) -> Option<Duration> {
        let untaken = self.untaken_request?;
        Some(untaken.look_at.min(untaken.since.saturating_add(self.startup_limit())))
    }

    /// Ends the wait for a process that has not taken its request within the startup limit: the test waits
    /// for another process. Returns whether the process is to be ended.
    pub(super) fn withdraw_untaken_request(&mut self, now: ClockReading) -> bool {
        let limit = self.startup_limit();
        let Some(untaken) =
            self.untaken_request.take_if(|untaken| untaken.since.saturating_add(limit) <= now.running)
        else {
            return false;
        };
        self.running_tests.retain(|flight| flight.place != untaken.place);
        self.order.withdraw(untaken.place);
        self.terminate_reason = Some(BatchTerminateReason::RequestUntaken);
        true
    }

    /// Returns why the process is to be ended now.
    pub(super) fn due_stall(&self, now: ClockReading) -> Option<DialogueStall> {
        let is_due = self.stall_deadline().is_some_and(|deadline| deadline <= now.running);
        self.dialogue_stall.filter(|_| is_due).map(|(stall, _)| stall)
    }
}
