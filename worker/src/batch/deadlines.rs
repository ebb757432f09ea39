//! The limits of a batch: when the next one is due, and what follows from it.

use std::time::Duration;

use super::verdict::format_seconds;
use super::{BatchTerminateReason, DeadlineAction, RunningBatch, RunningTest};
use crate::process::process_clock::ClockReading;

/// How many times the startup limit an announced set-up or tear-down, or a dependency, may take: a process
/// that begins nothing is started again with up to four times its limit, but one that is known to be in its
/// tests' set-up need not start again.
const LIMITS_OF_ANNOUNCED_PHASE: u32 = 4;

impl RunningBatch {
    /// Returns the next deadline in running time; `None` when nothing is waited for.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        if self.terminate_reason.is_some() {
            return None;
        }
        let live = self.live_output_due();
        if self.is_unlimited {
            return self.held_tests.check_at().into_iter().chain(live).min();
        }
        let dialogue = self.stall_deadline().into_iter().chain(self.server_exit_deadline());
        let dialogue = dialogue.chain(self.request_look_deadline());
        let always = dialogue.chain(self.held_tests.check_at());
        if self.is_waiting {
            return always.min();
        }
        if !self.has_active_test() {
            let idle = self.idle_since.saturating_add(self.idle_process_limit());
            return always.chain([idle]).min();
        }
        self.running_tests
            .iter()
            .filter_map(|flight| self.deadline_of(flight))
            .chain(always)
            .chain(live)
            .min()
    }

    fn deadline_of(&self, flight: &RunningTest) -> Option<Duration> {
        if flight.is_paused() {
            return None;
        }
        let by_time =
            self.time_limit(flight.place).map(|limit| flight.started_at.running.saturating_add(limit));
        let by_silence = self.idle_timeout(flight.place).filter(|_| !self.is_idle_sampled);
        let by_silence = by_silence.map(|limit| flight.last_activity.saturating_add(limit));
        let by_tear_down = self.tear_down_deadline(flight);
        by_time.into_iter().chain(by_silence).chain(by_tear_down).chain(self.slow_at(flight)).min()
    }

    /// Records whether a tear-down behind the running test may stand. Where several tests run, none of them
    /// is known to wait for it.
    pub(crate) fn note_tear_down(&mut self, may_stand: bool, now: ClockReading) {
        if let [flight] = &mut self.running_tests[..] {
            let since = flight.tear_down_since.unwrap_or(now.running);
            flight.tear_down_since = may_stand.then_some(since);
        }
    }

    /// Returns when an announced tear-down behind a test has taken too long. A time limit of the test covers
    /// its tear-down.
    fn tear_down_deadline(&self, flight: &RunningTest) -> Option<Duration> {
        let since = flight.tear_down_since.filter(|_| self.time_limit(flight.place).is_none())?;
        Some(since.saturating_add(self.announced_phase_limit()))
    }

    /// Returns whether a test that has timed out has done so by the limit of the tear-down behind it.
    pub(super) fn is_late_in_tear_down(&self, flight: &RunningTest) -> bool {
        flight.is_timed_out && !flight.is_idle && self.tear_down_deadline(flight).is_some()
    }

    /// Handles a passed deadline; returns the action due. `is_announced`: by its output, the process is in a
    /// set-up or tear-down that its framework announces, or in a dependency of its tests.
    pub(crate) fn on_deadline(&mut self, now: ClockReading, is_announced: bool) -> DeadlineAction {
        self.is_between_tests = is_announced && !self.has_active_test();
        if self.deadline().is_none_or(|deadline| now.running < deadline) {
            return DeadlineAction::Nothing;
        }
        if self.held_tests.check_at().is_some_and(|check| check <= now.running) {
            return DeadlineAction::CheckHeldTests;
        }
        if self.server_exit_deadline().is_some_and(|deadline| deadline <= now.running) {
            self.terminate_reason = Some(BatchTerminateReason::ServerEnded);
            return DeadlineAction::EndServer;
        }
        if self.withdraw_untaken_request(now) {
            return DeadlineAction::Terminate;
        }
        if let Some(stall) = self.due_stall(now) {
            self.terminate_reason = Some(BatchTerminateReason::DialogueStalled(stall));
            return DeadlineAction::Terminate;
        }
        if self.untaken_request.is_some() {
            return DeadlineAction::Nothing;
        }
        for place in 0..self.running_tests.len() {
            let limit = self.time_limit(self.running_tests[place].place).unwrap_or(Duration::MAX);
            let tear_down = self.tear_down_deadline(&self.running_tests[place]);
            let is_tear_down_due = tear_down.is_some_and(|deadline| deadline <= now.running);
            let flight = &mut self.running_tests[place];
            if is_tear_down_due && !is_announced {
                // The test has an end marker, but no tear-down follows here: it is looked at again later.
                flight.tear_down_since = Some(now.running);
            }
            let is_due = flight.started_at.running.saturating_add(limit) <= now.running;
            flight.is_timed_out = (is_due || is_tear_down_due && is_announced) && !flight.is_paused();
        }
        let has_active_test = self.has_active_test();
        if has_active_test && self.running_tests.iter().all(|flight| !flight.is_timed_out) {
            self.is_idle_sampled = true;
            return DeadlineAction::SampleProcess;
        }
        self.terminate_reason = Some(if has_active_test {
            BatchTerminateReason::TimedOut
        } else {
            BatchTerminateReason::ProcessStalled
        });
        DeadlineAction::Terminate
    }

    /// Handles a sample of an idle process: `starved` is how long the system did not schedule it since the
    /// last sample. Returns the action due.
    pub(crate) fn on_idle_sample(&mut self, now: ClockReading, starved: Duration) -> DeadlineAction {
        self.is_idle_sampled = false;
        for place in 0..self.running_tests.len() {
            let Some(limit) = self.idle_timeout(self.running_tests[place].place) else { continue };
            let flight = &mut self.running_tests[place];
            if flight.is_paused() {
                continue;
            }
            let silent = now.running.saturating_sub(flight.last_activity);
            flight.last_activity = flight.last_activity.saturating_add(starved.min(silent));
            flight.is_idle = silent.saturating_sub(starved) >= limit;
            flight.is_timed_out = flight.is_idle;
        }
        if self.terminate_reason.is_some() || self.running_tests.iter().all(|flight| !flight.is_idle) {
            return DeadlineAction::Nothing;
        }
        self.terminate_reason = Some(BatchTerminateReason::TimedOut);
        DeadlineAction::Terminate
    }

    /// Returns how long the process may run none of its tests.
    pub(super) fn idle_process_limit(&self) -> Duration {
        if self.is_between_tests { self.announced_phase_limit() } else { self.startup_limit() }
    }

    /// Returns how long a set-up or tear-down may take that the framework announces.
    pub(super) fn announced_phase_limit(&self) -> Duration {
        self.startup_limit().saturating_mul(LIMITS_OF_ANNOUNCED_PHASE)
    }

    /// Returns this limit with the setting that changes it.
    pub(super) fn announced_phase_limit_text(&self) -> String {
        format!("{} (four times startup-timeout)", format_seconds(self.announced_phase_limit()))
    }
}
