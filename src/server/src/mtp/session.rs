//! One client session. The session reads messages, `dispatch` handles them, and a separate task executes the
//! open requests (`requests`).
//!
//! Discovery and run requests are answered when they are done, all other requests at once.

mod dispatch;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, net::IpAddr, time::Duration};

use heeler_protocol::{
    frame::{FrameDecoder, FrameError},
    mtp::{LogLevel, LogMessage, log_frame, log_frames},
    rpc::{self, RequestId, RpcError, code},
};
use heeler_sys::process::is_no_such_process;
use heeler_transport::LinkError;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
};

use super::{
    debugger::DebuggerResponse,
    ending::{EndOrder, SessionPhase},
    initialize::ClientProperties,
    requests::RequestCommand,
};
use crate::listen::{
    ClientStream, LinkEvent, LinkLimits, SessionCommand, SessionEnd, SessionLink, SessionOptions, await_end,
};
use crate::pool::MainBarriers;
use crate::run::ReportFileWriter;
use crate::scheduler::SchedulerHandle;

/// Maximum number of open requests. A client that exceeds it probably doesn't track its requests.
const MAX_OPEN_REQUESTS: usize = 64;
/// Time limit for the responses to cancelled requests, and then again for the end of their processes. Each is
/// on top of the tests' grace period.
const EXIT_DEADLINE: Duration = Duration::from_secs(10);
/// Time limit for ending all processes after the client is gone.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(3);
/// Time limit for receiving a message's headers.
const HEADERS_DEADLINE: Duration = Duration::from_secs(60);

pub(super) struct ServerSession {
    link: SessionLink<FrameDecoder>,
    options: SessionOptions,
    /// Set once the client is initialized.
    client_properties: Option<ClientProperties>,
    phase: SessionPhase,
    /// Ids of `exit` requests, which are answered last.
    exit_requests: Vec<RequestId>,
    commands: Option<mpsc::Sender<RequestCommand>>,
    /// Barriers on this connection, answered by the client.
    main_barriers: MainBarriers,
    /// Passes the client's responses to the task of the requests.
    client_responses: Option<mpsc::Sender<DebuggerResponse>>,
    finished_requests: mpsc::Receiver<RequestId>,
    finished_requests_sender: Option<mpsc::Sender<RequestId>>,
    /// Requests without a response so far.
    open_requests: HashMap<RequestId, OpenTestRequest>,
    /// The task that executes the requests.
    requests: JoinSet<()>,
    /// Notifies the client of changed programs, if it asked for that.
    program_watch: JoinSet<()>,
    scheduler: SchedulerHandle,
    /// A process whose death ends the session, if it was already dead when we started watching it.
    dead_process: Option<u32>,
    /// Whether to send queued messages before closing, although the client did not request the end.
    has_last_message: bool,
    /// Writes the report files of completed runs. The session waits for them at its end.
    reports: ReportFileWriter,
}

struct OpenTestRequest {
    run_id: String,
    is_cancelled: bool,
}

enum MtpEvent {
    Link(LinkEvent<FrameDecoder>),
    RequestFinished(RequestId),
    RequestsEnded,
}

impl ServerSession {
    pub(super) fn new(
        stream: ClientStream,
        options: SessionOptions,
        scheduler: SchedulerHandle,
        commands: mpsc::Receiver<SessionCommand>,
    ) -> Self {
        let limits = LinkLimits {
            head: Some(HEADERS_DEADLINE),
            stall: Some(options.settings.run.client_stall_timeout),
            begin: options.initialize_within,
            not_begun: "did not initialize",
            // Read nothing more while a response waits to be sent.
            unsent_frames: 1,
        };
        let (done_sender, done) = mpsc::channel(MAX_OPEN_REQUESTS);
        let mut session = Self {
            link: SessionLink::open(stream, FrameDecoder::default(), commands, limits),
            client_properties: None,
            phase: SessionPhase::Serving,
            exit_requests: Vec::new(),
            commands: None,
            main_barriers: MainBarriers::new(crate::run::delivery_limits(&options.settings)),
            client_responses: None,
            finished_requests: done,
            finished_requests_sender: Some(done_sender),
            open_requests: HashMap::new(),
            requests: JoinSet::new(),
            program_watch: JoinSet::new(),
            scheduler,
            dead_process: None,
            has_last_message: false,
            reports: ReportFileWriter::new(&options.settings.run.reports),
            options,
        };
        session.watch_process(session.options.exit_with);
        session
    }

    /// Serves the client until the session ends. Returns when all of the session's work has ended.
    ///
    /// Cancel safe: no, because processes would be left to detect the end by themselves.
    pub(super) async fn serve(mut self) -> SessionEnd {
        let end = loop {
            if let Some(process) = self.dead_process {
                tracing::error!("{}", dead_process_text(process));
                self.has_last_message = true;
                break SessionEnd::ParentDied;
            }
            let event = self.next_event().await;
            if let Some(end) = self.on_event(event) {
                break end;
            }
            if self.phase.is_over(self.open_requests.len()) {
                break SessionEnd::Exit;
            }
        };
        let reported = self.phase.reported_end(end);
        self.shut_down(end).await;
        reported
    }

    /// Handles an event. Returns how the session ended if it ends at once.
    fn on_event(&mut self, event: MtpEvent) -> Option<SessionEnd> {
        match event {
            MtpEvent::RequestFinished(id) => drop(self.open_requests.remove(&id)),
            MtpEvent::RequestsEnded => self.on_requests_ended(),
            MtpEvent::Link(event) => return self.on_link_event(event),
        }
        None
    }

    fn on_link_event(&mut self, event: LinkEvent<FrameDecoder>) -> Option<SessionEnd> {
        match event {
            LinkEvent::Message(body) => match rpc::parse(&body) {
                Ok(message) => self.on_message(message),
                Err(invalid) => self.link.output.send(rpc::encode_error(&invalid.id, &invalid.error)),
            },
            LinkEvent::Sent | LinkEvent::Unwritable => {}
            LinkEvent::InputEnded => return Some(SessionEnd::Disconnected),
            LinkEvent::Unreadable(error) => {
                self.on_unreadable_stream(&error);
                return Some(SessionEnd::Disconnected);
            }
            LinkEvent::EndTimedOut => {
                tracing::warn!("cancelled requests did not finish in time");
                return Some(SessionEnd::Disconnected);
            }
            LinkEvent::Command(SessionCommand::Exit) => self.on_end_order(EndOrder::OwnerExit),
            LinkEvent::Command(SessionCommand::Pause(done)) => self.pause(done),
            LinkEvent::Command(SessionCommand::Resume) => self.resume(),
            LinkEvent::Over(end) => return Some(end),
        }
        None
    }

    /// Reports a broken frame, which makes the rest of the stream unreadable. A broken connection is only
    /// logged locally, since nothing can be sent over it.
    fn on_unreadable_stream(&mut self, error: &LinkError<FrameError>) {
        let text = format!("session ended: failed to {}", heeler_core::error_chain(error));
        if let LinkError::Read(_) = error {
            tracing::warn!("{text}");
            return;
        }
        tracing::error!("{text}");
        self.has_last_message = true;
        self.log(LogLevel::Error, text);
    }

    /// Logs a message that is not about a test. Dropped before `initialize`, when the log form is unknown.
    fn log(&mut self, level: LogLevel, message: String) {
        let Some(form) = self.client_properties.as_ref().map(ClientProperties::log_form) else { return };
        for frame in log_frames(form, None, vec![LogMessage::new(level, message)]) {
            self.link.output.send(frame);
        }
    }

    fn on_end_order(&mut self, order: EndOrder) {
        self.phase = self.phase.after(order);
        if self.phase == SessionPhase::Cancelling && !self.link.is_ending() {
            self.cancel(|_, _| true);
            self.link.end_within(EXIT_DEADLINE + self.options.settings.run.grace_period);
        }
    }

    async fn next_event(&mut self) -> MtpEvent {
        tokio::select! {
            // Handle finished requests first: a client may reuse the ids of an answered request.
            biased;
            Some(id) = self.finished_requests.recv() => MtpEvent::RequestFinished(id),
            Some(ended) = self.requests.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "internal error while serving the requests of a session");
                }
                MtpEvent::RequestsEnded
            }
            event = self.link.next_event(true) => MtpEvent::Link(event),
        }
    }

    fn watch_process(&mut self, process: Option<u32>) {
        let Some(process) = process.filter(|process| ![0, std::process::id()].contains(process)) else {
            return;
        };
        if !self.options.settings.run.is_client_watched {
            return;
        }
        match self.link.watch_process(process) {
            Ok(()) => {}
            // The process id of a client on another machine is meaningless here.
            Err(error) if is_no_such_process(&error) && is_this_machine(&self.options.client_host) => {
                self.dead_process = Some(process);
            }
            Err(error) => tracing::debug!(process, %error, "cannot watch the client's process"),
        }
    }

    /// Requests a pause. If the task is gone, dropping `done` answers the caller as well.
    fn pause(&self, done: oneshot::Sender<()>) {
        if let Some(commands) = &self.commands {
            let _full = commands.try_send(RequestCommand::Pause(done));
        }
    }

    fn resume(&self) {
        if let Some(commands) = &self.commands {
            let _full = commands.try_send(RequestCommand::Resume);
        }
    }

    /// Handles an early end of the request task. It normally ends with the session, so it or the scheduler
    /// has panicked.
    fn on_requests_ended(&mut self) {
        self.commands = None;
        self.link
            .output
            .send(log_frame(LogLevel::Critical, "internal error in Heeler; see its standard error"));
        for id in std::mem::take(&mut self.open_requests).into_keys() {
            let error = RpcError::new(
                code::INTERNAL_ERROR,
                "internal error in Heeler while it processed this request",
            );
            self.link.output.send(rpc::encode_error(&id, &error));
        }
    }

    /// Ends all tasks of the session. After `exit`, all requests are answered first; nothing is sent to a
    /// client that is gone.
    async fn shut_down(mut self, end: SessionEnd) {
        self.commands = None;
        self.program_watch.abort_all();
        // Dropped here for a session that was never initialized, which has no task to drop it.
        self.finished_requests_sender = None;
        let deadline = match end {
            SessionEnd::Exit | SessionEnd::Shutdown => EXIT_DEADLINE + self.options.settings.run.grace_period,
            SessionEnd::Disconnected | SessionEnd::ParentDied => {
                self.main_barriers.close();
                // Without its client, the scheduler ends the session's processes.
                self.requests.abort_all();
                SHUTDOWN_DEADLINE
            }
        };
        let drain = async {
            // Finished ids are no longer needed, but their queue must not fill up.
            tokio::join!(async { while self.finished_requests.recv().await.is_some() {} }, async {
                while self.requests.join_next().await.is_some() {}
            })
        };
        await_end("the requests of a session", deadline, drain).await;
        self.requests.shutdown().await;
        self.reports.finish().await;
        if end == SessionEnd::Exit || self.has_last_message {
            for id in std::mem::take(&mut self.exit_requests) {
                self.link.output.send(rpc::encode_result(&id, &serde_json::json!({})));
            }
            self.link.finish(SHUTDOWN_DEADLINE).await;
        }
    }
}

/// Returns the message for a session that ends because its client process is already dead.
fn dead_process_text(process: u32) -> String {
    format!(
        "session ended: the client's process {process} does not exist; if the client runs in another PID namespace, \
         such as a container, set watch-client = false in heeler.toml"
    )
}

/// Returns whether a client's host is this machine.
fn is_this_machine(host: &str) -> bool {
    let is_loopback = host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback());
    is_loopback || host.eq_ignore_ascii_case("localhost")
}
