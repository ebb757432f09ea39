//! The tests of one lease and their process. Passes each event to the parts of the batch that it concerns, in
//! the right order.

use std::{ops::Range, sync::Arc, time::Duration};

use heeler_adapters::{
    DeathCulprit, FixtureFailure, FrameworkResult, FrameworkVerdict, SuitePhase, TranscriptEvent,
};
use heeler_core::{
    DiagnosticsFile, FixturePhase, GuardLoss, Iteration, LogLine, RecordSink, RunRecord, SuiteFixture,
};
use heeler_protocol::control::{LeaseEnd, LeasedTest, WorkerLease};

use super::{
    batch_input::{DeadlineAction, OutputChunk, ProcessExitSummary, RawOutputs},
    deadlines::{Deadlines, DueAction},
    end_texts::{NOT_BEGUN, guard_loss_message},
    framework_queries::FrameworkQueries,
    held_tests::{EndedTest, HeldTest, HeldTests, ReleaseConditions},
    message_limit::truncate_messages,
    output_attribution::OutputAttribution,
    process_end::{BatchEnd, BatchProcessEnd, RunningTestEnd},
    run_evidence::{NAMED_CONTRADICTIONS, contradicted_result_text},
    settlement::{Settlement, SettlementContext},
    shown_lines::ShownLines,
    stderr_attribution::give_reports_to_writers,
    test_ending::{DeathPosition, TestEnding},
    test_order::TestOrder,
    verdict::TestOutputs,
};
use crate::{process::process_clock::ClockReading, results::shown_output::ShownOutput};

/// Number of results that are settled and handed over together when a process has ended. Close to the number
/// of changes that a client may leave unacknowledged.
const SETTLED_TOGETHER: usize = 1024;

pub(crate) struct RunningBatch {
    pub(crate) order: TestOrder,
    outputs: OutputAttribution,
    pub(crate) deadlines: Deadlines,
    pub(crate) held_tests: HeldTests,
    pub(crate) settlement: Settlement,
    shown: ShownLines,
    framework: Box<dyn FrameworkQueries>,
    output_limit_bytes: u64,
    /// Time of the last chunk, or of the end of the process.
    now: ClockReading,
}

impl RunningBatch {
    /// Creates the batch for one iteration of a lease. Tests that the framework would skip are settled at
    /// once.
    pub(crate) fn new(
        lease: WorkerLease,
        iteration: Iteration,
        records: &mut dyn RecordSink,
        framework: Box<dyn FrameworkQueries>,
    ) -> Self {
        let has_proven_answers = framework.has_proven_answers();
        let output_limit_bytes = lease.limits.output_bytes;
        let mut settlement = Settlement::new(&lease, iteration, has_proven_answers);
        Self {
            outputs: OutputAttribution::new(output_limit_bytes, lease.is_output_live),
            deadlines: Deadlines::new(lease.limits),
            held_tests: HeldTests::new(has_proven_answers),
            shown: ShownLines::new(lease.output_display, &lease.program.suite),
            order: TestOrder::new(settlement.settle_skipped(lease.tests, records)),
            settlement,
            framework,
            output_limit_bytes,
            now: ClockReading::default(),
        }
    }

    /// Returns the tests that need a process, in order. Events refer to them by index.
    pub(crate) fn tests(&self) -> &[Arc<LeasedTest>] {
        self.order.tests()
    }

    /// Settles a test that no command can select, before the process starts. The indexes of later tests shift
    /// down by one.
    pub(crate) fn refuse(&mut self, place: usize, reason: &str, records: &mut dyn RecordSink) {
        self.settlement.settle_not_run(&self.order.tests()[place], reason, records);
        self.order.remove(place);
    }

    /// Adds the tests of an extended lease and returns their indexes. Tests that the framework would skip are
    /// settled at once.
    pub(crate) fn extend(&mut self, lease: WorkerLease, records: &mut dyn RecordSink) -> Range<usize> {
        self.order.extend(self.settlement.settle_skipped(lease.tests, records))
    }

    /// Returns whether all awaited tests have ended, so the process would only run other tests.
    pub(crate) fn runs_only_unawaited(&self, awaited: &[usize]) -> bool {
        let is_awaited_running = self.order.running().iter().any(|place| awaited.contains(place));
        !self.deadlines.is_ending() && !is_awaited_running && !self.order.is_all_done()
    }

    /// Returns whether all tests have ended and are settled, and the process is not being ended.
    pub(crate) fn is_settled(&self) -> bool {
        self.order.is_all_done() && !self.deadlines.is_ending() && !self.held_tests.awaits_end(&self.order)
    }

    /// Returns the running test and its output so far. If several run, prefers one at its limit.
    pub(crate) fn running_test(&self) -> Option<(&LeasedTest, TestOutputs)> {
        let place = self.deadlines.suspect()?;
        Some((&self.order.tests()[place], self.outputs.outputs_of(place).unwrap_or_default()))
    }

    /// Returns the test that the process died in, and its output.
    pub(crate) fn test_of_death(&self, culprit: DeathCulprit) -> Option<(&LeasedTest, TestOutputs)> {
        let DeathCulprit::Test(place) = culprit else { return self.running_test() };
        let outputs = self.outputs.outputs_of(place).or_else(|| self.held_tests.outputs_of(place));
        Some((&self.order.tests()[place], outputs.unwrap_or_default()))
    }

    pub(crate) fn attach(&mut self, place: usize, file: DiagnosticsFile, records: &mut dyn RecordSink) {
        if let Some(test) = self.order.tests().get(place) {
            self.settlement.attach(place, test, file, records);
        }
    }

    /// Takes the output to show on the worker's own standard streams.
    pub(crate) fn take_shown(&mut self) -> ShownOutput {
        self.shown.take()
    }

    pub(crate) fn on_output(&mut self, chunk: OutputChunk<'_>, records: &mut dyn RecordSink) {
        let OutputChunk { events, outputs, now } = chunk;
        let before = std::mem::replace(&mut self.now, now);
        self.order.on_read(before);
        self.deadlines.on_output(events, before, now);
        self.outputs.on_raw_outputs(outputs, events, &self.order, &*self.framework);
        let writer = self.outputs.sole_writer();
        // If the writing test has not begun yet, show its raw outputs after the events.
        let is_late = writer.is_some_and(|place| self.order.is_waiting(place));
        if !is_late {
            self.shown.show_raw(writer, outputs, &self.order, &*self.framework);
        }
        for event in events.drain(..) {
            self.on_event(event, outputs, records);
        }
        if is_late {
            self.shown.show_raw(writer, outputs, &self.order, &*self.framework);
        }
        self.report_running_tests(now, records);
    }

    /// Handles an event that was read together with these raw outputs.
    fn on_event(&mut self, event: TranscriptEvent, outputs: RawOutputs<'_>, records: &mut dyn RecordSink) {
        let is_ending = self.deadlines.is_ending();
        self.shown.show_event(&event, &self.order, &*self.framework, is_ending);
        match event {
            TranscriptEvent::Begun { place } => self.on_test_begun(place, outputs, records),
            TranscriptEvent::Output(bytes) => self.outputs.on_stdout(&bytes, &self.order),
            TranscriptEvent::ErrorOutput(bytes) => self.outputs.on_stderr(&bytes),
            TranscriptEvent::TestOutput { place, stream, bytes } => {
                self.outputs.on_test_output(place, stream, &bytes);
            }
            TranscriptEvent::Paused { place } => {
                self.order.pause(place);
                self.deadlines.pause(place, self.now);
            }
            TranscriptEvent::Resumed { place } => {
                self.order.resume(place);
                self.deadlines.resume(place, self.now);
            }
            TranscriptEvent::Part { place, part } if self.order.is_running(place) => {
                self.outputs.record_part(place, part);
            }
            TranscriptEvent::Part { place, part } => self.held_tests.record_later_part(place, part),
            // The worker has already kept and attached the file.
            TranscriptEvent::File { .. } => {}
            TranscriptEvent::Confirmed => self.settle_confirmed(records),
            TranscriptEvent::TimeLimit { place, limit } => {
                self.deadlines.limit_from_now(place, limit, self.now);
            }
            TranscriptEvent::Ended { place, verdict } => {
                // Some frameworks report a skipped test with an end event but no begin event.
                self.on_test_begun(place, outputs, records);
                self.on_test_ended(place, verdict, records);
            }
        }
    }

    /// Handles the beginning of a test, which was written after the previous chunk was read.
    fn on_test_begun(&mut self, place: usize, outputs: RawOutputs<'_>, records: &mut dyn RecordSink) {
        // A test that begins while the process is being ended would not count.
        if !self.deadlines.is_ending() {
            self.begin_test(place, outputs, records);
            self.order.record_begin_marker(self.now.running);
        }
    }

    fn begin_test(&mut self, place: usize, outputs: RawOutputs<'_>, records: &mut dyn RecordSink) {
        if self.order.begin(place) {
            let test = &self.order.tests()[place];
            self.deadlines.begin(place, test, self.now);
            self.outputs.begin(place, outputs);
            self.settlement.report_start(test, self.now.utc, records);
        }
    }

    fn on_test_ended(&mut self, place: usize, mut verdict: FrameworkVerdict, records: &mut dyn RecordSink) {
        if !self.order.is_running(place) {
            let early = self.settlement.early_result(place);
            let limit_bytes = self.output_limit_bytes;
            return self.held_tests.record_later_end(&self.order, place, verdict, early, limit_bytes);
        }
        if self.deadlines.is_end_late(place, verdict.result == FrameworkResult::Failed) {
            return;
        }
        self.order.record_end_marker(place, self.now.since_boot, verdict.duration.unwrap_or_default());
        self.outputs.take_captured(place, &mut verdict);
        self.complete_failure(place, &mut verdict);
        truncate_messages(&mut verdict, self.output_limit_bytes);
        let Some(ended) = self.end_running(place, verdict.duration) else { return };
        if !self.held_tests.holds_results(&self.order) {
            return self.settle(ended, TestEnding::Verdict(verdict), records);
        }
        let tests = self.order.tests();
        self.settlement.report_held(&tests[place], tests.len(), self.now, records);
        self.held_tests.push(ended, verdict);
        while let Some(held) = self.held_tests.take_excess(&self.order) {
            self.settle_early([held], records);
        }
    }

    /// Fills in the failure details that the framework wrote to the output of the running test.
    fn complete_failure(&self, place: usize, verdict: &mut FrameworkVerdict) {
        if verdict.result == FrameworkResult::Failed {
            let details = self.outputs.text_of_details(place);
            self.framework.complete_verdict(verdict, self.order.listed(place), &details);
        }
    }

    /// Stops tracking a running test as running.
    fn end_running(&mut self, place: usize, reported: Option<Duration>) -> Option<EndedTest> {
        let clock = self.deadlines.stop(place, self.now)?;
        self.order.finish(place);
        let duration = self.deadlines.duration(&clock, reported, self.now);
        let outputs = self.outputs.take(place);
        Some(EndedTest { place, started_at: clock.started_at(), ended_at: self.now, duration, outputs })
    }

    /// Drops clocks and outputs of tests that were withdrawn from the process.
    fn drop_withdrawn(&mut self) {
        self.deadlines.retain(|place| self.order.is_running(place));
        self.outputs.retain(|place| self.order.is_running(place));
    }

    /// Withdraws all results read so far, because a process other than the tests' own reported them.
    pub(crate) fn withdraw_all(&mut self) {
        for held in self.held_tests.take() {
            self.order.withdraw(held.ended.place);
        }
        self.order.withdraw_running();
        self.order.forget_last_ended();
        self.drop_withdrawn();
    }

    /// Puts the running test back in the queue if its process has not read the request that began it. Only
    /// after another test has ended: an exit before the first request is charged to the first test, so that
    /// restarts cannot go on forever.
    pub(crate) fn withdraw_unread_test(&mut self) {
        if self.order.last_ended().is_some() && self.order.only_running().is_some() {
            self.order.withdraw_running();
            self.drop_withdrawn();
        }
    }

    /// Reports output updates and slow tests while tests run.
    pub(crate) fn report_running_tests(&mut self, now: ClockReading, records: &mut dyn RecordSink) {
        let tests = self.order.tests();
        self.deadlines.log_slow_tests(now, tests, records);
        self.outputs.send_live(now.running, |place, text| {
            records.record(RunRecord::Output { test: tests[place].test, text: text.to_owned() });
        });
    }

    /// Returns the next deadline in running time, or `None` if nothing is due.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.deadlines.next(self.held_tests.check_at(), self.outputs.live_due_at())
    }

    /// Handles a passed deadline and returns the action due. `is_announced`: the output shows the process in
    /// an announced set-up or tear-down, or in a dependency of its tests.
    pub(crate) fn on_deadline(&mut self, now: ClockReading, is_announced: bool) -> DeadlineAction {
        let (held, live) = (self.held_tests.check_at(), self.outputs.live_due_at());
        match self.deadlines.on_deadline(now, is_announced, held, live) {
            DueAction::Process(action) => action,
            DueAction::Withdraw(place) => {
                self.order.withdraw(place);
                self.drop_withdrawn();
                DeadlineAction::Terminate
            }
        }
    }

    /// Settles proven tests that have been held long enough, unless something is suspicious.
    pub(crate) fn check_held_tests(
        &mut self,
        now: ClockReading,
        conditions: ReleaseConditions,
        records: &mut dyn RecordSink,
    ) {
        let released = self.held_tests.take_released(now.running, conditions);
        self.settle_early(released, records);
    }

    /// Settles the tests that are already proven, before the process is ended on request. How such a process
    /// ends proves nothing about these tests. Other tests stay undecided.
    pub(crate) fn settle_proven(&mut self, conditions: ReleaseConditions, records: &mut dyn RecordSink) {
        if self.held_tests.is_until_confirmed() {
            self.settle_confirmed(records);
        }
        for HeldTest { ended, verdict } in self.held_tests.take_proven(&self.order, conditions) {
            self.settle(ended, TestEnding::Verdict(verdict), records);
        }
    }

    fn settle_confirmed(&mut self, records: &mut dyn RecordSink) {
        let confirmed = self.held_tests.take_confirmed(&self.order);
        self.settle_early(confirmed, records);
    }

    /// Settles tests with their framework's result while the process still runs.
    fn settle_early(&mut self, held: impl IntoIterator<Item = HeldTest>, records: &mut dyn RecordSink) {
        for HeldTest { ended, verdict } in held {
            self.settlement.record_early_result(ended.place, verdict.result);
            self.settle(ended, TestEnding::Verdict(verdict), records);
        }
    }

    fn settle(&mut self, ended: EndedTest, seen: TestEnding, records: &mut dyn RecordSink) {
        let context = SettlementContext {
            tests: self.order.tests(),
            framework: &*self.framework,
            now: self.now,
            is_cancelled: self.deadlines.is_cancelled(),
        };
        self.settlement.settle(&context, ended, seen, records);
    }

    /// Begins the end of the batch, after the process has ended and all of its output has been read: decides
    /// which held results are valid. `settle_decided` then settles them, and `end` decides the tests that are
    /// still running.
    pub(crate) fn begin_end(
        &mut self,
        mut gone: ProcessExitSummary,
        now: ClockReading,
        records: &mut dyn RecordSink,
    ) -> BatchEnd {
        self.now = now;
        self.order.on_read(now);
        self.shown.end_lines();
        // Paused tests wait for other tests, so the process did not die in them.
        self.order.withdraw_paused();
        self.drop_withdrawn();
        if let DeathCulprit::Test(place) = gone.culprit
            && !self.deadlines.is_ending()
        {
            self.recall_culprit(place);
        }
        if self.deadlines.accept_server_end() {
            gone.accept_server_end();
        }
        // An ordered end stays an ordered end even if the guard was lost meanwhile.
        if let (Some(loss), false) = (gone.guard_loss, self.deadlines.is_ending()) {
            return BatchEnd::Decided(self.finish_without_guard(loss, records));
        }
        // Summarize how the process ended, in `end`.
        if gone.is_own_death {
            self.deadlines.discard_limits_passed_in_crash();
        }
        self.settlement.hide_arguments(&mut gone.exit);
        self.settlement.record_exit(self.order.is_single().then(|| gone.exit.clone()));
        let mut end = BatchProcessEnd::new(gone, self.deadlines.end_cause());
        // Apply the evidence: stack trace, suite phase, the framework's report.
        end.discard_forged_evidence(end.stack_position(&*self.framework, self.order.first_running()));
        let is_in_suite = self.settle_suite_phase(&mut end, records);
        self.apply_run_report(&mut end, records);
        end.fail_unselected();
        end.charge_tests(!self.order.running().is_empty() || is_in_suite);
        if end.is_own_under_debugger() {
            self.settle_not_begun(records);
        }
        // Decide the held results.
        self.decide_held_tests(&mut end);
        BatchEnd::Begun(Box::new(end))
    }

    /// Reopens a held test because the process died in it.
    fn recall_culprit(&mut self, place: usize) {
        if let Some(HeldTest { ended, .. }) = self.held_tests.take_test(place) {
            self.order.run(place);
            self.deadlines.begin(place, &self.order.tests()[place], ended.started_at);
            self.outputs.reopen(place, ended.outputs);
        }
    }

    /// Ends a batch whose guard was lost, so its process's exit status is unknown. Results already sent, and
    /// failures, stay valid. All other tests run again, including held passes: only the end of the process
    /// would expose a forged marker.
    fn finish_without_guard(&mut self, loss: GuardLoss, records: &mut dyn RecordSink) -> LeaseEnd {
        for HeldTest { ended, verdict } in self.held_tests.take() {
            if verdict.result == FrameworkResult::Failed {
                self.settle(ended, TestEnding::Verdict(verdict), records);
            } else {
                self.order.withdraw(ended.place);
            }
        }
        let only = self.order.only_running().map(|place| self.order.tests()[place].test);
        self.order.withdraw_running();
        self.drop_withdrawn();
        let message = guard_loss_message(loss, self.order.has_waiting());
        records.record(RunRecord::Log(LogLine::warning(only, message)));
        LeaseEnd::GuardLost { loss }
    }

    /// Charges a death in the set-up or tear-down of a suite. In the set-up, all tests of the suite are
    /// settled with the death. In the tear-down, the last test keeps its result, and the tear-down is
    /// reported as failed. Returns whether the death was charged to tests or to the tear-down.
    fn settle_suite_phase(&mut self, end: &mut BatchProcessEnd, records: &mut dyn RecordSink) -> bool {
        let stack = end.stack_position(&*self.framework, self.order.first_running());
        let is_test_running = !self.order.running().is_empty();
        let (suite, message) = match end.take_suite_phase() {
            Some(SuitePhase::SetUp { suite, places }) => {
                return self.settle_before_tests(DeathPosition::SuiteSetUp(suite), &places, end, records);
            }
            Some(SuitePhase::Dependency { test, places }) => {
                return self.settle_before_tests(DeathPosition::Dependency(test), &places, end, records);
            }
            Some(SuitePhase::TearDown { suite, mut verdict })
                if let Some(clock) = self.deadlines.only_clock()
                    && end.is_in_tear_down(clock, stack, &self.order) =>
            {
                let (place, limit) = (clock.place(), end.tear_down_limit_text(clock));
                self.complete_failure(place, &mut verdict);
                if let Some(ended) = self.end_running(place, verdict.duration) {
                    self.settle(ended, TestEnding::Verdict(verdict), records);
                }
                (suite, end.tear_down_message(limit.as_deref(), self.outputs.unattributed()))
            }
            Some(SuitePhase::AfterTests { suite }) if !is_test_running && end.is_after_tests(stack) => {
                (suite, end.message_after_tests(self.outputs.unattributed()))
            }
            Some(phase) => {
                end.put_back_suite_phase(phase);
                return false;
            }
            None => return false,
        };
        let fixture = SuiteFixture { suite, phase: FixturePhase::TearDown };
        records.record(RunRecord::FixtureFailed { fixture, message });
        true
    }

    /// Settles the tests that could not begin because the process died, or hung until its limit, in a step
    /// they all need. Returns whether these tests were settled.
    fn settle_before_tests(
        &mut self,
        position: DeathPosition,
        places: &[usize],
        end: &mut BatchProcessEnd,
        records: &mut dyn RecordSink,
    ) -> bool {
        if !self.order.running().is_empty() {
            return false;
        }
        let stack = end.stack_position(&*self.framework, None);
        let Some(seen) = end.ending_before_tests(position, stack, self.outputs.unattributed()) else {
            return false;
        };
        let stderr = self.outputs.unattributed_stderr();
        let mut evidence = end.take_evidence();
        for place in places {
            self.begin_test(*place, RawOutputs::default(), records);
            let Some(ended) = self.end_running(*place, None) else { continue };
            let outputs = TestOutputs { stderr: stderr.clone(), ..ended.outputs };
            let ended = EndedTest { duration: Duration::ZERO, outputs, ..ended };
            self.settle(ended.with_evidence(evidence.take()), seen.clone(), records);
        }
        true
    }

    /// Settles the tests from the framework's report, if the process exited by itself.
    fn apply_run_report(&mut self, end: &mut BatchProcessEnd, records: &mut dyn RecordSink) {
        let Some(mut verdicts) = end.take_report() else { return };
        for place in self.held_tests.correct(&mut verdicts, self.output_limit_bytes) {
            self.order.withdraw(place);
        }
        let mut contradictions = Vec::new();
        for (place, verdict) in verdicts.into_iter().enumerate() {
            let reported = verdict.as_ref().map(|verdict| verdict.result);
            match (self.settlement.early_result(place), verdict) {
                (Some(sent), _) if reported == Some(sent) => {}
                (Some(sent), _) if contradictions.len() < NAMED_CONTRADICTIONS => {
                    let name = &self.order.listed(place).name;
                    contradictions.push(contradicted_result_text(name, sent, reported));
                }
                (None, Some(verdict)) if self.order.is_open(place) => {
                    self.on_test_begun(place, RawOutputs::default(), records);
                    self.on_test_ended(place, verdict, records);
                }
                (Some(_), _) | (None, _) => {}
            }
        }
        end.fail_outside(contradictions);
    }

    /// Sends a not-run result for tests that had not begun when the debugger ended their process. The user
    /// ended it and must not be offered the same tests again.
    fn settle_not_begun(&mut self, records: &mut dyn RecordSink) {
        let reason = self.outputs.unattributed().with_output(NOT_BEGUN.to_owned());
        for place in self.order.skip_waiting() {
            self.settlement.settle_not_run(&self.order.tests()[place], &reason, records);
        }
    }

    fn decide_held_tests(&mut self, end: &mut BatchProcessEnd) {
        let stack = end.stack_position(&*self.framework, self.order.first_running());
        let mut held = Vec::from(self.held_tests.take());
        if end.is_sanitizer_exit() && !self.order.is_single() {
            give_reports_to_writers(&mut held, &self.order, &*self.framework);
        }
        let decide = |ended, seen| self.held_tests.decide(ended, seen);
        for place in end.decide_held(held, stack, &self.order, self.outputs.unattributed(), decide) {
            self.order.withdraw(place);
        }
    }

    /// Settles up to `SETTLED_TOGETHER` results decided by the end of the process, and returns whether any
    /// remain. Handing them over in pieces lets the client process the first results while the next are
    /// written.
    pub(crate) fn settle_decided(&mut self, records: &mut dyn RecordSink) -> bool {
        for _ in 0..SETTLED_TOGETHER {
            let Some((ended, seen)) = self.held_tests.next_decided() else { return false };
            self.settle(ended, seen, records);
        }
        self.held_tests.has_decided()
    }

    /// Decides all tests that are still running, and how the lease ended.
    pub(crate) fn end(&mut self, end: BatchEnd, records: &mut dyn RecordSink) -> LeaseEnd {
        let mut end = match end {
            BatchEnd::Begun(begun) => *begun,
            BatchEnd::Decided(end) => return end,
        };
        for FixtureFailure { fixture, message } in end.take_fixture_failures() {
            records.record(RunRecord::FixtureFailed { fixture, message });
        }
        let leaks = self.order.attribute_leaks(&end.exit().leaked);
        self.settlement.report_leaks(leaks, self.order.tests(), records);
        if let Some(message) = end.stall_text() {
            let test = self.order.running().first().map(|place| self.order.tests()[*place].test);
            records.record(RunRecord::Log(LogLine::warning(test, message)));
        }
        end.fail_outside(self.held_tests.take_late_failures());
        let suspects = self.settle_running_tests(&end, records);
        if let Some(message) = end.unclear_text() {
            records.record(RunRecord::Log(LogLine::warning(None, message)));
        }
        end.lease_end(&suspects, &self.order, self.outputs.unattributed())
    }

    /// Decides the tests that are still running, and returns the names of those that the process may have
    /// died in.
    fn settle_running_tests(&mut self, end: &BatchProcessEnd, records: &mut dyn RecordSink) -> Vec<String> {
        let mut evidence = end.evidence();
        let stack = end.stack_position(&*self.framework, None);
        let (clocks, outputs) = (self.deadlines.take_clocks(), self.outputs.take_all());
        let running = clocks.len();
        let mut suspects = Vec::new();
        for (clock, outputs) in clocks.into_iter().zip(outputs) {
            let place = clock.place();
            let seen = match end.end_of_running_test(&clock, &outputs.stderr, running, self.now, stack) {
                RunningTestEnd::Waiting => {
                    self.order.withdraw(place);
                    continue;
                }
                RunningTestEnd::Ended(seen) => seen,
                RunningTestEnd::Died(seen) => {
                    suspects.push(self.order.listed(place).name.clone());
                    seen
                }
            };
            let (started_at, duration) = (clock.started_at(), clock.ran(self.now));
            let ended = EndedTest { place, started_at, ended_at: self.now, duration, outputs };
            self.order.finish(place);
            self.settle(ended.with_evidence(evidence.take()), seen, records);
        }
        if let Some(evidence) = evidence.filter(|evidence| !evidence.files.is_empty()) {
            records.record(RunRecord::FilesKept(evidence.files));
        }
        suspects
    }
}
