//! Tests that have ended by the process's output, but whose results are not settled yet: a test can print
//! what its framework prints, or a process that it has forked can. What the process does next shows it,
//! mostly at once; the end of the process, and the framework's own report of the run, show it in every case.

use std::{collections::VecDeque, time::Duration};

use heeler_adapters::{FrameworkResult, FrameworkVerdict};
use heeler_core::Outcome;
use heeler_protocol::{
    control::{LeaseEvent, LeasedTest, LogLine, TestDiagnostics},
    mtp::LogLevel,
};

use super::{
    RunningBatch, RunningTest, add_result,
    interference::interference_text,
    run_evidence::has_sanitizer_report,
    test_ending::TestEnding,
    verdict::{Decision, TestOutputs, TestPolicy, decide, microseconds},
};
use crate::{process::process_clock::ClockReading, results::update_batch::UpdateBatch};

/// How long the result of a test is held at least while its process goes on to others: what a test prints
/// itself is contradicted within microseconds. People do not notice the delay.
const HOLD_FOR: Duration = Duration::from_millis(100);
/// Size of the outputs that are held; beyond it the oldest results are settled as their markers say. Four
/// tests that write as much as is kept of a test.
const HELD_BYTES: usize = 8 << 20;

/// A test that has ended, with its output.
#[derive(Debug)]
pub(super) struct EndedTest {
    pub(super) place: usize,
    pub(super) started_at: ClockReading,
    ended_at: ClockReading,
    duration: Duration,
    pub(super) outputs: TestOutputs,
}

impl EndedTest {
    pub(super) fn of(flight: &RunningTest, now: ClockReading) -> Self {
        let RunningTest { place, started_at, duration, .. } = *flight;
        Self { place, started_at, ended_at: now, duration, outputs: flight.outputs() }
    }

    fn output_bytes(&self) -> usize {
        self.outputs.stdout.len() + self.outputs.stderr.len()
    }

    pub(super) fn with_evidence(self, evidence: Option<Box<TestDiagnostics>>) -> Self {
        Self { outputs: TestOutputs { evidence, ..self.outputs }, ..self }
    }
}

/// A test that has ended by its framework's marker.
#[derive(Debug)]
pub(super) struct HeldTest {
    pub(super) ended: EndedTest,
    pub(super) verdict: FrameworkVerdict,
}

/// The held tests of a batch, in the order in which they ended: no more than the batch has.
#[derive(Debug, Default)]
pub(super) struct HeldTests {
    tests: VecDeque<HeldTest>,
    /// Size of their outputs.
    output_bytes: usize,
    /// Whether results are held while their process runs, and when they are checked next.
    is_on: bool,
    check_at: Option<Duration>,
    /// Whether results are held until the framework confirms that no test ends again.
    pub(super) is_until_confirmed: bool,
    /// Failures of tests that came after their results were settled.
    pub(super) late_failures: Vec<String>,
}

impl HeldTests {
    pub(super) fn push(&mut self, ended: EndedTest, verdict: FrameworkVerdict) {
        if self.is_on {
            self.check_at.get_or_insert(ended.ended_at.running.saturating_add(HOLD_FOR));
        }
        self.output_bytes += ended.output_bytes();
        self.tests.push_back(HeldTest { ended, verdict });
    }

    /// Returns the held test of this index.
    pub(super) fn find(&mut self, place: usize) -> Option<&mut HeldTest> {
        self.tests.iter_mut().rev().find(|held| held.ended.place == place)
    }

    /// Returns the outputs of the held test of this index.
    pub(super) fn outputs_of(&self, place: usize) -> Option<TestOutputs> {
        let held = self.tests.iter().find(|held| held.ended.place == place)?;
        Some(held.ended.outputs.clone())
    }

    /// Takes the held test of this index.
    pub(super) fn take_test(&mut self, place: usize) -> Option<HeldTest> {
        let at = self.tests.iter().position(|held| held.ended.place == place)?;
        let held = self.tests.remove(at);
        self.count_outputs();
        held
    }

    /// Returns when, in running time, the tests are checked next.
    pub(super) fn check_at(&self) -> Option<Duration> {
        self.check_at
    }

    pub(super) fn take(&mut self) -> VecDeque<HeldTest> {
        self.check_at = None;
        self.output_bytes = 0;
        std::mem::take(&mut self.tests)
    }

    /// Puts back the tests that the end of their process is yet to settle.
    pub(super) fn put_back(&mut self, tests: Vec<HeldTest>) {
        self.tests = tests.into();
        self.count_outputs();
    }

    fn count_outputs(&mut self) {
        self.output_bytes = self.tests.iter().map(|held| held.ended.output_bytes()).sum();
    }

    /// Takes the tests that have been held for long enough and are proven, except those whose output explains
    /// a later failure of the process. A process that has itself reported the end of a test has itself ended
    /// all tests before it.
    fn take_released(&mut self, now: Duration, alone: SoleWriterSpan) -> Vec<HeldTest> {
        self.take_proven(alone, |held| held.ended.ended_at.running.saturating_add(HOLD_FOR) <= now)
    }

    fn take_proven(&mut self, alone: SoleWriterSpan, is_due: impl Fn(&HeldTest) -> bool) -> Vec<HeldTest> {
        let is_own = |held: &HeldTest| alone.contains(held.ended.ended_at.running);
        let proven = self.tests.iter().rposition(is_own).map_or(0, |last| last + 1);
        let is_free = |held: &HeldTest| !has_sanitizer_report(&held.ended.outputs.stderr);
        let (mut due, mut kept) = (Vec::new(), VecDeque::new());
        for (place, held) in self.tests.drain(..).enumerate() {
            if place < proven && is_due(&held) && is_free(&held) {
                due.push(held);
            } else {
                kept.push_back(held);
            }
        }
        self.tests = kept;
        self.count_outputs();
        due
    }
}

/// A span of running time: what was read in it was written by the process itself, and not by a forked copy or
/// by another process of the same program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SoleWriterSpan {
    /// Not part of the span.
    pub(crate) after: Duration,
    /// Part of the span.
    pub(crate) until: Duration,
}

impl SoleWriterSpan {
    fn contains(self, time: Duration) -> bool {
        self.after < time && time <= self.until
    }
}

/// What is known of a running process when its held tests are checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ReleaseConditions {
    /// The first test since which the output contains markers at a wrong place.
    pub(crate) doubtful_since: Option<usize>,
    /// The framework has reported the end of the run: the end of the process is near.
    pub(crate) is_complete: bool,
    /// The latest span in which no other process can have written the framework's markers, if there is one.
    pub(crate) alone: Option<SoleWriterSpan>,
}

impl ReleaseConditions {
    /// Returns whether the held tests wait for the end of the process in any case.
    pub(crate) fn await_end(self) -> bool {
        self.doubtful_since.is_some() || self.is_complete
    }
}

impl RunningBatch {
    /// Has results held for a while: other programs can write to where the process reports.
    pub(crate) fn hold_results(&mut self) {
        self.held_tests.is_on = !self.order.is_single();
    }

    /// Has results held until the framework confirms that no test ends again.
    pub(crate) fn hold_until_confirmed(&mut self) {
        self.held_tests.is_until_confirmed = true;
    }

    /// Returns whether an ended test is held. The only test of a process waits for its end, which decides.
    pub(super) fn holds_results(&self) -> bool {
        self.held_tests.is_on
            || self.held_tests.is_until_confirmed
            || (self.order.is_single() && !self.framework.has_proven_answers())
    }

    /// Returns whether results wait for the end of the process.
    pub(super) fn awaits_end(&self) -> bool {
        let is_only_test = self.order.is_single() && !self.framework.has_proven_answers();
        self.held_tests.is_on || is_only_test || !self.held_tests.tests.is_empty()
    }

    /// Settles the tests that have been held for long enough and are proven, unless something is suspicious.
    pub(crate) fn check_held_tests(
        &mut self,
        now: ClockReading,
        conditions: ReleaseConditions,
        updates: &mut UpdateBatch,
    ) {
        if let Some(alone) = conditions.alone.filter(|_| !conditions.await_end()) {
            for HeldTest { ended, verdict } in self.held_tests.take_released(now.running, alone) {
                self.settled.record_early(ended.place, verdict.result);
                self.settle(ended, TestEnding::Verdict(verdict), updates);
            }
        }
        let is_held = !self.held_tests.tests.is_empty() && !conditions.await_end();
        self.held_tests.check_at = is_held.then(|| now.running.saturating_add(HOLD_FOR));
    }

    /// Settles the tests that are proven before the process is ended on request: how it ends says nothing
    /// about them. The others stay undecided.
    pub(crate) fn settle_proven(&mut self, conditions: ReleaseConditions, updates: &mut UpdateBatch) {
        if self.held_tests.is_until_confirmed && !self.order.is_single() {
            self.settle_confirmed(updates);
        }
        let alone =
            conditions.alone.filter(|_| conditions.doubtful_since.is_none() && !self.order.is_single());
        let proven = alone.map(|alone| self.held_tests.take_proven(alone, |_| true));
        for HeldTest { ended, verdict } in proven.into_iter().flatten() {
            self.settle(ended, TestEnding::Verdict(verdict), updates);
        }
    }

    /// Settles the oldest held tests as their markers say while the outputs of all are too large. A report
    /// that contradicts them is a failure of the program.
    pub(super) fn bound_held_outputs(&mut self, updates: &mut UpdateBatch) {
        while !self.order.is_single() && self.held_tests.output_bytes > HELD_BYTES {
            let Some(HeldTest { ended, verdict }) = self.held_tests.tests.pop_front() else { return };
            self.held_tests.output_bytes -= ended.output_bytes();
            self.settled.record_early(ended.place, verdict.result);
            self.settle(ended, TestEnding::Verdict(verdict), updates);
        }
    }

    /// Withdraws all results that were read: another process than the tests' own has reported them.
    pub(crate) fn withdraw_all(&mut self) {
        for held in self.held_tests.take() {
            self.order.withdraw(held.ended.place);
        }
        for flight in self.running_tests.drain(..) {
            self.order.withdraw(flight.place);
        }
        self.order.forget_last_ended();
    }

    /// Returns whether a test that has ended, and is not settled yet, has failed.
    pub(crate) fn has_held_failure(&self) -> bool {
        let is_failure = |held: &HeldTest| held.verdict.result == FrameworkResult::Failed;
        self.held_tests.tests.is_empty() || self.held_tests.tests.iter().any(is_failure)
    }

    /// Returns whether a test has failed, or is to be retried.
    pub(crate) fn has_failures(&self) -> bool {
        self.has_failures
    }

    /// Takes the tests that have passed this iteration and have others left, in order.
    pub(crate) fn take_repeatable(&mut self) -> Vec<LeasedTest> {
        let places = std::mem::take(&mut self.repeatable);
        self.tests_at(places)
    }

    /// Returns the tests at some places, in order.
    pub(super) fn tests_at(&self, mut places: Vec<usize>) -> Vec<LeasedTest> {
        places.sort_unstable();
        places.into_iter().map(|place| self.order.tests()[place].clone()).collect()
    }

    /// Decides the result of a test: final or provisional. A test that has passed has no result before its
    /// last iteration.
    pub(super) fn settle(&mut self, ended: EndedTest, seen: TestEnding, updates: &mut UpdateBatch) {
        if seen.is_pass() && !self.is_last_iteration() {
            if self.repeat_until.is_some() {
                let (test, duration_us) =
                    (self.order.tests()[ended.place].test, microseconds(ended.duration));
                updates.reports.push(LeaseEvent::IterationPassed { test, duration_us });
            } else {
                self.repeatable.push(ended.place);
            }
            return;
        }
        if self.is_refused_stream(ended.place, &seen, &ended.outputs, updates) {
            return;
        }
        let iteration = self.iteration_of(ended.place);
        let attached = self.attached.take(ended.place);
        self.settled.record(ended.place);
        let test = &self.order.tests()[ended.place];
        // A test whose process died before it is not to be run in isolation for that.
        let is_isolated = self.is_isolated || seen.is_before_test() || self.framework.has_proven_answers();
        let rules = TestPolicy { test, is_isolated, duration: ended.duration, iteration };
        match decide(rules, seen, TestOutputs { attached, ..ended.outputs }) {
            Decision::Final(mut result) => {
                let files = result.files();
                if !files.is_empty() {
                    updates.reports.push(LeaseEvent::FilesAttached { test: Some(test.test), files });
                }
                result.started_ms = Some(ended.started_at.utc.since_epoch_ms());
                result.ended_ms = Some(ended.ended_at.utc.since_epoch_ms());
                result.duration_us = Some(microseconds(ended.duration));
                if !matches!(result.outcome, Outcome::Passed | Outcome::Flaky | Outcome::Skipped) {
                    result.reproduce = Some(self.framework.reproduce(&test.listed));
                }
                if let Some(exit) = &self.process_exit {
                    result.usage = exit.usage();
                    result.leaked.clone_from(&exit.leaked);
                }
                self.has_failures |= result.outcome.is_failure();
                if let Some(interference) =
                    interference_text(test).filter(|_| result.outcome == Outcome::Flaky)
                {
                    // The name of the test stands before each line about it.
                    let message = format!("failed and passes alone: {interference}");
                    updates.logs.push(LogLine { test: Some(test.test), level: LogLevel::Warning, message });
                }
                add_result(&mut self.node_writer, test, *result, updates);
            }
            Decision::Provisional(attempt, mark) => {
                self.has_failures = true;
                updates.add_provisional(test.test, *attempt, mark);
            }
        }
    }
}
