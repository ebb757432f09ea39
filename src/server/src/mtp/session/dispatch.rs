//! Handles the messages of a client.

use std::sync::Arc;

use heeler_protocol::{
    mtp::{CancelParams, CancelRunParams, InitializeParams, InitializeResult, LogLevel, method},
    rpc::{self, RequestId, RpcError, RpcMessage, code},
};
use serde_json::value::RawValue;
use tokio::{sync::mpsc, time::Instant};

use super::{MAX_OPEN_REQUESTS, OpenTestRequest, ServerSession, dead_process_text};
use crate::discovery::{CurrentProgram, ProgramSource, watch_programs};
use crate::mtp::{
    debugger::{DebugSession, DebuggerRequests, DebuggerResponse},
    ending::EndOrder,
    initialize::{self, ClientProperties},
    params,
    requests::{JobKind, RequestCommand, RequestJob, TestRequestContext, TestRequests},
    run,
};
use crate::pool::ResponseKind;
use crate::scheduler::UpdateDelivery;

/// Capacity of the command queue to the request task: a start and a cancel for each request, plus some
/// pauses.
const COMMAND_QUEUE_CAPACITY: usize = 2 * MAX_OPEN_REQUESTS + 16;
/// Capacity of the queue of client responses: one for each open request of the server. Further responses
/// match no request.
const RESPONSE_QUEUE_CAPACITY: usize = MAX_OPEN_REQUESTS;

impl ServerSession {
    pub(super) fn on_message(&mut self, message: RpcMessage) {
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
                let message = format!("the request {method:?} needs an id (a number or a string)");
                let error = RpcError::new(code::INVALID_REQUEST, message);
                self.link.output.send(rpc::encode_error(&RequestId::Null, &error));
            }
            RpcMessage::Notification { method, params } if self.client_properties.is_some() => {
                self.on_notification(&method, params.as_deref());
            }
            RpcMessage::Response { id, outcome }
                if self.main_barriers.on_response(&id, response_kind(&outcome)) => {}
            RpcMessage::Response { id, outcome } => {
                if let Some(answers) = &self.client_responses {
                    // Dropping a response to an unknown id is harmless.
                    drop(answers.try_send(DebuggerResponse { id, outcome }));
                }
            }
            // Notifications before `initialize` are dropped.
            RpcMessage::Notification { .. } => {}
        }
    }

    fn on_initialize(&mut self, id: &RequestId, params: Option<&RawValue>) {
        match self.try_initialize(params) {
            Ok(result) => {
                self.link.mark_begun();
                self.link.output.send(rpc::encode_result(id, &result));
                self.probe_answers();
                for notice in std::mem::take(&mut self.options.notices) {
                    self.log(LogLevel::Warning, notice);
                }
            }
            Err(error) => self.link.output.send(rpc::encode_error(id, &error)),
        }
    }

    /// Checks whether a client with callback connections answers requests on its main connection.
    fn probe_answers(&mut self) {
        if self.client_properties.as_ref().is_some_and(ClientProperties::has_callback_port) {
            self.main_barriers.probes().into_iter().for_each(|frame| self.link.output.send(frame));
        }
    }

    fn try_initialize(&mut self, params: Option<&RawValue>) -> Result<InitializeResult, RpcError> {
        if self.client_properties.is_some() {
            let message = "the server has already received an initialize request";
            return Err(RpcError::new(code::INVALID_REQUEST, message));
        }
        let params = match params {
            None => InitializeParams::default(),
            Some(raw) => serde_json::from_str(raw.get()).map_err(|error| {
                RpcError::new(code::INVALID_PARAMS, format!("invalid params of initialize: {error}"))
            })?,
        };
        let (facts, result) = initialize::negotiate(params)?;
        self.watch_process(facts.process_id);
        if let Some(process) = self.dead_process {
            return Err(RpcError::new(code::INVALID_PARAMS, dead_process_text(process)));
        }
        self.start_requests(&facts);
        self.client_properties = Some(facts);
        Ok(result)
    }

    fn start_requests(&mut self, facts: &ClientProperties) {
        let Some(finished) = self.finished_requests_sender.take() else { return };
        let (commands, receiver) = mpsc::channel(COMMAND_QUEUE_CAPACITY);
        let (responses, client_responses) = mpsc::channel(RESPONSE_QUEUE_CAPACITY);
        let settings = Arc::clone(&self.options.settings);
        if facts.testing.extensions.program_changes {
            self.watch_programs();
        }
        let registration = self.options.registration(UpdateDelivery::Frames {
            callback: facts.callback(&self.options.client_host),
            main_connection: self.link.output.outbox(),
            main_barriers: self.main_barriers.clone(),
            limits: crate::run::delivery_limits(&settings),
        });
        let debuggers = DebuggerRequests::new(
            client_responses,
            DebugSession {
                is_available: facts.testing.debugger_provider,
                is_debug_session: self.options.is_debug,
            },
        );
        let context = TestRequestContext {
            settings,
            provenance: self.options.provenance.clone(),
            has_attachments_stream: facts.testing.attachments_support,
            log_form: facts.log_form(),
            outbox: self.link.output.outbox(),
            reports: self.reports.clone(),
        };
        let scheduler = self.scheduler.clone();
        self.requests.spawn(async move {
            match scheduler.register(registration).await {
                Ok(client) => TestRequests::new(context, client, debuggers, finished).serve(receiver).await,
                Err(gone) => {
                    tracing::error!(error = heeler_core::error_chain(&gone), "failed to start a session")
                }
            }
        });
        self.client_responses = Some(responses);
        self.commands = Some(commands);
    }

    /// Starts notifying the client of changed programs.
    fn watch_programs(&mut self) {
        let Some(finder) = self.options.finder.clone() else { return };
        let program = |source: &ProgramSource| CurrentProgram {
            path: source.program.path.as_path().to_owned(),
            suite: Some(source.program.suite.clone()),
        };
        let known = self.options.sources.iter().map(program).collect();
        self.program_watch.spawn(watch_programs(finder, known, self.link.output.outbox()));
    }

    fn on_request(&mut self, id: RequestId, method: &str, params: Option<&RawValue>) {
        if let Err(error) = self.enqueue_request(&id, method, params) {
            self.end_refused_streams(method, params);
            self.link.output.send(rpc::encode_error(&id, &error));
        }
    }

    /// Ends the streams of a refused request, for clients that wait for that. Streams of an open request with
    /// the same run id are left alone.
    fn end_refused_streams(&mut self, method: &str, params: Option<&RawValue>) {
        let Some(client) = &self.client_properties else { return };
        let has_attachments = match method {
            method::RUN => client.testing.attachments_support,
            method::DISCOVER => false,
            _ => return,
        };
        let Some(run_id) = params::readable_run_id(params) else { return };
        if !self.open_requests.values().any(|open| open.run_id == run_id) {
            run::end_frames(has_attachments, &run_id).for_each(|frame| self.link.output.send(frame));
        }
    }

    fn enqueue_request(
        &mut self,
        id: &RequestId,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<(), RpcError> {
        // Check the session's state and the method.
        if self.client_properties.is_none() {
            let message = "the server must be initialized before this request can be processed";
            return Err(RpcError::new(code::SERVER_NOT_INITIALIZED, message));
        }
        if !self.phase.accepts_requests() {
            return Err(RpcError::new(code::INVALID_REQUEST, "no requests are accepted after exit"));
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
            let message = format!("request id {id} is already in use");
            return Err(RpcError::new(code::INVALID_REQUEST, message));
        }
        // Check the parameters, and that the run id is not in use.
        let request = params::parse_tests_request(params)?;
        let request = if kind == JobKind::Discover { request.for_discovery()? } else { request };
        let may_change_programs = self.options.allows_program_options;
        let request = if may_change_programs { request } else { request.for_other_machine()? };
        if let Some((other, _)) = self.open_requests.iter().find(|(_, open)| open.run_id == request.run_id) {
            let message = format!("the runId {:?} is already in use by request {other}", request.run_id);
            return Err(RpcError::new(code::INVALID_PARAMS, message));
        }
        // Pass the request on if there is room.
        let full = || {
            let message = format!(
                "too many requests in progress (limit: {MAX_OPEN_REQUESTS} per session); wait for a response"
            );
            RpcError::new(code::INVALID_REQUEST, message)
        };
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
        self.open_requests.insert(id.clone(), OpenTestRequest { run_id, is_cancelled: false });
        // The client may have started answering again since the last probe.
        if kind == JobKind::Run && self.main_barriers.has_stopped() {
            self.probe_answers();
        }
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

    /// Cancels the open requests that match. A second cancel has no effect.
    pub(super) fn cancel(&mut self, is_meant: impl Fn(&RequestId, &OpenTestRequest) -> bool) {
        let Some(commands) = &self.commands else { return };
        for (id, open) in &mut self.open_requests {
            if !open.is_cancelled && is_meant(id, open) {
                // The queue has room for one cancel per open request.
                open.is_cancelled = commands.try_send(RequestCommand::Cancel(id.clone())).is_ok();
            }
        }
    }
}

fn response_kind<T>(outcome: &Result<T, RpcError>) -> ResponseKind {
    if outcome.is_ok() { ResponseKind::Result } else { ResponseKind::Error }
}

/// Returns whether a method requires a response. The sender of such a message without an id would wait
/// forever.
fn requires_response(method: &str) -> bool {
    [method::INITIALIZE, method::DISCOVER, method::RUN].contains(&method)
}
