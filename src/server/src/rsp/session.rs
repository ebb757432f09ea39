//! One client, from the first byte to the last. One task has it all: it waits for the client's messages, for
//! the scheduler and for room in the client's connection.
//!
//! Every request is answered at once, in the order of arrival; what happens later is told by notifications.
//! Nothing is expected before a request, and a client may be silent for any time.

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

/// Number of queued frames above which neither the client nor the scheduler is listened to: a client that
/// does not read slows its runs down, and loses nothing.
const MAX_QUEUED_FRAMES: usize = 256;
/// Time limit for a message's headers: the next client waits for the end of this one.
const HEADERS_DEADLINE: Duration = Duration::from_secs(10);
/// Time limit for the end of cancelled runs, beyond the tests' grace period.
const CANCEL_DEADLINE: Duration = Duration::from_secs(10);
/// Time limit for ending all processes, and for sending what is queued, at the end of the session.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(3);

/// A session with one client.
pub(super) struct RspSession {
    /// It is ending once the owner ends the session: its runs are being cancelled then.
    link: SessionLink<FrameDecoder>,
    runs: SuiteRuns,
    grace_period: Duration,
    reports: ReportFileWriter,
}

enum RspEvent {
    Link(LinkEvent<FrameDecoder>),
    Run(SuiteRunEvent),
}

/// What becomes of the session after an event.
enum Continuation {
    Serve,
    End(SessionEnd),
}

impl RspSession {
    /// Begins a session on a connection.
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

    /// Serves the client until the session ends; nothing of the session is left when this returns.
    ///
    /// Cancel safe: no, because processes would be left to detect the end by themselves.
    pub(super) async fn serve(mut self) -> SessionEnd {
        let end = loop {
            let event = self.next_event().await;
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
            if self.link.is_ending() && self.runs.is_idle() {
                break SessionEnd::Exit;
            }
        };
        // From now on another client may be served.
        self.link.refuse_commands();
        self.shut_down(end).await;
        end
    }

    async fn next_event(&mut self) -> RspEvent {
        let has_room = self.link.output.unsent() < MAX_QUEUED_FRAMES;
        // In random order, so that a flood of one kind of event does not keep the others waiting.
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
            // A client may have ended the server before it was gone: what it sent is still read.
            LinkEvent::Sent | LinkEvent::Unwritable => {}
            LinkEvent::Message(body) => match rsp::read_message(&body) {
                Ok(message) => return self.on_message(message).await,
                Err(invalid) => self.link.output.queue(rpc::encode_error(&invalid.id, &invalid.error)),
            },
            LinkEvent::InputEnded => return Ok(Continuation::End(SessionEnd::Disconnected)),
            LinkEvent::Unreadable(error) => {
                tracing::error!("a connection is closed: failed to {}", heeler_core::error_chain(&error));
                return Ok(Continuation::End(SessionEnd::Disconnected));
            }
            LinkEvent::Command(SessionCommand::Exit) => self.begin_end().await?,
            LinkEvent::Command(SessionCommand::Pause(done)) => self.runs.pause(done).await?,
            LinkEvent::Command(SessionCommand::Resume) => self.runs.resume().await?,
            LinkEvent::EndTimedOut => {
                tracing::warn!("cancelled runs did not end in time");
                let ended = self.runs.fail_all("the run did not end in time");
                self.queue(ended);
                return Ok(Continuation::End(SessionEnd::Exit));
            }
            LinkEvent::Over(end) => return Ok(Continuation::End(end)),
        }
        Ok(Continuation::Serve)
    }

    /// Cancels all runs; the session ends after their ends.
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

    /// Ends all processes of the session and its connection. To a client that is gone nothing is sent.
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
