//! The clock of one running test: its start, and the limits that have passed.

use std::time::Duration;

use heeler_protocol::control::{LeasedTest, TestLimits};

use super::deadlines::announced_phase_limit;
use crate::process::process_clock::ClockReading;

#[derive(Debug)]
pub(super) struct TestClock {
    place: usize,
    started_at: ClockReading,
    /// Time of the last output of the test or its process, plus the time when the process was runnable but
    /// not scheduled.
    last_activity: Duration,
    /// The test's own time limit, or else the lease's.
    time_limit: Option<Duration>,
    /// Limit set by the framework while the test ran. Replaces the configured limit.
    framework_limit: Option<Duration>,
    idle_timeout: Option<Duration>,
    /// Time limit for a tear-down that the output announces.
    tear_down_limit: Duration,
    /// Running time when a tear-down after the test may have begun.
    tear_down_since: Option<Duration>,
    /// Running time when the test began to wait for other tests.
    paused_since: Option<Duration>,
    slow_period: Option<Duration>,
    /// Number of times the test was reported as slow.
    slow_warnings: u32,
    is_timed_out: bool,
    is_idle: bool,
    /// The framework reported the end of the test after its time limit had passed.
    is_late: bool,
}

impl TestClock {
    /// Creates the clock of a test that begins now.
    pub(super) fn start(place: usize, test: &LeasedTest, limits: &TestLimits, now: ClockReading) -> Self {
        Self {
            place,
            started_at: now,
            last_activity: now.running,
            time_limit: test.timeout_ms.or(limits.timeout_ms).map(Duration::from_millis),
            framework_limit: None,
            idle_timeout: test.idle_timeout_ms.map(Duration::from_millis),
            tear_down_limit: announced_phase_limit(limits),
            tear_down_since: None,
            paused_since: None,
            slow_period: test.slow_ms.map(Duration::from_millis),
            slow_warnings: 0,
            is_timed_out: false,
            is_idle: false,
            is_late: false,
        }
    }

    pub(super) fn place(&self) -> usize {
        self.place
    }

    pub(super) fn started_at(&self) -> ClockReading {
        self.started_at
    }

    pub(super) fn time_limit(&self) -> Option<Duration> {
        self.time_limit
    }

    pub(super) fn idle_timeout(&self) -> Option<Duration> {
        self.idle_timeout
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused_since.is_some()
    }

    pub(super) fn is_timed_out(&self) -> bool {
        self.is_timed_out
    }

    pub(super) fn is_idle(&self) -> bool {
        self.is_idle
    }

    /// Returns whether a limit of the test has passed.
    pub(super) fn is_over_limit(&self) -> bool {
        self.is_timed_out || self.is_idle
    }

    pub(super) fn is_late(&self) -> bool {
        self.is_late
    }

    pub(super) fn ran(&self, now: ClockReading) -> Duration {
        now.running.saturating_sub(self.started_at.running)
    }

    pub(super) fn record_activity(&mut self, now: ClockReading) {
        self.last_activity = now.running;
    }

    /// Restarts the clock because the test has not begun yet.
    pub(super) fn restart(&mut self, now: ClockReading) {
        (self.started_at.running, self.last_activity) = (now.running, now.running);
    }

    pub(super) fn pause(&mut self, now: ClockReading) {
        self.paused_since.get_or_insert(now.running);
    }

    /// Resumes a paused test. The pause does not count.
    pub(super) fn resume(&mut self, now: ClockReading) {
        if let Some(since) = self.paused_since.take() {
            let waited = now.running.saturating_sub(since);
            self.started_at.running = self.started_at.running.saturating_add(waited);
            self.last_activity = now.running;
        }
    }

    /// Replaces the limit of the test with this one, counted from now.
    pub(super) fn limit_from_now(&mut self, limit: Duration, now: ClockReading) {
        self.framework_limit = Some(self.ran(now).saturating_add(limit));
    }

    /// Records whether a tear-down after the test may be running.
    pub(super) fn note_tear_down(&mut self, may_stand: bool, now: ClockReading) {
        let since = self.tear_down_since.unwrap_or(now.running);
        self.tear_down_since = may_stand.then_some(since);
    }

    /// Returns when the next limit passes or the next slow report is due.
    pub(super) fn deadline(&self, is_idle_sampled: bool) -> Option<Duration> {
        if self.is_paused() {
            return None;
        }
        let by_silence = self.idle_timeout.filter(|_| !is_idle_sampled);
        let by_silence = by_silence.map(|limit| self.last_activity.saturating_add(limit));
        let limits = self.time_deadline().into_iter().chain(by_silence).chain(self.tear_down_deadline());
        limits.chain(self.slow_at()).min()
    }

    fn time_deadline(&self) -> Option<Duration> {
        let limit = self.framework_limit.or(self.time_limit)?;
        Some(self.started_at.running.saturating_add(limit))
    }

    /// Returns when an announced tear-down after the test has taken too long. `None` if the test has a time
    /// limit, which then covers its tear-down too.
    fn tear_down_deadline(&self) -> Option<Duration> {
        let is_limited = self.framework_limit.or(self.time_limit).is_some();
        Some(self.tear_down_since.filter(|_| !is_limited)?.saturating_add(self.tear_down_limit))
    }

    /// Returns whether the test timed out because the tear-down after it took too long.
    pub(super) fn is_late_in_tear_down(&self) -> bool {
        let is_in_tear_down = self.tear_down_since.is_some() && self.time_limit.is_none();
        self.is_timed_out && !self.is_idle && is_in_tear_down
    }

    /// Checks whether a limit has passed. `is_announced`: the output announces a tear-down after the test.
    pub(super) fn check_limits(&mut self, now: ClockReading, is_announced: bool) {
        let is_tear_down_due = self.tear_down_deadline().is_some_and(|deadline| deadline <= now.running);
        if is_tear_down_due && !is_announced {
            // The test has an end marker, but no tear-down is announced. Check again later.
            self.tear_down_since = Some(now.running);
        }
        let is_due = self.time_deadline().is_some_and(|deadline| deadline <= now.running);
        self.is_timed_out = (is_due || is_tear_down_due && is_announced) && !self.is_paused();
    }

    /// Checks whether the test is idle. `starved`: how long its process was runnable but not scheduled.
    pub(super) fn check_idle(&mut self, now: ClockReading, starved: Duration) {
        let Some(limit) = self.idle_timeout.filter(|_| !self.is_paused()) else { return };
        let silent = now.running.saturating_sub(self.last_activity);
        self.last_activity = self.last_activity.saturating_add(starved.min(silent));
        self.is_idle = silent.saturating_sub(starved) >= limit;
        self.is_timed_out = self.is_idle;
    }

    /// Clears the passed limits.
    pub(super) fn discard_limits(&mut self) {
        (self.is_timed_out, self.is_idle) = (false, false);
    }

    /// Records that the test's end was reported too late to count.
    pub(super) fn record_late_end(&mut self) {
        self.is_late = true;
    }

    /// Returns the due time of the next slow report, as running time. `None` while the clock is paused, or
    /// without a slow period.
    fn slow_at(&self) -> Option<Duration> {
        let period = self.slow_period.filter(|_| !self.is_paused())?;
        Some(self.started_at.running.saturating_add(period.saturating_mul(self.slow_warnings + 1)))
    }

    /// Returns how long the test has been running, if a slow report is due now. One report per slow period.
    pub(super) fn take_slow(&mut self, now: ClockReading) -> Option<Duration> {
        self.slow_at().filter(|due| *due <= now.running)?;
        let ran = self.ran(now);
        let periods = ran.as_millis() / self.slow_period.map_or(1, |period| period.as_millis()).max(1);
        self.slow_warnings = u32::try_from(periods).unwrap_or(u32::MAX - 1);
        Some(ran)
    }
}
