//! A session's requests in progress. Each request waits for the listing. Then its tests are sent (discovery)
//! or run, and the request is answered. A single task handles all requests; it waits for the client's
//! commands, the scheduler, and room in the client's connection.

use std::{
    collections::{BTreeMap, VecDeque},
    future::{pending, ready},
    sync::Arc,
};

use bytes::Bytes;
use heeler_protocol::{
    mtp::{LogForm, LogLevel, LogMessage, log_frames},
    rpc::{RequestId, RpcError, code},
};
use heeler_transport::Outbox;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until},
};

use super::{
    debugger::{DebuggerRequests, DebuggerResponse},
    discover::{self, cancelled_error},
    params::TestsRequest,
    run,
};
use crate::discovery::{Catalogue, TestRef};
use crate::run::{
    PlanContext, PreparedRun, ReportFileWriter, RunRequest, discard_run, prepare_run, record_run,
};
use crate::scheduler::{BuildRequest, ClientEvent, ClientLogLine, RequestNumber, RunClient, SchedulerGone};
use heeler_config::ResolvedSettings;
use heeler_run_store::Provenance;

/// While this many frames are queued, scheduler events have to wait. The scheduler then drops log lines.
const MAX_QUEUED_FRAMES: usize = 256;

pub(super) struct RequestJob {
    pub(super) id: RequestId,
    pub(super) request: TestsRequest,
    pub(super) kind: JobKind,
    pub(super) begun: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobKind {
    Discover,
    Run,
}

/// A command from the session.
pub(super) enum RequestCommand {
    Start(Box<RequestJob>),
    /// Cancels a request in progress.
    Cancel(RequestId),
    /// Stops all test processes. The sender is used once they have stopped.
    Pause(oneshot::Sender<()>),
    /// Resumes stopped test processes.
    Resume,
}

enum RequestStage {
    AwaitingListing,
    /// Sending discovered tests to the client. `next` is the index of the next test.
    SendingTests {
        catalogue: Arc<Catalogue>,
        wanted: Vec<TestRef>,
        next: usize,
    },
    Running,
}

struct OpenJob {
    job: Box<RequestJob>,
    progress: RequestStage,
}

/// Properties of the client and its session that requests need.
pub(super) struct TestRequestContext {
    pub(super) settings: Arc<ResolvedSettings>,
    /// How the run was started, recorded with each run.
    pub(super) provenance: Provenance,
    pub(super) has_attachments_stream: bool,
    pub(super) log_form: LogForm,
    pub(super) outbox: Outbox,
    /// Writes the report files of completed runs.
    pub(super) reports: ReportFileWriter,
}

/// An item that waits for room in the client's connection.
enum Outgoing {
    Frame(Bytes),
    /// All frames of this request were sent, including the response.
    Finished(RequestId),
}

pub(super) struct TestRequests {
    context: TestRequestContext,
    client: RunClient,
    pub(super) debuggers: DebuggerRequests,
    jobs: BTreeMap<RequestNumber, OpenJob>,
    next_job: u64,
    outgoing: VecDeque<Outgoing>,
    /// Reports to the session which requests were answered.
    finished: mpsc::Sender<RequestId>,
}

enum RequestEvent {
    Command(RequestCommand),
    /// The session has closed its command channel.
    CommandsClosed,
    /// The client has responded to a request of the server.
    DebuggerResponse(DebuggerResponse),
    Scheduler(Option<ClientEvent>),
    /// The first queued frame was sent.
    Sent,
    DebuggerDeadline,
    /// A discovery has more tests to send.
    SendDiscoveryUpdates,
}

impl TestRequests {
    pub(super) fn new(
        context: TestRequestContext,
        client: RunClient,
        debuggers: DebuggerRequests,
        finished: mpsc::Sender<RequestId>,
    ) -> Self {
        Self {
            context,
            client,
            debuggers,
            jobs: BTreeMap::new(),
            next_job: 0,
            outgoing: VecDeque::new(),
            finished,
        }
    }

    /// Serves requests until the session sends no more and all are answered, then leaves the scheduler.
    /// Returns at once if the scheduler has failed.
    ///
    /// Cancel safe: no, because requests in progress would get no response. Dropping the future ends the
    /// client's runs.
    pub(super) async fn serve(mut self, commands: mpsc::Receiver<RequestCommand>) {
        match self.serve_all(commands).await {
            Ok(()) => self.client.leave().await,
            Err(gone) => tracing::error!(error = heeler_core::error_chain(&gone), "session aborted"),
        }
    }

    async fn serve_all(&mut self, commands: mpsc::Receiver<RequestCommand>) -> Result<(), SchedulerGone> {
        let mut commands = Some(commands);
        while commands.is_some() || !self.jobs.is_empty() || !self.outgoing.is_empty() {
            match self.next_event(&mut commands).await {
                RequestEvent::Command(command) => self.on_command(command).await?,
                RequestEvent::CommandsClosed => commands = None,
                RequestEvent::DebuggerResponse(response) => self.on_client_response(response).await?,
                RequestEvent::Scheduler(Some(event)) => self.on_event(event).await?,
                RequestEvent::Scheduler(None) => return Err(SchedulerGone),
                RequestEvent::Sent => self.report_finished().await,
                RequestEvent::DebuggerDeadline => self.on_debugger_deadline(Instant::now()).await?,
                RequestEvent::SendDiscoveryUpdates => self.send_discovery_updates().await,
            }
        }
        Ok(())
    }

    async fn next_event(&mut self, commands: &mut Option<mpsc::Receiver<RequestCommand>>) -> RequestEvent {
        let deadline = self.debuggers.next_deadline();
        let has_tests_to_send = self.outgoing.is_empty()
            && self.jobs.values().any(|open| matches!(open.progress, RequestStage::SendingTests { .. }));
        let command = async {
            match commands {
                Some(commands) => commands.recv().await,
                None => pending().await,
            }
        };
        let expired = async {
            match deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => pending().await,
            }
        };
        let has_room = self.outgoing.len() < MAX_QUEUED_FRAMES;
        // Earlier branches have priority. Commands come first; more discovered tests are sent only when idle.
        tokio::select! {
            biased;
            command = command => command.map_or(RequestEvent::CommandsClosed, RequestEvent::Command),
            response = self.debuggers.next_response() => RequestEvent::DebuggerResponse(response),
            () = send_first(&self.context.outbox, &mut self.outgoing), if !self.outgoing.is_empty() => {
                RequestEvent::Sent
            }
            event = self.client.next_event(), if has_room => RequestEvent::Scheduler(event),
            () = expired => RequestEvent::DebuggerDeadline,
            () = ready(()), if has_tests_to_send => RequestEvent::SendDiscoveryUpdates,
        }
    }

    async fn on_command(&mut self, command: RequestCommand) -> Result<(), SchedulerGone> {
        match command {
            RequestCommand::Start(job) => {
                let number = RequestNumber(self.next_job);
                self.next_job += 1;
                let build = self.build_request(&job);
                self.jobs.insert(number, OpenJob { job, progress: RequestStage::AwaitingListing });
                self.client.list(number, build).await
            }
            RequestCommand::Cancel(id) => self.cancel(&id).await,
            RequestCommand::Pause(done) => self.client.pause(done).await,
            RequestCommand::Resume => self.client.resume().await,
        }
    }

    /// Returns whether to build the programs first: if the request asks for it, or for any discovery if
    /// configured.
    fn build_request(&self, job: &RequestJob) -> BuildRequest {
        let is_configured = job.kind == JobKind::Discover && self.context.settings.run.is_built_on_discovery;
        if job.request.is_built || is_configured { BuildRequest::First } else { BuildRequest::None }
    }

    async fn cancel(&mut self, id: &RequestId) -> Result<(), SchedulerGone> {
        let found = self.jobs.iter().find(|(_, open)| open.job.id == *id).map(|(number, _)| *number);
        let Some(number) = found else { return Ok(()) };
        self.client.cancel(number).await?;
        if let Some(open) = self.jobs.get(&number)
            && !matches!(open.progress, RequestStage::Running)
        {
            self.fail(number, &cancelled_error());
            self.report_finished().await;
        }
        Ok(())
    }

    async fn on_event(&mut self, event: ClientEvent) -> Result<(), SchedulerGone> {
        match event {
            ClientEvent::Listed { request, catalogue } => self.on_listed(request, catalogue).await?,
            ClientEvent::Log { run, lines } => self.queue_log(run.as_deref(), lines),
            ClientEvent::RunRefused { request, plan, error } => {
                discard_run(&plan);
                self.fail(request, &RpcError::new(code::INTERNAL_ERROR, error));
            }
            ClientEvent::FinishRun(frames) => self.queue(frames),
            // Updates reach this client as frames.
            ClientEvent::Updates(_) | ClientEvent::MachineWait(_) => {}
            ClientEvent::RunEnded { request, plan, outcome } => {
                let Some(OpenJob { job, .. }) = self.jobs.remove(&request) else { return Ok(()) };
                let warning = record_run(&self.context.settings, &plan, &outcome, job.begun.elapsed());
                if let Some(text) = warning {
                    self.log(LogLevel::Warning, text);
                }
                let TestRequestContext { reports, outbox, log_form, .. } = &self.context;
                let (outbox, log_form) = (outbox.clone(), *log_form);
                reports.start(&plan.run_dir, move |warning| log_at_once(&outbox, log_form, warning));
                self.queue(run::final_frames(&job, &plan, &outcome));
                self.outgoing.push_back(Outgoing::Finished(job.id));
            }
            // Not sent to clients that get frames.
            ClientEvent::Waits { .. } => {}
            ClientEvent::DebuggeeWaiting(waiting) => self.request_debugger(waiting),
            ClientEvent::DebuggeeLaunched(lease) => self.drop_launched_request(lease),
            ClientEvent::DebuggeeGone(lease) => self.cancel_debugger_request_of(lease),
        }
        self.report_finished().await;
        Ok(())
    }

    async fn on_listed(
        &mut self,
        request: RequestNumber,
        catalogue: Result<Arc<Catalogue>, String>,
    ) -> Result<(), SchedulerGone> {
        // A request cancelled in the meantime already has its response.
        let Some(open) = self.jobs.get_mut(&request) else { return Ok(()) };
        let catalogue = match catalogue {
            Ok(catalogue) => catalogue,
            Err(error) => {
                self.fail(request, &RpcError::new(code::INTERNAL_ERROR, error));
                return Ok(());
            }
        };
        match open.job.kind {
            JobKind::Discover => {
                let wanted = discover::requested_tests(&catalogue, &open.job.request);
                open.progress = RequestStage::SendingTests { catalogue, wanted, next: 0 };
                Ok(())
            }
            JobKind::Run => {
                open.progress = RequestStage::Running;
                self.begin_run(request, &catalogue).await
            }
        }
    }

    async fn begin_run(
        &mut self,
        request: RequestNumber,
        catalogue: &Catalogue,
    ) -> Result<(), SchedulerGone> {
        let Some(open) = self.jobs.get(&request) else { return Ok(()) };
        let tests = &open.job.request;
        let wants_debugger = self.debuggers.is_debug_run(tests.is_debug);
        let selection = tests.selection.with_fixtures(catalogue);
        let run = RunRequest {
            run_id: &tests.run_id,
            selection: &selection,
            is_debugged: wants_debugger && self.debuggers.is_available(),
            has_attachments_stream: self.context.has_attachments_stream,
        };
        let client_members = tests.client_members.clone();
        let session_settings = self.context.settings.as_ref();
        let settings = tests.options.as_ref().map(|options| session_settings.for_run(options));
        let settings = settings.as_ref().unwrap_or(session_settings);
        let provenance = Provenance { shard: tests.shard.clone(), ..self.context.provenance.clone() };
        let context = PlanContext { catalogue, settings, provenance: &provenance };
        match prepare_run(&run, &context) {
            Ok(PreparedRun { plan, warnings }) => {
                for text in warnings {
                    self.log(LogLevel::Warning, text);
                }
                if wants_debugger && !self.debuggers.is_available() {
                    let text =
                        "the tests run without a debugger: the client does not declare debuggerProvider";
                    self.log(LogLevel::Warning, text.to_owned());
                }
                self.client.start_run(request, Box::new(plan), client_members).await
            }
            Err(error) => {
                let text = format!("failed to {}", heeler_core::error_chain(&error));
                self.fail(request, &RpcError::new(code::INTERNAL_ERROR, text));
                Ok(())
            }
        }
    }

    /// Queues the next part of each discovery. Runs make progress between the parts.
    async fn send_discovery_updates(&mut self) {
        let mut frames = Vec::new();
        let mut over = Vec::new();
        for (number, open) in &mut self.jobs {
            let RequestStage::SendingTests { catalogue, wanted, next } = &mut open.progress else { continue };
            frames.push(discover::next_update(catalogue, &open.job.request, wanted, next));
            if *next >= wanted.len() {
                over.push(*number);
            }
        }
        self.queue(frames);
        for number in over {
            let Some(OpenJob { job, progress }) = self.jobs.remove(&number) else { continue };
            if let RequestStage::SendingTests { catalogue, wanted, .. } = progress {
                self.queue(discover::final_frames(Some(&catalogue), &job, Ok(wanted.len())));
            }
            self.outgoing.push_back(Outgoing::Finished(job.id));
        }
        self.report_finished().await;
    }

    /// Responds with an error. The completion precedes it even if the request never began.
    fn fail(&mut self, request: RequestNumber, error: &RpcError) {
        let Some(OpenJob { job, progress }) = self.jobs.remove(&request) else { return };
        let frames = match job.kind {
            JobKind::Discover => {
                let catalogue = match &progress {
                    RequestStage::SendingTests { catalogue, .. } => Some(catalogue.as_ref()),
                    RequestStage::AwaitingListing | RequestStage::Running => None,
                };
                discover::final_frames(catalogue, &job, Err(error))
            }
            JobKind::Run => run::refused_run_frames(self.context.has_attachments_stream, &job, error),
        };
        self.queue(frames);
        self.outgoing.push_back(Outgoing::Finished(job.id));
    }

    /// Reports to the session the requests whose frames have all been sent.
    async fn report_finished(&mut self) {
        while let Some(Outgoing::Finished(id)) = self.outgoing.front() {
            let id = id.clone();
            self.outgoing.pop_front();
            // The session may be gone.
            let _gone = self.finished.send(id).await;
        }
    }

    fn queue(&mut self, frames: impl IntoIterator<Item = Bytes>) {
        self.outgoing.extend(frames.into_iter().map(Outgoing::Frame));
    }

    pub(super) fn queue_frame(&mut self, frame: Bytes) {
        self.queue([frame]);
    }

    fn log(&mut self, level: LogLevel, message: String) {
        self.queue_log(None, vec![ClientLogLine::new(level, message)]);
    }

    pub(super) fn queue_log(&mut self, run: Option<&str>, lines: Vec<ClientLogLine>) {
        let message = |line: ClientLogLine| LogMessage {
            node_uid: line.test_uid,
            level: line.level,
            message: line.message,
        };
        let messages = lines.into_iter().map(message).collect();
        self.queue(log_frames(self.context.log_form, run, messages));
    }

    pub(super) fn client(&self) -> &RunClient {
        &self.client
    }

    pub(super) fn settings(&self) -> &ResolvedSettings {
        &self.context.settings
    }
}

/// Logs a warning if the client's connection has room. A client that reads nothing, or is gone, does not get
/// it.
fn log_at_once(outbox: &Outbox, form: LogForm, message: String) {
    let message = LogMessage { node_uid: None, level: LogLevel::Warning, message };
    for frame in log_frames(form, None, vec![message]) {
        let _unsent = outbox.try_send(frame);
    }
}

/// Sends the first queued frame. The frame stays queued until the link has accepted it.
///
/// Cancel safe: yes, because the frame is removed only after it is sent.
async fn send_first(outbox: &Outbox, outgoing: &mut VecDeque<Outgoing>) {
    if let Some(Outgoing::Frame(frame)) = outgoing.front() {
        // The session's reader detects a client that is gone.
        let _closed = outbox.send(frame.clone()).await;
        outgoing.pop_front();
    }
}
