//! One client session, from the first byte to the last. The session reads and dispatches messages; the
//! [`OpenRequests`] executes them.
//!
//! Response order: discovery and run requests get their response when they are done, all others at once.

use std::{
    collections::{HashMap, VecDeque},
    future::pending,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use heeler_protocol::{
    frame::FrameDecoder,
    mtp::{CancelParams, CancelRunParams, InitializeParams, LogLevel, log_frame, method},
    rpc::{self, RequestId, RpcError, RpcMessage, code},
};
use heeler_transport::{Inbox, LinkTask, Outbox, TrySendError};
use serde_json::value::RawValue;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::{
    debugger::{ClientResponse, DebugSession, DebuggerRequests},
    ending::{EndOrder, SessionPhase},
    initialize, params,
    requests::{JobKind, OpenRequests, RequestCommand, RequestContext, RequestJob},
    stall_watch::StallWatch,
};
use crate::listen::{ClientStream, SessionCommand, SessionEnd, SessionOptions};
use crate::pool::ProcessExitWatch;
use crate::run::ReportWriter;
use crate::scheduler::{ClientRegistration, SchedulerHandle, UpdateDelivery};

/// Maximum number of open requests. A client that opens more does not keep track of them.
const MAX_OPEN_REQUESTS: usize = 64;
/// Capacity of the command queue to the requests: for each request its start and one cancel, and the pauses
/// of an impatient user.
const COMMAND_QUEUE_CAPACITY: usize = 2 * MAX_OPEN_REQUESTS + 16;
/// Capacity of the queue of client responses: one for each open request of the server.
/// Responses beyond that match no request.
const RESPONSE_QUEUE_CAPACITY: usize = MAX_OPEN_REQUESTS;
/// Time limit for the responses to cancelled requests, and then for the end of their processes, each beyond the
/// tests' grace period.
const EXIT_DEADLINE: Duration = Duration::from_secs(10);
/// Time limit for ending all processes after the client is gone.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(3);

/// Time limit for a message's headers, which are a few dozen bytes and written at once. Between messages, and
/// in the middle of a long body, a client has unlimited time.
const HEADERS_DEADLINE: Duration = Duration::from_secs(60);

/// A session with one client.
pub(super) struct ServerSession {
    inbox: Inbox<FrameDecoder>,
    client: Outbox,
    task: LinkTask,
    /// Responses that do not fit into the outbox because the client does not read. Until they are sent,
    /// nothing more is read from the client, but its owner's commands and the death of watched processes are
    /// still handled.
    unsent: VecDeque<Bytes>,
    options: SessionOptions,
    is_initialized: bool,
    phase: SessionPhase,
    /// Deadline for the responses to cancelled requests.
    cancel_deadline: Option<Instant>,
    /// Requests of the method `exit`, which are answered last.
    exit_requests: Vec<RequestId>,
    /// Deadline for `initialize`.
    initialize_deadline: Option<Instant>,
    commands: Option<mpsc::Sender<RequestCommand>>,
    /// The client's responses to requests of the server.
    client_responses: Option<mpsc::Sender<ClientResponse>>,
    finished_requests: mpsc::Receiver<RequestId>,
    finished_requests_sender: Option<mpsc::Sender<RequestId>>,
    /// Requests without a response so far.
    open_requests: HashMap<RequestId, OpenRequest>,
    /// The task that executes the requests.
    requests: JoinSet<()>,
    scheduler: SchedulerHandle,
    /// Whether the client reads.
    stall_watch: StallWatch,
    /// Processes whose death ends the session.
    watched_processes: Vec<ProcessExitWatch>,
    /// Writes the report files of completed runs; the session waits for them at its end.
    reports: ReportWriter,
}

/// A request without a response so far.
struct OpenRequest {
    run_id: String,
    is_cancelled: bool,
}

enum SessionEvent {
    /// A queued response was sent.
    Sent,
    Message(Result<RpcMessage, rpc::InvalidMessage>),
    Disconnected,
    /// The client has not initialized in time.
    InitializeTimedOut,
    /// Cancelled requests have not ended in time.
    CancelTimedOut,
    RequestFinished(RequestId),
    RequestsEnded,
    Command(SessionCommand),
    ParentDied,
    /// It is time to check whether the client reads.
    StallCheck,
}

impl ServerSession {
    /// Begins a session on a connection.
    pub(super) fn new(stream: ClientStream, options: SessionOptions, scheduler: SchedulerHandle) -> Self {
        let (client, mut inbox, task) = heeler_transport::open(stream, FrameDecoder::default());
        inbox.limit_heads(HEADERS_DEADLINE);
        let (done_sender, done) = mpsc::channel(MAX_OPEN_REQUESTS);
        let mut session = Self {
            inbox,
            client,
            task,
            unsent: VecDeque::new(),
            is_initialized: false,
            phase: SessionPhase::Serving,
            cancel_deadline: None,
            exit_requests: Vec::new(),
            initialize_deadline: options.initialize_within.map(|limit| Instant::now() + limit),
            commands: None,
            client_responses: None,
            finished_requests: done,
            finished_requests_sender: Some(done_sender),
            open_requests: HashMap::new(),
            requests: JoinSet::new(),
            scheduler,
            stall_watch: StallWatch::new(options.settings.run.client_stall_timeout),
            watched_processes: Vec::new(),
            reports: ReportWriter::new(&options.settings.run.reports),
            options,
        };
        session.watch_process(session.options.exit_with);
        session
    }

    /// Serves the client until the session ends; nothing of the session is left when this returns.
    ///
    /// Cancel safe: no, because processes would be left to detect the end by themselves.
    pub(super) async fn serve(mut self, mut commands: mpsc::Receiver<SessionCommand>) -> SessionEnd {
        let end = loop {
            let event = self.next_event(&mut commands).await;
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

    /// Handles an event; returns the end of the session if it ends at once.
    fn on_event(&mut self, event: SessionEvent) -> Option<SessionEnd> {
        match event {
            SessionEvent::Message(Ok(message)) => self.on_message(message),
            SessionEvent::Message(Err(invalid)) => self.send(rpc::encode_error(&invalid.id, &invalid.error)),
            SessionEvent::Sent => {}
            SessionEvent::Disconnected => return Some(SessionEnd::Disconnected),
            SessionEvent::InitializeTimedOut => {
                tracing::warn!("a client did not initialize in time, and its connection is closed");
                return Some(SessionEnd::Disconnected);
            }
            SessionEvent::CancelTimedOut => {
                tracing::warn!("cancelled requests did not end in time");
                return Some(SessionEnd::Disconnected);
            }
            SessionEvent::RequestFinished(id) => drop(self.open_requests.remove(&id)),
            SessionEvent::RequestsEnded => self.on_requests_ended(),
            SessionEvent::Command(SessionCommand::Exit) => self.on_end_order(EndOrder::OwnerExit),
            SessionEvent::Command(SessionCommand::Pause(done)) => self.pause(done),
            SessionEvent::Command(SessionCommand::Resume) => self.resume(),
            SessionEvent::ParentDied => return Some(SessionEnd::ParentDied),
            SessionEvent::StallCheck => {
                if self.stall_watch.is_stalled(&self.client, !self.unsent.is_empty()) {
                    tracing::warn!("a client has stopped reading, and its connection is closed");
                    return Some(SessionEnd::Disconnected);
                }
            }
        }
        None
    }

    fn on_end_order(&mut self, order: EndOrder) {
        self.phase = self.phase.after(order);
        if self.phase == SessionPhase::Cancelling && self.cancel_deadline.is_none() {
            self.cancel(|_, _| true);
            self.cancel_deadline =
                Some(Instant::now() + EXIT_DEADLINE + self.options.settings.run.grace_period);
        }
    }

    async fn next_event(&mut self, commands: &mut mpsc::Receiver<SessionCommand>) -> SessionEvent {
        let (first, second) = (self.watched_processes.first(), self.watched_processes.get(1));
        tokio::select! {
            biased;
            Some(command) = commands.recv() => SessionEvent::Command(command),
            Some(id) = self.finished_requests.recv() => SessionEvent::RequestFinished(id),
            Some(ended) = self.requests.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "the requests of a session failed");
                }
                SessionEvent::RequestsEnded
            }
            () = wait_for_death(first) => SessionEvent::ParentDied,
            () = wait_for_death(second) => SessionEvent::ParentDied,
            () = wait_for_deadline(self.initialize_deadline), if !self.is_initialized => SessionEvent::InitializeTimedOut,
            () = wait_for_deadline(self.cancel_deadline) => SessionEvent::CancelTimedOut,
            () = self.stall_watch.next_check() => SessionEvent::StallCheck,
            () = send_first(&self.client, &mut self.unsent), if !self.unsent.is_empty() => SessionEvent::Sent,
            body = self.inbox.next(), if self.unsent.is_empty() => match body {
                Ok(Some(body)) => SessionEvent::Message(rpc::parse(&body)),
                Ok(None) => SessionEvent::Disconnected,
                Err(error) => {
                    tracing::warn!(error = heeler_core::error_chain(&error), "the client's stream can't be read any further");
                    SessionEvent::Disconnected
                }
            },
        }
    }

    fn on_message(&mut self, message: RpcMessage) {
        match message {
            RpcMessage::Request { id, method, params } if method == method::INITIALIZE => {
                self.on_initialize(&id, params.as_deref());
            }
            RpcMessage::Request { id, method, .. } if method == method::EXIT => {
                self.exit_requests.push(id);
                self.on_end_order(EndOrder::ClientExit);
            }
            RpcMessage::Request { id, method, params } => self.on_request(id, &method, params.as_deref()),
            RpcMessage::Notification { method, .. } if method == method::EXIT => {
                self.on_end_order(EndOrder::ClientExit);
            }
            RpcMessage::Notification { method, .. } if requires_response(&method) => {
                let message = format!("expected an id in the request {method:?}: a number or a string");
                let error = RpcError::new(code::INVALID_REQUEST, message);
                self.send(rpc::encode_error(&RequestId::Null, &error));
            }
            RpcMessage::Notification { method, params } if self.is_initialized => {
                self.on_notification(&method, params.as_deref());
            }
            RpcMessage::Response { id, outcome } => {
                if let Some(answers) = &self.client_responses {
                    // A response to an unknown id does no harm.
                    drop(answers.try_send(ClientResponse { id, outcome }));
                }
            }
            // Notifications before `initialize` are dropped.
            RpcMessage::Notification { .. } => {}
        }
    }

    fn on_initialize(&mut self, id: &RequestId, params: Option<&RawValue>) {
        match self.try_initialize(params) {
            Ok(result) => self.send(rpc::encode_result(id, &result)),
            Err(error) => self.send(rpc::encode_error(id, &error)),
        }
    }

    fn try_initialize(
        &mut self,
        params: Option<&RawValue>,
    ) -> Result<heeler_protocol::mtp::InitializeResult, RpcError> {
        if self.is_initialized {
            let message = "the server has already received an initialize request";
            return Err(RpcError::new(code::INVALID_REQUEST, message));
        }
        let params = match params {
            None => InitializeParams::default(),
            Some(raw) => serde_json::from_str(raw.get()).map_err(|error| {
                RpcError::new(code::INVALID_PARAMS, format!("expected the params of initialize: {error}"))
            })?,
        };
        let (facts, result) = initialize::negotiate(params)?;
        self.is_initialized = true;
        self.watch_process(facts.process_id);
        self.start_requests(&facts);
        Ok(result)
    }

    fn watch_process(&mut self, process: Option<u32>) {
        let Some(process) = process.filter(|process| *process != std::process::id()) else { return };
        let Ok(pid) = i32::try_from(process) else { return };
        // The process id of a client on another machine, or in another PID namespace, is meaningless here.
        match ProcessExitWatch::watch(heeler_sys::process::Pid(pid)) {
            Ok(watched) => self.watched_processes.push(watched),
            Err(error) => tracing::debug!(process, %error, "the client's process can't be watched"),
        }
    }

    fn start_requests(&mut self, facts: &initialize::ClientProperties) {
        let Some(finished) = self.finished_requests_sender.take() else { return };
        let (commands, receiver) = mpsc::channel(COMMAND_QUEUE_CAPACITY);
        let (responses, client_responses) = mpsc::channel(RESPONSE_QUEUE_CAPACITY);
        let settings = Arc::clone(&self.options.settings);
        let callback = self.options.callback.clone();
        let registration = ClientRegistration {
            delivery: UpdateDelivery::Frames {
                callback: callback.or_else(|| facts.callback(&self.options.client_host)),
                main_connection: self.client.clone(),
                limits: crate::run::delivery_limits(&settings),
            },
            sources: std::mem::take(&mut self.options.sources),
            list_timeout: settings.run.list_timeout,
        };
        let debuggers = DebuggerRequests::new(
            client_responses,
            DebugSession {
                is_available: facts.testing.debugger_provider,
                is_debug_session: self.options.is_debug,
            },
        );
        let context = RequestContext {
            settings,
            provenance: self.options.provenance.clone(),
            has_attachments_stream: facts.testing.attachments_support,
            log_form: facts.log_form(),
            outbox: self.client.clone(),
            reports: self.reports.clone(),
        };
        let scheduler = self.scheduler.clone();
        self.requests.spawn(async move {
            match scheduler.register(registration).await {
                Ok(client) => OpenRequests::new(context, client, debuggers, finished).serve(receiver).await,
                Err(gone) => {
                    tracing::error!(error = heeler_core::error_chain(&gone), "a session can't begin")
                }
            }
        });
        self.client_responses = Some(responses);
        self.commands = Some(commands);
    }

    fn on_request(&mut self, id: RequestId, method: &str, params: Option<&RawValue>) {
        if let Err(error) = self.enqueue_request(&id, method, params) {
            self.send(rpc::encode_error(&id, &error));
        }
    }

    fn enqueue_request(
        &mut self,
        id: &RequestId,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<(), RpcError> {
        if !self.is_initialized {
            let message = "the server must be initialized before this request can be processed";
            return Err(RpcError::new(code::SERVER_NOT_INITIALIZED, message));
        }
        if !self.phase.accepts_requests() {
            return Err(RpcError::new(code::INVALID_REQUEST, "no request is accepted after exit"));
        }
        let kind = match method {
            method::DISCOVER => JobKind::Discover,
            method::RUN => JobKind::Run,
            _ => {
                let message = format!("the method {method:?} is not supported");
                return Err(RpcError::new(code::METHOD_NOT_FOUND, message));
            }
        };
        if self.open_requests.contains_key(id) {
            let message = format!("a request with id {id} is already open");
            return Err(RpcError::new(code::INVALID_REQUEST, message));
        }
        let request = params::parse_tests_request(params)?;
        let request = if kind == JobKind::Discover { request.for_discovery()? } else { request };
        let may_change_programs = self.options.allows_program_options;
        let request = if may_change_programs { request } else { request.for_other_machine()? };
        if let Some((other, _)) = self.open_requests.iter().find(|(_, open)| open.run_id == request.run_id) {
            let message = format!("the runId {:?} is in use by request {other}", request.run_id);
            return Err(RpcError::new(code::INVALID_PARAMS, message));
        }
        let full =
            || RpcError::new(code::INTERNAL_ERROR, format!("{MAX_OPEN_REQUESTS} requests are open already"));
        if self.open_requests.len() >= MAX_OPEN_REQUESTS {
            return Err(full());
        }
        let broken = || RpcError::new(code::INTERNAL_ERROR, "internal error in Heeler; start a new session");
        let commands = self.commands.as_ref().ok_or_else(broken)?;
        let run_id = request.run_id.clone();
        commands
            .try_send(RequestCommand::Start(Box::new(RequestJob {
                id: id.clone(),
                request,
                kind,
                begun: Instant::now(),
            })))
            .map_err(|_| full())?;
        self.open_requests.insert(id.clone(), OpenRequest { run_id, is_cancelled: false });
        Ok(())
    }

    fn on_notification(&mut self, method: &str, params: Option<&RawValue>) {
        let Some(raw) = params else { return };
        match method {
            method::CANCEL => {
                if let Ok(params) = serde_json::from_str::<CancelParams>(raw.get()) {
                    self.cancel(|id, _| *id == params.id);
                }
            }
            method::CANCEL_RUN => {
                if let Ok(params) = serde_json::from_str::<CancelRunParams>(raw.get()) {
                    self.cancel(|_, open| open.run_id == params.run_id);
                }
            }
            _ => {}
        }
    }

    /// Cancels the open requests that match, each once: a second cancel has no effect.
    fn cancel(&mut self, is_meant: impl Fn(&RequestId, &OpenRequest) -> bool) {
        let Some(commands) = &self.commands else { return };
        for (id, open) in &mut self.open_requests {
            if !open.is_cancelled && is_meant(id, open) {
                // The queue has room for one cancel per open request.
                open.is_cancelled = commands.try_send(RequestCommand::Cancel(id.clone())).is_ok();
            }
        }
    }

    /// Requests a pause. A task that is gone drops the sender, which answers the pause as well.
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

    /// Handles the end of the task of the requests. It ends only with its session; if it ends before, it or the
    /// scheduler has panicked.
    fn on_requests_ended(&mut self) {
        self.commands = None;
        self.send(log_frame(LogLevel::Critical, "internal error in Heeler; see its standard error"));
        for id in std::mem::take(&mut self.open_requests).into_keys() {
            let error = RpcError::new(
                code::INTERNAL_ERROR,
                "internal error in Heeler while it processed this request",
            );
            self.send(rpc::encode_error(&id, &error));
        }
    }

    /// Sends a frame at once, or queues it behind those that wait already.
    fn send(&mut self, frame: Bytes) {
        if !self.unsent.is_empty() {
            return self.unsent.push_back(frame);
        }
        match self.client.try_send(frame) {
            // The reader notices a client that is gone.
            Ok(()) | Err(TrySendError::Closed(_)) => {}
            Err(TrySendError::Full(frame)) => self.unsent.push_back(frame),
        }
    }

    /// Ends all tasks of the session. After `exit`, all requests have their responses; to a client that is gone
    /// nothing is sent.
    async fn shut_down(mut self, end: SessionEnd) {
        self.commands = None;
        // A session that was never initialized has no task that would drop it.
        self.finished_requests_sender = None;
        let deadline = match end {
            SessionEnd::Exit => EXIT_DEADLINE + self.options.settings.run.grace_period,
            SessionEnd::Disconnected | SessionEnd::ParentDied => {
                // Without its client, the scheduler ends the processes of the session.
                self.requests.abort_all();
                SHUTDOWN_DEADLINE
            }
        };
        let drain = async {
            // The results of jobs are not needed any more, but their queue must not fill up.
            tokio::join!(async { while self.finished_requests.recv().await.is_some() {} }, async {
                while self.requests.join_next().await.is_some() {}
            })
        };
        if tokio::time::timeout(deadline, drain).await.is_err() {
            tracing::warn!("the session's requests did not end within {} s", deadline.as_secs());
        }
        self.requests.shutdown().await;
        self.reports.finish().await;
        if end == SessionEnd::Exit {
            for id in std::mem::take(&mut self.exit_requests) {
                self.send(rpc::encode_result(&id, &serde_json::json!({})));
            }
            let leave = async {
                while !self.unsent.is_empty() {
                    send_first(&self.client, &mut self.unsent).await;
                }
                self.client.close();
                self.task.join().await
            };
            let _elapsed = tokio::time::timeout(SHUTDOWN_DEADLINE, leave).await;
        }
    }
}

/// Sends the first queued frame; it stays queued until the link has accepted it.
///
/// Cancel safe: yes, because the frame is removed only after it is sent.
async fn send_first(client: &Outbox, unsent: &mut VecDeque<Bytes>) {
    if let Some(frame) = unsent.front().cloned() {
        // The reader notices a client that is gone.
        let _closed = client.send(frame).await;
        unsent.pop_front();
    }
}

/// Returns whether a method requires a response: without an id, its sender would wait forever.
fn requires_response(method: &str) -> bool {
    [method::INITIALIZE, method::DISCOVER, method::RUN].contains(&method)
}

/// Waits until a deadline; forever without one.
async fn wait_for_deadline(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => pending().await,
    }
}

/// Waits for a process's death; forever without a process.
async fn wait_for_death(process: Option<&ProcessExitWatch>) {
    match process {
        Some(process) => process.wait().await,
        None => pending().await,
    }
}
