//! Runs one listing command to its end and captures its outputs. The adapters parse them.

use std::time::Duration;

use heeler_protocol::control::{CrashReport, ProcessExit, TestCommand, ToGuard};
use heeler_sys::process::Pid;
use tokio::{sync::mpsc, time::Instant};

use crate::process::{
    guard_connection::GuardEvent,
    guard_spawner::GuardSpawner,
    guarded_process::{DetachedProcess, GuardedProcess, ProcessEvent},
    job_order::JobOrder,
};
use heeler_adapters::{AdapterInvocation, ConnectionInput, ListingDialogue};
use heeler_core::{GuardLoss, describe::guard_loss_text, error_chain};

/// Maximum size kept of each output, since frameworks list on either. A listing of 100,000 tests with long
/// names has about 20 MB.
const OUTPUT_LIMIT_BYTES: usize = 64 << 20;

/// Time limit for a guard to report its process's activity, which it observes for half a second.
const SAMPLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a listing command produced no outputs.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CaptureError {
    #[error("it could not be started: {0}")]
    NotStarted(String),
    #[error("timed out after {} s{}", .limit.as_secs_f64(), awaited_note(*.awaited))]
    TimedOut {
        limit: Duration,
        /// Reply of the dialogue that did not arrive.
        awaited: Option<&'static str>,
    },
    #[error("{}", guard_loss_text(*.0))]
    GuardLost(GuardLoss),
    #[error("its listing exceeds {OUTPUT_LIMIT_BYTES} bytes")]
    TooLong,
    #[error("the run was cancelled")]
    Cancelled,
}

fn awaited_note(awaited: Option<&'static str>) -> String {
    awaited.map_or(String::new(), |awaited| format!(": no answer to {awaited}"))
}

/// The output of a listing command and how it ended.
#[derive(Default)]
pub(crate) struct CapturedListing {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) channel: Vec<u8>,
    pub(crate) end: ProcessExit,
    /// Crash of a traced listing. If several processes crashed, the crash of the listing process itself.
    pub(crate) crash: Option<Box<CrashReport>>,
    /// Why a listing that should have been traced was not.
    pub(crate) untraced_reason: Option<String>,
    /// The process, if it waits for tests to run. `end` is then set as for a successful listing.
    pub(crate) waiting: Option<(DetachedProcess, Pid)>,
}

/// Time limit for listing a program, over all of its commands. Time without a process, or with the process
/// paused, does not count. A program that is working when it reaches the limit gets the same time once more,
/// because a timeout on an overloaded machine is not the program's fault.
#[derive(Debug)]
pub(crate) struct ListingTimeLimit {
    limit: Duration,
    deadline: Instant,
    /// When the clock was stopped, if it is stopped.
    held_since: Option<Instant>,
    is_extended: bool,
}

impl ListingTimeLimit {
    /// Creates a stopped limit. [`ListingTimeLimit::set_held`] starts its clock.
    pub(crate) fn new(limit: Duration, now: Instant) -> Self {
        Self { limit, deadline: now + limit, held_since: Some(now), is_extended: false }
    }

    pub(crate) fn set_held(&mut self, is_held: bool, now: Instant) {
        match (is_held, self.held_since) {
            (true, None) => self.held_since = Some(now),
            (false, Some(since)) => {
                self.deadline += now - since;
                self.held_since = None;
            }
            (true, Some(_)) | (false, None) => {}
        }
    }

    /// Restarts the limit with its full time.
    pub(crate) fn restart(&mut self, now: Instant) {
        *self = Self::new(self.limit, now);
    }

    /// Returns when the limit is reached, or `None` while the clock is stopped.
    fn deadline(&self) -> Option<Instant> {
        self.held_since.is_none().then_some(self.deadline)
    }

    /// Extends the limit. Returns `false` if it was already extended.
    fn extend(&mut self, now: Instant) -> bool {
        let is_first = !std::mem::replace(&mut self.is_extended, true);
        if is_first {
            self.deadline = now + self.limit;
        }
        is_first
    }
}

/// Time for a server to exit after its standard input has ended, before it is terminated.
pub(super) const SERVER_EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// Milliseconds between SIGTERM and SIGKILL for a server that has listed its tests.
pub(super) const SERVER_GRACE_MS: u64 = 2000;

/// A listing dialogue and its clocks.
struct DialogueProgress<'a> {
    dialogue: &'a mut (dyn ListingDialogue + 'static),
    /// When the last request was sent. `None` before the program has started.
    requested_at: Option<Instant>,
    /// When the last reply arrived.
    finished_at: Option<Instant>,
    /// The program was terminated after its last reply.
    is_ended: bool,
}

impl<'a> DialogueProgress<'a> {
    fn new(dialogue: &'a mut (dyn ListingDialogue + 'static)) -> Self {
        Self { dialogue, requested_at: None, finished_at: None, is_ended: false }
    }

    /// Returns when a reply is late, or when a server that is still running must be terminated.
    fn deadline(&self) -> Option<Instant> {
        if self.is_ended {
            return None;
        }
        match self.finished_at {
            Some(finished) => Some(finished + SERVER_EXIT_TIMEOUT),
            None => Some(self.requested_at? + self.dialogue.reply_timeout()?),
        }
    }

    fn on_reply(&mut self, connection: usize, input: ConnectionInput<'_>) -> Vec<u8> {
        let requests = self.dialogue.on_connection(connection, input);
        if !requests.is_empty() {
            self.requested_at = Some(Instant::now());
        }
        requests
    }

    /// Records the end of the dialogue. Returns whether it has just ended.
    fn finish(&mut self, now: Instant) -> bool {
        let has_finished = self.finished_at.is_none() && self.dialogue.awaited_reply().is_none();
        if has_finished {
            self.finished_at = Some(now);
        }
        has_finished
    }
}

struct ListingProcess<'a> {
    process: GuardedProcess<'a>,
    dialogue: Option<DialogueProgress<'a>>,
    time_limit: &'a mut ListingTimeLimit,
    /// Process id and start time of the program, once the guard has started it.
    started: Option<(Pid, Instant)>,
    /// The process has listed its tests and waits for a lease.
    is_waiting: bool,
    /// Deadline for the guard's report on whether a program that reached its time limit is still busy.
    sample_deadline: Option<Instant>,
    captured: CapturedListing,
    failure: Option<CaptureError>,
}

/// Runs one command and captures its outputs.
///
/// Cancel safe: no, because cancelling abandons the process, which its guard then ends.
pub(crate) async fn capture_listing(
    guards: &GuardSpawner,
    command: TestCommand,
    invocation: &AdapterInvocation,
    dialogue: Option<&mut (dyn ListingDialogue + 'static)>,
    time_limit: &mut ListingTimeLimit,
    orders: &mut mpsc::Receiver<JobOrder>,
) -> Result<CapturedListing, CaptureError> {
    let process = GuardedProcess::start(guards, command, invocation.channel, orders).await;
    let mut process = process.map_err(|error| CaptureError::NotStarted(error_chain(&error)))?;
    let mut dialogue = dialogue.map(DialogueProgress::new);
    match &mut dialogue {
        Some(progress) => process.send_request(progress.dialogue.opening_request()),
        None => {
            process.send_request(invocation.listing_request.clone());
            process.finish_requests();
        }
    }
    // Handle events until the process has ended or waits.
    let mut listing = ListingProcess {
        process,
        dialogue,
        time_limit,
        started: None,
        is_waiting: false,
        sample_deadline: None,
        captured: CapturedListing::default(),
        failure: None,
    };
    loop {
        listing.set_held(listing.process.is_paused(), Instant::now());
        let deadline = listing.next_deadline();
        let event = listing.process.next_event(deadline, true).await;
        if listing.handle_event(event).await {
            break;
        }
    }
    let ListingProcess { process, dialogue, time_limit, mut captured, failure, started, is_waiting, .. } =
        listing;
    // A waiting process counts as a successful listing.
    if let (true, Some((root, started_at))) = (is_waiting, started) {
        time_limit.set_held(true, Instant::now());
        captured.end.code = Some(0);
        captured.end.wall_us = u64::try_from(started_at.elapsed().as_micros()).unwrap_or(u64::MAX);
        captured.waiting = Some((process.detach(), root));
        return Ok(captured);
    }
    if dialogue.is_some_and(|progress| progress.is_ended) {
        // A server runs until it is terminated, so its exit status has no meaning.
        (captured.end.signal, captured.end.code) = (None, Some(0));
    }
    time_limit.set_held(true, Instant::now());
    process.into_handle().reap().await;
    failure.map_or(Ok(captured), Err)
}

impl ListingProcess<'_> {
    /// Handles an event. Returns whether the listing has ended.
    async fn handle_event(&mut self, event: ProcessEvent) -> bool {
        match self.process.apply(event).await {
            Some(ProcessEvent::Order(
                JobOrder::Cancel { .. }
                | JobOrder::ReturnTests { .. }
                | JobOrder::CancelAfterRunningTests { .. }
                | JobOrder::Kill,
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
                // If the worker had already ended the process, keep that reason as the failure.
                if self.failure.is_none() {
                    self.failure = Some(CaptureError::GuardLost(self.process.guard_loss().await));
                }
                return true;
            }
            Some(ProcessEvent::Output) => {
                if self.read_outputs() {
                    self.fail(CaptureError::TooLong).await;
                }
                return self.is_waiting;
            }
            Some(ProcessEvent::Deadline) => self.on_deadline().await,
            Some(ProcessEvent::Guard(GuardEvent::Started(root, _))) => {
                self.started = Some((root, Instant::now()));
                if let Some(progress) = &mut self.dialogue {
                    progress.requested_at = Some(Instant::now());
                }
            }
            Some(ProcessEvent::Guard(GuardEvent::Sampled(sample))) => {
                if self.sample_deadline.take().is_some() {
                    let is_working = sample.processes.iter().any(|process| process.is_working);
                    self.on_limit(is_working).await;
                }
            }
            Some(ProcessEvent::Guard(GuardEvent::Crashed(report))) => {
                if report.is_root || self.captured.crash.is_none() {
                    self.captured.crash = Some(report);
                }
            }
            Some(ProcessEvent::Guard(GuardEvent::Untraced(reason))) => {
                self.captured.untraced_reason = Some(reason);
            }
            // Listings are not debugged and have no memory limit.
            Some(
                ProcessEvent::Order(_)
                | ProcessEvent::Guard(_)
                | ProcessEvent::GuardOverdue
                | ProcessEvent::TerminationDue,
            )
            | None => {}
        }
        false
    }

    fn set_held(&mut self, is_held: bool, now: Instant) {
        self.time_limit.set_held(is_held, now);
        if let Some(progress) = self.dialogue.as_mut().filter(|_| is_held) {
            // Restart the program's reply timeout.
            progress.requested_at = Some(now);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        if self.failure.is_some() {
            return None;
        }
        let of_program = self.sample_deadline.or(self.time_limit.deadline());
        of_program.into_iter().chain(self.dialogue_deadline()).min()
    }

    fn dialogue_deadline(&self) -> Option<Instant> {
        self.dialogue.as_ref().filter(|_| !self.process.is_paused())?.deadline()
    }

    /// Handles a passed deadline: of the dialogue, of the program, or of the guard's activity report.
    async fn on_deadline(&mut self) {
        let now = Instant::now();
        if self.dialogue_deadline().is_some_and(|deadline| deadline <= now) {
            self.on_dialogue_deadline(now).await;
            return;
        }
        if self.sample_deadline.take().is_some() || self.started.is_none() {
            // A guard that does not answer is probably waiting for a CPU itself, so assume that the program
            // is working.
            self.on_limit(true).await;
        } else if self.time_limit.is_extended {
            self.on_limit(false).await;
        } else {
            self.sample_deadline = Some(Instant::now() + SAMPLE_TIMEOUT);
            self.process.send(ToGuard::Sample).await;
        }
    }

    async fn on_limit(&mut self, is_working: bool) {
        if !(is_working && self.time_limit.extend(Instant::now())) {
            let awaited = self.dialogue.as_ref().and_then(|progress| progress.dialogue.awaited_reply());
            self.fail(CaptureError::TimedOut { limit: self.time_limit.limit, awaited }).await;
        }
    }

    /// Handles a missing reply with the dialogue's next request, or terminates a server after its last reply.
    async fn on_dialogue_deadline(&mut self, now: Instant) {
        let Some(progress) = &mut self.dialogue else { return };
        if progress.finished_at.is_some() {
            progress.is_ended = true;
            self.process.terminate(SERVER_GRACE_MS).await;
            return;
        }
        progress.requested_at = Some(now);
        let requests = progress.dialogue.on_reply_timeout();
        self.process.send_request(requests);
    }

    async fn fail(&mut self, failure: CaptureError) {
        if self.failure.is_none() {
            self.failure = Some(failure);
            self.process.terminate(0).await;
        }
    }

    /// Reads the available output. Returns whether it exceeds the limit.
    fn read_outputs(&mut self) -> bool {
        let CapturedListing { stdout, stderr, channel, .. } = &mut self.captured;
        let dialogue = &mut self.dialogue;
        let read = self.process.read_outputs(|connection, input| match (&mut *dialogue, input) {
            (Some(progress), input) => progress.on_reply(connection, input),
            (None, input) => {
                append_up_to(OUTPUT_LIMIT_BYTES + 1, channel, input.bytes());
                Vec::new()
            }
        });
        append_up_to(OUTPUT_LIMIT_BYTES + 1, stdout, read.stdout);
        // Drop bytes above the limit: most frameworks list nothing on standard error.
        append_up_to(OUTPUT_LIMIT_BYTES, stderr, read.stderr);
        let is_too_long = stdout.len().max(channel.len()) > OUTPUT_LIMIT_BYTES;
        if let Some(progress) = &mut self.dialogue
            && progress.finish(Instant::now())
        {
            // A process that is being ended or is paused cannot stay for a lease.
            let can_stay = self.failure.is_none() && self.started.is_some() && !self.process.is_paused();
            self.is_waiting = progress.dialogue.is_waiting() && can_stay && !is_too_long;
            if !self.is_waiting {
                if progress.dialogue.is_waiting() {
                    self.process.send_request(progress.dialogue.closing_request());
                }
                self.process.finish_requests();
            }
        }
        is_too_long
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

fn append_up_to(limit: usize, captured: &mut Vec<u8>, bytes: &[u8]) {
    let room = limit.saturating_sub(captured.len());
    captured.extend_from_slice(&bytes[..bytes.len().min(room)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    #[test]
    fn time_without_process_or_in_a_pause_does_not_count() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut limit = ListingTimeLimit::new(LIMIT, start);
        assert_eq!(limit.deadline(), None);
        limit.set_held(false, at(15));
        assert_eq!(limit.deadline(), Some(at(25)));
        limit.set_held(true, at(20));
        limit.set_held(true, at(22));
        assert_eq!(limit.deadline(), None);
        limit.set_held(false, at(50));
        limit.set_held(false, at(52));
        assert_eq!(limit.deadline(), Some(at(55)));
    }

    #[test]
    fn limit_is_extended_once_until_the_listing_restarts() {
        let start = Instant::now();
        let mut limit = ListingTimeLimit::new(LIMIT, start);
        limit.set_held(false, start);
        assert!(limit.extend(start + LIMIT));
        assert_eq!(limit.deadline(), Some(start + 2 * LIMIT));
        assert!(!limit.extend(start + 2 * LIMIT));
        assert_eq!(limit.deadline(), Some(start + 2 * LIMIT));
        limit.restart(start + 3 * LIMIT);
        limit.set_held(false, start + 4 * LIMIT);
        assert_eq!(limit.deadline(), Some(start + 5 * LIMIT));
        assert!(limit.extend(start + 5 * LIMIT));
    }
}
