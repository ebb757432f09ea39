//! Settles what a process has left unsettled when it ends: by the framework's report of its run, by the phase
//! of a suite in which it died, and by its end itself.

use heeler_adapters::{
    FixtureFailure, FrameworkResult, FrameworkVerdict, RunReport, StackPosition, SuitePhase,
};
use heeler_core::{ExitReason, Failure, FixturePhase, SuiteFixture};
use heeler_protocol::control::LeaseEvent;

use super::{
    BatchTerminateReason, ProcessExitSummary, RawOutputs, RunEvidence, RunningBatch,
    exit_reason::exit_reason_of,
    held_tests::{EndedTest, HeldTest},
    process_end::{append_evidence, append_section, exit_text, unselected_text},
    run_evidence::{
        ProcessEndFacts, ProvenResults, contradicted_result_text, proven_results, sanitizer_summary,
        shared_blame,
    },
    test_ending::{DeathPosition, TestEnding},
    test_order::TestState,
};
use crate::results::update_batch::UpdateBatch;

/// Number of tests that are named where results contradict the framework's report.
const NAMED_CONTRADICTIONS: usize = 10;

impl RunningBatch {
    /// Settles the tests of a suite in whose set-up the process died, and the test after which it died in the
    /// suite's tear-down: that test keeps its result, and the tear-down is reported. Returns whether the
    /// death is charged to tests or to the tear-down.
    pub(super) fn settle_suite_phase(
        &mut self,
        gone: &mut ProcessExitSummary,
        updates: &mut UpdateBatch,
    ) -> bool {
        let is_report_there =
            matches!(gone.run_evidence, RunEvidence::Report(_)) && gone.exit.signal.is_none();
        if is_report_there || self.is_launched {
            return false;
        }
        match gone.suite_phase.take() {
            Some(SuitePhase::SetUp { suite, places }) => {
                self.settle_before_tests(&DeathPosition::SuiteSetUp(suite), &places, gone, updates)
            }
            Some(SuitePhase::Dependency { test, places }) => {
                self.settle_before_tests(&DeathPosition::Dependency(test), &places, gone, updates)
            }
            Some(SuitePhase::TearDown { suite, verdict }) if self.is_in_tear_down(gone) => {
                let mut flight = self.running_tests.remove(0);
                let limit = if self.is_late_in_tear_down(&flight) {
                    Some(self.announced_phase_limit_text())
                } else {
                    let is_limit = flight.is_timed_out || flight.is_idle;
                    is_limit.then(|| "the time limit of the suite's last test".to_owned())
                };
                let mut verdict = verdict;
                if verdict.result == FrameworkResult::Failed {
                    let test = self.order.listed(flight.place);
                    self.framework.complete_verdict(&mut verdict, test, &flight.text_of_details());
                }
                let ran = self.now.running.saturating_sub(flight.started_at.running);
                flight.duration = verdict.duration.unwrap_or(ran);
                let ended = EndedTest::of(&flight, self.now);
                self.settle(ended, TestEnding::Verdict(verdict), updates);
                self.on_done(flight.place);
                let message = self.tear_down_message(gone, limit.as_deref());
                let fixture = SuiteFixture { suite, phase: FixturePhase::TearDown };
                updates.reports.push(LeaseEvent::FixtureFailed { fixture, message });
                true
            }
            Some(SuitePhase::AfterTests { suite }) if self.is_after_tests(gone) => {
                let limit = self.is_stalled().then(|| self.announced_phase_limit_text());
                let message = self.tear_down_message(gone, limit.as_deref());
                let fixture = SuiteFixture { suite, phase: FixturePhase::TearDown };
                updates.reports.push(LeaseEvent::FixtureFailed { fixture, message });
                gone.is_told_of_suite = true;
                true
            }
            phase @ (Some(
                SuitePhase::TearDown { .. }
                | SuitePhase::AfterTests { .. }
                | SuitePhase::FixtureTearDown { .. },
            )
            | None) => {
                gone.suite_phase = phase;
                false
            }
        }
    }

    /// Returns whether a process died by itself, or stood still until its limit, in the tear-down of a suite
    /// around tests that have all ended.
    fn is_after_tests(&self, gone: &ProcessExitSummary) -> bool {
        let is_own_death =
            self.terminate_reason.is_none() && self.stack_position(gone) == StackPosition::SuiteFixture;
        self.running_tests.is_empty() && (is_own_death || self.is_stalled())
    }

    /// Returns whether the process was ended because it ran no test for too long.
    fn is_stalled(&self) -> bool {
        self.terminate_reason == Some(BatchTerminateReason::ProcessStalled)
    }

    /// Describes the end of a process in the tear-down of a suite.
    fn tear_down_message(&self, gone: &ProcessExitSummary, limit: Option<&str>) -> String {
        let mut message = match (self.memory_cause(gone), limit) {
            (Some(cause), _) => cause,
            (None, Some(limit)) => format!("the process exceeded {limit}"),
            (None, None) => exit_text(&exit_reason_of(&gone.exit)),
        };
        message.push_str(" in the tear-down of the suite");
        let mut message = self.unattributed_output.with_output(message);
        if let Some(evidence) = &gone.evidence {
            append_evidence(&mut message, evidence, gone.detail.as_deref());
        } else if let Some(stack) = &gone.exit_stack {
            append_section(&mut message, "stack", stack);
        }
        message
    }

    /// Returns whether a process whose last test of a suite has written its end marker ended in the suite's
    /// tear-down, not in the test.
    fn is_in_tear_down(&self, gone: &ProcessExitSummary) -> bool {
        if self.running_tests.len() != 1 {
            return false;
        }
        let position = self.stack_position(gone);
        let flight = &self.running_tests[0];
        let is_limit = flight.is_timed_out || flight.is_idle;
        let has_died_by_itself = self.terminate_reason.is_none() || gone.is_own_death;
        match position {
            StackPosition::SuiteFixture => is_limit || has_died_by_itself,
            StackPosition::RunningTest | StackPosition::OtherTest => false,
            // Alone in its process, a test that printed its own end marker is not to pass by that.
            StackPosition::Unknown => {
                let is_exit = gone.exit.signal.is_none() && gone.exit.code.is_some();
                is_exit && self.terminate_reason.is_none() && !self.order.is_single()
            }
        }
    }

    pub(super) fn is_stack_in_test(&self, gone: &ProcessExitSummary) -> bool {
        matches!(self.stack_position(gone), StackPosition::RunningTest | StackPosition::OtherTest)
    }

    pub(super) fn stack_position(&self, gone: &ProcessExitSummary) -> StackPosition {
        let of_crash = || gone.evidence.as_ref().map(|evidence| evidence.stack.as_str());
        let stack = gone.exit_stack.as_deref().or_else(of_crash).unwrap_or_default();
        let running = self.running_tests.first().map(|flight| self.order.listed(flight.place));
        self.framework.stack_position(stack, running)
    }

    /// Discards what the framework seems to have left behind if the process has exited in the middle of its
    /// tests: a forked child has written it.
    pub(super) fn discard_forged_evidence(&self, gone: &mut ProcessExitSummary) {
        if gone.exit_stack.is_some() && self.stack_position(gone) != StackPosition::Unknown {
            gone.run_evidence = RunEvidence::LeftOpen;
        }
    }

    /// Settles the tests of a process that has exited by itself as its framework's report says: what the
    /// output said before is only what seemed to be.
    pub(super) fn apply_run_report(&mut self, gone: &mut ProcessExitSummary, updates: &mut UpdateBatch) {
        let is_exit = gone.exit.signal.is_none() && gone.exit.code.is_some();
        let is_own_exit = is_exit && self.terminate_reason.is_none();
        let RunEvidence::Report(report) = &mut gone.run_evidence else { return };
        if !is_own_exit {
            return;
        }
        // Output about other tests does not prove anything.
        gone.unselected_test = None;
        let RunReport { verdicts, outside_failure, fixture_failures, unselected, has_other_failure } =
            std::mem::take(report);
        add_fixture_failures(&mut gone.fixture_failures, fixture_failures);
        let is_failed = has_other_failure
            || !gone.fixture_failures.is_empty()
            || verdicts.iter().flatten().any(|verdict| verdict.result == FrameworkResult::Failed);
        // A `main` may have an exit code of its own for failures.
        gone.is_explained = (gone.exit.code == Some(0)) != is_failed;
        gone.is_complete = true;
        gone.doubtful_since = None;
        let mut failures: Vec<String> = gone.outside_failure.take().or(outside_failure).into_iter().collect();
        failures.extend(unselected.map(|name| unselected_text(&name)));
        failures.extend(self.settle_verdicts(verdicts, updates));
        if !failures.is_empty() {
            gone.outside_failure = Some(failures.join("\n"));
            gone.is_explained = false;
        }
    }

    /// Returns the contradictions with results that were sent before.
    fn settle_verdicts(
        &mut self,
        verdicts: Vec<Option<FrameworkVerdict>>,
        updates: &mut UpdateBatch,
    ) -> Vec<String> {
        let mut contradictions = Vec::new();
        let mut verdicts = verdicts;
        for place in self.held_tests.correct(&mut verdicts, self.limits.output_bytes) {
            self.order.withdraw(place);
        }
        for (place, verdict) in verdicts.into_iter().enumerate() {
            let Some(state) = self.order.state(place) else { break };
            let reported = verdict.as_ref().map(|verdict| verdict.result);
            match (self.settlement.early_result(place), state) {
                (Some(sent), _) if reported == Some(sent) => {}
                (Some(sent), _) if contradictions.len() < NAMED_CONTRADICTIONS => {
                    contradictions.push(contradicted_result_text(
                        &self.order.listed(place).name,
                        sent,
                        reported,
                    ));
                }
                (Some(_), _) | (None, TestState::Done) => {}
                (None, TestState::Waiting | TestState::Running | TestState::Paused) => {
                    let Some(verdict) = verdict else { continue };
                    self.on_test_begun(place, RawOutputs::default(), self.now.since_boot, updates);
                    self.on_test_ended(place, verdict, updates);
                }
            }
        }
        contradictions
    }

    /// Decides the held tests by how the process ended.
    pub(super) fn decide_by_process_end(&mut self, gone: &mut ProcessExitSummary) -> EndSettlement {
        if self.order.is_single() {
            let is_charged = self.decide_only_test(gone);
            return EndSettlement { unproven: 0, is_charged, is_contradicted: false };
        }
        let proven = proven_results(ProcessEndFacts {
            is_own_end: self.terminate_reason.is_none() && !self.is_launched,
            is_limit: self.is_at_limit(),
            is_stack_of_end: self.is_at_limit() || gone.exit.signal.is_some() || gone.exit_stack.is_some(),
            is_complete: gone.is_complete,
            is_left_open: gone.run_evidence == RunEvidence::LeftOpen,
            has_running_test: !self.running_tests.is_empty(),
            stack_position: self.stack_position(gone),
            doubtful_since: gone.doubtful_since,
        });
        let is_sanitizer_exit = gone.exit.code.is_some_and(|code| code != 0) && !gone.is_explained;
        let (mut unproven, mut reported) = (Vec::new(), 0);
        let mut held: Vec<_> = self.held_tests.take().into();
        if is_sanitizer_exit {
            self.give_reports_to_writers(&mut held);
        }
        for HeldTest { ended, mut verdict } in held {
            // A failure is not taken back: a rerun that passes would hide it.
            let is_proven = proven.contains(ended.place) && !self.is_cancelled();
            if !is_proven && verdict.result != FrameworkResult::Failed {
                unproven.push(ended);
                continue;
            }
            let summary = sanitizer_summary(&ended.outputs.stderr).filter(|_| is_sanitizer_exit);
            if let Some(summary) = summary.map(str::to_owned) {
                reported += 1;
                fail_with(&mut verdict, summary);
            }
            self.held_tests.decide(ended, TestEnding::Verdict(verdict));
        }
        gone.is_explained |= reported > 0 && gone.outside_failure.is_none();
        let is_contradicted = proven == ProvenResults::None;
        let settlement = EndSettlement { unproven: unproven.len(), is_charged: false, is_contradicted };
        let exit_reason = shared_blame(exit_reason_of(&gone.exit), settlement.unproven);
        for ended in unproven {
            if self.terminate_reason.is_some() && !is_contradicted {
                // We ended the process: how it ended says nothing about them, and they run again if the run
                // goes on.
                self.order.withdraw(ended.place);
                continue;
            }
            let exit_reason = exit_reason.clone();
            let seen = TestEnding::Died { exit_reason, position: DeathPosition::Unproven };
            self.held_tests.decide(ended, seen);
        }
        settlement
    }

    /// Returns whether the process was ended on request.
    pub(super) fn is_cancelled(&self) -> bool {
        use BatchTerminateReason::{Abandoned, Cancelled};
        matches!(self.terminate_reason, Some(Cancelled | Abandoned))
    }

    /// Returns whether the process was ended because it had reached a limit.
    fn is_at_limit(&self) -> bool {
        use BatchTerminateReason::{DialogueStalled, MemoryLimit, ProcessStalled, TimedOut};
        matches!(self.terminate_reason, Some(TimedOut | ProcessStalled | DialogueStalled(_) | MemoryLimit(_)))
    }

    /// Decides the only test of the process: only a process that ends well after it lets it pass. Returns
    /// whether the test is charged with the end of the process.
    fn decide_only_test(&mut self, gone: &mut ProcessExitSummary) -> bool {
        let Some(HeldTest { ended, mut verdict }) = self.held_tests.take().pop_front() else { return false };
        if self.is_cancelled() && verdict.result != FrameworkResult::Failed {
            // Its process would have decided.
            self.order.withdraw(ended.place);
            return false;
        }
        if self.is_at_limit() && self.is_stack_in_test(gone) && verdict.result != FrameworkResult::Failed {
            // A copy of the process has written its end marker.
            self.held_tests.decide(ended, TestEnding::Idle(self.startup_limit()));
            return true;
        }
        let is_known_end = self.terminate_reason.is_none()
            && !self.is_launched
            && gone.exit.signal.or(gone.exit.code).is_some();
        let is_bad_end = !gone.is_told_of_suite
            && (gone.exit.signal.is_some()
                || gone.run_evidence == RunEvidence::LeftOpen
                || !(gone.is_complete && gone.is_explained) && gone.outside_failure.is_none());
        if !is_known_end || !is_bad_end || verdict.result == FrameworkResult::Failed {
            self.held_tests.decide(ended, TestEnding::Verdict(verdict));
            return false;
        }
        let mut ended = ended.with_evidence(gone.evidence.take());
        // What the process wrote after its only test, such as a report of leaks, belongs to it as well.
        ended.outputs.stderr.push_str(&self.unattributed_output.stderr_text());
        let summary = sanitizer_summary(&ended.outputs.stderr).map(str::to_owned);
        let seen = match summary.filter(|_| gone.exit.signal.is_none()) {
            Some(summary) => {
                fail_with(&mut verdict, summary);
                TestEnding::Verdict(verdict)
            }
            None => {
                let (detail, cause) = (gone.detail.clone(), self.memory_cause(gone));
                let exit_reason = ExitReason { detail, cause, ..exit_reason_of(&gone.exit) };
                TestEnding::Died { exit_reason, position: DeathPosition::AfterEnd }
            }
        };
        self.held_tests.decide(ended, seen);
        true
    }
}

/// What the end of a process has decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EndSettlement {
    /// Number of tests whose results are not proven.
    pub(super) unproven: usize,
    /// A test is charged with the end, so that the program is not.
    pub(super) is_charged: bool,
    /// The end contradicts the output, and with it what seems to run.
    pub(super) is_contradicted: bool,
}

/// Adds the failures of suites that the report has and the output has not.
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
