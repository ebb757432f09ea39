//! Runs one listing command to its end and captures its outputs. They are parsed elsewhere.

use std::time::Duration;

use heeler_protocol::control::{ProcessExit, TestCommand, ToGuard};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until, timeout_at},
};

use crate::process::{
    guard_connection::{GuardEvent, GuardedProcess},
    guard_spawner::GuardSpawner,
    job_order::JobOrder,
    output_pipe::{OutputPipe, PipeRead},
    report_channel::{self, ReportChannel},
};
use heeler_adapters::AdapterInvocation;
use heeler_core::error_chain;

/// A listing of 100,000 tests with long names is about 20 MB.
const STDOUT_LIMIT_BYTES: usize = 64 << 20;
/// Standard error of a listing is only shown to users.
const STDERR_LIMIT_BYTES: usize = 1 << 20;
/// How long an output that is still open is read after the end of the process. No process should hold it any
/// more.
const OUTPUT_DRAIN_TIMEOUT: Duration = Duration::from_millis(500);
/// After its order, a guard has this long to end its process before the guard itself is killed.
const GUARD_KILL_DELAY: Duration = Duration::from_secs(5);

/// Why a listing command has no outputs.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CaptureError {
    #[error("start it: {0}")]
    NotStarted(String),
    #[error("list its tests within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    #[error("keep more than {STDOUT_LIMIT_BYTES} bytes of its listing")]
    TooLong,
    #[error("list its tests: the run was cancelled")]
    Cancelled,
}

/// The output of a listing command and how it ended.
#[derive(Debug, Default)]
pub(crate) struct CapturedListing {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) channel: Vec<u8>,
    pub(crate) end: ProcessExit,
}

/// How long a listing may take: the limit, and the resulting deadline.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListingTimeLimit {
    pub(crate) limit: Duration,
    pub(crate) deadline: Instant,
}

struct ListingProcess<'a> {
    guard: GuardedProcess,
    orders: &'a mut mpsc::Receiver<JobOrder>,
    budget: ListingTimeLimit,
    buffer: Vec<u8>,
    captured: CapturedListing,
    failure: Option<CaptureError>,
    guard_kill_at: Option<Instant>,
    pause_confirmation: Option<oneshot::Sender<()>>,
}

enum ListingEvent {
    Order(JobOrder),
    Guard(GuardEvent),
    Output,
    Deadline,
    GuardOverdue,
}

/// Runs one command and captures its outputs.
///
/// Cancel safe: no, because the process is abandoned with the call: its guard ends it.
pub(crate) async fn capture_listing(
    guards: &GuardSpawner,
    command: TestCommand,
    invocation: &AdapterInvocation,
    budget: ListingTimeLimit,
    orders: &mut mpsc::Receiver<JobOrder>,
) -> Result<CapturedListing, CaptureError> {
    let guard = GuardedProcess::start(guards, command, invocation.channel).await;
    let mut guard = guard.map_err(|error| CaptureError::NotStarted(error_chain(&error)))?;
    if let Some(channel) = &mut guard.channel {
        channel.send(invocation.listing_request.clone());
        channel.finish();
    }
    let mut listing = ListingProcess {
        guard,
        orders,
        budget,
        buffer: vec![0; 64 << 10],
        captured: CapturedListing::default(),
        failure: None,
        guard_kill_at: None,
        pause_confirmation: None,
    };
    loop {
        let happened = listing.next_event().await;
        if listing.handle_event(happened).await {
            break;
        }
    }
    let ListingProcess { guard, captured, failure, .. } = listing;
    guard.control.reap().await;
    failure.map_or(Ok(captured), Err)
}

impl ListingProcess<'_> {
    async fn next_event(&mut self) -> ListingEvent {
        let GuardedProcess { control, stdout, stderr, channel } = &mut self.guard;
        tokio::select! {
            biased;
            order = self.orders.recv() => ListingEvent::Order(order.unwrap_or(JobOrder::Kill)),
            news = control.next_event() => ListingEvent::Guard(news),
            () = wait_readable(stdout, stderr, channel.as_ref()) => ListingEvent::Output,
            () = sleep_until(self.budget.deadline), if self.failure.is_none() => ListingEvent::Deadline,
            () = sleep_until(self.guard_kill_at.unwrap_or(self.budget.deadline)), if self.guard_kill_at.is_some() => ListingEvent::GuardOverdue,
        }
    }

    /// Handles an event; returns whether it was the end.
    async fn handle_event(&mut self, happened: ListingEvent) -> bool {
        match happened {
            ListingEvent::Order(
                JobOrder::Cancel { .. } | JobOrder::CancelAfterRunningTests { .. } | JobOrder::Kill,
            ) => self.fail(CaptureError::Cancelled).await,
            ListingEvent::Order(JobOrder::Pause { paused }) => {
                self.pause_confirmation = Some(paused);
                self.guard.control.send(ToGuard::Pause).await;
            }
            ListingEvent::Order(JobOrder::Resume) => self.guard.control.send(ToGuard::Resume).await,
            ListingEvent::Guard(
                GuardEvent::Untraced(_)
                | GuardEvent::Crashed(_)
                | GuardEvent::Sampled(_)
                | GuardEvent::Dumped(_),
            ) => {}
            ListingEvent::Guard(GuardEvent::Started(..)) => {}
            // Listings are not debugged.
            ListingEvent::Order(JobOrder::Debugger { .. }) => {}
            ListingEvent::Guard(GuardEvent::StoppedForDebugger(_) | GuardEvent::DebuggerLost) => {}
            ListingEvent::Guard(GuardEvent::NotStarted(error)) => {
                self.failure = Some(CaptureError::NotStarted(error));
                return true;
            }
            ListingEvent::Guard(GuardEvent::Paused) => {
                if let Some(paused) = self.pause_confirmation.take() {
                    // The requester may be gone.
                    paused.send(()).ok();
                }
            }
            ListingEvent::Guard(GuardEvent::Ended(end)) => {
                self.captured.end = end;
                self.read_to_end().await;
                return true;
            }
            ListingEvent::Output => {
                if self.read_outputs() {
                    self.fail(CaptureError::TooLong).await;
                }
            }
            ListingEvent::Deadline => self.fail(CaptureError::TimedOut(self.budget.limit)).await,
            ListingEvent::GuardOverdue => {
                self.guard_kill_at = None;
                self.guard.control.kill();
            }
        }
        false
    }

    async fn fail(&mut self, failure: CaptureError) {
        if self.failure.is_none() {
            self.failure = Some(failure);
            self.guard_kill_at = Some(Instant::now() + GUARD_KILL_DELAY);
            self.guard.control.send(ToGuard::Kill).await;
        }
    }

    /// Reads the available output; returns whether it exceeds the limit.
    fn read_outputs(&mut self) -> bool {
        let GuardedProcess { stdout, stderr, channel, .. } = &mut self.guard;
        if let PipeRead::Bytes(count) = stdout.try_read(&mut self.buffer)
            && self.captured.stdout.len() <= STDOUT_LIMIT_BYTES
        {
            self.captured.stdout.extend_from_slice(&self.buffer[..count]);
        }
        if let PipeRead::Bytes(count) = stderr.try_read(&mut self.buffer) {
            let room = STDERR_LIMIT_BYTES.saturating_sub(self.captured.stderr.len());
            self.captured.stderr.extend_from_slice(&self.buffer[..count.min(room)]);
        }
        if let Some(channel) = channel {
            channel.send(Vec::new());
            if let PipeRead::Bytes(count) = channel.try_read(&mut self.buffer)
                && self.captured.channel.len() <= STDOUT_LIMIT_BYTES
            {
                self.captured.channel.extend_from_slice(&self.buffer[..count]);
            }
        }
        self.captured.stdout.len().max(self.captured.channel.len()) > STDOUT_LIMIT_BYTES
    }

    async fn read_to_end(&mut self) {
        let deadline = Instant::now() + OUTPUT_DRAIN_TIMEOUT;
        loop {
            if self.read_outputs() {
                self.failure.get_or_insert(CaptureError::TooLong);
            }
            let GuardedProcess { stdout, stderr, channel, .. } = &self.guard;
            let is_channel_open = channel.as_ref().is_some_and(|channel| !channel.is_at_end());
            if stdout.is_at_end() && stderr.is_at_end() && !is_channel_open {
                return;
            }
            if timeout_at(deadline, wait_readable(stdout, stderr, channel.as_ref())).await.is_err()
                || Instant::now() >= deadline
            {
                return;
            }
        }
    }
}

async fn wait_readable(stdout: &OutputPipe, stderr: &OutputPipe, channel: Option<&ReportChannel>) {
    tokio::select! {
        () = stdout.wait_readable() => {}
        () = stderr.wait_readable() => {}
        () = report_channel::wait_ready(channel) => {}
    }
}
