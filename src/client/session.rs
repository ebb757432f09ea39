//! The main connection: sends requests, passes responses to the waiting callers, and notifications to the
//! event router.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use bytes::Bytes;
use link::{Inbox, LinkTask, Outbox};
use serde_json::value::RawValue;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::oneshot,
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};
use wire::{
    frame::Frames,
    mtp::{
        self, AttachDebuggerParams, CancelParams, ClientCapabilities, ClientTesting, DebuggerResult,
        InitializeParams, InitializeResult, PeerInfo, RunResult, TestNode, TestsParams, method,
    },
    rpc::{self, BorrowedMessage, RequestId, RpcError},
};

use super::{
    callback::{self, Listener},
    events::{Event, Events, Source},
    intake::Intake,
    start::{ServerProcess, StartError},
};

/// The options of a session.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Name of the client, sent to the server.
    pub name: String,
    /// Version of the client, sent to the server.
    pub version: String,
    /// Whether the server's own processes may report on connections of their own, to a port of this machine.
    pub callback: bool,
    /// Whether this client attaches debuggers. It must then respond to [`Event::AttachDebugger`] with
    /// [`Client::answer_debugger`].
    pub debuggers: bool,
    /// Time limit for the server's response to `initialize`; starting the session fails after it.
    pub initialize_limit: Duration,
    /// Time limit between the response to a run and its completion; the run fails after it.
    pub completion_limit: Duration,
    /// Time limit for a callback connection to send its token; the connection is refused after it.
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

/// The tests to discover or to run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Request {
    /// Identifies the run in all its updates; a GUID that this session has not used before.
    pub run_id: String,
    /// The selected tests: `None` selects all, an empty list none. Only the uid of each node is used.
    pub tests: Option<Vec<TestNode>>,
    /// A filter in the server's filter language.
    pub filter: Option<String>,
    /// Whether each test runs under a debugger, which the server requests with [`Event::AttachDebugger`].
    /// Only for [`Client::run`] and a client with [debuggers](ClientOptions::debuggers); an extension of
    /// Heeler.
    pub is_debug: bool,
}

impl Request {
    /// Returns a request for all tests, with a new run id.
    #[must_use]
    pub fn all() -> Self {
        Self { run_id: uuid::Uuid::new_v4().to_string(), ..Self::default() }
    }

    /// Returns a request for the tests with these uids, with a new run id.
    #[must_use]
    pub fn of(uids: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let node = |uid: String| TestNode { uid, ..TestNode::default() };
        Self { tests: Some(uids.into_iter().map(|uid| node(uid.into())).collect()), ..Self::all() }
    }
}

/// The error of a session or of one of its requests.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No server could be started or reached.
    #[error("get to a server")]
    Start(#[source] StartError),
    /// The callback port could not be opened.
    #[error("listen for callback connections")]
    Listen(#[source] io::Error),
    /// The server did not respond to `initialize` in time.
    #[error("start a session: no answer within {limit:?}")]
    NotInitialized {
        /// The time limit that was exceeded.
        limit: Duration,
    },
    /// The server responded with an error. A cancelled run ends this way, with code -32800.
    #[error("have {method} done by the server")]
    Refused {
        /// Method of the request.
        method: &'static str,
        /// The server's error.
        source: RpcError,
    },
    /// The server's response has an unexpected form.
    #[error("read the server's answer to {method}")]
    Unreadable {
        /// Method of the request.
        method: &'static str,
        /// The parse error.
        source: serde_json::Error,
    },
    /// The connection ended before the response.
    #[error("hear the answer to {method}: {reason}")]
    ConnectionLost {
        /// Method of the request.
        method: &'static str,
        /// Description of the connection's end.
        reason: String,
        /// Whether all results arrived nevertheless, on callback connections.
        is_complete: bool,
    },
    /// The server responded, but its updates were not completed in time.
    #[error("see the end of run {run_id} within {limit:?} after its answer")]
    NotCompleted {
        /// Id of the run.
        run_id: String,
        /// The time limit that was exceeded.
        limit: Duration,
    },
    /// The server had not ended the session in time after `exit`.
    #[error("see the server leave in time")]
    NotLeft,
}

impl ClientError {
    /// Returns whether the server responded that the request was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        matches!(self, Self::Refused { source, .. } if source.code == rpc::code::REQUEST_CANCELLED)
    }
}

type Outcome = Result<Option<Box<RawValue>>, RpcError>;

/// Requests that wait for their responses.
#[derive(Debug, Default)]
struct Pending {
    last_id: u64,
    waiting: HashMap<u64, Waiting>,
    /// The reason for which no more responses can arrive; `None` while the connection is open.
    lost: Option<String>,
    /// Whether `exit` has been sent, so that the end of the connection is expected.
    is_leaving: bool,
}

#[derive(Debug)]
struct Waiting {
    answer: oneshot::Sender<Outcome>,
    run_id: Option<String>,
}

/// The open requests, shared by the client and the reader of its main connection.
#[derive(Debug, Default)]
struct Requests {
    pending: Mutex<Pending>,
}

impl Requests {
    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().expect("nothing panics while it holds the requests")
    }

    fn answered(&self, id: &RequestId, outcome: Outcome) {
        let RequestId::Number(text) = id else { return };
        let waiting = text.parse().ok().and_then(|id: u64| self.lock().waiting.remove(&id));
        if let Some(waiting) = waiting {
            // A failure means that the caller has been dropped meanwhile.
            drop(waiting.answer.send(outcome));
        }
    }

    /// Fails all requests; returns whether the connection's end was expected.
    fn lost(&self, reason: String) -> bool {
        let mut pending = self.lock();
        pending.lost.get_or_insert(reason);
        pending.waiting.clear();
        pending.is_leaving
    }
}

/// Removes a request when the caller that waits for its response is dropped.
struct Forget<'a> {
    requests: &'a Requests,
    id: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.requests.lock().waiting.remove(&self.id);
    }
}

/// One session with a server. Dropping it closes all its connections at once.
#[derive(Debug)]
pub struct Client {
    outbox: Outbox,
    requests: Arc<Requests>,
    intake: Arc<Intake>,
    server: InitializeResult,
    options: ClientOptions,
    /// The reader of the main connection; it ends with the connection.
    reader: JoinSet<()>,
    /// The callback listener; it ends with the session.
    listener: JoinSet<()>,
    task: LinkTask,
    /// The server process, where it was started for this session.
    pub(super) process: Option<ServerProcess>,
}

impl Client {
    /// Starts a session over a stream to a server: listens for callback connections if the options ask for
    /// it, sends `initialize`, and waits for the response.
    ///
    /// Cancel safe: no, because a cancelled call drops the stream.
    ///
    /// # Errors
    /// No port could be opened, the server did not respond in time or responded with an error, or the
    /// connection broke.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn connect<S>(stream: S, options: ClientOptions) -> Result<(Self, Events), ClientError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, events) = Events::channel();
        let intake = Arc::new(Intake::new(sender));
        let mut listener = JoinSet::new();
        let mut provider = None;
        if options.callback {
            let port = Listener::bind(options.hello_limit).await.map_err(ClientError::Listen)?;
            provider = Some(port.provider().map_err(ClientError::Listen)?);
            listener.spawn(port.serve(Arc::clone(&intake)));
        }
        let (outbox, inbox, task) = link::open(stream, Frames::default());
        let requests = Arc::new(Requests::default());
        let mut reader = JoinSet::new();
        let main = Main {
            outbox: outbox.clone(),
            requests: Arc::clone(&requests),
            intake: Arc::clone(&intake),
            has_debuggers: options.debuggers,
        };
        reader.spawn(main.read(inbox));
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
                testing: ClientTesting {
                    debugger_provider: self.options.debuggers,
                    batch_logging_support: true,
                    attachments_support: true,
                    callback_provider: callback,
                },
            },
            protocol_versions: Some(vec![mtp::PROTOCOL_VERSION.to_owned()]),
        };
        let limit = self.options.initialize_limit;
        let call = self.call(method::INITIALIZE, None, |id| rpc::request(id, method::INITIALIZE, &params));
        let result = timeout(limit, call).await.map_err(|_| ClientError::NotInitialized { limit })??;
        let read: Option<_> = serde_json::from_str(text(&result))
            .map_err(|source| ClientError::Unreadable { method: method::INITIALIZE, source })?;
        Ok(read.unwrap_or_default())
    }

    /// Returns the server's response to `initialize`.
    #[must_use]
    pub fn server(&self) -> &InitializeResult {
        &self.server
    }

    /// Discovers tests, which are reported as events. Returns after the server's response and the completion
    /// of the updates, on any connection. The events must be read meanwhile.
    ///
    /// Cancel safe: no, because the server continues the discovery, and its response is ignored.
    ///
    /// # Errors
    /// The server refused, its updates were not completed, or the connection broke.
    pub async fn discover(&self, request: Request) -> Result<(), ClientError> {
        self.tests(method::DISCOVER, request).await.map(drop)
    }

    /// Runs tests, whose results are reported as events. Returns after the server's response and the
    /// completion of the updates, on any connection. The events must be read meanwhile.
    ///
    /// Cancel safe: no, because the server continues the run, and its response is ignored. See
    /// [`Self::cancel`].
    ///
    /// # Errors
    /// The server refused (also with [`ClientError::is_cancelled`]), its updates were not completed, or the
    /// connection broke.
    pub async fn run(&self, request: Request) -> Result<RunResult, ClientError> {
        let result = self.tests(method::RUN, request).await?;
        let read: Option<_> = serde_json::from_str(text(&result))
            .map_err(|source| ClientError::Unreadable { method: method::RUN, source })?;
        Ok(read.unwrap_or_default())
    }

    /// Asks the server to cancel a run or a discovery in progress, which then ends with a cancellation error.
    /// An id without a run in progress is ignored.
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
        let frame = rpc::notification(method::CANCEL, &params);
        self.outbox.send(frame).await.map_err(|_| self.lost(method::CANCEL))
    }

    /// Responds to [`Event::AttachDebugger`] with whether a debugger has attached. The test process waits for
    /// this.
    ///
    /// Cancel safe: yes, because a cancelled call has sent nothing.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn answer_debugger(&self, id: &RequestId, success: bool) -> Result<(), ClientError> {
        let frame = rpc::result(id, &DebuggerResult { success });
        self.outbox.send(frame).await.map_err(|_| self.lost(method::ATTACH_DEBUGGER))
    }

    /// Sends `exit`, waits until the server has closed the connection (and has exited, where [`Self::start`]
    /// started it), and ends the session. The events must be read meanwhile, or their stream dropped.
    ///
    /// Cancel safe: no, because a cancelled call drops the session.
    ///
    /// # Errors
    /// The server had not ended the session at `deadline`. The session is closed nevertheless.
    pub async fn exit(mut self, deadline: Instant) -> Result<(), ClientError> {
        self.requests.lock().is_leaving = true;
        let leave = async {
            // A failure means that the server is already gone.
            drop(self.outbox.send(rpc::notification(method::EXIT, &serde_json::Map::new())).await);
            while self.reader.join_next().await.is_some() {}
            if let Some(process) = self.process.take() {
                process.ended().await;
            }
        };
        let left = timeout_at(deadline, leave).await.map_err(|_| ClientError::NotLeft);
        self.reader.shutdown().await;
        self.listener.shutdown().await;
        self.task.cut().await;
        left
    }

    async fn tests(
        &self,
        name: &'static str,
        request: Request,
    ) -> Result<Option<Box<RawValue>>, ClientError> {
        if self.requests.lock().lost.is_some() {
            return Err(self.lost(name));
        }
        let Request { run_id, tests, filter, is_debug } = request;
        self.intake.begin(&run_id);
        let params = TestsParams { run_id, tests, test_cases: None, filter, is_debug };
        let run_id = &params.run_id;
        let limit = self.options.completion_limit;
        match self.call(name, Some(run_id), |id| rpc::request(id, name, &params)).await {
            Ok(_) if !self.intake.completion(run_id, limit).await => {
                Err(ClientError::NotCompleted { run_id: run_id.clone(), limit })
            }
            Ok(result) => Ok(result),
            // When the server has died, its other processes report the missing results and complete the run.
            Err(ClientError::ConnectionLost { method, reason, .. }) => {
                let is_complete = self.intake.completion(run_id, limit).await;
                Err(ClientError::ConnectionLost { method, reason, is_complete })
            }
            Err(error) => Err(error),
        }
    }

    async fn call(
        &self,
        method: &'static str,
        run_id: Option<&str>,
        frame: impl FnOnce(&RequestId) -> Bytes,
    ) -> Result<Option<Box<RawValue>>, ClientError> {
        let (sender, receiver) = oneshot::channel();
        let id = {
            let mut pending = self.requests.lock();
            if pending.lost.is_some() {
                drop(pending);
                return Err(self.lost(method));
            }
            pending.last_id += 1;
            let id = pending.last_id;
            pending.waiting.insert(id, Waiting { answer: sender, run_id: run_id.map(str::to_owned) });
            id
        };
        let _forget = Forget { requests: &self.requests, id };
        if self.outbox.send(frame(&RequestId::number(id))).await.is_err() {
            return Err(self.lost(method));
        }
        match receiver.await {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(source)) => Err(ClientError::Refused { method, source }),
            Err(_) => Err(self.lost(method)),
        }
    }

    fn lost(&self, method: &'static str) -> ClientError {
        let reason = self.requests.lock().lost.clone();
        let reason = reason.unwrap_or_else(|| "the connection takes no more".to_owned());
        ClientError::ConnectionLost { method, reason, is_complete: false }
    }
}

fn text(result: &Option<Box<RawValue>>) -> &str {
    result.as_deref().map_or("null", RawValue::get)
}

/// The state of the main connection's reader.
struct Main {
    outbox: Outbox,
    requests: Arc<Requests>,
    intake: Arc<Intake>,
    has_debuggers: bool,
}

/// Fails all open requests however the reader ends, because no response is read afterwards.
impl Drop for Main {
    fn drop(&mut self) {
        self.requests.lost("the reader of the connection was stopped".to_owned());
        self.intake.main_lost();
    }
}

impl Main {
    async fn attach_debugger(&self, id: RequestId, params: Option<&RawValue>) {
        match serde_json::from_str::<AttachDebuggerParams>(params.map_or("null", RawValue::get)) {
            Ok(AttachDebuggerParams { process_id }) => {
                self.intake.tell(Event::AttachDebugger { id, process_id }).await;
            }
            Err(error) => {
                let error =
                    RpcError::new(rpc::code::INVALID_PARAMS, format!("expected {{processId}}: {error}"));
                // A failure to send shows as the end of the connection.
                drop(self.outbox.send(rpc::error(&id, &error)).await);
            }
        }
    }

    async fn read(self, mut inbox: Inbox<Frames>) {
        let reason = loop {
            match inbox.next().await {
                Ok(Some(body)) => self.message(&body).await,
                Ok(None) => break "the server closed the connection".to_owned(),
                Err(error) => break crate::error_chain(&error),
            }
        };
        let is_expected = self.requests.lost(reason.clone());
        self.intake.main_lost();
        if !is_expected {
            self.intake.tell(Event::ConnectionLost { source: Source::Main, reason }).await;
        }
    }

    async fn message(&self, body: &[u8]) {
        match rpc::parse_borrowed(body) {
            Ok(BorrowedMessage::Notification { method, params })
                if self.has_debuggers && method == method::CANCEL =>
            {
                let params =
                    params.and_then(|params| serde_json::from_str::<CancelParams>(params.get()).ok());
                if let Some(CancelParams { id }) = params {
                    self.intake.tell(Event::DebuggerWithdrawn { id }).await;
                }
            }
            Ok(BorrowedMessage::Notification { method, params }) => {
                self.intake.notification(&Source::Main, &method, params).await;
            }
            Ok(BorrowedMessage::Response { id, outcome }) => {
                self.requests.answered(&id, outcome.map(|result| result.map(ToOwned::to_owned)));
            }
            Ok(BorrowedMessage::Request { id, method, params })
                if self.has_debuggers && method == method::ATTACH_DEBUGGER =>
            {
                self.attach_debugger(id, params).await;
            }
            Ok(BorrowedMessage::Request { id, method, params }) => {
                if method == method::TELEMETRY {
                    self.intake.notification(&Source::Main, &method, params).await;
                }
                // A failure to send shows as the end of the connection.
                drop(self.outbox.send(callback::answer(&id, &method)).await);
            }
            Err(invalid) => {
                let reason = invalid.to_string();
                self.intake.tell(Event::Unreadable { source: Source::Main, reason }).await;
                drop(self.outbox.send(rpc::error(&invalid.id, &invalid.error)).await);
            }
        }
    }
}
