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

mod attached_files;
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
mod judgement;
mod later_ends;
mod live_output;
mod message_limit;
mod parallel_tests;
mod process_end;
mod process_leaks;
mod run_evidence;
mod running_test;
mod server_exit;
mod settled_tests;
mod shown_lines;
mod stderr_attribution;
mod stream_names;
mod terminate_reason;
pub(crate) mod test_ending;
mod test_order;
mod test_parts;
mod unattributed_output;
pub(crate) mod verdict;

use std::{collections::VecDeque, time::Duration};

use heeler_core::{Iteration, NotRunReason, Outcome, TestResult};
use heeler_protocol::control::{LeaseEvent, LeasedTest, ProcessExit, TestLimits, WorkerId, WorkerLease};

use crate::{
    process::process_clock::{ClockReading, UtcTime},
    results::{node_writer::NodeWriter, update_batch::UpdateBatch},
};
use attached_files::AttachedFiles;
use batch_extension::settle_skipped;
pub(crate) use batch_input::{DeadlineAction, OutputChunk, ProcessExitSummary, RawOutputs};
pub(crate) use dialogue_stall::DialogueStall;
use dialogue_stall::UntakenRequest;
pub(crate) use framework_queries::FrameworkQueries;
use heeler_adapters::{FrameworkResult, FrameworkVerdict, TranscriptEvent};
use held_tests::{EndedTest, HeldTests};
pub(crate) use held_tests::{ReleaseConditions, SoleWriterSpan};
use message_limit::truncate_messages;
pub(crate) use run_evidence::RunEvidence;
use running_test::RunningTest;
use server_exit::ServerExit;
use settled_tests::SettledTests;
use shown_lines::ShownLines;
use stderr_attribution::StderrAttribution;
use stream_names::StreamNames;
use terminate_reason::BatchTerminateReason;
use test_ending::TestEnding;
use test_order::TestOrder;
use unattributed_output::UnattributedOutput;

/// Framework durations are whole milliseconds or absent; a duration below this is measured by the worker.
const FRAMEWORK_CLOCK_RESOLUTION: Duration = Duration::from_millis(1);

/// The tests of one lease and their state.
pub(crate) struct RunningBatch {
    order: TestOrder,
    settled: SettledTests,
    /// Running tests in the order in which they began; those that wait for others are among them.
    running_tests: Vec<RunningTest>,
    /// Buffers of an ended test, recycled for the next.
    recycled: Option<RunningTest>,
    limits: TestLimits,
    is_isolated: bool,
    /// The iteration that this process is, unless time limits the iterations of each test.
    iteration: Iteration,
    /// Time since boot until which tests that pass run again, in other leases.
    repeat_until: Option<Duration>,
    /// Indices of the tests that have passed this iteration, which is not the last.
    repeatable: Vec<usize>,
    stream_names: StreamNames,
    node_writer: NodeWriter,
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
    attached: AttachedFiles,
    /// Whether the client receives the output of tests while they run.
    is_output_live: bool,
    /// What is shown of the process on the worker's own standard streams.
    shown: ShownLines,
    /// Tests that have ended by the process's output, and are not settled yet.
    held_tests: HeldTests,
    /// Tests that the end of the process has decided, and that are not settled yet.
    decided: VecDeque<(EndedTest, TestEnding)>,
    /// How the process ended, if it ran one test only.
    process_exit: Option<ProcessExit>,
    has_failures: bool,
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
    /// Leaked processes are reported with their arguments.
    are_arguments_shown: bool,
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
        let mut node_writer = NodeWriter::new(&lease, worker);
        let tests = settle_skipped(&mut node_writer, lease.tests, updates);
        Self {
            order: TestOrder::new(tests),
            settled: SettledTests::default(),
            running_tests: Vec::new(),
            recycled: None,
            limits: lease.limits,
            is_isolated: lease.is_isolated,
            iteration,
            repeat_until: lease.repeat_until_ms.map(Duration::from_millis),
            repeatable: Vec::new(),
            stream_names: StreamNames::default(),
            node_writer,
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
            attached: AttachedFiles::default(),
            is_output_live: lease.is_output_live,
            shown: ShownLines::new(lease.output_display, &lease.program.suite),
            held_tests: HeldTests::default(),
            decided: VecDeque::new(),
            process_exit: None,
            has_failures: false,
            dialogue_stall: None,
            untaken_request: None,
            begins_with_request: false,
            server_exit: None,
            is_waiting: false,
            is_unlimited: false,
            is_launched: false,
            are_arguments_shown: lease.is_environment_shown,
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
        self.settle_not_run(place, reason, updates);
        self.order.remove(place);
    }

    fn settle_not_run(&mut self, place: usize, reason: &str, updates: &mut UpdateBatch) {
        let outcome = Outcome::NotRun(NotRunReason::Unrunnable);
        let result = TestResult::with_reason(outcome, format!("not run: {reason}"));
        settle_without_process(&mut self.node_writer, &self.order.tests()[place], result, updates);
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
                        None => self.record_later_part(place, part),
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
        self.node_writer.add_ancestor_groups(test, updates);
        let is_rerun = self.stream_names.is_rerun();
        if self.iteration_of(place).is_first() && !is_rerun {
            updates.add_started(test.test, |out| self.node_writer.write_in_progress(out, test, self.now.utc));
        } else if self.repeat_until.is_some() || is_rerun {
            // The client has received the start before.
            updates.reports.push(LeaseEvent::Started(test.test));
        }
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
            return self.record_later_end(place, verdict);
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
        if self.holds_results() {
            // The result of a test with iterations left does not follow soon.
            if self.is_last_iteration() {
                updates.add_held(self.order.tests()[flight.place].test, self.order.tests().len());
            }
            self.held_tests.push(ended, verdict);
            self.bound_held_outputs(updates);
        } else {
            self.settle(ended, TestEnding::Verdict(verdict), updates);
        }
        self.on_done(flight.place);
        flight.reset();
        self.recycled = Some(flight);
    }

    /// Returns the iteration of a test.
    fn iteration_of(&self, place: usize) -> Iteration {
        match self.repeat_until {
            Some(_) => Iteration::after(self.order.tests()[place].passed_iterations),
            None => self.iteration,
        }
    }

    /// Returns whether a test that passes now has its result.
    fn is_last_iteration(&self) -> bool {
        match self.repeat_until {
            Some(until) => self.now.since_boot >= until,
            None => self.iteration.is_last(),
        }
    }

    fn on_done(&mut self, place: usize) {
        self.order.finish(place);
        self.idle_since = self.now.running;
        self.is_between_tests = false;
    }
}

/// Settles a test that had no process.
fn settle_without_process(
    nodes: &mut NodeWriter,
    test: &LeasedTest,
    result: TestResult,
    updates: &mut UpdateBatch,
) {
    let ended_ms = Some(UtcTime::now().since_epoch_ms());
    add_result(nodes, test, TestResult { ended_ms, duration_us: Some(0), ..result }, updates);
}

fn add_result(nodes: &mut NodeWriter, test: &LeasedTest, mut result: TestResult, updates: &mut UpdateBatch) {
    result.worker = Some(nodes.worker().0);
    nodes.add_ancestor_groups(test, updates);
    updates.add_settled(test.test, &result, |out| nodes.write_terminal(out, test, &result));
}

#[cfg(test)]
mod tests;
