//! Tests that have ended according to the process's output, but whose results are not settled yet. A test, or
//! a process it forked, can print the same markers as the framework. The process's next output usually
//! exposes this at once; the end of the process and the framework's own report of the run always do.
//!
//! A test may also end several times in one run: rows and attempts under one name, or a class whose tear-down
//! fails after its tests. Any failure wins.

use std::{collections::VecDeque, time::Duration};

use heeler_adapters::{FrameworkResult, FrameworkVerdict, TestPart};
use heeler_protocol::control::TestDiagnostics;

use super::{
    message_limit::truncate_messages, run_evidence::has_sanitizer_report, test_ending::TestEnding,
    test_order::TestOrder, verdict::TestOutputs,
};
use crate::{process::process_clock::ClockReading, results::output_capture::truncate_text};

/// Minimum time to hold a test's result while its process goes on to other tests. A marker printed by the
/// test itself is contradicted within microseconds. People do not notice the delay.
const HOLD_FOR: Duration = Duration::from_millis(100);
/// Maximum size of held outputs: four tests at the per-test output limit. Beyond it, the oldest results are
/// settled according to their markers.
const HELD_BYTES: usize = 8 << 20;
/// Maximum number of named failures that arrived after the results of their tests.
const NAMED_FAILURES: usize = 10;

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

/// A test that has ended according to its framework's marker.
#[derive(Debug)]
pub(super) struct HeldTest {
    pub(super) ended: EndedTest,
    pub(super) verdict: FrameworkVerdict,
}

impl HeldTest {
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

/// The tests of a batch that have ended but are not settled.
#[derive(Debug, Default)]
pub(crate) struct HeldTests {
    /// Tests in the order of their ends.
    tests: VecDeque<HeldTest>,
    /// Total size of the outputs of these tests.
    output_bytes: usize,
    /// Results are held while their process runs; `check_at` is the time of the next check.
    is_on: bool,
    check_at: Option<Duration>,
    /// Results are held until the framework confirms that no test will end a second time.
    is_until_confirmed: bool,
    /// Each result answers a request, so reading the result proves it.
    has_proven_answers: bool,
    /// Failures of tests that arrived after their results were settled.
    late_failures: Vec<String>,
    /// Tests decided by the end of the process.
    decided: VecDeque<(EndedTest, TestEnding)>,
}

impl HeldTests {
    pub(super) fn new(has_proven_answers: bool) -> Self {
        Self { has_proven_answers, ..Self::default() }
    }

    /// Holds results for a while if the process has several tests, because other programs can write to the
    /// stream that the process reports on.
    pub(crate) fn hold_results(&mut self, tests: usize) {
        self.is_on = tests > 1;
    }

    /// Holds results until the framework confirms that no test will end a second time.
    pub(crate) fn hold_until_confirmed(&mut self) {
        self.is_until_confirmed = true;
    }

    /// Returns whether a held test has failed. Also `true` if no test is held.
    pub(crate) fn has_failure(&self) -> bool {
        let is_failure = |held: &HeldTest| held.verdict.result == FrameworkResult::Failed;
        self.tests.is_empty() || self.tests.iter().any(is_failure)
    }

    /// Returns whether an ended test is held. The only test of a process waits for the end of the process.
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

    /// Returns the running time of the next check of the tests.
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

    /// Handles another end of a test. `early_result`: the result already settled while the process ran.
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
            self.late_failures.push(format!("{name} failed after its result was reported{message}"));
        }
    }

    /// Records a part of a test that has already ended.
    pub(super) fn record_later_part(&mut self, place: usize, part: TestPart) {
        if let Some(held) = self.find(place) {
            held.ended.outputs.parts.record(part);
        }
    }

    fn find(&mut self, place: usize) -> Option<&mut HeldTest> {
        self.tests.iter_mut().rev().find(|held| held.ended.place == place)
    }

    pub(super) fn outputs_of(&self, place: usize) -> Option<TestOutputs> {
        let held = self.tests.iter().find(|held| held.ended.place == place)?;
        Some(held.ended.outputs.clone())
    }

    pub(super) fn take_test(&mut self, place: usize) -> Option<HeldTest> {
        let at = self.tests.iter().position(|held| held.ended.place == place)?;
        let held = self.tests.remove(at);
        self.count_outputs();
        held
    }

    pub(super) fn take(&mut self) -> VecDeque<HeldTest> {
        self.check_at = None;
        self.output_bytes = 0;
        std::mem::take(&mut self.tests)
    }

    /// Takes the tests that are confirmed not to end again. The only test of a process keeps waiting for the
    /// end of the process.
    pub(super) fn take_confirmed(&mut self, order: &TestOrder) -> VecDeque<HeldTest> {
        if order.is_single() { VecDeque::new() } else { self.take() }
    }

    /// Takes the oldest test if the held outputs are too large. The test is settled according to its marker;
    /// a later report that contradicts it fails the program.
    pub(super) fn take_excess(&mut self, order: &TestOrder) -> Option<HeldTest> {
        if order.is_single() || self.output_bytes <= HELD_BYTES {
            return None;
        }
        let held = self.tests.pop_front()?;
        self.output_bytes -= held.ended.output_bytes();
        Some(held)
    }

    /// Takes proven tests that have been held long enough, unless something is suspicious. Keeps tests whose
    /// output explains a later failure of the process. If the process itself reported the end of a test, it
    /// also reported the ends of all tests before it.
    pub(super) fn take_released(&mut self, now: Duration, conditions: ReleaseConditions) -> Vec<HeldTest> {
        let is_due = |held: &HeldTest| held.ended.ended_at.running.saturating_add(HOLD_FOR) <= now;
        let alone = conditions.alone.filter(|_| !conditions.await_end());
        let released = alone.map(|alone| self.take_written_by_sole_writer(alone, is_due));
        let is_held = !self.tests.is_empty() && !conditions.await_end();
        self.check_at = is_held.then(|| now.saturating_add(HOLD_FOR));
        released.unwrap_or_default()
    }

    /// Takes the tests that are already proven, before the process is ended on request. How such a process
    /// ends proves nothing about these tests.
    pub(super) fn take_proven(&mut self, order: &TestOrder, conditions: ReleaseConditions) -> Vec<HeldTest> {
        let alone = conditions.alone.filter(|_| conditions.doubtful_since.is_none() && !order.is_single());
        alone.map(|alone| self.take_written_by_sole_writer(alone, |_| true)).unwrap_or_default()
    }

    /// Returns whether results are held until the framework confirms them.
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

    /// Corrects the held tests from the framework's report of the run, which has a result for each place
    /// whose test ran. Takes the results it uses, and returns the places of tests that did not run.
    pub(super) fn correct(
        &mut self,
        reported: &mut [Option<FrameworkVerdict>],
        limit_bytes: u64,
    ) -> Vec<usize> {
        let mut not_run = Vec::new();
        for HeldTest { ended, mut verdict } in self.take() {
            match reported.get_mut(ended.place).and_then(Option::take) {
                // The output has more details than the report.
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

    /// Takes the failures that arrived after the results of their tests were settled.
    pub(super) fn take_late_failures(&mut self) -> Vec<String> {
        std::mem::take(&mut self.late_failures)
    }

    /// Adds a test decided by the end of the process.
    pub(super) fn decide(&mut self, ended: EndedTest, seen: TestEnding) {
        self.decided.push_back((ended, seen));
    }

    /// Takes the next test decided by the end of the process.
    pub(super) fn next_decided(&mut self) -> Option<(EndedTest, TestEnding)> {
        self.decided.pop_front()
    }

    /// Returns whether tests decided by the end of the process remain.
    pub(super) fn has_decided(&self) -> bool {
        !self.decided.is_empty()
    }
}

/// Span of running time with the process as the only writer: no forked copy and no other process of the same
/// program wrote output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SoleWriterSpan {
    /// Exclusive start.
    pub(crate) after: Duration,
    /// Inclusive end.
    pub(crate) until: Duration,
}

impl SoleWriterSpan {
    fn contains(self, time: Duration) -> bool {
        self.after < time && time <= self.until
    }
}

/// State of a running process at a check of its held tests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ReleaseConditions {
    /// First test with a doubtful result: from this test on, the output contains misplaced markers.
    pub(crate) doubtful_since: Option<usize>,
    /// The framework has reported the end of the run, so the process is about to end.
    pub(crate) is_complete: bool,
    /// Latest span without another process that could have written the framework's markers, if any.
    pub(crate) alone: Option<SoleWriterSpan>,
}

impl ReleaseConditions {
    /// Returns whether the held tests must wait for the end of the process.
    pub(crate) fn await_end(self) -> bool {
        self.doubtful_since.is_some() || self.is_complete
    }
}

/// Takes the file names of failures from the report. In the output, an unfinished line printed by a test may
/// precede a file name.
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
