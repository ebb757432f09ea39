//! Event loop of one test process.

mod outputs;

use std::sync::Arc;

use super::{
    death_files::{DeathFileReader, ReportStep},
    diagnostics::{CrashDiagnostics, ExitKind},
    extension::LeaseExtension,
    kept_files::FileKeeper,
    lease_process::{LeaseProcess, ProcessOrigin},
    marker_writers::MarkerWriters,
    named_files::NamedFiles,
    output_writers::OutputWriters,
    prepared_lease::StartedProcess,
    process_span::ProcessSpan,
    result_sink::ResultSink,
    run_report::RunReportReader,
    transcript_reader::TranscriptReader,
};
use crate::{
    batch::{
        BatchTerminateReason, DeadlineAction, ProcessExitSummary, RawOutputs, RunEvidence, RunningBatch,
        verdict::microseconds,
    },
    process::{
        debugger_handover::DebuggerHandover,
        guard_connection::GuardEvent,
        guarded_process::{GuardedProcess, ProcessEvent},
        job_order::JobOrder,
        launch_offer::AcceptedLaunch,
        memory_watch::MemoryWatch,
        process_clock::{ClockHold, ProcessClock, sleep_until_deadline},
        process_handle::ProcessHandle,
        test_directory::TestDirectory,
        worker_context::WorkerContext,
    },
};
use heeler_core::{GuardLoss, LogLine, RecordSink as _, RunRecord, TestDiagnostics, TestId};
use heeler_protocol::control::{
    DebuggerDecision, LeaseEnd, LeaseEvent, LeasedTest, ProcessExit, ToGuard, TreeSample,
};
use heeler_sys::process::Pid;
use tokio::time::Instant;

/// A running test process and its state.
pub(super) struct RunningProcess<'a> {
    pub(super) batch: RunningBatch,
    pub(super) process: GuardedProcess<'a>,
    pub(super) reader: TranscriptReader,
    pub(super) clock: ProcessClock,
    pub(super) sink: &'a mut ResultSink,
    pub(super) extension: LeaseExtension,
    grace_ms: u64,
    /// Tests to wait for before the process is ended.
    awaited_tests: Option<AwaitedTests>,
    /// Request that asks running tests to stop, sent when the process is ended.
    cancel_request: Vec<u8>,
    memory: MemoryWatch,
    debugger_handover: DebuggerHandover,
    diagnostics: CrashDiagnostics,
    /// Decides whose standard output is parsed, if the writers are known.
    writers: OutputWriters,
    run_report: RunReportReader,
    death_files: DeathFileReader,
    context: &'a WorkerContext,
    test_directory: Option<TestDirectory>,
    /// Files named by the test's command for its result.
    named_files: Option<NamedFiles>,
    /// Process started by the guard.
    root: Option<Pid>,
    span: Option<ProcessSpan>,
    marker_writers: MarkerWriters,
    /// The end of the process was reported.
    is_over: bool,
    /// A test began together with the process.
    begins_with_process: bool,
    /// The start time is unknown: the first test began with a request before the process had started, or the
    /// process was started before its lease.
    is_start_unknown: bool,
}

enum TestProcessEvent {
    /// Event of the process. Its deadline is a time limit of a test or of the process.
    Process(ProcessEvent),
    /// A debugger has launched the process.
    Launched(Box<AcceptedLaunch>),
    /// The result sender has room.
    SenderReady,
    /// A memory sample of the process is due.
    MemorySampleDue,
    /// The guard takes too long to capture a hung process.
    HangCaptureTimedOut,
    /// Check for the report of a hung process's runtime.
    RuntimeReportDue,
    /// Clock check.
    ClockLookDue,
}

/// Tests that were running when the coordinator ordered that no others begin.
struct AwaitedTests {
    /// Indexes of these tests in the batch.
    places: Vec<usize>,
    grace_ms: u64,
}

/// A process that has ended, and the work that follows its end.
pub(super) struct EndedProcess {
    /// End of the lease if no iteration follows.
    pub(super) end: LeaseEnd,
    /// Time from the start of the process to its first test.
    pub(super) start_us: Option<u64>,
    /// Tests that passed this iteration and have more to run.
    pub(super) repeatable: Vec<Arc<LeasedTest>>,
    /// Tests to rerun alone, with pipes.
    pub(super) refused: Vec<Arc<LeasedTest>>,
    /// The coordinator has ordered that no more tests begin.
    pub(super) is_ending: bool,
    pub(super) is_paused: bool,
    /// The process, whose guard may need a moment to exit.
    pub(super) handle: ProcessHandle,
}

impl<'a> RunningProcess<'a> {
    pub(super) fn new(ready: StartedProcess<'a>, sink: &'a mut ResultSink) -> Self {
        let StartedProcess {
            process: LeaseProcess { process, origin, transcript, clock, test_directory },
            batch,
            limits,
            diagnostics,
            writers,
            run_report,
            death_files,
            context,
            extension,
            named_files,
        } = ready;
        let keeper = FileKeeper::new(diagnostics.evidence_path());
        let (root, debugger_handover) = match origin {
            ProcessOrigin::New | ProcessOrigin::Forked => (None, DebuggerHandover::NotDebugged),
            ProcessOrigin::Waiting { root } => (Some(root), DebuggerHandover::NotDebugged),
            ProcessOrigin::Launched { offer } => (None, DebuggerHandover::Undecided { root: None, offer }),
        };
        let span = root.map(|pid| ProcessSpan::begin(pid, &batch, clock.now(), sink));
        Self {
            batch,
            process,
            reader: TranscriptReader { transcript, events: Vec::new(), keeper },
            clock,
            sink,
            extension,
            grace_ms: limits.grace_ms,
            awaited_tests: None,
            cancel_request: Vec::new(),
            memory: MemoryWatch::new(limits.memory_bytes),
            debugger_handover,
            diagnostics,
            writers,
            run_report,
            death_files,
            context,
            test_directory,
            named_files,
            root,
            span,
            marker_writers: MarkerWriters::default(),
            is_over: false,
            begins_with_process: false,
            is_start_unknown: root.is_some(),
        }
    }

    /// Runs until the process has ended.
    ///
    /// Cancel safe: no, because cancelling abandons the process, which its guard then ends.
    pub(super) async fn run(mut self) -> EndedProcess {
        self.send_opening_request();
        loop {
            let event = self.next_event().await;
            self.clock.look();
            if let Some(end) = self.handle_event(event).await {
                let first_begun = self.batch.order.first_begun();
                return EndedProcess {
                    end,
                    start_us: first_begun.filter(|_| !self.is_start_unknown).map(microseconds),
                    repeatable: self.batch.settlement.iterations.take_repeatable(),
                    refused: self.batch.settlement.stream_names.take_refused(),
                    is_ending: self.awaited_tests.is_some(),
                    is_paused: self.process.is_paused(),
                    handle: self.process.into_handle(),
                };
            }
            self.terminate_after_awaited_tests().await;
            self.terminate_decided().await;
            let (transcript, now) = (&*self.reader.transcript, self.clock.now());
            self.extension.report_idle(transcript, &mut self.batch, self.sink, now);
        }
    }

    /// Ends the process after the awaited tests have ended. A test that began after them stays undecided: the
    /// framework started it before the process could be stopped.
    async fn terminate_after_awaited_tests(&mut self) {
        let Some(awaited) = &self.awaited_tests else { return };
        if self.batch.runs_only_unawaited(&awaited.places) {
            let grace_ms = awaited.grace_ms;
            self.settle_proven();
            self.batch.deadlines.on_terminated(BatchTerminateReason::Abandoned);
            self.terminate(grace_ms).await;
        }
    }

    /// Ends a process whose tests are all decided.
    async fn terminate_decided(&mut self) {
        if self.reader.transcript.is_decided() && self.batch.deadlines.end_decided() {
            self.terminate(0).await;
        }
    }

    async fn next_event(&mut self) -> TestProcessEvent {
        let is_blocked = self.sink.is_blocked();
        // A test may block on its output while a slow client keeps the worker from reading, or while it waits
        // for a debugger. That time does not count for the test.
        let is_unread = is_blocked || self.debugger_handover.is_undecided();
        let hold = if self.process.is_paused() { Some(ClockHold::Paused) } else { None };
        self.clock.set_held(hold.or(is_unread.then_some(ClockHold::Unread)));
        let deadline = self.batch.deadline().and_then(|running| self.clock.instant_at(running));
        // Not `biased`: a process that always has an event must not starve the other branches.
        let accepts_output = !is_blocked && !self.awaits_root();
        tokio::select! {
            event = self.process.next_event(deadline.map(Into::into), accepts_output) => {
                TestProcessEvent::Process(event)
            }
            taken = self.debugger_handover.wait_until_launched() => {
                TestProcessEvent::Launched(Box::new(taken))
            }
            () = self.sink.has_room(), if is_blocked => TestProcessEvent::SenderReady,
            () = sleep_until_deadline(self.memory.next_sample_at()) => TestProcessEvent::MemorySampleDue,
            () = sleep_until_deadline(self.diagnostics.capture_deadline()) => {
                TestProcessEvent::HangCaptureTimedOut
            }
            () = sleep_until_deadline(self.death_files.next_look()) => TestProcessEvent::RuntimeReportDue,
            () = sleep_until_deadline(Some(self.clock.next_look().into())) => TestProcessEvent::ClockLookDue,
        }
    }

    async fn handle_event(&mut self, event: TestProcessEvent) -> Option<LeaseEnd> {
        match event {
            TestProcessEvent::Process(event) => match self.process.apply(event).await? {
                ProcessEvent::Order(order) => self.handle_order(order).await,
                ProcessEvent::Guard(event) => return self.handle_guard_event(event).await,
                ProcessEvent::Output => self.read_outputs(),
                ProcessEvent::Deadline => self.on_deadline().await,
                // Already handled by `apply`.
                ProcessEvent::GuardOverdue | ProcessEvent::TerminationDue => {}
            },
            TestProcessEvent::Launched(taken) => self.adopt_launched_process(*taken).await,
            TestProcessEvent::SenderReady => self.sink.try_send_batch(),
            TestProcessEvent::HangCaptureTimedOut => self.terminate(self.grace_ms).await,
            TestProcessEvent::RuntimeReportDue => {
                if self.death_files.look(self.root, Instant::now()) {
                    self.process.terminate(self.grace_ms).await;
                }
            }
            TestProcessEvent::ClockLookDue => {}
            TestProcessEvent::MemorySampleDue => {
                if let Some(used) = self.memory.sample() {
                    self.settle_proven();
                    self.batch.deadlines.on_terminated(BatchTerminateReason::MemoryLimit(used));
                    self.terminate(0).await;
                }
            }
        }
        None
    }

    async fn handle_guard_event(&mut self, event: GuardEvent) -> Option<LeaseEnd> {
        match event {
            GuardEvent::Started(root, is_limited) => {
                self.root = Some(root);
                self.span = Some(ProcessSpan::begin(root, &self.batch, self.clock.now(), self.sink));
                if self.begins_with_process {
                    self.writers.begin_with_process(root);
                }
                if let Some((root, is_limited)) = self.debugger_handover.on_started(root, is_limited) {
                    self.memory.start(root, is_limited);
                }
            }
            GuardEvent::StoppedForDebugger(is_program) => self.report_stopped_for_debugger(is_program),
            GuardEvent::DebuggerLost => {
                let text = "the debugger exited and left the test stopped; resuming it".to_owned();
                self.sink.record(RunRecord::Log(LogLine::warning(self.affected_test(), text)));
                self.sink.try_send_batch();
            }
            GuardEvent::NotStarted(error) => return Some(LeaseEnd::NotStarted { error }),
            GuardEvent::Ended(end) => return Some(self.finish(end, None).await),
            GuardEvent::Lost => {
                let loss = self.process.guard_loss().await;
                return Some(self.finish(ProcessExit::default(), Some(loss)).await);
            }
            GuardEvent::Untraced(reason) => {
                let text = format!("no crash capture for a test process: {reason}");
                let test = self.affected_test();
                self.sink.record(RunRecord::Log(LogLine::information(test, text)));
                self.diagnostics.record_untraced(reason);
            }
            GuardEvent::Crashed(report) => self.diagnostics.record_crash(*report),
            GuardEvent::ExitedInRun(stack) => self.diagnostics.record_exit_stack(stack),
            GuardEvent::Sampled(sample) => self.on_sample(sample).await,
            GuardEvent::Dumped(report) => {
                self.diagnostics.record_hang(*report);
                self.terminate(self.grace_ms).await;
            }
            // `process` confirms the pause to the requester.
            GuardEvent::Paused => {}
        }
        None
    }

    async fn on_deadline(&mut self) {
        // Tests that ended in time may still have output in the pipe.
        self.read_outputs();
        let now = self.clock.now();
        self.batch.report_running_tests(now, self.sink);
        let due = self.batch.on_deadline(now, self.is_in_announced_phase());
        self.sink.try_send_batch();
        self.handle_deadline(due).await;
    }

    /// Returns whether the process is in an announced set-up or tear-down, or in a dependency of its tests.
    fn is_in_announced_phase(&self) -> bool {
        self.reader.transcript.suite_phase().is_some()
    }

    async fn handle_order(&mut self, order: JobOrder) {
        match order {
            JobOrder::Cancel { grace_ms } => {
                // Tests that began or ended before the order may still have output in the pipe. No test
                // begins from here on.
                self.settle_proven();
                self.batch.deadlines.on_terminated(BatchTerminateReason::Cancelled);
                self.terminate(grace_ms).await;
            }
            JobOrder::ReturnTests { grace_ms } => {
                self.settle_proven();
                self.batch.deadlines.on_terminated(BatchTerminateReason::Abandoned);
                self.terminate(grace_ms).await;
            }
            JobOrder::CancelAfterRunningTests { grace_ms } => {
                self.reader.transcript.begin_no_more();
                self.extension = LeaseExtension::Impossible;
                self.read_outputs();
                self.awaited_tests =
                    Some(AwaitedTests { places: self.batch.order.running().to_vec(), grace_ms });
            }
            JobOrder::Extend(lease) => self.extend(*lease),
            JobOrder::EndIdle { lease } if lease == self.sink.lease => {
                self.extension = LeaseExtension::Impossible;
                self.finish_requests();
            }
            JobOrder::Debugger { lease, decision } if lease == self.sink.lease => {
                self.apply_debugger_decision(decision).await;
            }
            // Orders for an earlier lease, and orders that `process` has already carried out.
            JobOrder::Debugger { .. }
            | JobOrder::EndIdle { .. }
            | JobOrder::Pause { .. }
            | JobOrder::Resume => {}
            JobOrder::Kill => {
                self.batch.deadlines.on_terminated(BatchTerminateReason::Abandoned);
                self.terminate(0).await;
            }
        }
    }

    /// Reports that the process waits for a debugger.
    fn report_stopped_for_debugger(&mut self, is_program: bool) {
        let Some((pid, test)) = self.debugger_handover.undecided_process().zip(self.affected_test()) else {
            return;
        };
        let debuggee = self.debugger_handover.debuggee();
        self.sink.report(LeaseEvent::StoppedForDebugger { test, pid: pid.as_u32(), is_program, debuggee });
        self.sink.try_send_batch();
    }

    async fn apply_debugger_decision(&mut self, decision: DebuggerDecision) {
        let Some(root) = self.debugger_handover.decide(decision) else { return };
        match decision {
            DebuggerDecision::ReleaseToDebugger => {
                self.batch.deadlines.lift();
                self.process.send(ToGuard::ContinueUntraced).await;
            }
            DebuggerDecision::RunWithoutDebugger => {
                self.memory.start(root, false);
                self.process.send(ToGuard::ContinueTraced).await;
            }
        }
    }

    /// Switches to the process launched by a debugger, replacing the stopped one.
    async fn adopt_launched_process(&mut self, taken: AcceptedLaunch) {
        let pid = taken.process.pid().as_u32();
        self.debugger_handover.on_launched();
        self.batch.deadlines.on_launched_by_debugger();
        if let Some(test) = self.affected_test() {
            self.sink.report(LeaseEvent::LaunchedByDebugger { test, pid });
        }
        let replaced = self.process.replace(taken);
        self.send_opening_request();
        // The replaced process has not run its program, so no output is lost.
        replaced.reap().await;
        self.sink.try_send_batch();
    }

    /// Returns the test responsible for the process's behaviour: the running test, or the only one.
    fn affected_test(&self) -> Option<TestId> {
        let in_flight = self.batch.running_test().map(|(test, _)| test.test);
        let only = self.batch.tests().first().filter(|_| self.batch.tests().len() == 1).map(|test| test.test);
        in_flight.or(only)
    }

    async fn handle_deadline(&mut self, due: DeadlineAction) {
        if due == DeadlineAction::Terminate {
            self.settle_proven();
            // Take the request now: no test begins or ends while the hung process is examined.
            self.take_cancel_request();
        }
        match due {
            DeadlineAction::Nothing => {}
            DeadlineAction::CheckHeldTests => self.check_held_tests(),
            DeadlineAction::SampleProcess => self.process.send(ToGuard::Sample).await,
            // Two samples show the state of a hung process; stack traces and dumps show the cause.
            DeadlineAction::Terminate if self.is_report_awaited().await => {}
            DeadlineAction::Terminate if self.diagnostics.start_hang_capture() => {
                self.process.send(ToGuard::Sample).await
            }
            DeadlineAction::Terminate => self.terminate(self.grace_ms).await,
            DeadlineAction::EndServer => self.process.terminate(self.grace_ms).await,
        }
    }

    /// Asks a process at its limit for its stack traces, if its runtime can report them. Returns whether to
    /// wait for the report before ending the process.
    async fn is_report_awaited(&mut self) -> bool {
        let step = self.death_files.begin_report(Instant::now());
        if let ReportStep::Ask(signal) = step {
            self.process.send(ToGuard::ReportStacks { signal: signal.0 }).await;
        }
        step != ReportStep::End
    }

    async fn on_sample(&mut self, sample: TreeSample) {
        if self.diagnostics.capture_deadline().is_some() {
            self.diagnostics.record_sample(sample);
            self.process.send(ToGuard::Dump).await;
            return;
        }
        let starved = self.diagnostics.starved_since_last_sample(&sample);
        let due = self.batch.deadlines.on_idle_sample(self.clock.now(), starved);
        self.handle_deadline(due).await;
    }

    /// Ends the process. If its framework has a stop request, sends that first.
    async fn terminate(&mut self, grace_ms: u64) {
        self.diagnostics.stop_hang_capture();
        self.take_cancel_request();
        let request = std::mem::take(&mut self.cancel_request);
        if request.is_empty() || grace_ms == 0 {
            self.process.terminate(grace_ms).await;
        } else {
            self.process.ask_to_exit(request, grace_ms).await;
        }
    }

    fn take_cancel_request(&mut self) {
        if self.cancel_request.is_empty() {
            let reason = self.batch.deadlines.terminate_reason_text();
            self.cancel_request = self.reader.transcript.cancel_request(reason);
        }
    }

    /// Reads the outputs to their ends and decides the tests without a result. If the guard was lost, the
    /// exit status is unknown.
    async fn finish(&mut self, raw: ProcessExit, guard_loss: Option<GuardLoss>) -> LeaseEnd {
        self.clock.set_held(None);
        self.is_over = true;
        loop {
            self.read_outputs();
            if !self.process.wait_for_remaining_output().await {
                break;
            }
        }
        // Tell the parser about the end of the output, and about the exit code.
        self.reader.transcript.on_output_end(&mut self.reader.events);
        self.read_death_files();
        if let Some(code) = raw.code.filter(|_| !self.process.is_terminating()) {
            self.reader.transcript.on_exit(code, &mut self.reader.events);
        }
        self.reader.pass_on(RawOutputs::default(), &self.clock, &mut self.batch, self.sink);
        if !self.process.is_terminating() && self.process.is_last_request_unread() {
            self.batch.withdraw_unread_test();
        }
        // If the worker killed an overdue guard, `raw` has no signal, so also check whether the worker was
        // ending the process.
        let is_ending = self.process.is_terminating() || self.death_files.is_report_begun();
        let is_own_death = self.diagnostics.is_own_death(&raw, is_ending);
        let is_after_end_marker = self.reader.transcript.is_after_end_marker();
        let exit_kind = if is_after_end_marker { ExitKind::AfterEndMarker } else { ExitKind::Other };
        let missing_stack = self.diagnostics.missing_stack_reason(&raw, exit_kind);
        // Store the evidence under the name of the test that was running.
        let affected = self.batch.test_of_death(self.reader.transcript.culprit());
        let (evidence, detail) = self.diagnostics.store_evidence(affected, raw.core.as_ref());
        let death_cause = self.reader.transcript.death_cause().cloned();
        let own_detail = death_cause.as_ref().map(|cause| cause.detail.clone());
        let detail = detail.or(own_detail).or(missing_stack);
        self.log_evidence_losses(evidence.as_deref(), &raw);
        // A report shows which tests have run. Without it, a test may have printed another test's name.
        let run_evidence = self.run_report.read(&self.batch, self.writers.has_other_run());
        let is_own_exit = raw.signal.is_none() && !self.process.is_terminating();
        let is_named_by_output =
            !self.run_report.is_expected() || is_own_exit && run_evidence != RunEvidence::LeftOpen;
        let unselected = self.reader.transcript.unselected_test().filter(|_| is_named_by_output);
        let is_explained =
            raw.signal.is_none() && raw.code.is_some_and(|code| self.reader.transcript.explains_exit(code));
        let gone = ProcessExitSummary {
            exit: raw,
            is_complete: self.reader.transcript.is_complete(),
            is_explained,
            is_after_end_marker,
            fixture_failures: self.reader.transcript.fixture_failures().to_vec(),
            outside_failure: self.reader.transcript.outside_failure().map(str::to_owned),
            is_out_of_memory: self.memory.had_oom_kill(),
            evidence,
            exit_stack: self.diagnostics.take_exit_stack(),
            detail,
            death_cause,
            is_own_death,
            guard_loss,
            run_evidence,
            doubtful_since: self.reader.transcript.doubtful_since(),
            culprit: self.reader.transcript.culprit(),
            unselected_test: unselected.map(str::to_owned),
            is_suite_failure_reported: false,
            suite_phase: self.reader.transcript.suite_phase(),
        };
        // Attach files, then settle all tests.
        if let Some(files) = self.named_files.take() {
            files.attach(&mut self.reader.keeper, &mut self.batch, self.sink);
        }
        let (now, span) = (self.clock.now(), self.span.take());
        let ended = span.map(|span| span.end(&gone.exit, &self.batch, now));
        let end = self.batch.begin_end(gone, now, self.sink);
        while self.batch.settle_decided(self.sink) {
            // Yield: the result sender shares this thread, and must get a chance to take the updates.
            self.sink.try_send_batch();
            tokio::task::yield_now().await;
        }
        let end = self.batch.end(end, self.sink);
        ended.into_iter().for_each(|record| self.sink.record(record));
        self.sink.show(self.batch.take_shown());
        // Send the results first: moving and removing test files may take long.
        self.sink.try_send_batch();
        self.remove_test_directory(&end).await;
        end
    }

    /// Logs which evidence of a crash or hang was lost, and why.
    fn log_evidence_losses(&mut self, evidence: Option<&TestDiagnostics>, end: &ProcessExit) {
        let test = self.affected_test();
        for note in evidence.iter().flat_map(|evidence| &evidence.notes) {
            let text = format!("some crash evidence could not be kept: {note}");
            self.sink.record(RunRecord::Log(LogLine::warning(test, text)));
        }
        if end.code.is_none() && end.signal.is_none() {
            self.diagnostics.remove_partial_files();
        }
    }

    /// Removes the temporary directory of the tests. Its files are kept if a test or the process has failed.
    async fn remove_test_directory(&mut self, end: &LeaseEnd) {
        // An empty directory, the usual case, is removed at once.
        let Some(directory) = self.test_directory.take().filter(|directory| !directory.is_empty()) else {
            return;
        };
        let has_failed = match end {
            LeaseEnd::BadExit { .. } | LeaseEnd::DiedInTest { .. } | LeaseEnd::DiedOutsideTest { .. } => true,
            LeaseEnd::StartTimedOut { .. }
            | LeaseEnd::Complete
            | LeaseEnd::NotStarted { .. }
            | LeaseEnd::GuardLost { .. }
            | LeaseEnd::Cancelled => self.batch.settlement.has_failures(),
        };
        let target = has_failed.then(|| self.diagnostics.kept_directory());
        if let Some(text) = directory.remove(target).await {
            self.sink.record(RunRecord::Log(LogLine::information(self.affected_test(), text)));
        }
    }
}
