//! Decides what the end of a batch's process means for tests without a settled result, and whether the
//! program failed.

mod lease_end;

use std::time::Duration;

use heeler_adapters::{
    DeathCulprit, FixtureFailure, FrameworkResult, FrameworkVerdict, RunReport, StackPosition, SuitePhase,
};
use heeler_core::Failure;
use heeler_protocol::control::{ExitReason, LeaseEnd, ListedTest, ProcessExit, TestDiagnostics};

use super::{
    batch_input::ProcessExitSummary,
    end_cause::EndCause,
    end_texts::{append_evidence, append_section, exit_text, tear_down_place, unselected_text},
    framework_queries::FrameworkQueries,
    held_tests::{EndedTest, HeldTest},
    run_evidence::{
        ProcessEndFacts, ProvenResults, RunEvidence, proven_results, sanitizer_finding, sanitizer_summary,
        shared_blame,
    },
    terminate_reason::BatchTerminateReason,
    test_clock::TestClock,
    test_ending::{DeathPosition, TestEnding},
    test_order::TestOrder,
    unattributed_output::UnattributedOutput,
};
use crate::process::process_clock::ClockReading;

/// Exit reason for a test whose process was launched by a debugger.
const EXIT_KNOWN_TO_DEBUGGER_ONLY: &str =
    "the process exited in the debugger before the test ended; its exit status is unknown";

/// The end of a batch whose process has ended.
pub(crate) enum BatchEnd {
    /// Nothing remains to be decided: the process was lost together with its guard.
    Decided(LeaseEnd),
    Begun(Box<BatchProcessEnd>),
}

/// The end of a process whose results are not all settled yet.
pub(crate) struct BatchProcessEnd {
    gone: ProcessExitSummary,
    cause: EndCause,
    /// The process ended in a test, or in the set-up or tear-down of a suite.
    is_in_test: bool,
    /// Number of tests whose results are not proven.
    unproven: usize,
    /// A test is blamed for the bad end, so the program is not.
    is_charged: bool,
    /// The end contradicts the output, including which tests seemed to be running.
    is_contradicted: bool,
}

/// Effect of the end of a process on a test that was running.
pub(super) enum RunningTestEnd {
    /// The test waits for another process.
    Waiting,
    Ended(TestEnding),
    /// The process died, possibly in this test.
    Died(TestEnding),
}

impl BatchProcessEnd {
    pub(super) fn new(gone: ProcessExitSummary, cause: EndCause) -> Self {
        Self { gone, cause, is_in_test: false, unproven: 0, is_charged: false, is_contradicted: false }
    }

    pub(super) fn exit(&self) -> &ProcessExit {
        &self.gone.exit
    }

    pub(super) fn is_own(&self) -> bool {
        self.cause.is_own()
    }

    /// Returns whether a debugger launched the process and the process ended by itself.
    pub(super) fn is_own_under_debugger(&self) -> bool {
        self.cause.is_launched && self.is_own()
    }

    /// Describes the dialogue stall that ended the process, if any.
    pub(super) fn stall_text(&self) -> Option<String> {
        self.cause.stall_text()
    }

    /// Returns whether the process exited with a code that a sanitizer may have chosen.
    pub(super) fn is_sanitizer_exit(&self) -> bool {
        self.gone.exit.code.is_some_and(|code| code != 0) && !self.gone.is_explained
    }

    /// Returns whether the process died by itself in an unknown test.
    fn is_unclear(&self) -> bool {
        self.gone.culprit == DeathCulprit::Unknown && self.is_own()
    }

    /// Returns a log message if the test that killed the process is unknown.
    pub(super) fn unclear_text(&self) -> Option<String> {
        let text = || {
            let how = self.exit_text();
            format!("{how} in an unknown test; rerunning the tests without a result")
        };
        self.is_unclear().then(text)
    }

    fn exit_text(&self) -> String {
        exit_text(&self.gone.exit_reason())
    }

    /// Records that the process ended in a test, or in the set-up or tear-down of a suite.
    pub(super) fn charge_tests(&mut self, is_in_test: bool) {
        self.is_in_test = is_in_test;
    }

    /// Returns which part of the run the process's stack trace shows. `running`: the test that seemed to be
    /// running.
    pub(super) fn stack_position(
        &self,
        framework: &dyn FrameworkQueries,
        running: Option<&ListedTest>,
    ) -> StackPosition {
        let of_crash = || self.gone.evidence.as_ref().map(|evidence| evidence.stack.as_str());
        let stack = self.gone.exit_stack.as_deref().or_else(of_crash).unwrap_or_default();
        framework.stack_position(stack, running)
    }

    /// Discards the framework's files if the process exited in the middle of its tests: a forked child must
    /// have written them.
    pub(super) fn discard_forged_evidence(&mut self, position: StackPosition) {
        if self.gone.exit_stack.is_some() && position != StackPosition::Unknown {
            self.gone.run_evidence = RunEvidence::LeftOpen;
        }
    }

    /// Takes the suite phase that the process died in, unless the framework's report overrides it.
    pub(super) fn take_suite_phase(&mut self) -> Option<SuitePhase> {
        let is_report_there =
            matches!(self.gone.run_evidence, RunEvidence::Report(_)) && self.gone.exit.signal.is_none();
        if is_report_there || self.cause.is_launched { None } else { self.gone.suite_phase.take() }
    }

    /// Puts back a suite phase that did not kill the process after all.
    pub(super) fn put_back_suite_phase(&mut self, phase: SuitePhase) {
        self.gone.suite_phase = Some(phase);
    }

    /// Returns whether the process died by itself, or hung until its limit, in the tear-down of a suite whose
    /// tests have all ended.
    pub(super) fn is_after_tests(&self, position: StackPosition) -> bool {
        self.is_own() && position == StackPosition::SuiteFixture || self.cause.is_stalled()
    }

    /// Returns whether the process ended in a suite's tear-down rather than in its only running test. Call
    /// only if the suite's last test has printed its end marker.
    pub(super) fn is_in_tear_down(
        &self,
        clock: &TestClock,
        position: StackPosition,
        order: &TestOrder,
    ) -> bool {
        match position {
            StackPosition::SuiteFixture => clock.is_over_limit() || self.is_own() || self.gone.is_own_death,
            StackPosition::RunningTest | StackPosition::OtherTest => false,
            // A test alone in its process must not pass merely because it printed its own end marker.
            StackPosition::Unknown => {
                let is_exit = self.gone.exit.signal.is_none() && self.gone.exit.code.is_some();
                is_exit && self.is_own() && !order.is_single()
            }
        }
    }

    /// Describes the limit that ended the process in a tear-down after a test, or `None`.
    pub(super) fn tear_down_limit_text(&self, clock: &TestClock) -> Option<String> {
        if clock.is_late_in_tear_down() {
            return Some(self.cause.announced_phase_limit_text());
        }
        clock.is_over_limit().then(|| "the time limit of the suite's last test".to_owned())
    }

    /// Describes the end of a process in the tear-down of a suite whose tests have all ended.
    pub(super) fn message_after_tests(&mut self, unattributed: &UnattributedOutput) -> String {
        let limit = self.cause.is_stalled().then(|| self.cause.announced_phase_limit_text());
        self.gone.is_suite_failure_reported = true;
        self.tear_down_message(limit.as_deref(), unattributed)
    }

    /// Describes the end of a process in the tear-down of a suite.
    pub(super) fn tear_down_message(&self, limit: Option<&str>, unattributed: &UnattributedOutput) -> String {
        let mut message = match (self.cause.memory_text(&self.gone), limit) {
            (Some(cause), _) => cause,
            (None, Some(limit)) => format!("the process exceeded {limit}"),
            (None, None) => self.exit_text(),
        };
        message.push_str(" in the tear-down of the suite");
        let mut message = unattributed.with_output(message);
        if let Some(evidence) = &self.gone.evidence {
            append_evidence(&mut message, evidence, self.gone.detail.as_deref());
        } else if let Some(stack) = &self.gone.exit_stack {
            append_section(&mut message, "stack", stack);
        }
        message
    }

    /// Returns the ending of the tests that had not begun when their process ended. `None` if the process was
    /// ended for another reason, or if its exit status is unknown.
    pub(super) fn ending_before_tests(
        &self,
        position: DeathPosition,
        stack: StackPosition,
        unattributed: &UnattributedOutput,
    ) -> Option<TestEnding> {
        match self.cause.reason {
            None | Some(BatchTerminateReason::MemoryLimit(_)) => {
                self.gone.exit.signal.or(self.gone.exit.code)?;
                let finding = || sanitizer_finding(&unattributed.stderr_text());
                let exit_reason = ExitReason {
                    detail: self.gone.detail.clone().or_else(finding),
                    cause: self.cause.memory_text(&self.gone),
                    ..self.gone.exit_reason()
                };
                Some(TestEnding::Died { exit_reason, position })
            }
            // The stack trace shows a test body, so a dependency was running.
            Some(BatchTerminateReason::ProcessStalled)
                if matches!(position, DeathPosition::SuiteSetUp(_)) && is_in_test(stack) =>
            {
                None
            }
            Some(BatchTerminateReason::ProcessStalled) => {
                Some(TestEnding::TimedOutBefore { limit: self.cause.idle_limit, position })
            }
            Some(
                BatchTerminateReason::TimedOut
                | BatchTerminateReason::DialogueStalled(_)
                | BatchTerminateReason::RequestUntaken
                | BatchTerminateReason::ServerEnded
                | BatchTerminateReason::Cancelled
                | BatchTerminateReason::Decided
                | BatchTerminateReason::Abandoned,
            ) => None,
        }
    }

    /// Takes the evidence about the death, for the first test charged with it.
    pub(super) fn take_evidence(&mut self) -> Option<Box<TestDiagnostics>> {
        self.gone.evidence.take()
    }

    /// Takes the results of the framework's report of its run if the process exited by itself. The report
    /// overrides the output.
    pub(super) fn take_report(&mut self) -> Option<Vec<Option<FrameworkVerdict>>> {
        let gone = &mut self.gone;
        let is_exit = gone.exit.signal.is_none() && gone.exit.code.is_some();
        let is_own_exit = is_exit && self.cause.reason.is_none();
        let RunEvidence::Report(report) = &mut gone.run_evidence else { return None };
        if !is_own_exit {
            return None;
        }
        // The report overrides output about an unselected test.
        gone.unselected_test = None;
        let RunReport { verdicts, outside_failure, fixture_failures, unselected, has_other_failure } =
            std::mem::take(report);
        add_fixture_failures(&mut gone.fixture_failures, fixture_failures);
        let is_failed = has_other_failure
            || !gone.fixture_failures.is_empty()
            || verdicts.iter().flatten().any(|verdict| verdict.result == FrameworkResult::Failed);
        // A custom `main` may choose its own exit code for failures.
        gone.is_explained = (gone.exit.code == Some(0)) != is_failed;
        gone.is_complete = true;
        gone.doubtful_since = None;
        let outside = gone.outside_failure.take().or(outside_failure);
        self.fail_outside(outside.into_iter().chain(unselected.map(|name| unselected_text(&name))).collect());
        Some(verdicts)
    }

    pub(super) fn fail_outside(&mut self, failures: Vec<String>) {
        if !failures.is_empty() {
            let known = self.gone.outside_failure.take();
            self.gone.outside_failure =
                Some(known.into_iter().chain(failures).collect::<Vec<_>>().join("\n"));
            self.gone.is_explained = false;
        }
    }

    /// Fails the program because a test ran that was not selected.
    pub(super) fn fail_unselected(&mut self) {
        if let Some(name) = &self.gone.unselected_test {
            self.gone.outside_failure.get_or_insert_with(|| unselected_text(name));
            self.gone.is_explained = false;
        }
    }

    /// Decides the held tests and passes each to `decide`, in order. Returns the places of tests that run
    /// again.
    pub(super) fn decide_held(
        &mut self,
        held: Vec<HeldTest>,
        stack: StackPosition,
        order: &TestOrder,
        unattributed: &UnattributedOutput,
        mut decide: impl FnMut(EndedTest, TestEnding),
    ) -> Vec<usize> {
        if !order.is_single() {
            return self.decide_several(held, stack, !order.running().is_empty(), decide);
        }
        let Some(only) = held.into_iter().next() else { return Vec::new() };
        let place = only.ended.place;
        match self.decide_only_test(only, stack, unattributed) {
            Some((ended, seen)) => {
                decide(ended, seen);
                Vec::new()
            }
            None => vec![place],
        }
    }

    /// Decides the held tests of a process with several tests.
    fn decide_several(
        &mut self,
        held: Vec<HeldTest>,
        stack_position: StackPosition,
        has_running_test: bool,
        mut decide: impl FnMut(EndedTest, TestEnding),
    ) -> Vec<usize> {
        // Which results does the end of the process prove?
        let proven = proven_results(ProcessEndFacts {
            is_own_end: self.is_own() && !self.cause.is_launched,
            is_limit: self.cause.is_limit(),
            is_stack_of_end: self.cause.is_limit()
                || self.gone.exit.signal.is_some()
                || self.gone.exit_stack.is_some(),
            is_complete: self.gone.is_complete,
            is_left_open: self.gone.run_evidence == RunEvidence::LeftOpen,
            has_running_test,
            stack_position,
            doubtful_since: self.gone.doubtful_since,
        });
        let is_sanitizer_exit = self.is_sanitizer_exit();
        let (mut unproven, mut reported) = (Vec::new(), 0);
        for HeldTest { ended, mut verdict } in held {
            // A failure is never retracted, since a passing rerun would hide it.
            let is_proven = proven.contains(ended.place) && !self.cause.is_on_request();
            if !is_proven && verdict.result != FrameworkResult::Failed {
                unproven.push(ended);
                continue;
            }
            let summary = sanitizer_summary(&ended.outputs.stderr).filter(|_| is_sanitizer_exit);
            if let Some(summary) = summary.map(str::to_owned) {
                reported += 1;
                fail_with(&mut verdict, summary);
            }
            decide(ended, TestEnding::Verdict(verdict));
        }
        self.gone.is_explained |= reported > 0 && self.gone.outside_failure.is_none();
        self.is_contradicted = proven == ProvenResults::None;
        self.unproven = unproven.len();
        if !self.is_own() && !self.is_contradicted {
            // The worker ended the process, so the end proves nothing about these tests. They run again if
            // the run continues.
            return unproven.into_iter().map(|ended| ended.place).collect();
        }
        // The process ended by itself or contradicts its output: all unproven tests share the blame.
        let exit_reason = shared_blame(self.gone.exit_reason(), self.unproven);
        for ended in unproven {
            let exit_reason = exit_reason.clone();
            decide(ended, TestEnding::Died { exit_reason, position: DeathPosition::Unproven });
        }
        Vec::new()
    }

    /// Decides the only test of the process. The test passes only if the process also ends without an error.
    /// `None`: the test runs again.
    fn decide_only_test(
        &mut self,
        HeldTest { ended, mut verdict }: HeldTest,
        stack: StackPosition,
        unattributed: &UnattributedOutput,
    ) -> Option<(EndedTest, TestEnding)> {
        let has_failed = verdict.result == FrameworkResult::Failed;
        if self.cause.is_on_request() && !has_failed {
            // The end of the process would have decided, but we ended it.
            return None;
        }
        if self.cause.is_limit() && is_in_test(stack) && !has_failed {
            // A forked copy of the process printed the end marker.
            self.is_charged = true;
            return Some((ended, TestEnding::Idle(self.cause.startup_limit)));
        }
        let gone = &mut self.gone;
        let is_known_end = self.cause.reason.is_none()
            && !self.cause.is_launched
            && gone.exit.signal.or(gone.exit.code).is_some();
        let is_bad_end = !gone.is_suite_failure_reported
            && (gone.exit.signal.is_some()
                || gone.run_evidence == RunEvidence::LeftOpen
                || !(gone.is_complete && gone.is_explained) && gone.outside_failure.is_none());
        if !is_known_end || !is_bad_end || has_failed {
            return Some((ended, TestEnding::Verdict(verdict)));
        }
        self.is_charged = true;
        let mut ended = ended.with_evidence(gone.evidence.take());
        // Output after the only test of a process, such as a leak report, belongs to the test.
        ended.outputs.stderr.push_str(&unattributed.stderr_text());
        let summary = sanitizer_summary(&ended.outputs.stderr).map(str::to_owned);
        let seen = match summary.filter(|_| gone.exit.signal.is_none()) {
            Some(summary) => {
                fail_with(&mut verdict, summary);
                TestEnding::Verdict(verdict)
            }
            None => {
                let (detail, cause) = (self.gone.detail.clone(), self.cause.memory_text(&self.gone));
                let exit_reason = ExitReason { detail, cause, ..self.gone.exit_reason() };
                TestEnding::Died { exit_reason, position: DeathPosition::AfterEnd }
            }
        };
        Some((ended, seen))
    }

    /// Takes the failures that the framework reported in set-up and tear-down of suites.
    pub(super) fn take_fixture_failures(&mut self) -> Vec<FixtureFailure> {
        std::mem::take(&mut self.gone.fixture_failures)
    }

    pub(super) fn evidence(&self) -> Option<Box<TestDiagnostics>> {
        self.gone.evidence.clone()
    }

    /// Returns what the end means for one of `running` running tests. `stack`: the part of the run shown by
    /// the process's stack trace.
    pub(super) fn end_of_running_test(
        &self,
        clock: &TestClock,
        stderr: &str,
        running: usize,
        now: ClockReading,
        stack: StackPosition,
    ) -> RunningTestEnd {
        use BatchTerminateReason::{Abandoned, Cancelled, DialogueStalled, TimedOut};
        let reason = self.cause.reason;
        if matches!(self.gone.culprit, DeathCulprit::Test(culprit) if culprit != clock.place())
            && self.is_own()
        {
            return RunningTestEnd::Waiting;
        }
        let died = || RunningTestEnd::Died(self.death(stderr, running));
        let or_duration = |limit: Option<Duration>| limit.unwrap_or(clock.ran(now));
        RunningTestEnd::Ended(match reason {
            // When the limit passed, the process was in another test.
            Some(TimedOut) if self.is_contradicted => return died(),
            _ if clock.is_idle() => TestEnding::Idle(or_duration(clock.idle_timeout())),
            // If several tests run, none is known to be the cause, so each is rerun in isolation.
            Some(DialogueStalled(_)) if running == 1 => TestEnding::Idle(self.cause.startup_limit),
            _ if clock.is_late_in_tear_down() && !is_in_test(stack) => TestEnding::TimedOutInTearDown {
                limit: self.cause.announced_phase_limit_text(),
                place: tear_down_place(self.gone.suite_phase.as_ref()),
            },
            _ if clock.is_timed_out() => TestEnding::TimedOut(or_duration(clock.time_limit())),
            Some(Cancelled) => TestEnding::Cancelled,
            // Another test timed out, or the process was abandoned, so this test is queued again.
            Some(TimedOut | Abandoned) => return RunningTestEnd::Waiting,
            Some(
                BatchTerminateReason::ProcessStalled
                | DialogueStalled(_)
                | BatchTerminateReason::RequestUntaken
                | BatchTerminateReason::MemoryLimit(_)
                | BatchTerminateReason::ServerEnded
                | BatchTerminateReason::Decided,
            )
            | None => return died(),
        })
    }

    /// Returns the ending of one of `running` tests that were running when their process died.
    fn death(&self, stderr: &str, running: usize) -> TestEnding {
        let gone = &self.gone;
        let unknown_exit = || self.cause.is_launched.then(|| EXIT_KNOWN_TO_DEBUGGER_ONLY.to_owned());
        let finding = || sanitizer_finding(stderr);
        let unselected = || gone.unselected_test.as_deref().map(unselected_text);
        let detail = gone.detail.clone().or_else(unknown_exit).or_else(finding).or_else(unselected);
        let is_known = matches!(gone.culprit, DeathCulprit::Test(_));
        let others = if is_known { 0 } else { running.saturating_sub(1) };
        // If ended tests are unproven, running tests are unproven too.
        let is_unproven = self.is_contradicted || gone.culprit == DeathCulprit::Unknown;
        let unproven = if is_unproven { self.unproven.max(1) } else { 0 };
        let exit_reason = ExitReason {
            cause: self.cause.memory_text(&self.gone),
            detail,
            other_suspects: u32::try_from(others.max(unproven)).unwrap_or(u32::MAX),
            ..gone.exit_reason()
        };
        let position = match (self.is_contradicted, gone.is_after_end_marker) {
            (true, _) => DeathPosition::Unproven,
            (false, true) => DeathPosition::AfterEndMarker,
            (false, false) => DeathPosition::InTest,
        };
        TestEnding::Died { exit_reason, position }
    }
}

fn is_in_test(position: StackPosition) -> bool {
    matches!(position, StackPosition::RunningTest | StackPosition::OtherTest)
}

/// Adds suite failures that are in the report but not in the output.
fn add_fixture_failures(of_output: &mut Vec<FixtureFailure>, of_report: Vec<FixtureFailure>) {
    for failure in of_report {
        if of_output.iter().all(|known| known.fixture.suite != failure.fixture.suite) {
            of_output.push(failure);
        }
    }
}

fn fail_with(verdict: &mut FrameworkVerdict, message: String) {
    verdict.result = FrameworkResult::Failed;
    verdict.push_failure(Failure { message: Some(message), ..Failure::default() });
}
