//! Dialogues that do not go on: a process that does not take its next request, or can report no more.
//!
//! Where a test begins with its request, its clock runs from the moment at which the process takes the
//! request: a process that the system does not schedule would otherwise use up the time of its test.

use std::time::Duration;

use crate::process::process_clock::ClockReading;

/// Time between two looks whether the process has taken its request: pipes do not notify their writer.
const REQUEST_LOOK_INTERVAL: Duration = Duration::from_millis(50);

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

/// The dialogue with a process, and since when it does not go on.
#[derive(Debug)]
pub(crate) struct Dialogue {
    stall: Option<(DialogueStall, Duration)>,
    untaken: Option<UntakenRequest>,
    /// The clock of each test stands until the process takes the request that begins the test.
    begins_with_request: bool,
    /// How long it may not go on.
    limit: Duration,
}

/// A request that the process has not begun to read.
#[derive(Debug, Clone, Copy)]
struct UntakenRequest {
    place: usize,
    since: Duration,
    look_at: Duration,
}

impl Dialogue {
    pub(super) fn with_limit(limit: Duration) -> Self {
        Self { stall: None, untaken: None, begins_with_request: false, limit }
    }

    /// Records whether the dialogue can go on. A process under which it does not within the startup limit is
    /// ended.
    pub(crate) fn set_stall(&mut self, stall: Option<DialogueStall>, now: ClockReading) {
        if self.stall.map(|(known, _)| known) != stall {
            self.stall = stall.map(|stall| (stall, now.running));
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

    /// Records the test whose request the process has not begun to read; `None`: there is none.
    pub(super) fn set_untaken(&mut self, place: Option<usize>, now: ClockReading) {
        self.untaken = place.map(|place| UntakenRequest {
            place,
            since: self.untaken.filter(|known| known.place == place).map_or(now.running, |known| known.since),
            look_at: now.running.saturating_add(REQUEST_LOOK_INTERVAL),
        });
    }

    pub(super) fn has_untaken_request(&self) -> bool {
        self.untaken.is_some()
    }

    /// Returns when the stall has taken too long, or the request that was not taken is to be looked at again.
    pub(super) fn deadline(&self) -> Option<Duration> {
        let look = self.untaken.map(|untaken| untaken.look_at.min(self.end_of_wait(untaken)));
        self.stall_deadline().into_iter().chain(look).min()
    }

    fn stall_deadline(&self) -> Option<Duration> {
        self.stall.map(|(_, since)| since.saturating_add(self.limit))
    }

    fn end_of_wait(&self, untaken: UntakenRequest) -> Duration {
        untaken.since.saturating_add(self.limit)
    }

    /// Takes the test whose request the process has not taken within the limit.
    pub(super) fn take_overdue_request(&mut self, now: ClockReading) -> Option<usize> {
        let overdue = self.untaken.filter(|untaken| self.end_of_wait(*untaken) <= now.running)?;
        self.untaken = None;
        Some(overdue.place)
    }

    /// Returns why the process is to be ended now.
    pub(super) fn due_stall(&self, now: ClockReading) -> Option<DialogueStall> {
        let is_due = self.stall_deadline().is_some_and(|deadline| deadline <= now.running);
        self.stall.filter(|_| is_due).map(|(stall, _)| stall)
    }
}
