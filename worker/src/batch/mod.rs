//! The tests of one lease, from the first event to the end of the process: which one is running, what it
//! wrote, when its time limit passes, and what the end of the process means for the tests without a result.
//!
//! ```text
//! waiting ──Begun──► running ──Ended────────────────► done (held, then settled or provisional)
//!    ▲                  ├─ process ended ────────────► done (died: awaits an isolated rerun, or settled)
//!    │                  ├─ time limit, then ended ───► done (timed out)
//!    └── process ended  └─ cancelled, then ended ────► done (cancelled)
//! ```
//!
//! Pure: takes events and times, returns update batches and deadlines. No test gets two results, and a test
//! without one stays waiting, whatever the order of events: the coordinator leases it again.

mod batch_extension;
mod batch_input;
mod before_tests;
mod deadlines;
mod dialogue_stall;
pub(crate) mod exit_reason;
mod failure_places;
mod forbidden_skip;
mod framework_queries;
mod held_tests;
mod interference;
mod iteration_text;
mod iterations;
mod judgement;
mod live_output;
mod message_limit;
mod parallel_tests;
mod process_end;
mod process_leaks;
mod run_evidence;
mod running_test;
mod server_exit;
mod settled_tests;
mod settlement;
mod shown_lines;
mod stderr_attribution;
mod stream_names;
mod terminate_reason;
pub(crate) mod test_ending;
mod test_order;
mod test_parts;
mod unattributed_output;
pub(crate) mod verdict;

use std::time::Duration;

use heeler_core::{DiagnosticsFile, Iteration};
use heeler_protocol::control::{LeasedTest, TestLimits, WorkerId, WorkerLease};

use crate::{process::process_clock::ClockReading, results::update_batch::UpdateBatch};
pub(crate) use batch_input::{DeadlineAction, OutputChunk, ProcessExitSummary, RawOutputs};
pub(crate) use dialogue_stall::DialogueStall;
use dialogue_stall::UntakenRequest;
pub(crate) use framework_queries::FrameworkQueries;
use heeler_adapters::{FrameworkResult, FrameworkVerdict, TranscriptEvent};
use held_tests::{EndedTest, HeldTest, HeldTests};
pub(crate) use held_tests::{ReleaseConditions, SoleWriterSpan};
use message_limit::truncate_messages;
pub(crate) use run_evidence::RunEvidence;
use running_test::RunningTest;
use server_exit::ServerExit;
use settlement::{Settlement, SettlementContext};
use shown_lines::ShownLines;
use stderr_attribution::StderrAttribution;
use terminate_reason::BatchTerminateReason;
use test_ending::TestEnding;
use test_order::TestOrder;
use unattributed_output::UnattributedOutput;

/// Framework durations are whole milliseconds or absent; a duration below this is measured by the worker.
const FRAMEWORK_CLOCK_RESOLUTION: Duration = Duration::from_millis(1);

/// The tests of one lease and their state.
pub(crate) struct RunningBatch {
    order: TestOrder,
    /// Running tests in the order in which they began; those that wait for others are among them.
    running_tests: Vec<RunningTest>,
    /// Buffers of an ended test, recycled for the next.
    recycled: Option<RunningTest>,
    limits: TestLimits,
    framework: Box<dyn FrameworkQueries>,
    unattributed_output: UnattributedOutput,
    terminate_reason: Option<BatchTerminateReason>,
    /// Since when no test has been running.
    idle_since: Duration,
    /// The process is in a set-up or tear-down that its framework announces, by its output at the last
    /// deadline, and no test is running.
    is_between_tests: bool,
    /// The time of the last chunk, or of the end.
    now: ClockReading,
    /// The estimated duration of each test that ended in this chunk, where the framework's clock is too
    /// coarse.
    estimated_duration: Duration,
    /// Tests that receive the raw outputs of this chunk, by place.
    receivers: Vec<usize>,
    /// The idle process is being sampled.
    is_idle_sampled: bool,
    /// Whether several tests can have written this chunk's raw outputs.
    is_output_shared: bool,
    /// Whether the client receives the output of tests while they run.
    is_output_live: bool,
    /// What is shown of the process on the worker's own standard streams.
    shown: ShownLines,
    pub(crate) held_tests: HeldTests,
    pub(crate) settlement: Settlement,
    /// Why the dialogue with the process does not go on, and since when.
    dialogue_stall: Option<(DialogueStall, Duration)>,
    untaken_request: Option<UntakenRequest>,
    begins_with_request: bool,
    /// The end of a process that is a server.
    server_exit: Option<ServerExit>,
    /// Its tests have ended, and the process waits for others: it has no time limit.
    is_waiting: bool,
    /// A debugger controls the process, and no limits apply.
    is_unlimited: bool,
    /// A debugger has launched the process, and only the debugger learns how it ends.
    is_launched: bool,
}

impl RunningBatch {
    /// Returns the batch of the tests to run in one iteration of a lease. Those that their framework would
    /// skip are settled at once, into `update_batch`.
    pub(crate) fn new(
        lease: WorkerLease,
        iteration: Iteration,
        worker: WorkerId,
        updates: &mut UpdateBatch,
        framework: Box<dyn FrameworkQueries>,
    ) -> Self {
        let has_proven_answers = framework.has_proven_answers();
        let mut settlement = Settlement::new(&lease, iteration, worker, has_proven_answers);
        let tests = settlement.settle_skipped(lease.tests, updates);
        Self {
            order: TestOrder::new(tests),
            running_tests: Vec::new(),
            recycled: None,
            limits: lease.limits,
            framework,
            unattributed_output: UnattributedOutput::default(),
            terminate_reason: None,
            idle_since: Duration::ZERO,
            is_between_tests: false,
            now: ClockReading::default(),
            estimated_duration: Duration::ZERO,
            receivers: Vec::new(),
            is_idle_sampled: false,
            is_output_shared: false,
            is_output_live: lease.is_output_live,
            shown: ShownLines::new(lease.output_display, &lease.program.suite),
            held_tests: HeldTests::new(has_proven_answers),
            settlement,
            dialogue_stall: None,
            untaken_request: None,
            begins_with_request: false,
            server_exit: None,
            is_waiting: false,
            is_unlimited: false,
            is_launched: false,
        }
    }

    /// Lifts all limits, because a debugger controls the process.
    pub(crate) fn lift_limits(&mut self) {
        self.is_unlimited = true;
    }

    /// Records that a debugger has launched the process: no limits apply, and its exit status is not known.
    pub(crate) fn on_launched_by_debugger(&mut self) {
        self.lift_limits();
        self.is_launched = true;
    }

    /// Returns the tests that need a process, in order; events refer to them by index.
    pub(crate) fn tests(&self) -> &[LeasedTest] {
        self.order.tests()
    }

    /// Returns how long the process ran before its first test.
    pub(crate) fn first_test_started(&self) -> Option<Duration> {
        self.order.first_begun()
    }

    /// Settles a test that no command can select, before the start. The tests after it move up by one index.
    pub(crate) fn refuse(&mut self, place: usize, reason: &str, updates: &mut UpdateBatch) {
        self.settlement.settle_not_run(&self.order.tests()[place], reason, updates);
        self.order.remove(place);
    }

    /// Keeps only the first `count` tests: the others don't fit into one command, and stay waiting.
    pub(crate) fn truncate(&mut self, count: usize) {
        self.order.truncate(count);
    }

    /// Records that the coordinator cancelled the lease. The caller terminates the process.
    pub(crate) fn cancel(&mut self) {
        self.terminate_reason = Some(BatchTerminateReason::Cancelled);
    }

    /// Records that the process exceeds its memory limit with `used_bytes`. The caller kills it.
    pub(crate) fn on_memory_limit(&mut self, used_bytes: u64) {
        self.terminate_reason = Some(BatchTerminateReason::MemoryLimit(used_bytes));
    }

    /// Records that the process has to end although tests run: they stay undecided. The caller ends it.
    pub(crate) fn abandon(&mut self) {
        self.terminate_reason = Some(BatchTerminateReason::Abandoned);
    }

    /// Returns the indices of the tests that run now.
    pub(crate) fn running_places(&self) -> Vec<usize> {
        self.running_tests.iter().map(|flight| flight.place).collect()
    }

    /// Returns whether the awaited tests have ended, and the process would run others.
    pub(crate) fn runs_only_unawaited(&self, awaited: &[usize]) -> bool {
        let is_awaited_running = self.running_tests.iter().any(|flight| awaited.contains(&flight.place));
        let is_all_done = self.order.is_all_done();
        self.terminate_reason.is_none() && !is_awaited_running && !is_all_done
    }

    /// Handles the output of one read.
    pub(crate) fn on_output(&mut self, chunk: OutputChunk<'_>, updates: &mut UpdateBatch) {
        let OutputChunk { events, outputs, now } = chunk;
        self.receivers.clear();
        let before = self.now.since_boot;
        for flight in &mut self.running_tests {
            flight.last_activity = now.running;
        }
        (self.estimated_duration, self.now) = (self.estimated_duration(events, now), now);
        if !outputs.is_empty() {
            self.attribute_outputs(events, outputs);
        }
        let writer = self.writer_of(outputs);
        let is_late = self.begins_in_this_chunk(writer);
        if !is_late {
            self.show_outputs(writer, outputs, updates);
        }
        for event in events.drain(..) {
            self.show_event(&event, updates);
            match event {
                TranscriptEvent::Begun { place } => self.on_test_begun(place, outputs, before, updates),
                TranscriptEvent::Output(bytes) => self.on_stdout(&bytes),
                TranscriptEvent::ErrorOutput(bytes) => self.on_stderr(&bytes),
                TranscriptEvent::TestOutput { place, stream, bytes } => {
                    self.on_test_output(place, stream, &bytes);
                }
                TranscriptEvent::Paused { place } => self.on_test_paused(place),
                TranscriptEvent::Resumed { place } => self.on_test_resumed(place),
                TranscriptEvent::Part { place, part } => {
                    match self.running_tests.iter_mut().find(|one| one.place == place) {
                        Some(flight) => flight.parts.record(part),
                        None => self.held_tests.record_later_part(place, part),
                    }
                }
                // The worker has kept and attached it.
                TranscriptEvent::File { .. } => {}
                TranscriptEvent::Confirmed => self.settle_confirmed(updates),
                TranscriptEvent::TimeLimit { place, limit } => self.limit_from_now(place, limit),
                TranscriptEvent::Ended { place, verdict } => {
                    // An end without a beginning: some frameworks report skipped tests in this way only.
                    self.on_test_begun(place, outputs, before, updates);
                    self.on_test_ended(place, verdict, updates);
                }
            }
        }
        if is_late {
            self.show_outputs(writer, outputs, updates);
        }
        self.report_running_tests(now, updates);
    }

    fn estimated_duration(&self, events: &[TranscriptEvent], now: ClockReading) -> Duration {
        let ended = events.iter().filter(|event| matches!(event, TranscriptEvent::Ended { .. })).count();
        let since = self.running_tests.first().map_or(self.now.running, |flight| flight.started_at.running);
        now.running.saturating_sub(since) / u32::try_from(ended.max(1)).unwrap_or(u32::MAX)
    }

    /// Marks the tests that receive a chunk's raw outputs; running tests receive it now, others when they
    /// begin.
    fn attribute_outputs(&mut self, events: &[TranscriptEvent], outputs: RawOutputs<'_>) {
        let StderrAttribution { receivers, is_shared } = self.attribution_of(events, outputs.stderr);
        if receivers.is_empty() {
            self.unattributed_output.push_stdout(outputs.stdout);
            self.unattributed_output.push_stderr(outputs.stderr);
        }
        self.receivers = receivers;
        self.is_output_shared = is_shared;
        for flight in &mut self.running_tests {
            if self.receivers.binary_search(&flight.place).is_ok() {
                flight.push_outputs(outputs, is_shared);
            }
        }
    }

    /// Handles a test's beginning, which was written after the previous chunk was read.
    fn on_test_begun(
        &mut self,
        place: usize,
        outputs: RawOutputs<'_>,
        before: Duration,
        updates: &mut UpdateBatch,
    ) {
        // A process that is being ended begins no test that would count.
        if self.terminate_reason.is_none() {
            self.begin_test(place, outputs, before, updates);
            self.order.record_begin_marker(self.now.running);
        }
    }

    fn begin_test(
        &mut self,
        place: usize,
        outputs: RawOutputs<'_>,
        before: Duration,
        updates: &mut UpdateBatch,
    ) {
        if !self.order.begin(place, before) {
            return;
        }
        self.is_between_tests = false;
        let test = &self.order.tests()[place];
        let mut flight =
            self.recycled.take().unwrap_or_else(|| RunningTest::with_limit(self.limits.output_bytes));
        (flight.place, flight.started_at, flight.last_activity) = (place, self.now, self.now.running);
        flight.duration = Duration::ZERO;
        flight.live.reset(self.is_output_live);
        if self.receivers.binary_search(&place).is_ok() {
            flight.push_outputs(outputs, self.is_output_shared);
        }
        self.settlement.report_start(test, self.now.utc, updates);
        self.running_tests.push(flight);
    }

    fn on_stderr(&mut self, bytes: &[u8]) {
        match self.running_tests.last_mut() {
            Some(flight) => flight.push_outputs(RawOutputs { stdout: &[], stderr: bytes }, false),
            None => self.unattributed_output.push_stderr(bytes),
        }
    }

    fn on_test_ended(&mut self, place: usize, verdict: FrameworkVerdict, updates: &mut UpdateBatch) {
        let Some(index) = self.running_tests.iter().position(|flight| flight.place == place) else {
            let early = self.settlement.early_result(place);
            let limit_bytes = self.limits.output_bytes;
            return self.held_tests.record_later_end(&self.order, place, verdict, early, limit_bytes);
        };
        // It timed out, or it failed because the user cancelled it: the end of the process decides.
        let is_over = self.running_tests[index].is_timed_out
            || self.terminate_reason == Some(BatchTerminateReason::Cancelled)
                && verdict.result == FrameworkResult::Failed;
        if is_over {
            self.running_tests[index].is_late = true;
            return;
        }
        let mut flight = self.running_tests.remove(index);
        let mut verdict = verdict;
        self.order.record_end_marker(place, self.now.since_boot, verdict.duration.unwrap_or_default());
        if let Some(captured) = verdict.stdout.take() {
            flight.push_captured(&captured);
        }
        if let Some(captured) = verdict.stderr.take() {
            flight.stderr.push(captured.as_bytes());
        }
        if verdict.result == FrameworkResult::Failed {
            let test = self.order.listed(place);
            self.framework.complete_verdict(&mut verdict, test, &flight.text_of_details());
        }
        truncate_messages(&mut verdict, self.limits.output_bytes);
        let since_begun = self.now.running.saturating_sub(flight.started_at.running);
        // The clocks of frameworks go on in a pause.
        let paused = self.now.paused.saturating_sub(flight.started_at.paused);
        flight.duration = match verdict.duration.map(|duration| duration.saturating_sub(paused)) {
            Some(duration) if !duration.is_zero() => duration,
            None if !since_begun.is_zero() => since_begun,
            Some(_) | None => self.estimated_duration.min(FRAMEWORK_CLOCK_RESOLUTION),
        };
        self.end_test(flight, verdict, updates);
    }

    /// Takes a test out of the process: settles it, or holds it.
    fn end_test(&mut self, mut flight: RunningTest, verdict: FrameworkVerdict, updates: &mut UpdateBatch) {
        let ended = EndedTest::of(&flight, self.now);
        if self.held_tests.holds_results(&self.order) {
            let tests = self.order.tests();
            self.settlement.report_held(&tests[flight.place], tests.len(), self.now, updates);
            self.held_tests.push(ended, verdict);
            while let Some(held) = self.held_tests.take_excess(&self.order) {
                self.settle_early(held, updates);
            }
        } else {
            self.settle(ended, TestEnding::Verdict(verdict), updates);
        }
        self.on_done(flight.place);
        flight.reset();
        self.recycled = Some(flight);
    }

    /// Settles the tests that do not end again.
    fn settle_confirmed(&mut self, updates: &mut UpdateBatch) {
        for held in self.held_tests.take_confirmed(&self.order) {
            self.settle_early(held, updates);
        }
    }

    /// Settles the tests that have been held for long enough and are proven, unless something is suspicious.
    pub(crate) fn check_held_tests(
        &mut self,
        now: ClockReading,
        conditions: ReleaseConditions,
        updates: &mut UpdateBatch,
    ) {
        for held in self.held_tests.take_released(now.running, conditions) {
            self.settle_early(held, updates);
        }
    }

    /// Settles the tests that are proven before the process is ended on request: how it ends says nothing
    /// about them. The others stay undecided.
    pub(crate) fn settle_proven(&mut self, conditions: ReleaseConditions, updates: &mut UpdateBatch) {
        if self.held_tests.is_until_confirmed() {
            self.settle_confirmed(updates);
        }
        for HeldTest { ended, verdict } in self.held_tests.take_proven(&self.order, conditions) {
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

    /// Adds a kept file to the result of a test.
    pub(crate) fn attach(&mut self, place: usize, file: DiagnosticsFile, updates: &mut UpdateBatch) {
        if let Some(test) = self.order.tests().get(place) {
            self.settlement.attach(place, test, file, updates);
        }
    }

    /// Settles a test that has ended.
    fn settle(&mut self, ended: EndedTest, seen: TestEnding, updates: &mut UpdateBatch) {
        let context = SettlementContext {
            tests: self.order.tests(),
            framework: &*self.framework,
            now: self.now,
            is_cancelled: self.is_cancelled(),
        };
        self.settlement.settle(&context, ended, seen, updates);
    }

    /// Settles a test as its framework says while its process runs.
    fn settle_early(&mut self, held: HeldTest, updates: &mut UpdateBatch) {
        let HeldTest { ended, verdict } = held;
        self.settlement.record_early_result(ended.place, verdict.result);
        self.settle(ended, TestEnding::Verdict(verdict), updates);
    }

    fn on_done(&mut self, place: usize) {
        self.order.finish(place);
        self.idle_since = self.now.running;
        self.is_between_tests = false;
    }
}

#[cfg(test)]
mod tests;
