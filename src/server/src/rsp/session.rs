//! One client, from the first byte to the last. One task has it all: it waits for the client's messages, for
//! the scheduler and for room in the client's connection.
//!
//! Every request is answered at once, in the order of arrival; what happens later is told by notifications.
//! Nothing is expected before a request, and a client may be silent for any time.

mod dispatch;
mod runs;

use std::time::Duration;

use heeler_protocol::{
    frame::{FrameDecoder, FrameError},
    rpc::{self, InvalidMessage, RpcMessage},
    rsp::{self, BODY_LIMIT_BYTES, ServerNotification},
};
use heeler_transport::{Inbox, LinkError};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout},
};

use self::runs::{RunEvent, SuiteRuns};
use crate::{
    listen::{
        ClientStream, SessionCommand, SessionEnd, SessionOptions, SessionOutput, StallWatch,
        wait_for_deadline,
    },
    run::ReportWriter,
    scheduler::{SchedulerGone, SchedulerHandle},
};

/// Number of queued frames above which neither the client nor the scheduler is listened to: a client that
/// does not read slows its runs down, and loses nothing.
const MAX_QUEUED_FRAMES: usize = 256;
/// Time limit for a message's headers, which are a few dozen bytes and written at once: the next client waits
/// for the end of this one. Between messages, and in the middle of a body, a client has unlimited time.
const HEADERS_DEADLINE: Duration = Duration::from_secs(10);
/// Time limit for the end of cancelled runs, beyond the tests' grace period.
const CANCEL_DEADLINE: Duration = Duration::from_secs(10);
/// Time limit for ending all processes, and for sending what is queued, at the end of the session.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(3);

/// A session with one client.
pub(super) struct RspSession {
    inbox: Inbox<FrameDecoder>,
    output: SessionOutput,
    runs: SuiteRuns,
    /// Whether the client reads.
    stall_watch: StallWatch,
    /// Set once the owner ends the session: its runs are being cancelled until then.
    end_deadline: Option<Instant>,
    grace_period: Duration,
    reports: ReportWriter,
}

enum SessionEvent {
    /// The first of the queued frames was sent.
    Sent,
    /// The client can be sent nothing more.
    Unwritable,
    Message(Result<RpcMessage, InvalidMessage>),
    Disconnected,
    /// The client's stream can't be read any further.
    Unreadable(LinkError<FrameError>),
    Run(RunEvent),
    Command(SessionCommand),
    /// Cancelled runs have not ended in time.
    EndTimedOut,
    /// It is time to check whether the client reads.
    StallCheck,
}

/// What becomes of the session after an event.
enum Continuation {
    Serve,
    End(SessionEnd),
}

impl RspSession {
    /// Begins a session on a connection.
    pub(super) fn new(stream: ClientStream, options: SessionOptions, scheduler: SchedulerHandle) -> Self {
        let decoder = FrameDecoder::with_limit(BODY_LIMIT_BYTES);
        let (client, mut inbox, link) = heeler_transport::open(stream, decoder);
        inbox.limit_heads(HEADERS_DEADLINE);
        let reports = ReportWriter::new(&options.settings.run.reports);
        Self {
            inbox,
            output: SessionOutput::new(client, link),
            stall_watch: StallWatch::new(options.settings.run.client_stall_timeout),
            end_deadline: None,
            grace_period: options.settings.run.grace_period,
            runs: SuiteRuns::new(options, scheduler, reports.clone()),
            reports,
        }
    }

    /// Serves the client until the session ends; nothing of the session is left when this returns.
    ///
    /// Cancel safe: no, because processes would be left to detect the end by themselves.
    pub(super) async fn serve(mut self, mut commands: mpsc::Receiver<SessionCommand>) -> SessionEnd {
        let end = loop {
            let event = self.next_event(&mut commands).await;
            match self.on_event(event).await {
                Ok(Continuation::Serve) => {}
                Ok(Continuation::End(end)) => break end,
                Err(gone) => {
                    tracing::error!(error = heeler_core::error_chain(&gone), "a session can't go on");
                    let ended = self.runs.fail_all("internal error in Heeler; see its standard error");
                    self.queue(ended);
                    break SessionEnd::Exit;
                }
            }
            if self.end_deadline.is_some() && self.runs.is_idle() {
                break SessionEnd::Exit;
            }
        };
        // From now on another client may be served.
        commands.close();
        self.shut_down(end).await;
        end
    }

    async fn next_event(&mut self, commands: &mut mpsc::Receiver<SessionCommand>) -> SessionEvent {
        let has_room = self.output.unsent() < MAX_QUEUED_FRAMES;
        // In random order, so that a flood of one kind of event does not keep the others waiting.
        tokio::select! {
            Some(command) = commands.recv() => SessionEvent::Command(command),
            () = wait_for_deadline(self.end_deadline) => SessionEvent::EndTimedOut,
            () = self.stall_watch.next_check() => SessionEvent::StallCheck,
            is_open = self.output.send_first(), if self.output.has_unsent() => {
                if is_open { SessionEvent::Sent } else { SessionEvent::Unwritable }
            }
            body = self.inbox.next(), if has_room => match body {
                Ok(Some(body)) => SessionEvent::Message(rsp::read_message(&body)),
                Ok(None) => SessionEvent::Disconnected,
                Err(error) => SessionEvent::Unreadable(error),
            },
            event = self.runs.next_event(has_room) => SessionEvent::Run(event),
        }
    }

    async fn on_event(&mut self, event: SessionEvent) -> Result<Continuation, SchedulerGone> {
        match event {
            SessionEvent::Sent => {}
            // A client may have ended the server before it was gone: what it sent is still read.
            SessionEvent::Unwritable => self.output.clear(),
            SessionEvent::Message(Ok(message)) => return self.on_message(message).await,
            SessionEvent::Message(Err(invalid)) => {
                self.output.queue(rpc::encode_error(&invalid.id, &invalid.error));
            }
            SessionEvent::Disconnected => return Ok(Continuation::End(SessionEnd::Disconnected)),
            SessionEvent::Unreadable(error) => {
                tracing::error!("a connection is closed: failed to {}", heeler_core::error_chain(&error));
                return Ok(Continuation::End(SessionEnd::Disconnected));
            }
            SessionEvent::Run(event) => {
                let notifications = self.runs.on_event(event).await?;
                self.queue(notifications);
            }
            SessionEvent::Command(SessionCommand::Exit) => self.begin_end().await?,
            SessionEvent::Command(SessionCommand::Pause(done)) => self.runs.pause(done).await?,
            SessionEvent::Command(SessionCommand::Resume) => self.runs.resume().await?,
            SessionEvent::EndTimedOut => {
                tracing::warn!("cancelled runs did not end in time");
                let ended = self.runs.fail_all("the run did not end in time");
                self.queue(ended);
                return Ok(Continuation::End(SessionEnd::Exit));
            }
            SessionEvent::StallCheck => {
                if self.output.is_stalled(&mut self.stall_watch) {
                    tracing::warn!("a client has stopped reading, and its connection is closed");
                    return Ok(Continuation::End(SessionEnd::Disconnected));
                }
            }
        }
        Ok(Continuation::Serve)
    }

    /// Cancels all runs; the session ends after their ends.
    async fn begin_end(&mut self) -> Result<(), SchedulerGone> {
        if self.end_deadline.is_none() {
            self.end_deadline = Some(Instant::now() + CANCEL_DEADLINE + self.grace_period);
            let notifications = self.runs.cancel_all().await?;
            self.queue(notifications);
        }
        Ok(())
    }

    fn queue(&mut self, notifications: impl IntoIterator<Item = ServerNotification>) {
        notifications.into_iter().for_each(|one| self.output.queue(one.frame()));
    }

    /// Ends all processes of the session and its connection. To a client that is gone nothing is sent.
    async fn shut_down(self, end: SessionEnd) {
        let Self { output, runs, reports, .. } = self;
        let last_words = async {
            if end != SessionEnd::Disconnected {
                output.finish().await;
            }
        };
        let (left, sent) =
            tokio::join!(timeout(SHUTDOWN_DEADLINE, runs.leave()), timeout(SHUTDOWN_DEADLINE, last_words));
        if left.is_err() {
            tracing::warn!("a session's processes did not end within {} s", SHUTDOWN_DEADLINE.as_secs());
        }
        if sent.is_err() {
            tracing::warn!("a client did not read the end of its session");
        }
        reports.finish().await;
    }
}
