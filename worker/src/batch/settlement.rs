//! Settles ended tests with a result, an attempt, or another iteration, and reports each test to the client.

use std::{collections::HashMap, sync::Arc};

use heeler_adapters::FrameworkResult;
use heeler_core::{
    DiagnosticsFile, Iteration, LogLine, NotRunReason, Outcome, RecordSink, RunRecord, TestResult, TestStart,
    describe::program_name,
};
use heeler_protocol::control::{LeasedTest, ProcessExit, WorkerLease};

use super::{
    failed_place::OwnSources,
    framework_queries::FrameworkQueries,
    held_tests::EndedTest,
    interference::interference_text,
    iterations::Iterations,
    process_leaks::{ProcessLeak, leak_message},
    stream_names::StreamNames,
    test_ending::TestEnding,
    verdict::{Decision, TestOutputs, TestPolicy, decide, microseconds},
};
use crate::process::process_clock::{ClockReading, UtcTime};

/// Inputs of a result other than the end of its test.
pub(super) struct SettlementContext<'a> {
    pub(super) tests: &'a [Arc<LeasedTest>],
    pub(super) framework: &'a dyn FrameworkQueries,
    /// Time of the last output, or of the end of the process.
    pub(super) now: ClockReading,
    pub(super) is_cancelled: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct SettledTest {
    /// The test has a result or an attempt. Files that arrive later belong to neither.
    is_settled: bool,
    /// Result settled while the process ran.
    early_result: Option<FrameworkResult>,
}

/// Settles the tests of a batch.
pub(crate) struct Settlement {
    suite: String,
    /// Settled state of each test, by place, up to the last settled test.
    settled: Vec<SettledTest>,
    /// Kept files of tests without a settled result, by place.
    attached: HashMap<usize, Vec<DiagnosticsFile>>,
    pub(crate) iterations: Iterations,
    pub(crate) stream_names: StreamNames,
    is_isolated: bool,
    has_proven_answers: bool,
    /// How the process ended, if it ran a single test.
    process_exit: Option<ProcessExit>,
    has_failures: bool,
    /// Reports about leaked processes include their arguments.
    are_arguments_shown: bool,
    own_sources: OwnSources,
}

impl Settlement {
    pub(super) fn new(lease: &WorkerLease, iteration: Iteration, has_proven_answers: bool) -> Self {
        Self {
            suite: lease.program.suite.clone(),
            settled: Vec::new(),
            attached: HashMap::new(),
            iterations: Iterations::new(iteration, lease.repeat_until_ms),
            stream_names: StreamNames::default(),
            is_isolated: lease.is_isolated,
            has_proven_answers,
            process_exit: None,
            has_failures: false,
            are_arguments_shown: lease.is_environment_shown,
            own_sources: OwnSources::default(),
        }
    }

    /// Settles the tests that their framework would skip, and returns the others.
    pub(super) fn settle_skipped(
        &mut self,
        tests: Vec<Arc<LeasedTest>>,
        records: &mut dyn RecordSink,
    ) -> Vec<Arc<LeasedTest>> {
        let (skipped, tests): (Vec<_>, Vec<_>) =
            tests.into_iter().partition(|test| test.listed.skip.is_some());
        for test in skipped {
            let reason = test.listed.skip.as_deref().unwrap_or_default();
            let result = TestResult::with_reason(Outcome::Skipped, reason);
            self.settle_without_process(&test, result, records);
        }
        tests
    }

    /// Settles a test that cannot be run.
    pub(super) fn settle_not_run(&mut self, test: &LeasedTest, reason: &str, records: &mut dyn RecordSink) {
        let outcome = Outcome::NotRun(NotRunReason::Unrunnable);
        let result = TestResult::with_reason(outcome, format!("not run: {reason}"));
        self.settle_without_process(test, result, records);
    }

    fn settle_without_process(
        &mut self,
        test: &LeasedTest,
        result: TestResult,
        records: &mut dyn RecordSink,
    ) {
        let ended_ms = Some(UtcTime::now().since_epoch_ms());
        let result = TestResult { ended_ms, duration_us: Some(0), ..result };
        records.record(RunRecord::Finished { test: test.test, result });
    }

    pub(crate) fn suite(&self) -> &str {
        &self.suite
    }

    /// Returns whether a test has failed or will be retried.
    pub(crate) fn has_failures(&self) -> bool {
        self.has_failures
    }

    /// Returns the result of a test, if it was settled while its process ran.
    pub(super) fn early_result(&self, place: usize) -> Option<FrameworkResult> {
        self.settled.get(place)?.early_result
    }

    /// Attaches a kept file to the result of a test. If the result is already settled, keeps the file as a
    /// file of the run and logs a warning.
    pub(super) fn attach(
        &mut self,
        place: usize,
        test: &LeasedTest,
        file: DiagnosticsFile,
        records: &mut dyn RecordSink,
    ) {
        if !self.settled.get(place).is_some_and(|test| test.is_settled) {
            self.attached.entry(place).or_default().push(file);
            return;
        }
        let message = format!(
            "{} was attached after the result of its test was reported; it is kept with the files of the run",
            file.path.to_text()
        );
        records.record(RunRecord::Log(LogLine::warning(Some(test.test), message)));
        records.record(RunRecord::FilesKept(vec![file]));
    }

    /// Reports that a test begins. The client gets one start per test.
    pub(super) fn report_start(&mut self, test: &LeasedTest, start: UtcTime, records: &mut dyn RecordSink) {
        let is_rerun = self.stream_names.is_rerun();
        let is_again = is_rerun || !self.iterations.of(test).is_first();
        // Later processes of a lease that repeats its tests need no new start report.
        if !is_again || is_rerun || self.iterations.are_timed() {
            let started_ms = start.since_epoch_ms();
            records.record(RunRecord::Started(TestStart { test: test.test, started_ms, is_again }));
        }
    }

    /// Reports that a test has ended and is held. `tests`: number of tests in its process. No report if the
    /// test has iterations left, since its result does not follow soon.
    pub(super) fn report_held(
        &self,
        test: &LeasedTest,
        tests: usize,
        now: ClockReading,
        records: &mut dyn RecordSink,
    ) {
        if self.iterations.is_last(now) {
            records.record(RunRecord::Held { test: test.test, is_alone: tests == 1 });
        }
    }

    fn settled_mut(&mut self, place: usize) -> &mut SettledTest {
        if self.settled.len() <= place {
            self.settled.resize(place + 1, SettledTest::default());
        }
        &mut self.settled[place]
    }

    /// Records the result of a test settled while its process runs.
    pub(super) fn record_early_result(&mut self, place: usize, result: FrameworkResult) {
        self.settled_mut(place).early_result = Some(result);
    }

    /// Settles a test with a final result or a provisional attempt. A passed test has no result before its
    /// last iteration.
    pub(super) fn settle(
        &mut self,
        context: &SettlementContext<'_>,
        ended: EndedTest,
        seen: TestEnding,
        records: &mut dyn RecordSink,
    ) {
        let test = &context.tests[ended.place];
        // More iterations follow.
        if seen.is_pass() && !self.iterations.is_last(context.now) {
            self.iterations.record_pass(ended.place, test, ended.duration, records);
            return;
        }
        // Rerun the test with pipes.
        let is_refused = !context.is_cancelled
            && self.stream_names.is_refused(ended.place, test, &seen, &ended.outputs, records);
        if is_refused {
            return;
        }
        // Decide the result: final or provisional.
        let attached = self.attached.remove(&ended.place).unwrap_or_default();
        self.settled_mut(ended.place).is_settled = true;
        // An isolated rerun is pointless if the process died before the test began.
        let is_isolated = self.is_isolated || seen.is_before_test() || self.has_proven_answers;
        let iteration = self.iterations.of(test);
        let (duration, sources) = (ended.duration, &self.own_sources);
        let rules = TestPolicy { test, is_isolated, duration, iteration, sources };
        let mut outputs = TestOutputs { attached, ..ended.outputs };
        if !matches!(seen, TestEnding::Verdict(_) | TestEnding::Cancelled) {
            outputs.take_runtime_stack(context.framework, &test.listed);
        }
        match decide(rules, seen, outputs) {
            Decision::Final(mut result) => {
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
                    // The log prefixes each line with the test's name.
                    let message = format!("failed, but passes alone: {interference}");
                    records.record(RunRecord::Log(LogLine::warning(Some(test.test), message)));
                }
                records.record(RunRecord::Finished { test: test.test, result: *result });
            }
            Decision::Provisional(attempt, next) => {
                self.has_failures = true;
                records.record(RunRecord::Provisional { test: test.test, attempt: *attempt, next });
            }
        }
    }

    /// Removes the arguments of leaked processes, unless arguments may be shown.
    pub(super) fn hide_arguments(&self, exit: &mut ProcessExit) {
        if self.are_arguments_shown {
            return;
        }
        for leaked in &mut exit.leaked {
            let name = leaked.facts.as_ref().map(|facts| facts.name.as_str());
            leaked.command = program_name(&leaked.command, name);
        }
    }

    /// Records how a process with a single test ended, for the test's result.
    pub(super) fn record_exit(&mut self, exit: Option<ProcessExit>) {
        self.process_exit = exit;
    }

    /// Reports leaked processes and the tests that may have started them.
    pub(super) fn report_leaks(
        &self,
        leaks: Vec<ProcessLeak>,
        tests: &[Arc<LeasedTest>],
        records: &mut dyn RecordSink,
    ) {
        for ProcessLeak { places, processes } in leaks {
            let tests: Vec<_> = places.iter().map(|place| &tests[*place]).collect();
            let uids: Vec<_> = tests.iter().map(|test| test.uid.as_str()).collect();
            let message = leak_message(self.suite(), &uids, &processes);
            let tests: Vec<_> = tests.iter().map(|test| test.test).collect();
            let test = tests.first().copied().filter(|_| tests.len() == 1);
            records.record(RunRecord::Log(LogLine::warning(test, message)));
            records.record(RunRecord::Leaked { tests, processes });
        }
    }
}
