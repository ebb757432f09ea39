//! The main connection: sends requests, passes responses to the waiting callers and notifications to the
//! event router.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use bytes::Bytes;
use heeler_protocol::{
    frame::FrameDecoder,
    mtp::{
        self, AttachDebuggerParams, CancelParams, ClientCapabilities, ClientTestingCapabilities,
        DebuggerResult, InitializeParams, InitializeResult, PeerInfo, RunResult, TestsParams, method,
    },
    rpc::{self, BorrowedRpcMessage, RequestId, RpcError},
};
use heeler_transport::{Inbox, LinkTask, Outbox};
use serde_json::value::RawValue;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::oneshot,
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};

use super::{
    callback::{self, CallbackListener},
    event_router::EventRouter,
    events::{ClientEvent, EventSource, EventStream},
    start::{ServerStartError, StartedServer},
    test_request::TestRequest,
};

/// Options of a session.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Name of the client, sent to the server.
    pub name: String,
    /// Version of the client, sent to the server.
    pub version: String,
    /// Whether the server's processes may report on separate connections, to a port of this machine.
    pub callback: bool,
    /// Whether this client attaches debuggers. If so, it must respond to [`ClientEvent::AttachDebugger`]
    /// with [`Client::respond_to_debugger`].
    pub debuggers: bool,
    /// Timeout for the server's response to `initialize`, after which starting the session fails.
    pub initialize_limit: Duration,
    /// Timeout from the response to a run until the run's completion, after which the run fails.
    pub completion_limit: Duration,
    /// Timeout for a callback connection to send its token, after which the connection is rejected.
    pub hello_limit: Duration,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            name: "heeler".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            callback: true,
            debuggers: false,
            initialize_limit: Duration::from_secs(30),
            completion_limit: Duration::from_secs(30),
            hello_limit: Duration::from_secs(5),
        }
    }
}

/// Error of a session or of one of its requests.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No server could be started or reached.
    #[error(transparent)]
    Start(ServerStartError),
    /// The callback port could not be opened.
    #[error("listen for callback connections")]
    Listen(#[source] io::Error),
    /// The server did not respond to `initialize` in time.
    #[error("start a session: no response within {limit:?}")]
    InitializeTimedOut {
        /// The exceeded timeout.
        limit: Duration,
    },
    /// The server responded with an error. A cancelled run ends this way, with code -32800.
    #[error("run {method} on the server")]
    Refused {
        /// Method of the request.
        method: &'static str,
        /// The server's error.
        source: RpcError,
    },
    /// The server's response can't be parsed.
    #[error("read the server's response to {method}")]
    InvalidResponse {
        /// Method of the request.
        method: &'static str,
        /// The parse error.
        source: serde_json::Error,
    },
    /// The connection ended before the response.
    #[error("get the response to {method}: {reason}")]
    ConnectionLost {
        /// Method of the request.
        method: &'static str,
        /// Description of the connection's end.
        reason: String,
        /// Whether all results arrived anyway, on callback connections.
        is_complete: bool,
    },
    /// The server responded, but the run's updates were not completed in time.
    #[error("complete run {run_id}: no completion within {limit:?} after the response")]
    CompletionTimedOut {
        /// Id of the run.
        run_id: String,
        /// The exceeded timeout.
        limit: Duration,
    },
    /// The server did not end the session in time after `exit`.
    #[error("end the session: the server did not exit in time")]
    ServerStillRunning,
}

impl ClientError {
    /// Returns whether the server responded that the request was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        matches!(self, Self::Refused { source, .. } if source.code == rpc::code::REQUEST_CANCELLED)
    }
}

type RpcResponse = Result<Option<Box<RawValue>>, RpcError>;

/// Requests that wait for their responses.
#[derive(Debug, Default)]
struct PendingRequests {
    last_id: u64,
    waiting: HashMap<u64, PendingRequest>,
    /// Reason why no more responses can arrive; `None` while the connection is open.
    lost_reason: Option<String>,
    /// Whether `exit` has been sent, so that the connection's end is expected.
    is_leaving: bool,
}

#[derive(Debug)]
struct PendingRequest {
    response_sender: oneshot::Sender<RpcResponse>,
    run_id: Option<String>,
}

/// Open requests, shared by the client and the reader of its main connection.
#[derive(Debug, Default)]
struct RequestTable {
    pending: Mutex<PendingRequests>,
}

impl RequestTable {
    fn lock(&self) -> MutexGuard<'_, PendingRequests> {
        self.pending.lock().expect("nothing panics while it holds the requests")
    }

    fn on_response(&self, id: &RequestId, outcome: RpcResponse) {
        let RequestId::Number(text) = id else { return };
        let waiting = text.parse().ok().and_then(|id: u64| self.lock().waiting.remove(&id));
        if let Some(waiting) = waiting {
            // A failed send means that the caller was dropped.
            drop(waiting.response_sender.send(outcome));
        }
    }

    /// Fails all requests; returns whether the connection's end was expected.
    fn fail_all(&self, reason: String) -> bool {
        let mut pending = self.lock();
        pending.lost_reason.get_or_insert(reason);
        pending.waiting.clear();
        pending.is_leaving
    }
}

/// Removes a request when its waiting caller is dropped.
struct PendingRequestCleanup<'a> {
    requests: &'a RequestTable,
    id: u64,
}

impl Drop for PendingRequestCleanup<'_> {
    fn drop(&mut self) {
        self.requests.lock().waiting.remove(&self.id);
    }
}

/// One session with a server. Dropping it closes all its connections at once.
#[derive(Debug)]
pub struct Client {
    outbox: Outbox,
    requests: Arc<RequestTable>,
    intake: Arc<EventRouter>,
    server: InitializeResult,
    options: ClientOptions,
    /// Reader of the main connection; ends with the connection.
    reader: JoinSet<()>,
    /// The callback listener; ends with the session.
    listener: JoinSet<()>,
    task: LinkTask,
    /// The server process, if started for this session.
    pub(super) process: Option<StartedServer>,
}

impl Client {
    /// Starts a session over a stream to a server: listens for callback connections if requested, sends
    /// `initialize`, and waits for the response.
    ///
    /// Cancel safe: no, because a cancelled call drops the stream.
    ///
    /// # Errors
    /// No port could be opened, the server did not respond in time or responded with an error, or the
    /// connection broke.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn connect<S>(stream: S, options: ClientOptions) -> Result<(Self, EventStream), ClientError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let callbacks = match options.callback {
            true => Some(CallbackListener::bind().await.map_err(ClientError::Listen)?),
            false => None,
        };
        let (sender, events) = EventStream::channel();
        let intake = Arc::new(EventRouter::new(sender));
        let mut listener = JoinSet::new();
        let mut provider = None;
        if let Some(callbacks) = callbacks {
            provider = Some(callbacks.provider().map_err(ClientError::Listen)?);
            listener.spawn(callbacks.serve(options.hello_limit, Arc::clone(&intake)));
        }
        let (outbox, inbox, task) = heeler_transport::open(stream, FrameDecoder::default());
        let requests = Arc::new(RequestTable::default());
        let mut reader = JoinSet::new();
        let main = MainConnectionReader {
            outbox: outbox.clone(),
            requests: Arc::clone(&requests),
            intake: Arc::clone(&intake),
            has_debuggers: options.debuggers,
        };
        reader.spawn(main.read_messages(inbox));
        let server = InitializeResult::default();
        let mut client =
            Self { outbox, requests, intake, server, options, reader, listener, task, process: None };
        client.server = client.initialize(provider).await?;
        Ok((client, events))
    }

    async fn initialize(
        &self,
        callback: Option<mtp::CallbackProvider>,
    ) -> Result<InitializeResult, ClientError> {
        let params = InitializeParams {
            process_id: Some(std::process::id()),
            client_info: Some(PeerInfo {
                name: self.options.name.clone(),
                version: self.options.version.clone(),
            }),
            capabilities: ClientCapabilities {
                testing: ClientTestingCapabilities {
                    debugger_provider: self.options.debuggers,
                    batch_logging_support: true,
                    attachments_support: true,
                    callback_provider: callback,
                    extensions: mtp::ClientExtensions::default(),
                },
            },
            protocol_versions: Some(vec![mtp::PROTOCOL_VERSION.to_owned()]),
        };
        let limit = self.options.initialize_limit;
        let call = self.send_request(method::INITIALIZE, None, |id| {
            rpc::encode_request(id, method::INITIALIZE, &params)
        });
        let result = timeout(limit, call).await.map_err(|_| ClientError::InitializeTimedOut { limit })??;
        let read: Option<_> = serde_json::from_str(json_text(&result))
            .map_err(|source| ClientError::InvalidResponse { method: method::INITIALIZE, source })?;
        Ok(read.unwrap_or_default())
    }

    /// Returns the server's response to `initialize`.
    #[must_use]
    pub fn server_info(&self) -> &InitializeResult {
        &self.server
    }

    /// Discovers tests and reports them as events. Returns after the server's response and the completion of
    /// the updates, on any connection. Read the events meanwhile.
    ///
    /// Cancel safe: no, because the server continues the discovery, and its response is ignored.
    ///
    /// # Errors
    /// The server rejected the request, its updates were not completed, or the connection broke.
    pub async fn discover(&self, request: TestRequest) -> Result<(), ClientError> {
        self.request_tests(method::DISCOVER, request).await.map(drop)
    }

    /// Runs tests and reports their results as events. Returns after the server's response and the
    /// completion of the updates, on any connection. Read the events meanwhile.
    ///
    /// Cancel safe: no, because the server continues the run, and its response is ignored. Use
    /// [`Self::cancel`] to end the run.
    ///
    /// # Errors
    /// The server rejected or cancelled the run (see [`ClientError::is_cancelled`]), its updates were not
    /// completed, or the connection broke.
    pub async fn run(&self, request: TestRequest) -> Result<RunResult, ClientError> {
        let result = self.request_tests(method::RUN, request).await?;
        let read: Option<_> = serde_json::from_str(json_text(&result))
            .map_err(|source| ClientError::InvalidResponse { method: method::RUN, source })?;
        Ok(read.unwrap_or_default())
    }

    /// Asks the server to cancel a run or discovery in progress, which then ends with a cancellation error.
    /// An unknown id is ignored.
    ///
    /// Cancel safe: yes, because a cancelled call has sent nothing.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn cancel(&self, run_id: &str) -> Result<(), ClientError> {
        let id = {
            let pending = self.requests.lock();
            pending.waiting.iter().find(|(_, one)| one.run_id.as_deref() == Some(run_id)).map(|(id, _)| *id)
        };
        let Some(id) = id else { return Ok(()) };
        let params = CancelParams { id: RequestId::number(id) };
        let frame = rpc::encode_notification(method::CANCEL, &params);
        self.outbox.send(frame).await.map_err(|_| self.connection_lost_error(method::CANCEL))
    }

    /// Responds to [`ClientEvent::AttachDebugger`] with whether a debugger has attached. The test process
    /// waits for this response.
    ///
    /// Cancel safe: yes, because a cancelled call has sent nothing.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn respond_to_debugger(&self, id: &RequestId, success: bool) -> Result<(), ClientError> {
        let frame = rpc::encode_result(id, &DebuggerResult { success });
        self.outbox.send(frame).await.map_err(|_| self.connection_lost_error(method::ATTACH_DEBUGGER))
    }

    /// Sends `exit`, waits until the server has closed the connection (and has exited, if [`Self::start`]
    /// started it), and ends the session. Read the events meanwhile, or drop their stream.
    ///
    /// Cancel safe: no, because a cancelled call drops the session.
    ///
    /// # Errors
    /// The server had not ended the session at `deadline`. The session is closed anyway.
    pub async fn exit(mut self, deadline: Instant) -> Result<(), ClientError> {
        self.requests.lock().is_leaving = true;
        let leave = async {
            // A failed send means that the server is already gone.
            drop(self.outbox.send(rpc::encode_notification(method::EXIT, &serde_json::Map::new())).await);
            while self.reader.join_next().await.is_some() {}
            if let Some(process) = self.process.take() {
                process.wait_for_exit().await;
            }
        };
        let left = timeout_at(deadline, leave).await.map_err(|_| ClientError::ServerStillRunning);
        self.reader.shutdown().await;
        self.listener.shutdown().await;
        self.task.cut().await;
        left
    }

    async fn request_tests(
        &self,
        name: &'static str,
        request: TestRequest,
    ) -> Result<Option<Box<RawValue>>, ClientError> {
        if self.requests.lock().lost_reason.is_some() {
            return Err(self.connection_lost_error(name));
        }
        let TestRequest { run_id, tests, filter, is_debug, shard, options } = request;
        let options =
            options.map(|options| serde_json::to_value(options).expect("options are plain JSON values"));
        self.intake.begin_run(&run_id);
        let params = TestsParams {
            run_id,
            tests,
            test_cases: None,
            filter,
            is_debug,
            is_built: false,
            shard,
            options,
        };
        let run_id = &params.run_id;
        let limit = self.options.completion_limit;
        match self.send_request(name, Some(run_id), |id| rpc::encode_request(id, name, &params)).await {
            Ok(_) if !self.intake.wait_for_completion(run_id, limit).await => {
                Err(ClientError::CompletionTimedOut { run_id: run_id.clone(), limit })
            }
            Ok(result) => Ok(result),
            // If the server has died, its other processes report the missing results and complete the run.
            Err(ClientError::ConnectionLost { method, reason, .. }) => {
                let is_complete = self.intake.wait_for_completion(run_id, limit).await;
                Err(ClientError::ConnectionLost { method, reason, is_complete })
            }
            Err(error) => Err(error),
        }
    }

    async fn send_request(
        &self,
        method: &'static str,
        run_id: Option<&str>,
        frame: impl FnOnce(&RequestId) -> Bytes,
    ) -> Result<Option<Box<RawValue>>, ClientError> {
        let (sender, receiver) = oneshot::channel();
        let id = {
            let mut pending = self.requests.lock();
            if pending.lost_reason.is_some() {
                drop(pending);
                return Err(self.connection_lost_error(method));
            }
            pending.last_id += 1;
            let id = pending.last_id;
            pending
                .waiting
                .insert(id, PendingRequest { response_sender: sender, run_id: run_id.map(str::to_owned) });
            id
        };
        let _forget = PendingRequestCleanup { requests: &self.requests, id };
        if self.outbox.send(frame(&RequestId::number(id))).await.is_err() {
            return Err(self.connection_lost_error(method));
        }
        match receiver.await {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(source)) => Err(ClientError::Refused { method, source }),
            Err(_) => Err(self.connection_lost_error(method)),
        }
    }

    fn connection_lost_error(&self, method: &'static str) -> ClientError {
        let reason = self.requests.lock().lost_reason.clone();
        let reason = reason.unwrap_or_else(|| "the connection accepts no more messages".to_owned());
        ClientError::ConnectionLost { method, reason, is_complete: false }
    }
}

fn json_text(result: &Option<Box<RawValue>>) -> &str {
    result.as_deref().map_or("null", RawValue::get)
}

struct MainConnectionReader {
    outbox: Outbox,
    requests: Arc<RequestTable>,
    intake: Arc<EventRouter>,
    has_debuggers: bool,
}

/// Fails all open requests when the reader ends for any reason, because nothing reads responses afterwards.
impl Drop for MainConnectionReader {
    fn drop(&mut self) {
        self.requests.fail_all("internal error while reading the connection".to_owned());
        self.intake.on_main_lost();
    }
}

impl MainConnectionReader {
    async fn on_attach_debugger(&self, id: RequestId, params: Option<&RawValue>) {
        match serde_json::from_str::<AttachDebuggerParams>(params.map_or("null", RawValue::get)) {
            Ok(AttachDebuggerParams { process_id }) => {
                self.intake.send_event(ClientEvent::AttachDebugger { id, process_id }).await;
            }
            Err(error) => {
                let error =
                    RpcError::new(rpc::code::INVALID_PARAMS, format!("expected {{processId}}: {error}"));
                // A failed send shows as the end of the connection.
                drop(self.outbox.send(rpc::encode_error(&id, &error)).await);
            }
        }
    }

    async fn read_messages(self, mut inbox: Inbox<FrameDecoder>) {
        let reason = loop {
            match inbox.next().await {
                Ok(Some(body)) => self.on_message(&body).await,
                Ok(None) => break "the server closed the connection".to_owned(),
                Err(error) => break heeler_core::error_chain(&error),
            }
        };
        let is_expected = self.requests.fail_all(reason.clone());
        self.intake.on_main_lost();
        if !is_expected {
            self.intake.send_event(ClientEvent::ConnectionLost { source: EventSource::Main, reason }).await;
        }
    }

    async fn on_message(&self, body: &[u8]) {
        match rpc::parse_borrowed(body) {
            Ok(BorrowedRpcMessage::Notification { method, params })
                if self.has_debuggers && method == method::CANCEL =>
            {
                let params =
                    params.and_then(|params| serde_json::from_str::<CancelParams>(params.get()).ok());
                if let Some(CancelParams { id }) = params {
                    self.intake.send_event(ClientEvent::DebuggerWithdrawn { id }).await;
                }
            }
            Ok(BorrowedRpcMessage::Notification { method, params }) => {
                self.intake.on_notification(&EventSource::Main, &method, params).await;
            }
            Ok(BorrowedRpcMessage::Response { id, outcome }) => {
                self.requests.on_response(&id, outcome.map(|result| result.map(ToOwned::to_owned)));
            }
            Ok(BorrowedRpcMessage::Request { id, method, params })
                if self.has_debuggers && method == method::ATTACH_DEBUGGER =>
            {
                self.on_attach_debugger(id, params).await;
            }
            Ok(BorrowedRpcMessage::Request { id, method, params }) => {
                if method == method::TELEMETRY {
                    self.intake.on_notification(&EventSource::Main, &method, params).await;
                }
                // A failed send shows as the end of the connection.
                drop(self.outbox.send(callback::response_to(&id, &method)).await);
            }
            Err(invalid) => {
                let reason = invalid.to_string();
                self.intake
                    .send_event(ClientEvent::InvalidMessage { source: EventSource::Main, reason })
                    .await;
                drop(self.outbox.send(rpc::encode_error(&invalid.id, &invalid.error)).await);
            }
        }
    }
}
