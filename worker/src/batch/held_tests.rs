//! Tests that have ended by the process's output, but whose results are not settled yet: a test can print
//! what its framework prints, or a process that it has forked can. What the process does next shows it,
//! mostly at once; the end of the process, and the framework's own report of the run, show it in every case.
//!
//! Tests may also end several times in one run of their framework: rows and attempts under one name, and a
//! class whose tear-down fails after them. Any failure wins.

use std::{collections::VecDeque, time::Duration};

use heeler_adapters::{FrameworkResult, FrameworkVerdict, TestPart};
use heeler_protocol::control::TestDiagnostics;

use super::{
    message_limit::truncate_messages, run_evidence::has_sanitizer_report, test_ending::TestEnding,
    test_order::TestOrder, verdict::TestOutputs,
};
use crate::{process::process_clock::ClockReading, results::output_capture::truncate_text};

/// How long the result of a test is held at least while its process goes on to others: what a test prints
/// itself is contradicted within microseconds. People do not notice the delay.
const HOLD_FOR: Duration = Duration::from_millis(100);
/// Size of the outputs that are held; beyond it the oldest results are settled as their markers say. Four
/// tests that write as much as is kept of a test.
const HELD_BYTES: usize = 8 << 20;
/// Failures that are named where they come after the results of their tests.
const NAMED_FAILURES: usize = 10;

/// A test that has ended, with its output.
#[derive(Debug)]
pub(super) struct EndedTest {
    pub(super) place: usize,
    pub(super) started_at: ClockReading,
    pub(super) ended_at: ClockReading,
    pub(super) duration: Duration,
    pub(super) outputs: TestOutputs,
}

impl EndedTest {
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

impl HeldTest {
    /// Adds another end of the same test.
    fn add_end(&mut self, verdict: FrameworkVerdict, limit_bytes: u64) {
        let FrameworkVerdict { result, duration, reason, failures, stdout, stderr, .. } = verdict;
        let known = &mut self.verdict;
        if severity(result) > severity(known.result) {
            known.result = result;
            known.reason = None;
        }
        if result == known.result {
            known.reason = known.reason.take().or(reason);
        }
        known.duration =
            known.duration.zip(duration).map(|(one, other)| one.saturating_add(other)).or(known.duration);
        failures.into_iter().for_each(|failure| known.push_failure(failure));
        let outputs = &mut self.ended.outputs;
        for (text, more) in [(&mut outputs.stdout, stdout), (&mut outputs.stderr, stderr)] {
            if let Some(more) = more {
                text.push_str(&more);
                *text = truncate_text(std::mem::take(text), limit_bytes);
            }
        }
    }
}

/// The tests of a batch that have ended and are not settled: no more than the batch has.
#[derive(Debug, Default)]
pub(crate) struct HeldTests {
    /// Tests that have ended by the process's output, in end order.
    tests: VecDeque<HeldTest>,
    /// Size of their outputs.
    output_bytes: usize,
    /// Whether results are held while their process runs, and when they are checked next.
    is_on: bool,
    check_at: Option<Duration>,
    /// Whether results are held until the framework confirms that no test ends again.
    is_until_confirmed: bool,
    /// Each result answers a request, so reading it proves it.
    has_proven_answers: bool,
    /// Failures of tests that came after their results were settled.
    late_failures: Vec<String>,
    /// Tests that the end of the process has decided.
    decided: VecDeque<(EndedTest, TestEnding)>,
}

impl HeldTests {
    pub(super) fn new(has_proven_answers: bool) -> Self {
        Self { has_proven_answers, ..Self::default() }
    }

    /// Has results of a process with this number of tests held for a while: other programs can write to where
    /// the process reports.
    pub(crate) fn hold_results(&mut self, tests: usize) {
        self.is_on = tests > 1;
    }

    /// Has results held until the framework confirms that no test ends again.
    pub(crate) fn hold_until_confirmed(&mut self) {
        self.is_until_confirmed = true;
    }

    /// Returns whether a test that has ended, and is not settled yet, has failed.
    pub(crate) fn has_failure(&self) -> bool {
        let is_failure = |held: &HeldTest| held.verdict.result == FrameworkResult::Failed;
        self.tests.is_empty() || self.tests.iter().any(is_failure)
    }

    /// Returns whether an ended test is held. The only test of a process waits for its end, which decides.
    pub(super) fn holds_results(&self, order: &TestOrder) -> bool {
        self.is_on || self.is_until_confirmed || self.awaits_end_of_only_test(order)
    }

    /// Returns whether results wait for the end of the process.
    pub(super) fn awaits_end(&self, order: &TestOrder) -> bool {
        self.is_on || self.awaits_end_of_only_test(order) || !self.tests.is_empty()
    }

    fn awaits_end_of_only_test(&self, order: &TestOrder) -> bool {
        order.is_single() && !self.has_proven_answers
    }

    /// Returns when, in running time, the tests are checked next.
    pub(super) fn check_at(&self) -> Option<Duration> {
        self.check_at
    }

    pub(super) fn push(&mut self, ended: EndedTest, verdict: FrameworkVerdict) {
        if self.is_on {
            self.check_at.get_or_insert(ended.ended_at.running.saturating_add(HOLD_FOR));
        }
        self.output_bytes += ended.output_bytes();
        self.tests.push_back(HeldTest { ended, verdict });
    }

    /// Handles another end of a test. `early_result`: what was settled of it while the process ran.
    pub(super) fn record_later_end(
        &mut self,
        order: &TestOrder,
        place: usize,
        verdict: FrameworkVerdict,
        early_result: Option<FrameworkResult>,
        limit_bytes: u64,
    ) {
        if !self.is_until_confirmed {
            return;
        }
        if let Some(held) = self.find(place) {
            held.add_end(verdict, limit_bytes);
        } else if verdict.result == FrameworkResult::Failed
            && early_result == Some(FrameworkResult::Passed)
            && self.late_failures.len() < NAMED_FAILURES
        {
            let name = &order.listed(place).name;
            let message = verdict.failures.into_iter().find_map(|failure| failure.message);
            let message = message.map_or(String::new(), |message| format!(": {message}"));
            self.late_failures.push(format!("{name} failed after its result was sent{message}"));
        }
    }

    /// Records a part of a test that has ended before.
    pub(super) fn record_later_part(&mut self, place: usize, part: TestPart) {
        if let Some(held) = self.find(place) {
            held.ended.outputs.parts.record(part);
        }
    }

    fn find(&mut self, place: usize) -> Option<&mut HeldTest> {
        self.tests.iter_mut().rev().find(|held| held.ended.place == place)
    }

    /// Returns the outputs of the held test at a place.
    pub(super) fn outputs_of(&self, place: usize) -> Option<TestOutputs> {
        let held = self.tests.iter().find(|held| held.ended.place == place)?;
        Some(held.ended.outputs.clone())
    }

    /// Takes the held test at a place.
    pub(super) fn take_test(&mut self, place: usize) -> Option<HeldTest> {
        let at = self.tests.iter().position(|held| held.ended.place == place)?;
        let held = self.tests.remove(at);
        self.count_outputs();
        held
    }

    /// Takes all tests that have ended by the process's output.
    pub(super) fn take(&mut self) -> VecDeque<HeldTest> {
        self.check_at = None;
        self.output_bytes = 0;
        std::mem::take(&mut self.tests)
    }

    /// Takes the tests that do not end again. The only test of a process waits for its end.
    pub(super) fn take_confirmed(&mut self, order: &TestOrder) -> VecDeque<HeldTest> {
        if order.is_single() { VecDeque::new() } else { self.take() }
    }

    /// Takes the oldest test while the outputs of all are too large: it is settled as its marker says. A
    /// report that contradicts it is a failure of the program.
    pub(super) fn take_excess(&mut self, order: &TestOrder) -> Option<HeldTest> {
        if order.is_single() || self.output_bytes <= HELD_BYTES {
            return None;
        }
        let held = self.tests.pop_front()?;
        self.output_bytes -= held.ended.output_bytes();
        Some(held)
    }

    /// Takes the tests that have been held for long enough and are proven, unless something is suspicious,
    /// except those whose output explains a later failure of the process. A process that has itself reported
    /// the end of a test has itself ended all tests before it.
    pub(super) fn take_released(&mut self, now: Duration, conditions: ReleaseConditions) -> Vec<HeldTest> {
        let is_due = |held: &HeldTest| held.ended.ended_at.running.saturating_add(HOLD_FOR) <= now;
        let alone = conditions.alone.filter(|_| !conditions.await_end());
        let released = alone.map(|alone| self.take_written_by_sole_writer(alone, is_due));
        let is_held = !self.tests.is_empty() && !conditions.await_end();
        self.check_at = is_held.then(|| now.saturating_add(HOLD_FOR));
        released.unwrap_or_default()
    }

    /// Takes the tests that are proven before the process is ended on request: how it ends says nothing about
    /// them.
    pub(super) fn take_proven(&mut self, order: &TestOrder, conditions: ReleaseConditions) -> Vec<HeldTest> {
        let alone = conditions.alone.filter(|_| conditions.doubtful_since.is_none() && !order.is_single());
        alone.map(|alone| self.take_written_by_sole_writer(alone, |_| true)).unwrap_or_default()
    }

    /// Returns whether tests are held until they are confirmed.
    pub(super) fn is_until_confirmed(&self) -> bool {
        self.is_until_confirmed
    }

    fn take_written_by_sole_writer(
        &mut self,
        alone: SoleWriterSpan,
        is_due: impl Fn(&HeldTest) -> bool,
    ) -> Vec<HeldTest> {
        let is_own = |held: &HeldTest| alone.contains(held.ended.ended_at.running);
        let proven = self.tests.iter().rposition(is_own).map_or(0, |last| last + 1);
        let is_free = |held: &HeldTest| !has_sanitizer_report(&held.ended.outputs.stderr);
        let (mut due, mut kept) = (Vec::new(), VecDeque::new());
        for (index, held) in self.tests.drain(..).enumerate() {
            if index < proven && is_due(&held) && is_free(&held) {
                due.push(held);
            } else {
                kept.push_back(held);
            }
        }
        self.tests = kept;
        self.count_outputs();
        due
    }

    /// Corrects the held tests by the framework's report of the run, with a result for each place of a test
    /// that was run. Takes the results that it uses; returns the places of the tests that were not run.
    pub(super) fn correct(
        &mut self,
        reported: &mut [Option<FrameworkVerdict>],
        limit_bytes: u64,
    ) -> Vec<usize> {
        let mut not_run = Vec::new();
        for HeldTest { ended, mut verdict } in self.take() {
            match reported.get_mut(ended.place).and_then(Option::take) {
                // The output has more details.
                Some(reported) if reported.result == verdict.result => take_places(&mut verdict, &reported),
                Some(reported) => {
                    verdict = reported;
                    truncate_messages(&mut verdict, limit_bytes);
                }
                // The test seemed to run but did not, so it runs again.
                None => {
                    not_run.push(ended.place);
                    continue;
                }
            }
            self.tests.push_back(HeldTest { ended, verdict });
        }
        self.count_outputs();
        not_run
    }

    fn count_outputs(&mut self) {
        self.output_bytes = self.tests.iter().map(|held| held.ended.output_bytes()).sum();
    }

    /// Takes the failures of tests that came after their results were settled.
    pub(super) fn take_late_failures(&mut self) -> Vec<String> {
        std::mem::take(&mut self.late_failures)
    }

    /// Adds a test that the end of the process has decided.
    pub(super) fn decide(&mut self, ended: EndedTest, seen: TestEnding) {
        self.decided.push_back((ended, seen));
    }

    /// Takes the next test that the end of the process has decided.
    pub(super) fn next_decided(&mut self) -> Option<(EndedTest, TestEnding)> {
        self.decided.pop_front()
    }

    /// Returns whether tests that the end of the process has decided are left.
    pub(super) fn has_decided(&self) -> bool {
        !self.decided.is_empty()
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

/// State of a running process when its held tests are checked.
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

/// Takes the files of failures from the report: in the output, what a test printed without ending the line
/// may stand in front of one.
fn take_places(verdict: &mut FrameworkVerdict, reported: &FrameworkVerdict) {
    for (ours, theirs) in verdict.failures.iter_mut().zip(&reported.failures) {
        let (Some(ours_file), Some(file)) = (&mut ours.file, &theirs.file) else { continue };
        if ours.line == theirs.line && ours_file.ends_with(file.as_str()) {
            ours_file.clone_from(file);
        }
    }
}

fn severity(result: FrameworkResult) -> u8 {
    match result {
        FrameworkResult::NotRun => 0,
        FrameworkResult::Skipped => 1,
        FrameworkResult::Passed => 2,
        FrameworkResult::Failed => 3,
    }
}
