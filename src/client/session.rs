//! The main connection: requests go out, answers find those who wait for them, notifications go to the intake.

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

/// How a session is held.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Who the client is, for the server.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Whether the server's own processes may report on connections of their own, to a port of this machine.
    pub callback: bool,
    /// Whether this client attaches debuggers. It then answers [`Event::AttachDebugger`], by
    /// [`Client::answer_debugger`].
    pub debuggers: bool,
    /// A server that does not answer `initialize` by then is given up.
    pub initialize_limit: Duration,
    /// A run whose completion does not come within this time after its answer is an error.
    pub completion_limit: Duration,
    /// Who dials the callback port and does not show the token by then is turned away.
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

/// What to discover or to run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Request {
    /// Names the run in all that is told of it; a GUID, not used in this session before.
    pub run_id: String,
    /// `None` means all, an empty list none. Of each node only the uid is needed.
    pub tests: Option<Vec<TestNode>>,
    /// A filter in the server's language.
    pub filter: Option<String>,
    /// Each test is to run under a debugger, for which the server asks by [`Event::AttachDebugger`]. For
    /// [`Client::run`] and a client that has [debuggers](ClientOptions::debuggers); Heeler alone knows it.
    pub is_debug: bool,
}

impl Request {
    /// Asks for everything, under a new id.
    #[must_use]
    pub fn all() -> Self {
        Self { run_id: uuid::Uuid::new_v4().to_string(), ..Self::default() }
    }

    /// Asks for the tests with these uids, under a new id.
    #[must_use]
    pub fn of(uids: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let node = |uid: String| TestNode { uid, ..TestNode::default() };
        Self { tests: Some(uids.into_iter().map(|uid| node(uid.into())).collect()), ..Self::all() }
    }
}

/// Why a client could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// There is no server.
    #[error("get to a server")]
    Start(#[source] StartError),
    /// No callback port could be opened.
    #[error("listen for callback connections")]
    Listen(#[source] io::Error),
    /// The server did not answer `initialize`.
    #[error("start a session: no answer within {limit:?}")]
    NotInitialized {
        /// How long it had.
        limit: Duration,
    },
    /// The server answered with an error. A cancelled run ends so, with code -32800.
    #[error("have {method} done by the server")]
    Refused {
        /// What was asked.
        method: &'static str,
        /// What it said.
        source: RpcError,
    },
    /// The server answered with something else than was asked for.
    #[error("read the server's answer to {method}")]
    Unreadable {
        /// What was asked.
        method: &'static str,
        /// What does not fit.
        source: serde_json::Error,
    },
    /// The connection ended before the answer.
    #[error("hear the answer to {method}: {reason}")]
    ConnectionLost {
        /// What was asked.
        method: &'static str,
        /// How the connection ended.
        reason: String,
        /// Whether all results came all the same, on callback connections.
        is_complete: bool,
    },
    /// The server answered, but its updates never ended.
    #[error("see the end of run {run_id} within {limit:?} after its answer")]
    NotCompleted {
        /// Which run.
        run_id: String,
        /// How long it had.
        limit: Duration,
    },
    /// The server did not leave after `exit`.
    #[error("see the server leave in time")]
    NotLeft,
}

impl ClientError {
    /// Returns whether the server answered that the request was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        matches!(self, Self::Refused { source, .. } if source.code == rpc::code::REQUEST_CANCELLED)
    }
}

type Outcome = Result<Option<Box<RawValue>>, RpcError>;

/// Requests that wait for their answers.
#[derive(Debug, Default)]
struct Pending {
    last_id: u64,
    waiting: HashMap<u64, Waiting>,
    /// Why no answers come any more.
    lost: Option<String>,
    /// The server was told to leave, so that the connection's end is in order.
    is_leaving: bool,
}

#[derive(Debug)]
struct Waiting {
    answer: oneshot::Sender<Outcome>,
    run_id: Option<String>,
}

/// Shared by the client and the reader of its main connection.
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
            // Whoever asked may have gone.
            drop(waiting.answer.send(outcome));
        }
    }

    /// Fails all requests; returns whether that was to be expected.
    fn lost(&self, reason: String) -> bool {
        let mut pending = self.lock();
        pending.lost.get_or_insert(reason);
        pending.waiting.clear();
        pending.is_leaving
    }
}

/// Forgets a request when whoever waits for its answer goes.
struct Forget<'a> {
    requests: &'a Requests,
    id: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.requests.lock().waiting.remove(&self.id);
    }
}

/// One session with a server. Dropping it cuts all its connections at once.
#[derive(Debug)]
pub struct Client {
    outbox: Outbox,
    requests: Arc<Requests>,
    intake: Arc<Intake>,
    server: InitializeResult,
    options: ClientOptions,
    /// The reader of the main connection; it ends with the connection.
    reader: JoinSet<()>,
    /// The callback listener, which ends with the session.
    listener: JoinSet<()>,
    task: LinkTask,
    /// The server, where it was started for this session.
    pub(super) process: Option<ServerProcess>,
}

impl Client {
    /// Starts a session over a stream to a server: listens for callback connections if it shall, sends `initialize`,
    /// and waits for the answer.
    ///
    /// Cancel safe: no, because the stream is given up with the call.
    ///
    /// # Errors
    /// No port could be opened, the server did not answer in time or not with success, or the connection broke.
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

    /// Returns what the server said of itself.
    #[must_use]
    pub fn server(&self) -> &InitializeResult {
        &self.server
    }

    /// Discovers tests; they come as events. Returns after the server's answer and after the completion of the updates,
    /// on whichever connection it comes. The events must be read meanwhile.
    ///
    /// Cancel safe: no, because the discovery goes on at the server, and its answer is ignored.
    ///
    /// # Errors
    /// The server refused, its updates did not end, or the connection broke.
    pub async fn discover(&self, request: Request) -> Result<(), ClientError> {
        self.tests(method::DISCOVER, request).await.map(drop)
    }

    /// Runs tests; what becomes of them comes as events. Returns after the server's answer and after the completion of
    /// the updates, on whichever connection it comes. The events must be read meanwhile.
    ///
    /// Cancel safe: no, because the run goes on at the server, and its answer is ignored. See [`Self::cancel`].
    ///
    /// # Errors
    /// The server refused (also with [`ClientError::is_cancelled`]), its updates did not end, or the connection broke.
    pub async fn run(&self, request: Request) -> Result<RunResult, ClientError> {
        let result = self.tests(method::RUN, request).await?;
        let read: Option<_> = serde_json::from_str(text(&result))
            .map_err(|source| ClientError::Unreadable { method: method::RUN, source })?;
        Ok(read.unwrap_or_default())
    }

    /// Asks the server to cancel a run or a discovery that is under way; it ends with an error that says so. A run that
    /// is not under way is ignored.
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

    /// Answers [`Event::AttachDebugger`]: whether a debugger has attached. Only then the test goes on.
    ///
    /// Cancel safe: yes, because a cancelled call has sent nothing.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn answer_debugger(&self, id: &RequestId, success: bool) -> Result<(), ClientError> {
        let frame = rpc::result(id, &DebuggerResult { success });
        self.outbox.send(frame).await.map_err(|_| self.lost(method::ATTACH_DEBUGGER))
    }

    /// Sends `exit`, waits until the server has closed the connection (and is gone, where [`Self::start`] has started it),
    /// and ends the session. The events must be read
    /// meanwhile, or their stream dropped.
    ///
    /// Cancel safe: no, because the session is cut with the call.
    ///
    /// # Errors
    /// The server had not left at `deadline`. The session is ended all the same.
    pub async fn exit(mut self, deadline: Instant) -> Result<(), ClientError> {
        self.requests.lock().is_leaving = true;
        let leave = async {
            // A server that is gone already has left.
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
            // The server's other processes settle and complete a run whose server has died.
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

/// What the reader of the main connection needs.
struct Main {
    outbox: Outbox,
    requests: Arc<Requests>,
    intake: Arc<Intake>,
    has_debuggers: bool,
}

/// However the reader ends, nobody waits for answers that nobody reads.
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
                // A failure shows as the end of the connection.
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
                // A failure shows as the end of the connection.
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
