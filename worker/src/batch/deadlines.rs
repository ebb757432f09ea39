//! Time limits of a batch and its tests: when the next one is due, and why the process is ended.

use std::{sync::Arc, time::Duration};

use heeler_adapters::TranscriptEvent;
use heeler_core::{LogLine, RecordSink, RunRecord};
use heeler_protocol::control::{LeasedTest, TestLimits};

use super::{
    batch_input::DeadlineAction, dialogue_stall::Dialogue, end_cause::EndCause, server_exit::ServerExit,
    terminate_reason::BatchTerminateReason, test_clock::TestClock,
};
use crate::process::process_clock::ClockReading;

/// Multiplies the startup limit during an announced set-up or tear-down, and during a dependency. A process
/// that begins no test is restarted with up to four times its limit. A process known to be in its tests'
/// set-up gets that time at once instead of a restart.
const LIMITS_OF_ANNOUNCED_PHASE: u32 = 4;

/// Framework durations are whole milliseconds or absent. The worker measures shorter ones itself.
const FRAMEWORK_CLOCK_RESOLUTION: Duration = Duration::from_millis(1);

/// Clocks of the running tests, and the limits of their process.
#[derive(Debug)]
pub(crate) struct Deadlines {
    limits: TestLimits,
    /// Clocks of the running tests, in begin order.
    clocks: Vec<TestClock>,
    /// Estimated duration of each test that ended in this chunk, used if the framework's clock is too coarse.
    estimated_duration: Duration,
    terminate_reason: Option<BatchTerminateReason>,
    /// Running time when the process became idle, with no test running.
    idle_since: Duration,
    /// As of the last deadline, the output showed the process in an announced set-up or tear-down, with no
    /// test running.
    is_between_tests: bool,
    is_idle_sampled: bool,
    /// All tests of the process have ended. The process waits for more tests, without a time limit.
    is_waiting: bool,
    /// A debugger controls the process, so no limits apply.
    is_unlimited: bool,
    /// A debugger has launched the process, so only the debugger learns its exit status.
    is_launched: bool,
    pub(crate) dialogue: Dialogue,
    server_exit: Option<ServerExit>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DueAction {
    Process(DeadlineAction),
    /// End the process because it has not read this test's request. The test waits for another process.
    Withdraw(usize),
}

impl Deadlines {
    pub(super) fn new(limits: TestLimits) -> Self {
        Self {
            dialogue: Dialogue::with_limit(startup_limit(&limits)),
            limits,
            clocks: Vec::new(),
            estimated_duration: Duration::ZERO,
            terminate_reason: None,
            idle_since: Duration::ZERO,
            is_between_tests: false,
            is_idle_sampled: false,
            is_waiting: false,
            is_unlimited: false,
            is_launched: false,
            server_exit: None,
        }
    }

    /// Lifts all limits because a debugger controls the process.
    pub(crate) fn lift(&mut self) {
        self.is_unlimited = true;
    }

    /// Records that a debugger launched the process: no limits apply, and its exit status is unknown.
    pub(crate) fn on_launched_by_debugger(&mut self) {
        self.lift();
        self.is_launched = true;
    }

    /// Records why the process is ended. The caller ends it.
    pub(crate) fn on_terminated(&mut self, reason: BatchTerminateReason) {
        self.terminate_reason = Some(reason);
    }

    /// Records that the tests are decided although the process is still running. Returns whether the caller
    /// must kill it; `false` if it is already being ended.
    pub(crate) fn end_decided(&mut self) -> bool {
        let is_first = self.terminate_reason.is_none();
        if is_first {
            self.terminate_reason = Some(BatchTerminateReason::Decided);
        }
        is_first
    }

    /// Returns why the process is being ended, as worded in the framework's stop request.
    pub(crate) fn terminate_reason_text(&self) -> &'static str {
        self.terminate_reason.map_or("the process is being terminated", BatchTerminateReason::text)
    }

    pub(super) fn is_ending(&self) -> bool {
        self.terminate_reason.is_some()
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.terminate_reason.is_some_and(BatchTerminateReason::is_on_request)
    }

    /// Records whether the process has begun to read its last request.
    pub(crate) fn set_request_taken(&mut self, is_taken: bool, now: ClockReading) {
        let untaken = match &mut self.clocks[..] {
            [clock] if !is_taken => {
                clock.restart(now);
                Some(clock.place())
            }
            _ => None,
        };
        self.dialogue.set_untaken(untaken, now);
    }

    /// Marks the process as a server, to be ended after its last request.
    pub(crate) fn expect_server(&mut self, grace_ms: u64) {
        self.server_exit = Some(ServerExit::new(grace_ms));
    }

    /// Records that no more requests follow.
    pub(crate) fn on_requests_finished(&mut self, now: ClockReading) {
        if let Some(exit) = &mut self.server_exit {
            exit.on_requests_finished(now);
        }
    }

    /// Sets whether the process waits for more tests. A waiting process has no time limit.
    pub(crate) fn set_waiting(&mut self, is_waiting: bool, now: ClockReading) {
        if self.is_waiting != is_waiting {
            self.is_waiting = is_waiting;
            self.idle_since = now.running;
        }
    }

    /// Records whether the suite's tear-down may be running after the running test. Ignored while several
    /// tests run, since it is unknown which of them the tear-down follows.
    pub(crate) fn note_tear_down(&mut self, may_stand: bool, now: ClockReading) {
        if let [clock] = &mut self.clocks[..] {
            clock.note_tear_down(may_stand, now);
        }
    }

    /// Handles a sample of an idle process and returns the action due. `starved`: how long the process was
    /// runnable but not scheduled since the last sample.
    pub(crate) fn on_idle_sample(&mut self, now: ClockReading, starved: Duration) -> DeadlineAction {
        self.is_idle_sampled = false;
        for clock in &mut self.clocks {
            clock.check_idle(now, starved);
        }
        if self.is_ending() || self.clocks.iter().all(|clock| !clock.is_idle()) {
            return DeadlineAction::Nothing;
        }
        self.terminate_reason = Some(BatchTerminateReason::TimedOut);
        DeadlineAction::Terminate
    }

    /// Handles output that contained these events. `before`: the time before it was read.
    pub(super) fn on_output(&mut self, events: &[TranscriptEvent], before: ClockReading, now: ClockReading) {
        for clock in &mut self.clocks {
            clock.record_activity(now);
        }
        let ended = events.iter().filter(|event| matches!(event, TranscriptEvent::Ended { .. })).count();
        let since = self.clocks.first().map_or(before, TestClock::started_at);
        self.estimated_duration =
            now.running.saturating_sub(since.running) / u32::try_from(ended.max(1)).unwrap_or(u32::MAX);
    }

    pub(super) fn begin(&mut self, place: usize, test: &LeasedTest, now: ClockReading) {
        self.is_between_tests = false;
        self.clocks.push(TestClock::start(place, test, &self.limits, now));
    }

    fn clock(&mut self, place: usize) -> Option<&mut TestClock> {
        self.clocks.iter_mut().find(|clock| clock.place() == place)
    }

    pub(super) fn pause(&mut self, place: usize, now: ClockReading) {
        if let Some(clock) = self.clock(place) {
            clock.pause(now);
            self.idle_since = now.running;
        }
    }

    pub(super) fn resume(&mut self, place: usize, now: ClockReading) {
        if let Some(clock) = self.clock(place) {
            clock.resume(now);
        }
    }

    /// Replaces the limit of a running test with this one, counted from now.
    pub(super) fn limit_from_now(&mut self, place: usize, limit: Duration, now: ClockReading) {
        if let Some(clock) = self.clock(place) {
            clock.limit_from_now(limit, now);
        }
    }

    /// Returns whether the reported end of a test comes too late: the test timed out, or failed because the
    /// user cancelled it. The end of the process then decides.
    pub(super) fn is_end_late(&mut self, place: usize, is_failure: bool) -> bool {
        let is_cancelled = self.terminate_reason == Some(BatchTerminateReason::Cancelled) && is_failure;
        self.clock(place).is_some_and(|clock| {
            let is_late = clock.is_timed_out() || is_cancelled;
            if is_late {
                clock.record_late_end();
            }
            is_late
        })
    }

    /// Returns the running time when the process became idle, with no test running.
    pub(crate) fn idle_since(&self) -> Duration {
        self.idle_since
    }

    pub(super) fn stop(&mut self, place: usize, now: ClockReading) -> Option<TestClock> {
        self.idle_since = now.running;
        self.is_between_tests = false;
        let index = self.clocks.iter().position(|clock| clock.place() == place)?;
        Some(self.clocks.remove(index))
    }

    /// Drops the clocks of tests that no longer run.
    pub(super) fn retain(&mut self, is_running: impl Fn(usize) -> bool) {
        self.clocks.retain(|clock| is_running(clock.place()));
    }

    pub(super) fn take_clocks(&mut self) -> Vec<TestClock> {
        std::mem::take(&mut self.clocks)
    }

    /// Returns the clock of the running test if exactly one runs.
    pub(super) fn only_clock(&self) -> Option<&TestClock> {
        if let [only] = &self.clocks[..] { Some(only) } else { None }
    }

    /// Returns the duration of a test that ended in this chunk, based on the duration its framework reported.
    pub(super) fn duration(
        &self,
        clock: &TestClock,
        reported: Option<Duration>,
        now: ClockReading,
    ) -> Duration {
        let ran = clock.ran(now);
        // Framework clocks keep running during a pause.
        let paused = now.paused.saturating_sub(clock.started_at().paused);
        match reported.map(|duration| duration.saturating_sub(paused)) {
            Some(duration) if !duration.is_zero() => duration,
            None if !ran.is_zero() => ran,
            Some(_) | None => self.estimated_duration.min(FRAMEWORK_CLOCK_RESOLUTION),
        }
    }

    /// Returns the running test. If several run, prefers one at its limit.
    pub(super) fn suspect(&self) -> Option<usize> {
        let rank = |clock: &&TestClock| (!clock.is_timed_out(), clock.is_paused());
        self.clocks.iter().min_by_key(rank).map(TestClock::place)
    }

    fn has_active_test(&self) -> bool {
        self.clocks.iter().any(|clock| !clock.is_paused())
    }

    /// Returns the next deadline in running time, or `None` if nothing is due. `held`: when to check the held
    /// tests. `live`: when to send output of a running test.
    pub(super) fn next(&self, held: Option<Duration>, live: Option<Duration>) -> Option<Duration> {
        if self.is_ending() {
            return None;
        }
        if self.is_unlimited {
            return held.into_iter().chain(live).min();
        }
        let always = self.dialogue.deadline().into_iter().chain(self.server_exit_deadline()).chain(held);
        if self.is_waiting {
            return always.min();
        }
        if !self.has_active_test() {
            return always.chain([self.idle_since.saturating_add(self.idle_limit())]).min();
        }
        let tests = self.clocks.iter().filter_map(|clock| clock.deadline(self.is_idle_sampled));
        tests.chain(always).chain(live).min()
    }

    fn server_exit_deadline(&self) -> Option<Duration> {
        self.server_exit.as_ref().filter(|_| self.clocks.is_empty())?.deadline()
    }

    /// Handles a passed deadline and returns the action due. `is_announced`: the output shows the process in
    /// an announced set-up or tear-down, or in a dependency of its tests. `held` and `live` as in
    /// [`Self::next`].
    pub(super) fn on_deadline(
        &mut self,
        now: ClockReading,
        is_announced: bool,
        held: Option<Duration>,
        live: Option<Duration>,
    ) -> DueAction {
        self.is_between_tests = is_announced && !self.has_active_test();
        if self.next(held, live).is_none_or(|deadline| now.running < deadline) {
            return DueAction::Process(DeadlineAction::Nothing);
        }
        if held.is_some_and(|check| check <= now.running) {
            return DueAction::Process(DeadlineAction::CheckHeldTests);
        }
        if self.server_exit_deadline().is_some_and(|deadline| deadline <= now.running) {
            self.terminate_reason = Some(BatchTerminateReason::ServerEnded);
            return DueAction::Process(DeadlineAction::EndServer);
        }
        if let Some(place) = self.dialogue.take_overdue_request(now) {
            self.terminate_reason = Some(BatchTerminateReason::RequestUntaken);
            return DueAction::Withdraw(place);
        }
        if let Some(stall) = self.dialogue.due_stall(now) {
            self.terminate_reason = Some(BatchTerminateReason::DialogueStalled(stall));
            return DueAction::Process(DeadlineAction::Terminate);
        }
        DueAction::Process(if self.dialogue.has_untaken_request() {
            DeadlineAction::Nothing
        } else {
            self.check_tests(now, is_announced)
        })
    }

    /// Checks whether running tests, or a process without a running test, have reached their limits.
    fn check_tests(&mut self, now: ClockReading, is_announced: bool) -> DeadlineAction {
        for clock in &mut self.clocks {
            clock.check_limits(now, is_announced);
        }
        let has_active_test = self.has_active_test();
        if has_active_test && self.clocks.iter().all(|clock| !clock.is_timed_out()) {
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

    /// Logs the running tests that have become slow.
    pub(super) fn log_slow_tests(
        &mut self,
        now: ClockReading,
        tests: &[Arc<LeasedTest>],
        records: &mut dyn RecordSink,
    ) {
        if self.is_ending() {
            return;
        }
        for clock in &mut self.clocks {
            let Some(ran) = clock.take_slow(now) else { continue };
            let message = format!("slow: running for {:.1} s", ran.as_secs_f64());
            let test = Some(tests[clock.place()].test);
            records.record(RunRecord::Log(LogLine::information(test, message)));
        }
    }

    /// Returns how long the process may run without running a test.
    fn idle_limit(&self) -> Duration {
        if self.is_between_tests { announced_phase_limit(&self.limits) } else { startup_limit(&self.limits) }
    }

    /// Returns whether a server was ended after its last request; its end then counts as its own.
    pub(super) fn accept_server_end(&mut self) -> bool {
        self.terminate_reason.take_if(|reason| *reason == BatchTerminateReason::ServerEnded).is_some()
    }

    /// Discards limits that passed while a crash was captured: the end counts as a crash, not a timeout.
    /// Keeps them if a test ended after its time limit, since that test did not crash.
    pub(super) fn discard_limits_passed_in_crash(&mut self) {
        if self.clocks.iter().any(TestClock::is_late) {
            return;
        }
        self.terminate_reason.take_if(|reason| reason.is_by_clock());
        self.clocks.iter_mut().for_each(TestClock::discard_limits);
    }

    pub(super) fn end_cause(&self) -> EndCause {
        EndCause {
            reason: self.terminate_reason,
            is_launched: self.is_launched,
            startup_limit: startup_limit(&self.limits),
            announced_phase_limit: announced_phase_limit(&self.limits),
            idle_limit: self.idle_limit(),
            memory_bytes: self.limits.memory_bytes,
        }
    }
}

fn startup_limit(limits: &TestLimits) -> Duration {
    Duration::from_millis(limits.startup_ms)
}

/// Returns how long an announced set-up or tear-down may take.
pub(super) fn announced_phase_limit(limits: &TestLimits) -> Duration {
    startup_limit(limits).saturating_mul(LIMITS_OF_ANNOUNCED_PHASE)
}
