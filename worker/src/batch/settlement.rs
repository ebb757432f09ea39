//! Settles tests that have ended: by a result, an attempt, or another run. Reports each test to the client.

use std::collections::HashMap;

use heeler_adapters::FrameworkResult;
use heeler_core::{DiagnosticsFile, Iteration, NotRunReason, Outcome, TestResult, describe::program_name};
use heeler_protocol::{
    control::{LeaseEvent, LeasedTest, LogLine, ProcessExit, WorkerId, WorkerLease},
    mtp::LogLevel,
};

use super::{
    framework_queries::FrameworkQueries,
    held_tests::EndedTest,
    interference::interference_text,
    iterations::Iterations,
    process_leaks::{ProcessLeak, leak_message},
    stream_names::StreamNames,
    test_ending::TestEnding,
    verdict::{Decision, TestOutputs, TestPolicy, decide, microseconds},
};
use crate::{
    process::process_clock::{ClockReading, UtcTime},
    results::{node_writer::NodeWriter, update_batch::UpdateBatch},
};

/// Inputs of a result beside the end of its test.
pub(super) struct SettlementContext<'a> {
    pub(super) tests: &'a [LeasedTest],
    pub(super) framework: &'a dyn FrameworkQueries,
    /// The time of the last output, or of the end of the process.
    pub(super) now: ClockReading,
    /// The process is ended on request.
    pub(super) is_cancelled: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct SettledTest {
    /// The test has a result or an attempt: files that come later belong to neither.
    is_settled: bool,
    /// The result that was settled while the process ran.
    early_result: Option<FrameworkResult>,
}

/// Settles the tests of a batch.
pub(crate) struct Settlement {
    node_writer: NodeWriter,
    /// Settled state of each test, by place, up to the last settled one.
    settled: Vec<SettledTest>,
    /// Kept files of tests without a settled result, by place.
    attached: HashMap<usize, Vec<DiagnosticsFile>>,
    pub(crate) iterations: Iterations,
    pub(crate) stream_names: StreamNames,
    is_isolated: bool,
    has_proven_answers: bool,
    /// How the process ended, if it ran one test only.
    process_exit: Option<ProcessExit>,
    has_failures: bool,
    /// Leaked processes are reported with their arguments.
    are_arguments_shown: bool,
}

impl Settlement {
    pub(super) fn new(
        lease: &WorkerLease,
        iteration: Iteration,
        worker: WorkerId,
        has_proven_answers: bool,
    ) -> Self {
        Self {
            node_writer: NodeWriter::new(lease, worker),
            settled: Vec::new(),
            attached: HashMap::new(),
            iterations: Iterations::new(iteration, lease.repeat_until_ms),
            stream_names: StreamNames::default(),
            is_isolated: lease.is_isolated,
            has_proven_answers,
            process_exit: None,
            has_failures: false,
            are_arguments_shown: lease.is_environment_shown,
        }
    }

    /// Settles the tests that their framework would skip; returns the others.
    pub(super) fn settle_skipped(
        &mut self,
        tests: Vec<LeasedTest>,
        updates: &mut UpdateBatch,
    ) -> Vec<LeasedTest> {
        let (skipped, tests): (Vec<_>, Vec<_>) =
            tests.into_iter().partition(|test| test.listed.skip.is_some());
        for test in skipped {
            let reason = test.listed.skip.as_deref().unwrap_or_default();
            let result = TestResult::with_reason(Outcome::Skipped, reason);
            self.settle_without_process(&test, result, updates);
        }
        tests
    }

    /// Adds the groups of an extended lease, and settles its tests that their framework would skip; returns
    /// the others.
    pub(super) fn extend(&mut self, lease: WorkerLease, updates: &mut UpdateBatch) -> Vec<LeasedTest> {
        let lease = self.node_writer.extend(lease);
        self.settle_skipped(lease.tests, updates)
    }

    /// Settles a test that cannot be run.
    pub(super) fn settle_not_run(&mut self, test: &LeasedTest, reason: &str, updates: &mut UpdateBatch) {
        let outcome = Outcome::NotRun(NotRunReason::Unrunnable);
        let result = TestResult::with_reason(outcome, format!("not run: {reason}"));
        self.settle_without_process(test, result, updates);
    }

    fn settle_without_process(&mut self, test: &LeasedTest, result: TestResult, updates: &mut UpdateBatch) {
        let ended_ms = Some(UtcTime::now().since_epoch_ms());
        self.add_result(test, TestResult { ended_ms, duration_us: Some(0), ..result }, updates);
    }

    /// Returns the name of the suite.
    pub(crate) fn suite(&self) -> &str {
        self.node_writer.suite()
    }

    /// Returns whether a test has failed, or is to be retried.
    pub(crate) fn has_failures(&self) -> bool {
        self.has_failures
    }

    /// Returns the result of a test that was settled while its process ran.
    pub(super) fn early_result(&self, place: usize) -> Option<FrameworkResult> {
        self.settled.get(place)?.early_result
    }

    /// Adds a kept file to the result of a test. One that comes after the result was settled is a file of the
    /// run, with a warning.
    pub(super) fn attach(
        &mut self,
        place: usize,
        test: &LeasedTest,
        file: DiagnosticsFile,
        updates: &mut UpdateBatch,
    ) {
        if !self.settled.get(place).is_some_and(|test| test.is_settled) {
            self.attached.entry(place).or_default().push(file);
            return;
        }
        let message = format!(
            "the file {} came after the result of its test, and is among the files of the run only",
            file.path.to_text()
        );
        updates.logs.push(LogLine { test: Some(test.test), level: LogLevel::Warning, message });
        updates.reports.push(LeaseEvent::FilesAttached { test: None, files: vec![file] });
    }

    /// Reports that a test begins. The client receives one start of each test.
    pub(super) fn report_start(&mut self, test: &LeasedTest, start: UtcTime, updates: &mut UpdateBatch) {
        self.node_writer.add_ancestor_groups(test, updates);
        let is_rerun = self.stream_names.is_rerun();
        if self.iterations.of(test).is_first() && !is_rerun {
            updates.add_started(test.test, |out| self.node_writer.write_in_progress(out, test, start));
        } else if self.iterations.are_timed() || is_rerun {
            updates.reports.push(LeaseEvent::Started(test.test));
        }
    }

    /// Reports what a running test has written.
    pub(super) fn report_output(
        &self,
        test: &LeasedTest,
        start: UtcTime,
        text: &str,
        updates: &mut UpdateBatch,
    ) {
        updates.add_output(test.test, |out| self.node_writer.write_output(out, test, start, text));
    }

    /// Reports that a test has ended, one of this number in its process, and is held. The result of a test
    /// with iterations left does not follow soon.
    pub(super) fn report_held(
        &self,
        test: &LeasedTest,
        tests: usize,
        now: ClockReading,
        updates: &mut UpdateBatch,
    ) {
        if self.iterations.is_last(now) {
            updates.add_held(test.test, tests);
        }
    }

    fn settled_mut(&mut self, place: usize) -> &mut SettledTest {
        if self.settled.len() <= place {
            self.settled.resize(place + 1, SettledTest::default());
        }
        &mut self.settled[place]
    }

    /// Records the result of a test that is settled while its process runs.
    pub(super) fn record_early_result(&mut self, place: usize, result: FrameworkResult) {
        self.settled_mut(place).early_result = Some(result);
    }

    /// Decides the result of a test: final or provisional. A test that has passed has no result before its
    /// last iteration.
    pub(super) fn settle(
        &mut self,
        context: &SettlementContext<'_>,
        ended: EndedTest,
        seen: TestEnding,
        updates: &mut UpdateBatch,
    ) {
        let test = &context.tests[ended.place];
        if seen.is_pass() && !self.iterations.is_last(context.now) {
            self.iterations.record_pass(ended.place, test, ended.duration, updates);
            return;
        }
        let is_refused = !context.is_cancelled
            && self.stream_names.is_refused(ended.place, test, &seen, &ended.outputs, updates);
        if is_refused {
            return;
        }
        let attached = self.attached.remove(&ended.place).unwrap_or_default();
        self.settled_mut(ended.place).is_settled = true;
        // A test whose process died before it is not to be run in isolation for that.
        let is_isolated = self.is_isolated || seen.is_before_test() || self.has_proven_answers;
        let iteration = self.iterations.of(test);
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
                    result.reproduce = Some(context.framework.reproduce(&test.listed));
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
                self.add_result(test, *result, updates);
            }
            Decision::Provisional(attempt, mark) => {
                self.has_failures = true;
                updates.add_provisional(test.test, *attempt, mark);
            }
        }
    }

    fn add_result(&mut self, test: &LeasedTest, mut result: TestResult, updates: &mut UpdateBatch) {
        result.worker = Some(self.node_writer.worker().0);
        self.node_writer.add_ancestor_groups(test, updates);
        updates.add_settled(test.test, &result, |out| self.node_writer.write_terminal(out, test, &result));
    }

    /// Removes the arguments of leaked processes, unless they are reported.
    pub(super) fn hide_arguments(&self, exit: &mut ProcessExit) {
        if self.are_arguments_shown {
            return;
        }
        for leaked in &mut exit.leaked {
            let name = leaked.facts.as_ref().map(|facts| facts.name.as_str());
            leaked.command = program_name(&leaked.command, name);
        }
    }

    /// Records how the process has ended, if it ran one test only: the result of the test has it.
    pub(super) fn record_exit(&mut self, exit: Option<ProcessExit>) {
        self.process_exit = exit;
    }

    /// Reports what the process has used.
    pub(super) fn report_process_end(
        &self,
        tests: &[LeasedTest],
        exit: &ProcessExit,
        updates: &mut UpdateBatch,
    ) {
        if let Some(usage) = exit.usage() {
            let test = tests.first().map(|test| test.test).filter(|_| self.process_exit.is_some());
            let tests = u32::try_from(tests.len()).unwrap_or(u32::MAX);
            updates.reports.push(LeaseEvent::ProcessEnded { test, tests, usage });
        }
    }

    /// Reports leaked processes and the tests that may have started them.
    pub(super) fn report_leaks(
        &self,
        leaks: Vec<ProcessLeak>,
        tests: &[LeasedTest],
        updates: &mut UpdateBatch,
    ) {
        for ProcessLeak { places, processes } in leaks {
            let tests: Vec<_> = places.iter().map(|place| &tests[*place]).collect();
            let uids: Vec<_> = tests.iter().map(|test| test.uid.as_str()).collect();
            let message = leak_message(self.suite(), &uids, &processes);
            let tests: Vec<_> = tests.iter().map(|test| test.test).collect();
            let test = tests.first().copied().filter(|_| tests.len() == 1);
            updates.logs.push(LogLine { test, level: LogLevel::Warning, message });
            updates.reports.push(LeaseEvent::ProcessesLeaked { tests, processes });
        }
    }
}
