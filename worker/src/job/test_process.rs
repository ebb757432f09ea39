//! Event loop of one test process.

use std::time::Duration;

use heeler_protocol::{
    control::{
        DebuggerDecision, LeaseEnd, LeaseEvent, ProcessExit, TestDiagnostics, TestId, ToGuard, TreeSample,
    },
    mtp::LogLevel,
};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until, timeout_at},
};

use super::{
    diagnostics::CrashDiagnostics,
    lease::{ResultSink, StartedProcess},
};
use crate::{
    batch::{
        DeadlineAction, DialogueStall, OutputChunk, ProcessExitSummary, RawOutputs, RunningBatch,
        verdict::microseconds,
    },
    process::{
        debugger_handover::DebuggerHandover,
        guard_connection::{GuardEvent, GuardedProcess},
        job_order::JobOrder,
        launch_offer::AcceptedLaunch,
        memory_watch::MemoryWatch,
        output_pipe::{OutputPipe, PipeRead},
        process_clock::{ProcessClock, sleep_until_deadline},
        process_handle::ProcessHandle,
        report_channel::{self, ReportChannel},
    },
};
use heeler_adapters::{TranscriptEvent, TranscriptParser};

/// The capacity of a pipe, so that one read empties it.
const READ_BUFFER_BYTES: usize = 64 << 10;

/// Minimum time between two reads. Frameworks write each line by itself, and waking up for each would cost
/// more than the tests. A read does not wait if the pipe is filling up or the test writes to its standard
/// error.
const MIN_READ_INTERVAL: Duration = Duration::from_millis(1);

/// A read of more than this means that the pipe is filling up.
const PIPE_FILLING_BYTES: usize = READ_BUFFER_BYTES / 8;

/// How long an output that is still open is read after the end of the process. No process should hold it any
/// more.
const OUTPUT_DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// After the grace period, a guard has this long to end its process before the guard itself is killed.
const GUARD_KILL_DELAY: Duration = Duration::from_secs(5);

/// One running test process and its state.
pub(super) struct RunningProcess<'a> {
    batch: RunningBatch,
    transcript: Box<dyn TranscriptParser + Send>,
    process: ProcessHandle,
    stdout_pipe: OutputPipe,
    stderr_pipe: OutputPipe,
    channel: Option<ReportChannel>,
    clock: ProcessClock,
    sink: &'a mut ResultSink,
    orders: mpsc::Receiver<JobOrder>,
    grace_ms: u64,
    is_output_shown: bool,
    is_paused: bool,
    /// Notified when the process is paused.
    pause_confirmation: Option<oneshot::Sender<()>>,
    /// The tests after whose end the process is ended.
    awaited_tests: Option<AwaitedTests>,
    /// When the guard is overdue and is killed.
    guard_kill_at: Option<Instant>,
    memory: MemoryWatch,
    debugger_handover: DebuggerHandover,
    diagnostics: CrashDiagnostics,
    /// The earliest time of the next read, unless there is a reason to read sooner.
    next_read_at: Instant,
    events: Vec<TranscriptEvent>,
    stdout_buffer: Vec<u8>,
    stderr_buffer: Vec<u8>,
}

/// An event of the event loop.
enum ProcessEvent {
    Order(JobOrder),
    Guard(GuardEvent),
    /// A debugger has launched the process.
    Launched(Box<AcceptedLaunch>),
    /// The result sender has room.
    SenderReady,
    /// There is output to read.
    Output,
    /// A time limit of a test or of the process has passed.
    Deadline,
    /// The guard did not end its process in time.
    GuardOverdue,
    /// The process's memory is to be sampled.
    MemorySampleDue,
    /// Capturing a hung process takes the guard too long.
    HangCaptureTimedOut,
}

/// The tests that ran when the coordinator ordered that no others begin.
struct AwaitedTests {
    /// Their indices in the batch.
    places: Vec<usize>,
    grace_ms: u64,
}

impl<'a> RunningProcess<'a> {
    pub(super) fn new(
        ready: StartedProcess,
        sink: &'a mut ResultSink,
        orders: mpsc::Receiver<JobOrder>,
    ) -> Self {
        let StartedProcess {
            batch,
            transcript,
            guard: GuardedProcess { control, stdout, stderr, channel },
            clock,
            is_output_shown,
            grace_ms,
            memory_bytes,
            is_debugged,
            offer,
            diagnostics,
        } = ready;
        Self {
            batch,
            transcript,
            process: ProcessHandle::Guard(control),
            stdout_pipe: stdout,
            stderr_pipe: stderr,
            channel,
            clock,
            sink,
            orders,
            grace_ms,
            is_output_shown,
            is_paused: false,
            pause_confirmation: None,
            awaited_tests: None,
            guard_kill_at: None,
            memory: MemoryWatch::new(memory_bytes),
            debugger_handover: DebuggerHandover::new(is_debugged, offer),
            diagnostics,
            next_read_at: Instant::now(),
            events: Vec::new(),
            stdout_buffer: vec![0; READ_BUFFER_BYTES],
            stderr_buffer: vec![0; READ_BUFFER_BYTES],
        }
    }

    /// Runs until the process has ended; returns how the lease ended, how long the process took to its first
    /// test, and the handle to the process, whose guard may take a moment more to exit.
    pub(super) async fn run(mut self) -> (LeaseEnd, Option<u64>, ProcessHandle) {
        self.send_opening_request();
        loop {
            let happened = self.next_event().await;
            if let Some(end) = self.handle_event(happened).await {
                let start_us = self.batch.first_test_started().map(microseconds);
                return (end, start_us, self.process);
            }
            self.terminate_after_awaited_tests().await;
        }
    }

    /// Ends the process when the tests that the coordinator awaits have ended. A test that began after them
    /// stays undecided: the framework started it before the process could be stopped.
    async fn terminate_after_awaited_tests(&mut self) {
        let Some(awaited) = &self.awaited_tests else { return };
        if self.batch.runs_only_unawaited(&awaited.places) {
            let grace_ms = awaited.grace_ms;
            self.batch.abandon();
            self.terminate(grace_ms).await;
        }
    }

    async fn next_event(&mut self) -> ProcessEvent {
        let is_blocked = self.sink.is_blocked();
        // While a slow client keeps the worker from reading, a test may block on its output: that time does
        // not count for the test. Neither does the time in which it waits for a debugger.
        self.clock.set_held(self.is_paused || is_blocked || self.debugger_handover.is_undecided());
        let deadline = self.batch.deadline().and_then(|running| self.clock.instant_at(running));
        let (stdout, stderr) = (&self.stdout_pipe, &self.stderr_pipe);
        tokio::select! {
            biased;
            order = self.orders.recv() => ProcessEvent::Order(order.unwrap_or(JobOrder::Kill)),
            news = self.process.next_event() => ProcessEvent::Guard(news),
            taken = self.debugger_handover.wait_until_launched() => ProcessEvent::Launched(Box::new(taken)),
            // An error means that the coordinator has disconnected; handing over then drops the update batch.
            _ = self.sink.result_sender.reserve(), if is_blocked => ProcessEvent::SenderReady,
            () = wait_for_output(stdout, stderr, self.channel.as_ref(), self.next_read_at), if !is_blocked => ProcessEvent::Output,
            () = sleep_until_deadline(deadline.map(Into::into)) => ProcessEvent::Deadline,
            () = sleep_until_deadline(self.guard_kill_at) => ProcessEvent::GuardOverdue,
            () = sleep_until_deadline(self.memory.next_sample_at()) => ProcessEvent::MemorySampleDue,
            () = sleep_until_deadline(self.diagnostics.capture_deadline()) => ProcessEvent::HangCaptureTimedOut,
        }
    }

    async fn handle_event(&mut self, happened: ProcessEvent) -> Option<LeaseEnd> {
        match happened {
            ProcessEvent::Order(order) => self.handle_order(order).await,
            ProcessEvent::Guard(GuardEvent::Started(root, is_limited)) => {
                if let Some((root, is_limited)) = self.debugger_handover.on_started(root, is_limited) {
                    self.memory.start(root, is_limited);
                }
            }
            ProcessEvent::Guard(GuardEvent::StoppedForDebugger(is_program)) => {
                self.report_stopped_for_debugger(is_program)
            }
            ProcessEvent::Guard(GuardEvent::DebuggerLost) => {
                let text = "its debugger is gone and had left the test standing; it goes on".to_owned();
                self.sink.add_log_line(self.affected_test(), LogLevel::Warning, text);
                self.sink.try_send_batch();
            }
            ProcessEvent::Guard(GuardEvent::NotStarted(error)) => {
                return Some(LeaseEnd::NotStarted { error });
            }
            ProcessEvent::Guard(GuardEvent::Paused) => self.confirm_pause(),
            ProcessEvent::Guard(GuardEvent::Ended(end)) => return Some(self.finish(end).await),
            ProcessEvent::Launched(taken) => self.adopt_launched_process(*taken).await,
            ProcessEvent::SenderReady => self.sink.try_send_batch(),
            ProcessEvent::Output => self.read_outputs(),
            ProcessEvent::Deadline => {
                // Tests that ended in time may still have output in the pipe.
                self.read_outputs();
                let now = self.clock.now();
                self.batch.log_slow_tests(now, &mut self.sink.updates);
                let due = self.batch.on_deadline(now);
                self.sink.try_send_batch();
                self.handle_deadline(due).await;
            }
            ProcessEvent::Guard(GuardEvent::Untraced(reason)) => {
                let text = format!("a test process is not watched for crashes: {reason}");
                let test = self.affected_test();
                self.sink.add_log_line(test, LogLevel::Information, text);
            }
            ProcessEvent::Guard(GuardEvent::Crashed(report)) => self.diagnostics.record_crash(*report),
            ProcessEvent::Guard(GuardEvent::Sampled(sample)) => self.on_sample(sample).await,
            ProcessEvent::Guard(GuardEvent::Dumped(report)) => {
                self.diagnostics.record_hang(*report);
                self.terminate(self.grace_ms).await;
            }
            ProcessEvent::HangCaptureTimedOut => self.terminate(self.grace_ms).await,
            ProcessEvent::MemorySampleDue => {
                if let Some(used) = self.memory.sample() {
                    self.batch.on_memory_limit(used);
                    self.terminate(0).await;
                }
            }
            ProcessEvent::GuardOverdue => {
                self.guard_kill_at = None;
                self.process.kill();
            }
        }
        None
    }

    async fn handle_order(&mut self, order: JobOrder) {
        match order {
            JobOrder::Cancel { grace_ms } => {
                // Tests that began or ended before the order may still have output in the pipe. From now on
                // no test begins.
                self.read_outputs();
                self.batch.cancel();
                self.terminate(grace_ms).await;
            }
            JobOrder::CancelAfterRunningTests { grace_ms } => {
                self.read_outputs();
                self.awaited_tests = Some(AwaitedTests { places: self.batch.running_places(), grace_ms });
            }
            JobOrder::Pause { paused } => {
                self.is_paused = true;
                self.pause_confirmation = Some(paused);
                self.process.send(ToGuard::Pause).await;
            }
            JobOrder::Resume => {
                self.is_paused = false;
                self.process.send(ToGuard::Resume).await;
            }
            JobOrder::Debugger { lease, decision } if lease == self.sink.lease => {
                self.apply_debugger_decision(decision).await;
            }
            // An order for an earlier lease.
            JobOrder::Debugger { .. } => {}
            JobOrder::Kill => {
                self.batch.abandon();
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
        self.sink.updates.reports.push(LeaseEvent::StoppedForDebugger {
            test,
            pid: pid.as_u32(),
            is_program,
            debuggee,
        });
        self.sink.try_send_batch();
    }

    async fn apply_debugger_decision(&mut self, decision: DebuggerDecision) {
        let Some(root) = self.debugger_handover.decide(decision) else { return };
        match decision {
            DebuggerDecision::ReleaseToDebugger => {
                self.batch.lift_limits();
                self.process.send(ToGuard::ContinueUntraced).await;
            }
            DebuggerDecision::RunWithoutDebugger => {
                self.memory.start(root, false);
                self.process.send(ToGuard::ContinueTraced).await;
            }
        }
    }

    /// Switches to the process that a debugger has launched, in place of the stopped one.
    async fn adopt_launched_process(&mut self, taken: AcceptedLaunch) {
        let AcceptedLaunch { process, stdout, stderr, channel } = taken;
        self.debugger_handover.on_launched();
        self.batch.on_launched_by_debugger();
        if let Some(test) = self.affected_test() {
            self.sink
                .updates
                .reports
                .push(LeaseEvent::LaunchedByDebugger { test, pid: process.pid().as_u32() });
        }
        (self.stdout_pipe, self.stderr_pipe, self.channel) = (stdout, stderr, channel);
        self.send_opening_request();
        let keeper =
            ProcessHandle::Debugger { process, has_unconfirmed_pause: self.pause_confirmation.is_some() };
        // It has run nothing, so none of its output is lost.
        std::mem::replace(&mut self.process, keeper).reap().await;
        self.sink.try_send_batch();
    }

    /// Returns the test to blame for what the process does: the running one, or the only one.
    fn affected_test(&self) -> Option<TestId> {
        let in_flight = self.batch.running_test().map(|(test, _)| test);
        let only = self.batch.tests().first().filter(|_| self.batch.tests().len() == 1);
        in_flight.or(only).map(|test| test.test)
    }

    fn confirm_pause(&mut self) {
        if let Some(paused) = self.pause_confirmation.take() {
            // The requester may be gone.
            paused.send(()).ok();
        }
    }

    async fn handle_deadline(&mut self, due: DeadlineAction) {
        match due {
            DeadlineAction::Nothing => {}
            DeadlineAction::SendDeferredResult => {
                self.batch.send_deferred_result(&mut self.sink.updates);
                self.sink.write_ahead();
                self.sink.try_send_batch();
            }
            DeadlineAction::SampleProcess => self.process.send(ToGuard::Sample).await,
            // Two samples show what a hung process does; its stacks and dumps show why.
            DeadlineAction::Terminate if self.diagnostics.start_hang_capture() => {
                self.process.send(ToGuard::Sample).await
            }
            DeadlineAction::Terminate => self.terminate(self.grace_ms).await,
        }
    }

    async fn on_sample(&mut self, sample: TreeSample) {
        if self.diagnostics.capture_deadline().is_some() {
            self.diagnostics.record_sample(&sample);
            self.process.send(ToGuard::Dump).await;
            return;
        }
        let starved = self.diagnostics.starved_since_last_sample(&sample);
        let due = self.batch.on_idle_sample(self.clock.now(), starved);
        self.handle_deadline(due).await;
    }

    async fn terminate(&mut self, grace_ms: u64) {
        self.diagnostics.stop_hang_capture();
        if std::mem::take(&mut self.is_paused) {
            self.process.send(ToGuard::Resume).await;
        }
        let message = if grace_ms == 0 { ToGuard::Kill } else { ToGuard::Terminate { grace_ms } };
        self.process.send(message).await;
        self.guard_kill_at = Some(Instant::now() + Duration::from_millis(grace_ms) + GUARD_KILL_DELAY);
    }

    /// Sends the first request to a process that receives requests.
    fn send_opening_request(&mut self) {
        if let Some(channel) = &mut self.channel {
            channel.send(self.transcript.opening_request());
        }
    }

    /// Sends the request that follows the reports in the buffer, and sets the limit for taking it.
    fn read_reports(&mut self, count: usize) {
        let Some(channel) = &mut self.channel else { return };
        channel.send(self.transcript.on_channel(&self.stdout_buffer[..count], &mut self.events));
        if self.transcript.is_complete() {
            channel.finish();
        }
        let are_reports_closed =
            if channel.is_for_requests_only() { self.stdout_pipe.is_at_end() } else { channel.is_at_end() };
        let stall = if channel.has_unsent() {
            Some(DialogueStall::RequestUnread)
        } else {
            are_reports_closed.then_some(DialogueStall::ReportsClosed)
        };
        self.batch.set_dialogue_stall(stall, self.clock.now());
    }

    /// Reads the available output, the framework's reports first: what a test wrote to another output before
    /// its end marker is then already there.
    fn read_outputs(&mut self) {
        let mut reported = 0;
        let mut has_own_channel = false;
        if let Some(channel) = &mut self.channel
            && !channel.is_for_requests_only()
        {
            has_own_channel = true;
            reported = byte_count(channel.try_read(&mut self.stdout_buffer));
            self.read_reports(reported);
        }
        let count = byte_count(self.stdout_pipe.try_read(&mut self.stdout_buffer));
        let errors = byte_count(self.stderr_pipe.try_read(&mut self.stderr_buffer));
        if !has_own_channel {
            self.read_reports(count);
        }
        if count > 0 && self.channel.is_none() {
            self.transcript.on_stdout(&self.stdout_buffer[..count], &mut self.events);
        }
        self.process_chunk(if has_own_channel { count } else { 0 }, errors);
        let is_filling = count.max(reported) > PIPE_FILLING_BYTES;
        self.next_read_at = Instant::now() + if is_filling { Duration::ZERO } else { MIN_READ_INTERVAL };
    }

    /// Turns events and raw outputs into results, and hands them over.
    fn process_chunk(&mut self, count: usize, errors: usize) {
        if self.events.is_empty() && count == 0 && errors == 0 {
            return;
        }
        let outputs =
            RawOutputs { stdout: &self.stdout_buffer[..count], stderr: &self.stderr_buffer[..errors] };
        let parcel = &mut self.sink.updates;
        if self.is_output_shown {
            for event in &self.events {
                if let TranscriptEvent::Output(bytes) = event {
                    parcel.shown_stdout.extend_from_slice(bytes);
                }
            }
            parcel.shown_stdout.extend_from_slice(outputs.stdout);
            parcel.shown_stderr.extend_from_slice(outputs.stderr);
        }
        let chunk = OutputChunk { events: &mut self.events, outputs, now: self.clock.now() };
        self.batch.on_output(chunk, parcel);
        self.sink.write_ahead();
        self.sink.try_send_batch();
    }

    /// Logs which evidence of a crash or hang could not be kept, and why.
    fn log_evidence_losses(&mut self, evidence: Option<&TestDiagnostics>, end: &ProcessExit) {
        let test = self.affected_test();
        for note in evidence.iter().flat_map(|evidence| &evidence.notes) {
            let text = format!("not all of its evidence could be kept: {note}");
            self.sink.add_log_line(test, LogLevel::Warning, text);
        }
        if end.code.is_none() && end.signal.is_none() {
            self.diagnostics.remove_partial_files();
        }
    }

    /// Reads the outputs to their ends and decides the tests that have no result.
    async fn finish(&mut self, raw: ProcessExit) -> LeaseEnd {
        self.clock.set_held(false);
        let deadline = Instant::now() + OUTPUT_DRAIN_TIMEOUT;
        loop {
            self.read_outputs();
            let (stdout, stderr, channel) = (&self.stdout_pipe, &self.stderr_pipe, self.channel.as_ref());
            if stdout.is_at_end() && stderr.is_at_end() && channel.is_none_or(ReportChannel::is_at_end) {
                break;
            }
            // A process that escaped its guard may hold an output open, and even write to it, forever.
            if timeout_at(deadline, wait_for_any(stdout, stderr, channel)).await.is_err()
                || Instant::now() >= deadline
            {
                tracing::warn!("a test process left its output open behind it");
                break;
            }
        }
        self.transcript.on_output_end(&mut self.events);
        self.process_chunk(0, 0);
        // A guard that was killed because it was overdue reports no signal.
        let is_own_death = self.diagnostics.is_own_death(&raw, self.guard_kill_at.is_some());
        let (evidence, detail) =
            self.diagnostics.store_evidence(self.batch.running_test(), raw.core.as_ref());
        self.log_evidence_losses(evidence.as_deref(), &raw);
        let is_explained =
            raw.signal.is_none() && raw.code.is_some_and(|code| self.transcript.explains_exit(code));
        let gone = ProcessExitSummary {
            exit: raw,
            is_complete: self.transcript.is_complete(),
            is_explained,
            is_after_end_marker: self.transcript.is_after_end_marker(),
            outside_failure: self.transcript.outside_failure().map(str::to_owned),
            is_out_of_memory: self.memory.had_oom_kill(),
            evidence,
            detail,
            is_own_death,
        };
        self.batch.finish(gone, self.clock.now(), &mut self.sink.updates)
    }
}

fn byte_count(read: PipeRead) -> usize {
    match read {
        PipeRead::Bytes(count) => count,
        PipeRead::WouldBlock | PipeRead::End => 0,
    }
}

/// Waits until there is output to read, and a little longer for more to arrive.
async fn wait_for_output(
    stdout: &OutputPipe,
    stderr: &OutputPipe,
    channel: Option<&ReportChannel>,
    next_read: Instant,
) {
    tokio::select! {
        () = stderr.wait_readable() => return,
        () = stdout.wait_readable() => {}
        () = report_channel::wait_ready(channel) => {}
    }
    // The timer rounds up to a whole millisecond, even for a time that has passed: a pipe that fills up must
    // not wait for it.
    if next_read <= Instant::now() {
        return;
    }
    tokio::select! {
        () = stderr.wait_readable() => {}
        () = sleep_until(next_read) => {}
    }
}

async fn wait_for_any(stdout: &OutputPipe, stderr: &OutputPipe, channel: Option<&ReportChannel>) {
    tokio::select! {
        () = stdout.wait_readable() => {}
        () = stderr.wait_readable() => {}
        () = report_channel::wait_ready(channel) => {}
    }
}
