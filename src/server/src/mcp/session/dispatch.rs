//! Handles the messages of a client.

use heeler_protocol::{
    mcp::{
        self, CallToolParams, CallToolResult, CancelAnswer, CancelRunArguments, CancelledParams,
        CreateTaskResult, DiscoverResult, EmptyObject, Era, EraResult, InitializeParams, InitializeResult,
        ListToolsParams, NoArguments, PeerLine, RequestEra, ResultCaching, TaskParams, Tool, method,
        read_params, request_era,
    },
    rpc::{InvalidMessage, RequestId, RpcError, RpcMessage, code},
};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::{JobOutput, MAX_OPEN_CALLS, McpSession};
use crate::listen::SessionEnd;
use crate::mcp::{
    calls::{CallProgress, CallWork, OpenCall},
    recorded, self_test,
    tasks::TaskHandle,
};
use crate::scheduler::{BuildRequest, RequestNumber, SchedulerGone};

/// Instructions for agents that use this server.
const INSTRUCTIONS: &str = "Runs this project's tests. run_tests returns the first failures of a run; get_failures \
     returns all of them, and get_output the full output of one test. Each run first rebuilds or rediscovers the \
     tests.";

impl McpSession {
    /// Handles a line. Returns how the session ended if it ends at once.
    pub(super) async fn on_line(&mut self, line: &PeerLine) -> Result<Option<SessionEnd>, SchedulerGone> {
        let (id, error) = match line {
            PeerLine::Message(line) => match mcp::read_message(line) {
                Ok(message) => {
                    self.link.mark_begun();
                    return self.on_message(message).await.map(|()| None);
                }
                Err(InvalidMessage { id, error }) => (id, error),
            },
            PeerLine::TooLong => {
                let message = format!("line too long: the limit is {} bytes", mcp::LINE_LIMIT_BYTES);
                (RequestId::Null, RpcError::new(code::INVALID_REQUEST, message))
            }
        };
        self.refuse(&id, &error);
        if self.link.awaits_beginning() {
            tracing::warn!("connection closed: the client's first line is not a JSON-RPC message");
            return Ok(Some(SessionEnd::Disconnected));
        }
        Ok(None)
    }

    async fn on_message(&mut self, message: RpcMessage) -> Result<(), SchedulerGone> {
        match message {
            RpcMessage::Request { id, method, params } => {
                self.on_request(id, &method, params.as_deref()).await
            }
            RpcMessage::Notification { method, params } if method == method::CANCELLED => {
                self.on_cancelled(params.as_deref()).await
            }
            // This server sends no requests, and other notifications don't matter.
            RpcMessage::Notification { .. } | RpcMessage::Response { .. } => Ok(()),
        }
    }

    async fn on_request(
        &mut self,
        id: RequestId,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<(), SchedulerGone> {
        let request = match request_era(method, params) {
            Ok(request) => request,
            Err(error) => {
                self.refuse(&id, &error);
                return Ok(());
            }
        };
        let era = request.era;
        match (method, era) {
            (method::TOOLS_CALL, _) => return self.on_call(id, request, params).await,
            (method::INITIALIZE, _) => match read_params::<InitializeParams>(method, params) {
                Ok(params) => {
                    self.link.output.send(mcp::encode_result(
                        &id,
                        &InitializeResult::new(&params.protocol_version, INSTRUCTIONS),
                    ));
                }
                Err(error) => self.refuse(&id, &error),
            },
            (method::DISCOVER, _) => {
                let result = EraResult::new(DiscoverResult::new(INSTRUCTIONS), era, ResultCaching::Stable);
                self.link.output.send(mcp::encode_result(&id, &result));
            }
            (method::TOOLS_LIST, _) => match read_params::<ListToolsParams>(method, params) {
                // The list has a single page, so no cursor is valid.
                Ok(ListToolsParams { cursor: Some(cursor) }) => {
                    let message =
                        format!("unknown cursor {:?}: the list has only one page", mcp::shortened(&cursor));
                    self.refuse(&id, &RpcError::new(code::INVALID_PARAMS, message));
                }
                Ok(ListToolsParams { cursor: None }) => {
                    let result = EraResult::new(mcp::list_of_tools(), era, ResultCaching::Stable);
                    self.link.output.send(mcp::encode_result(&id, &result));
                }
                Err(error) => self.refuse(&id, &error),
            },
            (method::TASKS_GET | method::TASKS_UPDATE | method::TASKS_CANCEL, Era::Modern) => {
                return self.on_task_request(&id, method, params).await;
            }
            (method::PING, Era::Legacy) => self.link.output.send(mcp::encode_result(&id, &EmptyObject {})),
            _ => {
                let message = format!("the method {:?} is not supported", mcp::shortened(method));
                self.refuse(&id, &RpcError::new(code::METHOD_NOT_FOUND, message));
            }
        }
        Ok(())
    }

    async fn on_call(
        &mut self,
        id: RequestId,
        request: RequestEra,
        params: Option<&RawValue>,
    ) -> Result<(), SchedulerGone> {
        let parsed = read_params::<CallToolParams>(method::TOOLS_CALL, params).and_then(|params| {
            let unknown = || {
                let message = format!("Unknown tool: {}", mcp::shortened(&params.name));
                RpcError::new(code::INVALID_PARAMS, message)
            };
            Ok((Tool::find(&params.name).ok_or_else(unknown)?, params.arguments))
        });
        // A call is answered later, so count it and check its id.
        let (tool, arguments) = match parsed.and_then(|parsed| self.check_room(&id).map(|()| parsed)) {
            Ok(parsed) => parsed,
            Err(error) => {
                self.refuse(&id, &error);
                return Ok(());
            }
        };
        let number = RequestNumber(self.next_call);
        self.next_call += 1;
        let progress = request.progress_token.map(|token| CallProgress::new(token, Instant::now()));
        let call =
            OpenCall { id, era: request.era, progress, work: CallWork::Job, task: None, is_cancelled: false };
        self.calls.insert(number, call);
        // A run of a client that supports tasks is answered at once.
        match self.begin_call(number, tool, arguments.as_deref()).await {
            Ok(begun) => {
                if tool == Tool::RunTests && request.takes_tasks {
                    self.answer_with_task(number);
                }
                begun
            }
            Err(wrong_arguments) => {
                self.fail(number, &wrong_arguments);
                Ok(())
            }
        }
    }

    /// Refuses a call beyond the limit, or with the id of another open call.
    fn check_room(&self, id: &RequestId) -> Result<(), RpcError> {
        let is_open = |call: &OpenCall| call.task.is_none() && !call.is_cancelled;
        if self.calls.values().any(|call| call.id == *id && is_open(call)) {
            let message = format!("request id {id} is already in use");
            return Err(RpcError::new(code::INVALID_REQUEST, message));
        }
        if self.calls.len() >= MAX_OPEN_CALLS {
            let message =
                format!("too many calls in progress (limit: {MAX_OPEN_CALLS}); wait for one to finish");
            return Err(RpcError::new(code::INTERNAL_ERROR, message));
        }
        Ok(())
    }

    /// Begins the work of a call. The outer error describes the expected arguments.
    async fn begin_call(
        &mut self,
        number: RequestNumber,
        tool: Tool,
        arguments: Option<&RawValue>,
    ) -> Result<Result<(), SchedulerGone>, String> {
        let state_dir = self.options.settings.state_dir.clone();
        match tool {
            Tool::ListTests => {
                let work = CallWork::ListTests(tool.parse_arguments(arguments)?);
                return Ok(self.begin_listing(number, work).await);
            }
            Tool::RunTests => {
                let work = CallWork::AwaitRun(tool.parse_arguments(arguments)?);
                return Ok(self.begin_listing(number, work).await);
            }
            Tool::GetFailures => {
                let arguments = tool.parse_arguments(arguments)?;
                self.start_job(number, move || {
                    let answer = recorded::failures(&state_dir, &arguments);
                    JobOutput::Answer(answer.map(|answer| CallToolResult::object(&answer)))
                });
            }
            Tool::GetOutput => {
                let arguments = tool.parse_arguments(arguments)?;
                self.start_job(number, move || {
                    let answer = recorded::output(&state_dir, &arguments);
                    JobOutput::Answer(answer.map(|answer| CallToolResult::object(&answer)))
                });
            }
            Tool::CancelRun => {
                let arguments: CancelRunArguments = tool.parse_arguments(arguments)?;
                return self.cancel_run(number, &arguments.run).await;
            }
            Tool::TestCapabilities | Tool::TestProtocol => {
                let NoArguments {} = tool.parse_arguments(arguments)?;
                let test = self_test::run(tool, self.options.clone(), self.scheduler.clone());
                let job = async move { JobOutput::Answer(Ok(CallToolResult::object(&test.await))) };
                let job = self.jobs.spawn(job);
                self.job_calls.insert(job.id(), number);
            }
        }
        Ok(Ok(()))
    }

    /// Requests a listing. If this server builds programs, the agent's changes are built first.
    async fn begin_listing(&mut self, number: RequestNumber, work: CallWork) -> Result<(), SchedulerGone> {
        if let Some(call) = self.calls.get_mut(&number) {
            if let Some(progress) = &mut call.progress {
                match &work {
                    // The first progress of a run should contain its id, unless listing takes long.
                    CallWork::AwaitRun(_) => progress.describe(&work.describe()),
                    _ => progress.update(0, None, "listing tests".to_owned()),
                }
            }
            call.work = work;
        }
        self.send_due_progress();
        self.client.list(number, BuildRequest::First).await
    }

    /// Cancels a run of this session, given its id or a prefix.
    async fn cancel_run(
        &mut self,
        number: RequestNumber,
        word: &str,
    ) -> Result<Result<(), SchedulerGone>, String> {
        let runs = self.calls.iter().filter_map(|(number, call)| match &call.work {
            CallWork::Run(run) if !word.is_empty() && run.run_id.starts_with(word) => {
                Some((*number, run.run_id.clone()))
            }
            _ => None,
        });
        let found: Vec<_> = runs.take(2).collect();
        let [(run, run_id)] = found.as_slice() else {
            let problem = if found.is_empty() { "no run" } else { "more than one run" };
            let word = mcp::shortened(word);
            return Err(format!(
                "this server has {problem} in progress with an id that starts with {word:?}"
            ));
        };
        let cancelled = self.client.cancel(*run).await;
        self.finish(
            number,
            CallToolResult::object(&CancelAnswer { run: run_id.clone(), state: "cancelling" }),
        );
        Ok(cancelled)
    }

    /// Answers a call right away with a task. The client fetches the result later.
    fn answer_with_task(&mut self, number: RequestNumber) {
        let now = Instant::now();
        let Some(call) = self.calls.get_mut(&number) else { return };
        let handle = TaskHandle::new(now);
        // After this answer, only responses may follow, so stop sending progress.
        call.progress = None;
        let (id, task) = (call.id.clone(), handle.working(call.work.describe(), now));
        call.task = Some(handle);
        self.link.output.send(mcp::encode_result(&id, &CreateTaskResult::new(task)));
    }

    async fn on_task_request(
        &mut self,
        id: &RequestId,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<(), SchedulerGone> {
        let TaskParams { task_id } = match read_params(method, params) {
            Ok(params) => params,
            Err(error) => {
                self.refuse(id, &error);
                return Ok(());
            }
        };
        // Find the task among the calls in progress and the ended tasks.
        let now = Instant::now();
        let open = self.calls.iter().find_map(|(number, call)| {
            let handle = call.task.as_ref().filter(|task| task.id == task_id)?;
            Some((*number, handle.working(call.work.describe(), now)))
        });
        let (number, task) = match (open, self.ended_tasks.find(&task_id, now)) {
            (Some((number, task)), _) => (Some(number), task),
            (None, Some(task)) => (None, task.clone()),
            (None, None) => {
                let message = format!("unknown task {:?}", mcp::shortened(&task_id));
                self.refuse(id, &RpcError::new(code::INVALID_PARAMS, message));
                return Ok(());
            }
        };
        if method == method::TASKS_GET {
            let result = EraResult::new(task, Era::Modern, ResultCaching::Volatile);
            self.link.output.send(mcp::encode_result(id, &result));
            return Ok(());
        }
        // No task asks for input, so an update needs no action.
        let result = EraResult::new(EmptyObject {}, Era::Modern, ResultCaching::Volatile);
        self.link.output.send(mcp::encode_result(id, &result));
        let Some(number) = number.filter(|_| method == method::TASKS_CANCEL) else { return Ok(()) };
        if let Some(call) = self.calls.get_mut(&number) {
            call.is_cancelled = true;
        }
        self.cancel(number).await
    }

    async fn on_cancelled(&mut self, params: Option<&RawValue>) -> Result<(), SchedulerGone> {
        let Ok(params) = read_params::<CancelledParams>(method::CANCELLED, params) else { return Ok(()) };
        let is_meant = |(_, call): &(&RequestNumber, &mut OpenCall)| {
            call.id == params.request_id && call.task.is_none() && !call.is_cancelled
        };
        let Some((number, call)) = self.calls.iter_mut().find(is_meant) else { return Ok(()) };
        call.is_cancelled = true;
        let number = *number;
        self.cancel(number).await
    }
}
