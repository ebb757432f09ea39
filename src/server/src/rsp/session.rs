//! One client connection. A single task waits for the client's messages, the scheduler, and room in the
//! client's connection.
//!
//! Every request is answered at once, in order of arrival. Later events are sent as notifications. There is
//! no handshake, and a client may stay silent for any time.

mod dispatch;
mod runs;

use std::time::Duration;

use heeler_protocol::{
    frame::FrameDecoder,
    rpc,
    rsp::{self, BODY_LIMIT_BYTES, ServerNotification},
};
use tokio::sync::mpsc;

use self::runs::{SuiteRunEvent, SuiteRuns};
use crate::{
    listen::{
        ClientStream, LinkEvent, LinkLimits, SessionCommand, SessionEnd, SessionLink, SessionOptions,
        await_end,
    },
    run::ReportFileWriter,
    scheduler::{SchedulerGone, SchedulerHandle},
};

/// While this many frames are queued, the session reads no client messages and no scheduler events. A client
/// that does not read slows its runs down but loses nothing.
const MAX_QUEUED_FRAMES: usize = 256;
/// Time limit for receiving a message's headers. Short, because the next client waits for this one to leave.
const HEADERS_DEADLINE: Duration = Duration::from_secs(10);
/// Time limit for cancelled runs to end, on top of the tests' grace period.
const CANCEL_DEADLINE: Duration = Duration::from_secs(10);
/// Time limit for ending all processes and sending queued frames at the end of the session.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(3);

pub(super) struct RspSession {
    /// The link is ending once the owner has ended the session and its runs are being cancelled.
    link: SessionLink<FrameDecoder>,
    runs: SuiteRuns,
    grace_period: Duration,
    reports: ReportFileWriter,
}

enum RspEvent {
    Link(LinkEvent<FrameDecoder>),
    Run(SuiteRunEvent),
}

/// Whether the session continues after an event.
enum Continuation {
    Serve,
    End(SessionEnd),
}

impl RspSession {
    pub(super) fn new(
        stream: ClientStream,
        options: SessionOptions,
        scheduler: SchedulerHandle,
        commands: mpsc::Receiver<SessionCommand>,
    ) -> Self {
        let limits = LinkLimits {
            head: Some(HEADERS_DEADLINE),
            stall: Some(options.settings.run.client_stall_timeout),
            unsent_frames: MAX_QUEUED_FRAMES,
            ..LinkLimits::default()
        };
        let decoder = FrameDecoder::with_limit(BODY_LIMIT_BYTES);
        let reports = ReportFileWriter::new(&options.settings.run.reports);
        Self {
            link: SessionLink::open(stream, decoder, commands, limits),
            grace_period: options.settings.run.grace_period,
            runs: SuiteRuns::new(options, scheduler, reports.clone()),
            reports,
        }
    }

    /// Serves the client until the session ends. Returns when all of the session's work has ended.
    ///
    /// Cancel safe: no, because processes would be left to detect the end by themselves.
    pub(super) async fn serve(mut self) -> SessionEnd {
        let end = loop {
            let event = self.next_event().await;
            match self.on_event(event).await {
                Ok(Continuation::Serve) => {}
                Ok(Continuation::End(end)) => break end,
                Err(gone) => {
                    tracing::error!(error = heeler_core::error_chain(&gone), "session aborted");
                    let ended = self.runs.fail_all("internal error in Heeler; see its standard error");
                    self.queue(ended);
                    break SessionEnd::Exit;
                }
            }
            if self.link.is_ending() && self.runs.is_idle() {
                break SessionEnd::Exit;
            }
        };
        // From now on, another client may be served.
        self.link.refuse_commands();
        self.shut_down(end).await;
        end
    }

    async fn next_event(&mut self) -> RspEvent {
        let has_room = self.link.output.unsent() < MAX_QUEUED_FRAMES;
        // Polled in random order, so that a flood of one kind of event does not starve the others.
        tokio::select! {
            event = self.link.next_event(true) => RspEvent::Link(event),
            event = self.runs.next_event(has_room) => RspEvent::Run(event),
        }
    }

    async fn on_event(&mut self, event: RspEvent) -> Result<Continuation, SchedulerGone> {
        match event {
            RspEvent::Link(event) => return self.on_link_event(event).await,
            RspEvent::Run(event) => {
                let notifications = self.runs.on_event(event).await?;
                self.queue(notifications);
            }
        }
        Ok(Continuation::Serve)
    }

    async fn on_link_event(&mut self, event: LinkEvent<FrameDecoder>) -> Result<Continuation, SchedulerGone> {
        match event {
            // Keep reading what the client sent: it may have requested a shutdown before it disconnected.
            LinkEvent::Sent | LinkEvent::Unwritable => {}
            LinkEvent::Message(body) => match rsp::read_message(&body) {
                Ok(message) => return self.on_message(message).await,
                Err(invalid) => self.link.output.queue(rpc::encode_error(&invalid.id, &invalid.error)),
            },
            LinkEvent::InputEnded => return Ok(Continuation::End(SessionEnd::Disconnected)),
            LinkEvent::Unreadable(error) => {
                tracing::error!("connection closed: failed to {}", heeler_core::error_chain(&error));
                return Ok(Continuation::End(SessionEnd::Disconnected));
            }
            LinkEvent::Command(SessionCommand::Exit) => self.begin_end().await?,
            LinkEvent::Command(SessionCommand::Pause(done)) => self.runs.pause(done).await?,
            LinkEvent::Command(SessionCommand::Resume) => self.runs.resume().await?,
            LinkEvent::EndTimedOut => {
                tracing::warn!("cancelled runs did not finish in time");
                let ended = self.runs.fail_all("the run did not finish in time");
                self.queue(ended);
                return Ok(Continuation::End(SessionEnd::Exit));
            }
            LinkEvent::Over(end) => return Ok(Continuation::End(end)),
        }
        Ok(Continuation::Serve)
    }

    /// Cancels all runs. The session ends once they have ended.
    async fn begin_end(&mut self) -> Result<(), SchedulerGone> {
        if !self.link.is_ending() {
            self.link.end_within(CANCEL_DEADLINE + self.grace_period);
            let notifications = self.runs.cancel_all().await?;
            self.queue(notifications);
        }
        Ok(())
    }

    fn queue(&mut self, notifications: impl IntoIterator<Item = ServerNotification>) {
        notifications.into_iter().for_each(|one| self.link.output.queue(one.frame()));
    }

    /// Ends the session's processes and its connection. Nothing is sent to a client that is gone.
    async fn shut_down(self, end: SessionEnd) {
        let Self { link, runs, reports, .. } = self;
        let last_words = async {
            if end != SessionEnd::Disconnected {
                link.finish(SHUTDOWN_DEADLINE).await;
            }
        };
        let left = await_end("the processes of a session", SHUTDOWN_DEADLINE, runs.leave());
        tokio::join!(left, last_words);
        reports.finish().await;
    }
}
