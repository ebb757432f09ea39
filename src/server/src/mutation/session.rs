//! One client. A single task owns the session's state. Requests that take time run in their own tasks, which
//! send the answers.
//!
//! ```text
//!            initialize            opened                       instrument, mutate
//! undecided ────────────► opening ────────► 0.0.1-alpha.1 ◄──┐  (any number at a time;
//!   ▲   │                   │  │                     └───────┘   mutants are tested for one
//!   │   │ configure         │  │ opened                          request of the process at a time)
//!   │   └──────────────► opening ────────► 0.4 ── configure ──► opening
//!   └── failed ─────────────┘
//! ```

mod request;

use std::{
    collections::HashMap,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use heeler_protocol::{
    mutation::{
        ClientBody, ServerResult,
        alpha::{CancelParams, InitializeParams, InitializeResult},
        check_client_version,
        code::{REQUEST_CANCELLED, SERVER_NOT_INITIALIZED},
        method, read_body, read_params,
        v0_4::{self, ConfigureParams, ConfigureResult},
    },
    rpc::{InvalidMessage, RequestId, RpcError, RpcMessage, code},
};
use tokio::{
    sync::mpsc,
    task::{JoinError, JoinSet},
    time::Instant,
};

use self::request::{MutationRequestContext, WaitingRequest};
use super::{
    Canceller, FirstMethod, MutationProject, MutationServer, MutationServiceError,
    config_path::config_path,
    responder::{RawParams, ReplyChannel, Responder},
};
use crate::listen::{await_end, wait_for_deadline};

/// Maximum number of a client's requests in progress. More are refused.
const MAX_REQUESTS: usize = 64;
/// Capacity of the session's input queue.
pub(super) const INPUT_QUEUE: usize = 16;
/// Time limit for ending a client's operations once the client is gone.
const END_LIMIT: Duration = Duration::from_secs(10);

/// A received body, and the channel for its replies.
#[derive(Debug)]
pub(super) struct SessionInput {
    pub(super) body: Bytes,
    pub(super) channel: ReplyChannel,
}

/// Requests in progress by id.
#[derive(Debug, Clone, Default)]
struct OpenMutationRequests(Arc<Mutex<HashMap<RequestId, Canceller>>>);

impl OpenMutationRequests {
    fn lock(&self) -> MutexGuard<'_, HashMap<RequestId, Canceller>> {
        // A panic can't leave the map inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProtocolVersion {
    Alpha,
    V04,
}

enum SessionState {
    Undecided,
    Opening {
        version: ProtocolVersion,
        /// The previous project, which is kept if the new one can't be opened.
        previous: Option<Arc<dyn MutationProject>>,
        /// Requests of version 0.4 that wait for the project.
        held: Vec<WaitingRequest>,
    },
    Open {
        version: ProtocolVersion,
        project: Arc<dyn MutationProject>,
    },
}

enum TaskEnd {
    Opened {
        /// The request to answer.
        request: Option<(RequestId, Responder)>,
        project: Result<Arc<dyn MutationProject>, MutationServiceError>,
    },
    Request,
}

pub(super) struct Session {
    server: MutationServer,
    state: SessionState,
    open: OpenMutationRequests,
    tasks: JoinSet<TaskEnd>,
    begin_deadline: Option<Instant>,
}

enum MutationEvent {
    Input(SessionInput),
    TaskEnded(Result<TaskEnd, JoinError>),
    NotBegun,
    /// The client is gone.
    Gone,
}

impl Session {
    pub(super) fn new(server: MutationServer) -> Self {
        Self {
            state: SessionState::Undecided,
            open: OpenMutationRequests::default(),
            tasks: JoinSet::new(),
            begin_deadline: server.options.begin_within.map(|limit| Instant::now() + limit),
            server,
        }
    }

    /// Serves the client until its input ends, then cancels everything that the client started. Returns when
    /// all of it has ended.
    ///
    /// Cancel safe: no, because operations of the service would be dropped instead of cancelled.
    pub(super) async fn serve(mut self, mut inputs: mpsc::Receiver<SessionInput>) {
        loop {
            match self.next_event(&mut inputs).await {
                MutationEvent::Input(SessionInput { body, channel }) => self.on_body(&body, &channel).await,
                MutationEvent::TaskEnded(ended) => self.on_task_end(ended).await,
                MutationEvent::NotBegun => {
                    tracing::warn!("connection closed: the client sent no request in time");
                    break;
                }
                MutationEvent::Gone => break,
            }
        }
        drop(inputs);
        self.open.lock().values().for_each(Canceller::cancel);
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        await_end("the operations of a client", END_LIMIT, ended).await;
    }

    async fn next_event(&mut self, inputs: &mut mpsc::Receiver<SessionInput>) -> MutationEvent {
        let begin_deadline = self.begin_deadline.filter(|_| matches!(self.state, SessionState::Undecided));
        tokio::select! {
            input = inputs.recv() => input.map_or(MutationEvent::Gone, MutationEvent::Input),
            Some(ended) = self.tasks.join_next() => MutationEvent::TaskEnded(ended),
            () = wait_for_deadline(begin_deadline) => MutationEvent::NotBegun,
        }
    }

    async fn on_body(&mut self, body: &[u8], channel: &ReplyChannel) {
        match read_body(body) {
            ClientBody::Message(message) => {
                self.on_message(message, Responder::of_message(channel.clone())).await;
            }
            ClientBody::Batch(messages) => {
                let responders = Responder::of_batch(channel, messages.len());
                for (message, responder) in messages.into_iter().zip(responders) {
                    self.on_message(message, responder).await;
                }
            }
        }
    }

    async fn on_message(&mut self, message: Result<RpcMessage, InvalidMessage>, responder: Responder) {
        match message {
            Err(InvalidMessage { id, error }) => responder.error(&id, &error).await,
            Ok(RpcMessage::Request { id, method, params }) => {
                if let Err((error, responder)) = self.on_request(&id, &method, params, responder) {
                    responder.error(&id, &error).await;
                }
            }
            Ok(RpcMessage::Notification { method, params }) => {
                if method == method::CANCEL
                    && self.takes_notifications()
                    && let Ok(CancelParams { id }) = read_params(&method, params.as_deref())
                    && let Some(canceller) = self.open.lock().get(&id)
                {
                    canceller.cancel();
                }
                responder.nothing().await;
            }
            // No requests are sent to clients, so there is nothing to match.
            Ok(RpcMessage::Response { .. }) => responder.nothing().await,
        }
    }

    fn takes_notifications(&self) -> bool {
        match &self.state {
            SessionState::Undecided => false,
            SessionState::Opening { version, .. } => *version == ProtocolVersion::V04,
            SessionState::Open { .. } => true,
        }
    }

    /// Begins a request, or returns why it is refused.
    fn on_request(
        &mut self,
        id: &RequestId,
        method: &str,
        params: RawParams,
        responder: Responder,
    ) -> Result<(), (RpcError, Responder)> {
        let version = match &self.state {
            SessionState::Undecided => None,
            SessionState::Opening { version, .. } | SessionState::Open { version, .. } => Some(*version),
        };
        let is_open = matches!(self.state, SessionState::Open { .. });
        match (version, method) {
            (None, method::INITIALIZE) => self.initialize(id, params, responder),
            (None | Some(ProtocolVersion::V04), method::CONFIGURE) if !self.is_opening() => {
                self.configure(id, params, responder)
            }
            (None, method::DISCOVER | method::MUTATION_TEST)
                if self.server.options.first_method == FirstMethod::AnyOfV04 =>
            {
                self.begin_opening(ProtocolVersion::V04, None, None);
                self.begin_request(id, method, params, responder)
            }
            (None, _) => Err((not_initialized(), responder)),
            (Some(ProtocolVersion::Alpha), method::INITIALIZE) => {
                let text = "initialize may be sent only once";
                Err((RpcError::new(code::INVALID_REQUEST, text), responder))
            }
            (Some(ProtocolVersion::Alpha), _) if !is_open => Err((not_initialized(), responder)),
            (Some(ProtocolVersion::Alpha), method::INSTRUMENT | method::MUTATE)
            | (Some(ProtocolVersion::V04), method::DISCOVER | method::MUTATION_TEST) => {
                self.begin_request(id, method, params, responder)
            }
            (Some(ProtocolVersion::V04), method::CONFIGURE) => {
                let text = "a configure request is still in progress; wait for its response";
                Err((RpcError::new(code::INVALID_REQUEST, text), responder))
            }
            (Some(_), _) => {
                let shown: String = method.chars().take(100).collect();
                let text = format!("the method {shown:?} is not supported");
                Err((RpcError::new(code::METHOD_NOT_FOUND, text), responder))
            }
        }
    }

    fn is_opening(&self) -> bool {
        matches!(self.state, SessionState::Opening { .. })
    }

    fn initialize(
        &mut self,
        id: &RequestId,
        params: RawParams,
        responder: Responder,
    ) -> Result<(), (RpcError, Responder)> {
        let read =
            read_params::<InitializeParams>(method::INITIALIZE, params.as_deref()).and_then(|params| {
                check_client_version(&params.client_info.version)?;
                Ok(params.config_uri)
            });
        match read {
            Ok(file) => self.open_with(id, file.as_deref(), ProtocolVersion::Alpha, responder),
            Err(error) => Err((error, responder)),
        }
    }

    fn configure(
        &mut self,
        id: &RequestId,
        params: RawParams,
        responder: Responder,
    ) -> Result<(), (RpcError, Responder)> {
        match read_params::<ConfigureParams>(method::CONFIGURE, params.as_deref()) {
            Ok(params) => {
                self.open_with(id, params.config_file_path.as_deref(), ProtocolVersion::V04, responder)
            }
            Err(error) => Err((error, responder)),
        }
    }

    fn open_with(
        &mut self,
        id: &RequestId,
        file: Option<&str>,
        version: ProtocolVersion,
        responder: Responder,
    ) -> Result<(), (RpcError, Responder)> {
        match file.map(config_path).transpose() {
            Ok(file) => {
                self.begin_opening(version, file, Some((id.clone(), responder)));
                Ok(())
            }
            Err(text) => Err((RpcError::new(code::INVALID_PARAMS, text), responder)),
        }
    }

    fn begin_opening(
        &mut self,
        version: ProtocolVersion,
        file: Option<std::path::PathBuf>,
        request: Option<(RequestId, Responder)>,
    ) {
        let previous = match mem::replace(&mut self.state, SessionState::Undecided) {
            SessionState::Open { project, .. } => Some(project),
            SessionState::Undecided | SessionState::Opening { .. } => None,
        };
        self.state = SessionState::Opening { version, previous, held: Vec::new() };
        let mut opening = JoinSet::new();
        opening.spawn(self.server.service.open(file));
        self.tasks.spawn(async move {
            let project = request::outcome_of(&mut opening).await;
            TaskEnd::Opened { request, project }
        });
    }

    fn begin_request(
        &mut self,
        id: &RequestId,
        method: &str,
        params: RawParams,
        responder: Responder,
    ) -> Result<(), (RpcError, Responder)> {
        // Check the limits.
        let refused = |text: String| RpcError::new(code::INVALID_REQUEST, text);
        let held = match &self.state {
            SessionState::Opening { held, .. } => held.len(),
            SessionState::Undecided | SessionState::Open { .. } => 0,
        };
        if self.tasks.len() + held >= MAX_REQUESTS {
            return Err((
                refused(format!(
                    "too many requests in progress (limit: {MAX_REQUESTS}); wait for a response"
                )),
                responder,
            ));
        }
        let cancellation = {
            let mut open = self.open.lock();
            if open.contains_key(id) {
                let text = format!("request id {id} is already in use");
                return Err((refused(text), responder));
            }
            let (canceller, cancellation) = Canceller::new();
            open.insert(id.clone(), canceller);
            cancellation
        };
        // Run the request, or hold it until the project is open.
        let request =
            WaitingRequest { id: id.clone(), method: method.to_owned(), params, responder, cancellation };
        match &mut self.state {
            SessionState::Opening { held, .. } => held.push(request),
            SessionState::Open { project, .. } => {
                let project = Arc::clone(project);
                self.spawn_request(request, project);
            }
            SessionState::Undecided => unreachable!("requests begin in a session that was decided"),
        }
        Ok(())
    }

    fn spawn_request(&mut self, request: WaitingRequest, project: Arc<dyn MutationProject>) {
        let context = MutationRequestContext {
            project,
            run_queue: Arc::clone(&self.server.run_queue),
            progress_form: self.server.options.progress_form,
            open: self.open.clone(),
        };
        self.tasks.spawn(async move {
            request.run(context).await;
            TaskEnd::Request
        });
    }

    async fn on_task_end(&mut self, ended: Result<TaskEnd, JoinError>) {
        match ended {
            Ok(TaskEnd::Request) => {}
            Ok(TaskEnd::Opened { request, project }) => self.on_opened(request, project).await,
            Err(error) => tracing::error!(%error, "internal error in a request"),
        }
    }

    async fn on_opened(
        &mut self,
        request: Option<(RequestId, Responder)>,
        project: Result<Arc<dyn MutationProject>, MutationServiceError>,
    ) {
        let SessionState::Opening { version, previous, held } =
            mem::replace(&mut self.state, SessionState::Undecided)
        else {
            return;
        };
        // Answer the request that opened the project.
        let error = project.as_ref().err().map(rpc_error);
        match (request, &error) {
            (None, _) => {}
            (Some((id, responder)), Some(error)) => responder.error(&id, error).await,
            (Some((id, responder)), None) => match version {
                ProtocolVersion::Alpha => {
                    let result = ServerResult::Initialized(InitializeResult::of_heeler());
                    responder.result(&id, &result).await;
                }
                ProtocolVersion::V04 => {
                    let version = v0_4::PROTOCOL_VERSION.to_owned();
                    let result = ServerResult::Configured(ConfigureResult { version });
                    responder.result(&id, &result).await;
                }
            },
        }
        // Go on with the new or the previous project.
        let Some(project) = project.ok().or(previous) else {
            let error = error.unwrap_or_else(not_initialized);
            for WaitingRequest { id, responder, .. } in held {
                self.open.lock().remove(&id);
                responder.error(&id, &error).await;
            }
            return;
        };
        self.state = SessionState::Open { version, project: Arc::clone(&project) };
        for request in held {
            self.spawn_request(request, Arc::clone(&project));
        }
    }
}

fn not_initialized() -> RpcError {
    RpcError::new(SERVER_NOT_INITIALIZED, "not initialized: send initialize or configure first")
}

fn rpc_error(error: &MutationServiceError) -> RpcError {
    let code = match error {
        MutationServiceError::Config(_) => code::INVALID_PARAMS,
        MutationServiceError::Failed(_) => code::INTERNAL_ERROR,
        MutationServiceError::Cancelled => REQUEST_CANCELLED,
    };
    RpcError::new(code, format!("failed to {error}"))
}
