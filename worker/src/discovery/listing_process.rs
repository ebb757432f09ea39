//! Runs one listing command to its end and captures its outputs. They are parsed elsewhere.

use std::time::Duration;

use heeler_protocol::control::{ProcessExit, TestCommand};
use tokio::{sync::mpsc, time::Instant};

use crate::process::{
    guard_connection::GuardEvent,
    guard_spawner::GuardSpawner,
    guarded_process::{GuardedProcess, ProcessEvent},
    job_order::JobOrder,
};
use heeler_adapters::AdapterInvocation;
use heeler_core::{GuardLoss, describe::guard_loss_text, error_chain};

/// A listing of 100,000 tests with long names is about 20 MB.
const STDOUT_LIMIT_BYTES: usize = 64 << 20;
/// Standard error of a listing is only shown to users.
const STDERR_LIMIT_BYTES: usize = 1 << 20;

/// Why a listing command has no outputs.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CaptureError {
    #[error("start it: {0}")]
    NotStarted(String),
    #[error("list its tests within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    #[error("list its tests: {}", guard_loss_text(*.0))]
    GuardLost(GuardLoss),
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
    process: GuardedProcess<'a>,
    budget: ListingTimeLimit,
    captured: CapturedListing,
    failure: Option<CaptureError>,
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
    let process = GuardedProcess::start(guards, command, invocation.channel, orders).await;
    let mut process = process.map_err(|error| CaptureError::NotStarted(error_chain(&error)))?;
    process.send_request(invocation.listing_request.clone());
    process.finish_requests();
    let mut listing = ListingProcess { process, budget, captured: CapturedListing::default(), failure: None };
    loop {
        let deadline = listing.failure.is_none().then_some(budget.deadline);
        let event = listing.process.next_event(deadline, true).await;
        if listing.handle_event(event).await {
            break;
        }
    }
    let ListingProcess { process, captured, failure, .. } = listing;
    process.into_handle().reap().await;
    failure.map_or(Ok(captured), Err)
}

impl ListingProcess<'_> {
    /// Handles an event; returns whether it was the end.
    async fn handle_event(&mut self, event: ProcessEvent) -> bool {
        match self.process.apply(event).await {
            Some(ProcessEvent::Order(
                JobOrder::Cancel { .. } | JobOrder::CancelAfterRunningTests { .. } | JobOrder::Kill,
            )) => self.fail(CaptureError::Cancelled).await,
            Some(ProcessEvent::Guard(GuardEvent::NotStarted(error))) => {
                self.failure = Some(CaptureError::NotStarted(error));
                return true;
            }
            Some(ProcessEvent::Guard(GuardEvent::Ended(end))) => {
                self.captured.end = end;
                self.read_to_end().await;
                return true;
            }
            Some(ProcessEvent::Guard(GuardEvent::Lost)) => {
                // A process that was ordered to end has ended for that reason.
                if self.failure.is_none() {
                    self.failure = Some(CaptureError::GuardLost(self.process.guard_loss().await));
                }
                return true;
            }
            Some(ProcessEvent::Output) => {
                if self.read_outputs() {
                    self.fail(CaptureError::TooLong).await;
                }
            }
            Some(ProcessEvent::Deadline) => self.fail(CaptureError::TimedOut(self.budget.limit)).await,
            // Listings are neither debugged nor traced, and have no memory limit.
            Some(ProcessEvent::Order(_) | ProcessEvent::Guard(_) | ProcessEvent::GuardOverdue) | None => {}
        }
        false
    }

    async fn fail(&mut self, failure: CaptureError) {
        if self.failure.is_none() {
            self.failure = Some(failure);
            self.process.terminate(0).await;
        }
    }

    /// Reads the available output; returns whether it exceeds the limit.
    fn read_outputs(&mut self) -> bool {
        let CapturedListing { stdout, stderr, channel, .. } = &mut self.captured;
        let read = self.process.read_outputs(|reports| {
            append_up_to(STDOUT_LIMIT_BYTES + 1, channel, reports);
            Vec::new()
        });
        append_up_to(STDOUT_LIMIT_BYTES + 1, stdout, read.stdout);
        append_up_to(STDERR_LIMIT_BYTES, stderr, read.stderr);
        stdout.len().max(channel.len()) > STDOUT_LIMIT_BYTES
    }

    async fn read_to_end(&mut self) {
        loop {
            if self.read_outputs() {
                self.failure.get_or_insert(CaptureError::TooLong);
            }
            if !self.process.wait_for_remaining_output().await {
                return;
            }
        }
    }
}

/// Appends the bytes as far as the limit allows.
fn append_up_to(limit: usize, captured: &mut Vec<u8>, bytes: &[u8]) {
    let room = limit.saturating_sub(captured.len());
    captured.extend_from_slice(&bytes[..bytes.len().min(room)]);
}
