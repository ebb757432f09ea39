//! The end of a batch's process: decides the tests without a result, and whether the program failed.

use heeler_adapters::{DeathCulprit, FixtureFailure, FrameworkResult, SuitePhase};
use heeler_core::{GuardLoss, describe::guard_loss_text};
use heeler_protocol::{
    control::{ExitReason, LeaseEnd, LeaseEvent, LogLine, TestDiagnostics},
    mtp::LogLevel,
};
use heeler_sys::process::Signal;

use super::{
    BatchTerminateReason, DialogueStall, ProcessExitSummary, RunningBatch, RunningTest,
    exit_reason::exit_reason_of,
    held_tests::{EndedTest, HeldTest},
    judgement::EndSettlement,
    run_evidence::sanitizer_finding,
    test_ending::{DeathPosition, TestEnding},
    unattributed_output::ExitPosition,
    verdict::format_seconds,
};
use crate::{process::process_clock::ClockReading, results::update_batch::UpdateBatch};

/// Exit reason of a process whose parent is a debugger.
const EXIT_KNOWN_TO_DEBUGGER_ONLY: &str =
    "ended under its debugger with unknown exit status, before the test had ended";
/// The same for a process that did not begin its test.
const NOT_BEGUN: &str = "its process ended under its debugger before it had begun";

/// How a process is described whose output broke off when all of its tests were decided.
const BROKEN_OUTPUT: &str = "the process was ended, because its output could not be read any more";

/// Number of tests that are named as running when their process died.
const NAMED_SUSPECTS: usize = 10;

/// Number of results that are settled and handed over together when a process has ended: about a window of a
/// client that answers barriers.
const SETTLED_TOGETHER: usize = 1024;

/// The end of a batch whose process has ended.
pub(crate) enum BatchEnd {
    /// The process has ended with its guard: nothing remains to be decided.
    Decided(LeaseEnd),
    Begun(Box<BegunEnd>),
}

/// What is known of the end of a process once the held results are decided.
pub(crate) struct BegunEnd {
    gone: ProcessExitSummary,
    settlement: EndSettlement,
    /// The process ended in a test, or in the set-up or tear-down of a suite.
    is_in_test: bool,
}

impl RunningBatch {
    /// Decides what the held results of the process are worth when it has ended and its output is read to
    /// the end. `settle_decided` settles them, then `end` decides all tests that are still running.
    pub(crate) fn begin_end(
        &mut self,
        mut gone: ProcessExitSummary,
        now: ClockReading,
        updates: &mut UpdateBatch,
    ) -> BatchEnd {
        self.now = now;
        self.end_shown_lines(updates);
        self.withdraw_paused_tests();
        if let DeathCulprit::Test(place) = gone.culprit
            && self.terminate_reason.is_none()
        {
            self.recall_culprit(place);
        }
        self.settlement.hide_arguments(&mut gone.exit);
        self.accept_server_end(&mut gone);
        // A process that was ordered to end has ended for that reason, also if its guard was lost meanwhile.
        if let (Some(loss), None) = (gone.guard_loss, self.terminate_reason) {
            return BatchEnd::Decided(self.finish_without_guard(loss, updates));
        }
        // A test that ended after its time limit is not the one that crashed.
        if gone.is_own_death && self.running_tests.iter().all(|flight| !flight.is_late) {
            self.discard_limits();
        }
        self.settlement.record_exit(self.order.is_single().then(|| gone.exit.clone()));
        self.discard_forged_evidence(&mut gone);
        let is_in_suite = self.settle_suite_phase(&mut gone, updates);
        self.apply_run_report(&mut gone, updates);
        if let Some(name) = &gone.unselected_test {
            gone.outside_failure.get_or_insert_with(|| unselected_text(name));
            gone.is_explained = false;
        }
        let is_in_test = !self.running_tests.is_empty() || is_in_suite;
        if self.is_launched && self.terminate_reason.is_none() {
            self.settle_not_begun(updates);
        }
        let settlement = self.decide_by_process_end(&mut gone);
        BatchEnd::Begun(Box::new(BegunEnd { gone, settlement, is_in_test }))
    }

    /// Returns the running test to those that wait: its process has not read the request that began it. Only
    /// after another test has ended: what ends before the first request belongs to its test, so that no
    /// process ends in vain.
    pub(crate) fn withdraw_unread_test(&mut self) {
        if self.order.last_ended().is_some()
            && let [flight] = &self.running_tests[..]
        {
            self.order.withdraw(flight.place);
            self.running_tests.clear();
        }
    }

    /// Settles the next results that the end of the process has decided, at most `SETTLED_TOGETHER`. Returns
    /// whether any remain: they are handed over in pieces, so that the client works on the first of them
    /// while the next are written.
    pub(crate) fn settle_decided(&mut self, updates: &mut UpdateBatch) -> bool {
        for _ in 0..SETTLED_TOGETHER {
            let Some((ended, seen)) = self.held_tests.next_decided() else { return false };
            self.settle(ended, seen, updates);
        }
        self.held_tests.has_decided()
    }

    /// Decides all tests that are still running, and how the lease has ended.
    pub(crate) fn end(&mut self, end: BatchEnd, updates: &mut UpdateBatch) -> LeaseEnd {
        let BegunEnd { mut gone, settlement, is_in_test } = match end {
            BatchEnd::Begun(begun) => *begun,
            BatchEnd::Decided(end) => return end,
        };
        self.settlement.report_process_end(self.order.tests(), &gone.exit, updates);
        for FixtureFailure { fixture, message } in std::mem::take(&mut gone.fixture_failures) {
            updates.reports.push(LeaseEvent::FixtureFailed { fixture, message });
        }
        let leaks = self.order.attribute_leaks(&gone.exit.leaked);
        self.settlement.report_leaks(leaks, self.order.tests(), updates);
        self.log_dialogue_stall(updates);
        let late_failures = self.held_tests.take_late_failures();
        if !late_failures.is_empty() {
            let late = late_failures.join("\n");
            let other = gone.outside_failure.take();
            gone.outside_failure = Some(other.map_or(late.clone(), |other| format!("{other}\n{late}")));
            gone.is_explained = false;
        }
        let suspects = self.settle_running_tests(&gone, settlement, updates);
        let is_unclear = gone.culprit == DeathCulprit::Unknown && self.terminate_reason.is_none();
        if is_unclear {
            let how = exit_text(&exit_reason_of(&gone.exit));
            let message = format!("{how}, and nothing shows in which test: those without a result run again");
            updates.logs.push(LogLine { test: None, level: LogLevel::Warning, message });
        }
        let EndSettlement { unproven, is_charged, is_contradicted } = settlement;
        match self.terminate_reason {
            Some(BatchTerminateReason::Cancelled | BatchTerminateReason::Abandoned) => LeaseEnd::Cancelled,
            _ if suspects.len() > 1 && !is_unclear => {
                let message = suspects_text(&suspects, &exit_reason_of(&gone.exit));
                LeaseEnd::DiedOutsideTest { end: gone.exit, message }
            }
            _ if is_contradicted => {
                let message = contradicting_exit_text(&exit_reason_of(&gone.exit), unproven);
                LeaseEnd::DiedOutsideTest { end: gone.exit, message }
            }
            // The test begins again in another process, so the tests of this process have not failed.
            Some(BatchTerminateReason::RequestUntaken) if self.order.last_ended().is_some() => {
                LeaseEnd::Complete
            }
            Some(BatchTerminateReason::Decided) if gone.outside_failure.is_none() => LeaseEnd::Complete,
            _ if (is_in_test || is_charged) && gone.unselected_test.is_some() => {
                let how = exit_text(&exit_reason_of(&gone.exit));
                let unselected = gone.unselected_test.as_deref().map(unselected_text).unwrap_or_default();
                LeaseEnd::DiedOutsideTest { end: gone.exit, message: format!("{unselected}\n{how}") }
            }
            _ if is_in_test || is_charged || is_unclear => LeaseEnd::DiedInTest { end: gone.exit },
            Some(
                BatchTerminateReason::TimedOut
                | BatchTerminateReason::ProcessStalled
                | BatchTerminateReason::DialogueStalled(_)
                | BatchTerminateReason::RequestUntaken
                | BatchTerminateReason::MemoryLimit(_)
                | BatchTerminateReason::ServerEnded
                | BatchTerminateReason::Decided,
            )
            | None => self.end_outside_tests(gone),
        }
    }

    /// Decides the tests that are still running; returns the names of those in which the process died.
    fn settle_running_tests(
        &mut self,
        gone: &ProcessExitSummary,
        settlement: EndSettlement,
        updates: &mut UpdateBatch,
    ) -> Vec<String> {
        let mut evidence = gone.evidence.clone();
        // Of several tests none is known to be the cause: those are rerun in isolation.
        let is_stalled_in_one = self.running_tests.len() == 1
            && matches!(self.terminate_reason, Some(BatchTerminateReason::DialogueStalled(_)));
        let mut suspects = Vec::new();
        let is_known = matches!(gone.culprit, DeathCulprit::Test(_));
        let others = if is_known { 0 } else { self.running_tests.len().saturating_sub(1) };
        for mut flight in std::mem::take(&mut self.running_tests) {
            let is_innocent = matches!(gone.culprit, DeathCulprit::Test(culprit) if culprit != flight.place);
            if is_innocent && self.terminate_reason.is_none() {
                self.order.withdraw(flight.place);
                continue;
            }
            flight.duration = self.now.running.saturating_sub(flight.started_at.running);
            let seen = match self.terminate_reason {
                // At its limit it was in another test.
                Some(BatchTerminateReason::TimedOut) if settlement.is_contradicted => {
                    suspects.push(self.order.listed(flight.place).name.clone());
                    self.death_of(&flight, gone, settlement, others)
                }
                _ if flight.is_idle => {
                    TestEnding::Idle(self.idle_timeout(flight.place).unwrap_or(flight.duration))
                }
                _ if is_stalled_in_one => TestEnding::Idle(self.startup_limit()),
                _ if self.is_late_in_tear_down(&flight) && !self.is_stack_in_test(gone) => {
                    TestEnding::TimedOutInTearDown {
                        limit: self.announced_phase_limit_text(),
                        place: tear_down_place(gone.suite_phase.as_ref()),
                    }
                }
                _ if flight.is_timed_out => {
                    TestEnding::TimedOut(self.time_limit(flight.place).unwrap_or(flight.duration))
                }
                Some(BatchTerminateReason::Cancelled) => TestEnding::Cancelled,
                // Another test timed out, or the process was abandoned: this test goes back to the queue.
                Some(BatchTerminateReason::TimedOut | BatchTerminateReason::Abandoned) => {
                    self.order.withdraw(flight.place);
                    continue;
                }
                Some(
                    BatchTerminateReason::ProcessStalled
                    | BatchTerminateReason::DialogueStalled(_)
                    | BatchTerminateReason::RequestUntaken
                    | BatchTerminateReason::MemoryLimit(_)
                    | BatchTerminateReason::ServerEnded
                    | BatchTerminateReason::Decided,
                )
                | None => {
                    suspects.push(self.order.listed(flight.place).name.clone());
                    self.death_of(&flight, gone, settlement, others)
                }
            };
            let ended = EndedTest::of(&flight, self.now).with_evidence(evidence.take());
            self.settle(ended, seen, updates);
            self.on_done(flight.place);
        }
        if let Some(evidence) = evidence.filter(|evidence| !evidence.files.is_empty()) {
            updates.reports.push(LeaseEvent::FilesAttached { test: None, files: evidence.files });
        }
        suspects
    }

    /// Returns the ending of a test that was running when its process died, with this number of others.
    fn death_of(
        &self,
        flight: &RunningTest,
        gone: &ProcessExitSummary,
        settlement: EndSettlement,
        others: usize,
    ) -> TestEnding {
        let unknown_exit = || self.is_launched.then(|| EXIT_KNOWN_TO_DEBUGGER_ONLY.to_owned());
        let finding = || sanitizer_finding(&flight.stderr.text());
        let unselected = || gone.unselected_test.as_deref().map(unselected_text);
        let detail = gone.detail.clone().or_else(unknown_exit).or_else(finding).or_else(unselected);
        // What seems to run is no better proven than what seems to have ended.
        let is_unproven = settlement.is_contradicted || gone.culprit == DeathCulprit::Unknown;
        let unproven = if is_unproven { settlement.unproven.max(1) } else { 0 };
        let exit_reason = ExitReason {
            cause: self.memory_cause(gone),
            detail,
            other_suspects: u32::try_from(others.max(unproven)).unwrap_or(u32::MAX),
            ..exit_reason_of(&gone.exit)
        };
        let position = match (settlement.is_contradicted, gone.is_after_end_marker) {
            (true, _) => DeathPosition::Unproven,
            (false, true) => DeathPosition::AfterEndMarker,
            (false, false) => DeathPosition::InTest,
        };
        TestEnding::Died { exit_reason, position }
    }

    /// Ends a batch whose process has ended with its guard: how it ended is unknown. Results that were sent
    /// before, and failures, are valid. All other tests wait again, also those that seem to have passed just
    /// now: a forged marker is contradicted only by the end of its process.
    fn finish_without_guard(&mut self, loss: GuardLoss, updates: &mut UpdateBatch) -> LeaseEnd {
        for HeldTest { ended, verdict } in self.held_tests.take() {
            if verdict.result == FrameworkResult::Failed {
                self.settle(ended, TestEnding::Verdict(verdict), updates);
            } else {
                self.order.withdraw(ended.place);
            }
        }
        let running = std::mem::take(&mut self.running_tests);
        let test = running
            .first()
            .filter(|_| running.len() == 1)
            .map(|flight| self.order.tests()[flight.place].test);
        for flight in running {
            self.order.withdraw(flight.place);
        }
        let is_waiting = self.order.has_waiting();
        let effect = if is_waiting {
            "the tests that its process had not ended run again"
        } else {
            "the exit status of its process is unknown"
        };
        let message = format!("{}; {effect}", guard_loss_text(loss));
        updates.logs.push(LogLine { test, level: LogLevel::Warning, message });
        LeaseEnd::GuardLost { loss }
    }

    /// Discards limits that passed while a crash was captured: it is a crash, whatever the clock says
    /// afterwards.
    fn discard_limits(&mut self) {
        if matches!(
            self.terminate_reason,
            Some(
                BatchTerminateReason::TimedOut
                    | BatchTerminateReason::ProcessStalled
                    | BatchTerminateReason::DialogueStalled(_)
                    | BatchTerminateReason::RequestUntaken
            )
        ) {
            self.terminate_reason = None;
        }
        for flight in &mut self.running_tests {
            flight.is_timed_out = false;
            flight.is_idle = false;
        }
    }

    fn log_dialogue_stall(&self, updates: &mut UpdateBatch) {
        let stall = match self.terminate_reason {
            Some(BatchTerminateReason::DialogueStalled(stall)) => stall,
            Some(BatchTerminateReason::RequestUntaken) => DialogueStall::RequestUnread,
            _ => return,
        };
        let test = self.running_tests.first().map(|flight| self.order.tests()[flight.place].test);
        let limit = format_seconds(self.startup_limit());
        let message = format!("{} within {limit}, and was ended", stall.description());
        updates.logs.push(LogLine { test, level: LogLevel::Warning, message });
    }

    /// Sends a not-run result for tests whose process its debugger ended before they began: the user ended
    /// it, and must not be offered the same test again.
    fn settle_not_begun(&mut self, updates: &mut UpdateBatch) {
        let reason = self.unattributed_output.with_output(NOT_BEGUN.to_owned());
        for place in 0..self.order.tests().len() {
            if self.order.is_waiting(place) {
                self.order.skip(place);
                self.settlement.settle_not_run(&self.order.tests()[place], &reason, updates);
            }
        }
    }

    /// Returns a message if the process ended because it ran out of memory.
    pub(super) fn memory_cause(&self, gone: &ProcessExitSummary) -> Option<String> {
        let mebibytes = |bytes: u64| bytes.div_ceil(1 << 20);
        match self.terminate_reason {
            Some(BatchTerminateReason::MemoryLimit(used)) => {
                let limit = self.limits.memory_bytes.unwrap_or_default();
                let (used, limit) = (mebibytes(used), mebibytes(limit));
                Some(format!("killed because it used {used} MiB of memory, over its limit of {limit} MiB"))
            }
            None if let Some(peak) = gone.exit.limit_peak_bytes => {
                let limit = self.limits.memory_bytes.unwrap_or_default();
                let (peak, limit) = (mebibytes(peak), mebibytes(limit));
                Some(format!("killed because it used {peak} MiB of memory, at its limit of {limit} MiB"))
            }
            None if gone.is_out_of_memory && gone.exit.signal == Some(Signal::KILL.0) => {
                let peak = mebibytes(gone.exit.peak_kib.saturating_mul(1024));
                Some(format!("killed by the kernel's out-of-memory killer; peak memory {peak} MiB"))
            }
            _ => None,
        }
    }

    fn end_outside_tests(&self, gone: ProcessExitSummary) -> LeaseEnd {
        let is_untaken = self.terminate_reason == Some(BatchTerminateReason::RequestUntaken);
        let is_idle = is_untaken || self.terminate_reason == Some(BatchTerminateReason::ProcessStalled);
        let is_explained = gone.is_explained || self.is_launched;
        if gone.is_complete && is_explained && !is_idle {
            return LeaseEnd::Complete;
        }
        let is_waiting = self.order.has_waiting();
        if self.is_launched && self.order.last_ended().is_none() && !is_waiting {
            return LeaseEnd::Complete;
        }
        let limit = is_idle.then(|| self.idle_process_limit());
        let has_failed_outside = gone.outside_failure.is_some() && gone.exit.code != Some(0);
        let place = match self.order.last_ended() {
            None => ExitPosition::BeforeFirst,
            Some(last) if is_waiting => ExitPosition::AfterTest(&self.order.listed(last).name),
            Some(_) if has_failed_outside => ExitPosition::AfterFailureOutside,
            Some(_) => ExitPosition::AfterLast,
        };
        let mut message = match self.terminate_reason {
            Some(BatchTerminateReason::Decided) => {
                self.unattributed_output.with_output(BROKEN_OUTPUT.to_owned())
            }
            _ => self.unattributed_output.exit_message(place, &gone.exit, limit),
        };
        if let Some(evidence) = &gone.evidence {
            append_evidence(&mut message, evidence, gone.detail.as_deref());
        }
        if let Some(cause) = self.memory_cause(&gone) {
            message = format!("{cause}\n{message}");
        }
        if let Some(BatchTerminateReason::DialogueStalled(stall)) = self.terminate_reason {
            let limit = format_seconds(self.startup_limit());
            message = format!("{} within {limit}, and was ended\n{message}", stall.description());
        }
        if let Some(failure) = &gone.outside_failure {
            message.push_str("\n--- failed outside tests ---\n");
            message.push_str(failure.trim_end());
        }
        let end = gone.exit;
        if is_untaken || is_idle && self.order.first_begun().is_none() {
            LeaseEnd::StartTimedOut { end, message }
        } else if is_waiting {
            LeaseEnd::DiedOutsideTest { end, message }
        } else {
            LeaseEnd::BadExit { end, message }
        }
    }
}

/// Returns what is torn down, in words.
fn tear_down_place(phase: Option<&SuitePhase>) -> String {
    match phase {
        Some(SuitePhase::FixtureTearDown { fixture }) => format!("the fixture {fixture}"),
        Some(SuitePhase::TearDown { suite, .. } | SuitePhase::AfterTests { suite }) => {
            format!("suite {suite}")
        }
        Some(SuitePhase::SetUp { .. } | SuitePhase::Dependency { .. }) | None => "its suite".to_owned(),
    }
}

/// Describes the death of a process in which several tests ran. Each is rerun in isolation, and only those
/// that die again are to blame; that the process died is a failure of the program, whether one is found or
/// not.
fn suspects_text(suspects: &[String], death: &ExitReason) -> String {
    let how = exit_text(death);
    let named = suspects.iter().take(NAMED_SUSPECTS).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = match suspects.len().saturating_sub(NAMED_SUSPECTS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "{how} while {} tests ran in it, of which each is rerun in isolation: {named}{more}",
        suspects.len()
    )
}

/// Describes the end of a process that contradicts its output.
fn contradicting_exit_text(death: &ExitReason, unproven: usize) -> String {
    let how = exit_text(death);
    let tests = if unproven == 1 { "test" } else { "tests" };
    format!(
        "{how}, which contradicts its output: each test whose result is not proven is rerun in isolation \
         ({unproven} {tests})"
    )
}

/// Describes that a process has run another test than those that it was given.
pub(super) fn unselected_text(name: &str) -> String {
    format!(
        "{name} was run, which was not selected: the program chooses or orders its tests in another way than asked for"
    )
}

pub(super) fn exit_text(death: &ExitReason) -> String {
    match (&death.signal, death.code) {
        (Some(signal), _) => format!("the process died of {signal}"),
        (None, Some(code)) => format!("the process exited with code {code}"),
        (None, None) => "the process was lost".to_owned(),
    }
}

/// Appends the evidence of a process that died outside any test.
pub(super) fn append_evidence(message: &mut String, evidence: &TestDiagnostics, detail: Option<&str>) {
    append_section(message, "crash", detail.unwrap_or_default());
    append_section(message, "stack", &evidence.stack);
    let files: Vec<_> = evidence.files.iter().map(|file| file.path.to_text().into_owned()).collect();
    append_section(message, "files", &files.join("\n"));
}

pub(super) fn append_section(message: &mut String, title: &str, text: &str) {
    if !text.trim().is_empty() {
        message.push_str(&format!("\n--- {title} ---\n{}", text.trim_end()));
    }
}
