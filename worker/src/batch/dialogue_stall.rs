//! Stalled dialogues: the process does not read its next request, or can no longer report.
//!
//! If a request begins a test, the test's clock starts when the process reads the request. Otherwise a
//! process that the system does not schedule would use up its test's time.

use std::time::Duration;

use crate::process::process_clock::ClockReading;

/// Interval for checking whether the process has read its request. Pipes do not notify their writer.
const REQUEST_LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Why the dialogue with a process is stalled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DialogueStall {
    /// The process does not read its next request.
    RequestUnread,
    /// The process has closed its report channel.
    ReportsClosed,
}

impl DialogueStall {
    /// Returns what the process did, as the beginning of a message.
    pub(super) fn description(self) -> &'static str {
        match self {
            Self::RequestUnread => "the process did not read its next request",
            Self::ReportsClosed => "the process closed its report channel but did not exit",
        }
    }
}

/// The dialogue with a process, and since when it has been stalled.
#[derive(Debug)]
pub(crate) struct Dialogue {
    stall: Option<(DialogueStall, Duration)>,
    untaken: Option<UntakenRequest>,
    /// Each test's clock starts when the process reads the request that begins the test.
    begins_with_request: bool,
    /// Maximum duration of a stall.
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

    /// Records whether the dialogue is stalled. The process is ended if a stall outlasts the startup limit.
    pub(crate) fn set_stall(&mut self, stall: Option<DialogueStall>, now: ClockReading) {
        if self.stall.map(|(known, _)| known) != stall {
            self.stall = stall.map(|stall| (stall, now.running));
        }
    }

    /// Makes each test's clock wait until the process reads the request that begins the test. Not for
    /// frameworks whose processes report the begin of a test: the report already proves that the test runs.
    pub(crate) fn expect_requests_taken(&mut self) {
        self.begins_with_request = true;
    }

    /// Returns whether clocks wait for requests to be read. If so, each read of output must check the
    /// request.
    pub(crate) fn awaits_requests_taken(&self) -> bool {
        self.begins_with_request
    }

    /// Records the test whose request the process has not begun to read, or `None`.
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

    /// Returns when a stall becomes too long, or when to check an unread request again.
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

    /// Takes the test whose request the process did not read within the limit.
    pub(super) fn take_overdue_request(&mut self, now: ClockReading) -> Option<usize> {
        let overdue = self.untaken.filter(|untaken| self.end_of_wait(*untaken) <= now.running)?;
        self.untaken = None;
        Some(overdue.place)
    }

    /// Returns a stall that has lasted too long, so the process must be ended now.
    pub(super) fn due_stall(&self, now: ClockReading) -> Option<DialogueStall> {
        let is_due = self.stall_deadline().is_some_and(|deadline| deadline <= now.running);
        self.stall.filter(|_| is_due).map(|(stall, _)| stall)
    }
}
