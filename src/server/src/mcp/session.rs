//! One client connection. A single task waits for the client, the scheduler, and jobs that read files.
//! `dispatch` handles the client's messages.
//!
//! The session ends with its input, as is usual for servers on standard streams.

mod dispatch;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use heeler_core::error_chain;
use heeler_protocol::{
    control::{RunUpdates, TestUpdate},
    mcp::{self, CallToolResult, EraResult, LineDecoder, ResultCaching, TestsAnswer, method},
    mtp::{ClientMembers, LogLevel},
    rpc::{RequestId, RpcError},
};
use tokio::{
    sync::mpsc,
    task::{self, JoinSet},
    time::Instant,
};

use super::{
    calls::{CallWork, OpenCall, RunningCall},
    recorded,
    selection::{self, PlannedRun},
    tasks::EndedTasks,
};
use crate::discovery::Catalogue;
use crate::listen::{
    ClientStream, LinkEvent, LinkLimits, SessionCommand, SessionEnd, SessionLink, SessionOptions, await_end,
    wait_for_deadline,
};
use crate::run::{PreparedRun, ReportFileWriter, RunOutcome, RunPlan, discard_run, record_run};
use crate::scheduler::{
    ClientEvent, ClientLogLine, RequestNumber, RunClient, SchedulerGone, SchedulerHandle, UpdateDelivery,
};

/// Maximum number of calls in progress. A client that exceeds it probably doesn't track its calls.
const MAX_OPEN_CALLS: usize = 64;
/// Time limit for answering cancelled runs at a session's end, on top of the tests' grace period.
const EXIT_DEADLINE: Duration = Duration::from_secs(10);
/// Time limit for jobs that read files after the client has closed its end, and for the last answers.
const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(1);

/// Serves a client until its session ends.
///
/// Cancel safe: no, because the scheduler would have to end the runs.
pub(super) async fn serve(
    stream: ClientStream,
    options: SessionOptions,
    scheduler: SchedulerHandle,
    commands: mpsc::Receiver<SessionCommand>,
) -> SessionEnd {
    match scheduler.register(options.registration(UpdateDelivery::Events)).await {
        Ok(client) => McpSession::new(stream, options, scheduler, client, commands).serve().await,
        Err(gone) => {
            tracing::error!(error = error_chain(&gone), "failed to start a session");
            SessionEnd::Disconnected
        }
    }
}

/// The result of a job.
enum JobOutput {
    Answer(Result<CallToolResult, String>),
    Planned(Result<Box<PlannedRun>, String>),
}

enum McpEvent {
    Link(LinkEvent<LineDecoder>),
    Scheduler(Option<ClientEvent>),
    Job(Result<(task::Id, JobOutput), task::JoinError>),
    ProgressDue,
}

struct McpSession {
    options: SessionOptions,
    /// Needed by the sessions of self-test tools.
    scheduler: SchedulerHandle,
    client: RunClient,
    /// If a connected client's first line is not a message, the session ends at once, because the client may
    /// be a browser that an attacker's page made connect.
    link: SessionLink<LineDecoder>,
    /// In order of arrival. The numbers are also used for requests to the scheduler.
    calls: BTreeMap<RequestNumber, OpenCall>,
    next_call: u64,
    ended_tasks: EndedTasks,
    jobs: JoinSet<JobOutput>,
    /// The call of each job.
    job_calls: HashMap<task::Id, RequestNumber>,
    reports: ReportFileWriter,
}

impl McpSession {
    fn new(
        stream: ClientStream,
        options: SessionOptions,
        scheduler: SchedulerHandle,
        client: RunClient,
        commands: mpsc::Receiver<SessionCommand>,
    ) -> Self {
        // Read nothing more while a line waits to be sent.
        let limits =
            LinkLimits { begin: options.initialize_within, unsent_frames: 1, ..LinkLimits::default() };
        let mut link = SessionLink::open(stream, LineDecoder::default(), commands, limits);
        link.watch_owner(&options);
        Self {
            scheduler,
            client,
            link,
            calls: BTreeMap::new(),
            next_call: 0,
            ended_tasks: EndedTasks::default(),
            jobs: JoinSet::new(),
            job_calls: HashMap::new(),
            reports: ReportFileWriter::new(&options.settings.run.reports),
            options,
        }
    }

    async fn serve(mut self) -> SessionEnd {
        let end = loop {
            if self.link.is_ending() && self.calls.is_empty() {
                break SessionEnd::Exit;
            }
            let event = self.next_event().await;
            match self.on_event(event).await {
                Ok(None) => {}
                Ok(Some(end)) => break end,
                Err(gone) => {
                    tracing::error!(error = error_chain(&gone), "session aborted");
                    break SessionEnd::Disconnected;
                }
            }
        };
        self.shut_down().await;
        end
    }

    async fn next_event(&mut self) -> McpEvent {
        let now = Instant::now();
        let waiting = self.calls.values().filter(|call| !call.is_cancelled);
        let progress = waiting.filter_map(|call| call.progress.as_ref()?.due(now)).min();
        // Progress waits until the client has read earlier output.
        let progress = progress.filter(|_| !self.link.output.has_unsent());
        let is_reading = !self.link.is_ending();
        tokio::select! {
            biased;
            event = self.link.next_event(is_reading) => McpEvent::Link(event),
            Some(job) = self.jobs.join_next_with_id() => McpEvent::Job(job),
            event = self.client.next_event() => McpEvent::Scheduler(event),
            () = wait_for_deadline(progress) => McpEvent::ProgressDue,
        }
    }

    /// Handles an event. Returns how the session ended if it ends at once.
    async fn on_event(&mut self, event: McpEvent) -> Result<Option<SessionEnd>, SchedulerGone> {
        match event {
            McpEvent::Link(event) => return self.on_link_event(event).await,
            McpEvent::Scheduler(Some(event)) => self.on_scheduler_event(event).await?,
            McpEvent::Scheduler(None) => return Err(SchedulerGone),
            McpEvent::Job(job) => self.on_job(job).await?,
            McpEvent::ProgressDue => self.send_due_progress(),
        }
        Ok(None)
    }

    async fn on_link_event(
        &mut self,
        event: LinkEvent<LineDecoder>,
    ) -> Result<Option<SessionEnd>, SchedulerGone> {
        match event {
            LinkEvent::Command(SessionCommand::Exit) => {
                self.link.end_within(EXIT_DEADLINE + self.options.settings.run.grace_period);
                self.cancel_all().await?;
            }
            LinkEvent::Command(SessionCommand::Pause(done)) => self.client.pause(done).await?,
            LinkEvent::Command(SessionCommand::Resume) => self.client.resume().await?,
            LinkEvent::Message(line) => return self.on_line(&line).await,
            LinkEvent::InputEnded => self.on_input_end(),
            LinkEvent::Unreadable(error) => {
                tracing::debug!(error = error_chain(&error), "failed to read a client's input");
                self.on_input_end();
            }
            LinkEvent::Sent | LinkEvent::Unwritable => {}
            LinkEvent::EndTimedOut => {
                tracing::debug!(calls = self.calls.len(), "calls of a session did not finish in time");
                return Ok(Some(SessionEnd::Exit));
            }
            LinkEvent::Over(end) => return Ok(Some(end)),
        }
        Ok(None)
    }

    /// Ends the session because the client has closed its end. Runs are dropped; jobs that read files get a
    /// moment to finish.
    fn on_input_end(&mut self) {
        self.calls.retain(|_, call| matches!(call.work, CallWork::Job | CallWork::PlanRun));
        self.link.end_within(SHUTDOWN_DEADLINE);
    }

    async fn cancel_all(&mut self) -> Result<(), SchedulerGone> {
        let all: Vec<_> = self.calls.keys().copied().collect();
        for number in all {
            self.cancel(number).await?;
        }
        Ok(())
    }

    /// Cancels the work of a call. A run is answered when its end is reported. A listing, or a wait for a
    /// run, is answered here, because no event follows.
    async fn cancel(&mut self, number: RequestNumber) -> Result<(), SchedulerGone> {
        let Some(call) = self.calls.get(&number) else { return Ok(()) };
        match call.work {
            CallWork::ListTests(_) | CallWork::AwaitRun(_) => {
                self.client.cancel(number).await?;
                self.finish(number, CallToolResult::error("cancelled".to_owned()));
            }
            CallWork::Run(_) => self.client.cancel(number).await?,
            // Jobs are short, so they are allowed to finish.
            CallWork::PlanRun | CallWork::Job => {}
        }
        Ok(())
    }

    async fn on_scheduler_event(&mut self, event: ClientEvent) -> Result<(), SchedulerGone> {
        match event {
            ClientEvent::Listed { request, catalogue: Ok(catalogue) } => self.on_listed(request, catalogue),
            ClientEvent::Listed { request, catalogue: Err(error) } => self.fail(request, &error),
            ClientEvent::Log { run, lines } => self.on_log(run.as_deref(), lines),
            ClientEvent::RunRefused { request, plan, error } => {
                discard_run(&plan);
                self.fail(request, &error);
            }
            ClientEvent::Updates(updates) => self.on_updates(updates),
            ClientEvent::RunEnded { request, plan, outcome } => self.on_run_ended(request, &plan, &outcome),
            // Frames belong to another protocol, agents see no waits, and no run is a debug run.
            ClientEvent::FinishRun(_)
            | ClientEvent::MachineWait(_)
            | ClientEvent::Waits { .. }
            | ClientEvent::DebuggeeWaiting(_)
            | ClientEvent::DebuggeeLaunched(_)
            | ClientEvent::DebuggeeGone(_) => {}
        }
        Ok(())
    }

    fn on_listed(&mut self, number: RequestNumber, catalogue: Arc<Catalogue>) {
        let Some(call) = self.calls.get_mut(&number) else { return };
        let settings = Arc::clone(&self.options.settings);
        match std::mem::replace(&mut call.work, CallWork::Job) {
            CallWork::ListTests(arguments) => self.start_job(number, move || {
                let page = selection::list_tests(&catalogue, &settings, &arguments);
                JobOutput::Answer(page.map(|page: TestsAnswer| CallToolResult::object(&page)))
            }),
            CallWork::AwaitRun(arguments) => {
                call.work = CallWork::PlanRun;
                let provenance = self.options.provenance.clone();
                let run_id = uuid::Uuid::new_v4().to_string();
                self.start_job(number, move || {
                    let plan = selection::plan_run(&catalogue, &settings, &provenance, &run_id, &arguments);
                    JobOutput::Planned(plan.map(Box::new))
                });
            }
            other => call.work = other,
        }
    }

    fn start_job(&mut self, call: RequestNumber, job: impl FnOnce() -> JobOutput + Send + 'static) {
        let job = self.jobs.spawn_blocking(job);
        self.job_calls.insert(job.id(), call);
    }

    async fn on_job(
        &mut self,
        job: Result<(task::Id, JobOutput), task::JoinError>,
    ) -> Result<(), SchedulerGone> {
        let id = job.as_ref().map_or_else(task::JoinError::id, |(id, _)| *id);
        let Some(call) = self.job_calls.remove(&id) else { return Ok(()) };
        match job {
            Ok((_, JobOutput::Answer(Ok(result)))) => self.finish(call, result),
            Ok((_, JobOutput::Answer(Err(error)) | JobOutput::Planned(Err(error)))) => {
                self.fail(call, &error)
            }
            Ok((_, JobOutput::Planned(Ok(planned)))) => self.start_run(call, *planned).await?,
            Err(error) => {
                tracing::error!(%error, "internal error in a tool call");
                self.fail(call, "internal error in Heeler; see its standard error");
            }
        }
        Ok(())
    }

    async fn start_run(&mut self, number: RequestNumber, planned: PlannedRun) -> Result<(), SchedulerGone> {
        let PlannedRun { prepared: PreparedRun { plan, warnings }, settings } = planned;
        let is_wanted = |call: &&mut OpenCall| !call.is_cancelled;
        let Some(call) = self.calls.get_mut(&number).filter(is_wanted).filter(|_| !self.link.is_ending())
        else {
            discard_run(&plan);
            self.finish(number, CallToolResult::error("cancelled".to_owned()));
            return Ok(());
        };
        let run = RunningCall {
            run_id: plan.run_id.clone(),
            settings,
            begun: Instant::now(),
            ended: HashSet::new(),
            failed: 0,
            selected: plan.selected_tests().len(),
            warnings,
        };
        call.update_progress(&run);
        call.work = CallWork::Run(Box::new(run));
        self.client.start_run(number, Box::new(plan), ClientMembers::default()).await
    }

    fn on_updates(&mut self, RunUpdates { run: run_id, updates }: RunUpdates) {
        let of_run = self.calls.values_mut().find_map(|call| match &mut call.work {
            CallWork::Run(run) if run.run_id == run_id => Some((run, &mut call.progress)),
            _ => None,
        });
        let Some((run, progress)) = of_run else { return };
        for update in updates {
            if let TestUpdate::Finished { uid, result } = update
                && run.ended.insert(uid)
            {
                run.failed += usize::from(result.outcome.is_failure());
            }
        }
        // No progress after the last test: the answer follows at once, and clients that read both together
        // treat the progress as an error.
        if let Some(progress) = progress
            && run.ended.len() < run.selected
        {
            progress.update(run.ended.len() as u64, Some(run.selected as u64), run.describe());
        }
    }

    fn on_log(&mut self, run_id: Option<&str>, lines: Vec<ClientLogLine>) {
        for line in lines {
            tracing::info!(run = run_id, test = line.test_uid, "{}", line.message);
            let is_warning = matches!(line.level, LogLevel::Warning | LogLevel::Error | LogLevel::Critical);
            let run = self.calls.values_mut().find_map(|call| match &mut call.work {
                CallWork::Run(run) if Some(run.run_id.as_str()) == run_id => Some(run),
                _ => None,
            });
            // Messages about a test are part of its result.
            if let Some(run) = run
                && is_warning
                && line.test_uid.is_none()
                && run.warnings.len() < recorded::MAX_WARNINGS
            {
                run.warnings.push(line.message);
            }
        }
    }

    fn on_run_ended(&mut self, number: RequestNumber, plan: &RunPlan, outcome: &RunOutcome) {
        let Some(call) = self.calls.get_mut(&number) else { return };
        let CallWork::Run(run) = std::mem::replace(&mut call.work, CallWork::Job) else { return };
        call.progress = None;
        let RunningCall { settings, begun, mut warnings, .. } = *run;
        warnings.extend(record_run(&settings, plan, outcome, begun.elapsed()));
        self.reports.start(&plan.run_dir, |warning| tracing::warn!("{warning}"));
        // Keep the directory locked while it is read. Otherwise another run could remove it.
        let run_dir = plan.run_dir.clone();
        self.start_job(number, move || {
            let answer = recorded::ended_run(&run_dir.path, warnings);
            JobOutput::Answer(answer.map(|answer| CallToolResult::object(&answer)))
        });
    }

    fn send_due_progress(&mut self) {
        let now = Instant::now();
        let due = self.calls.values_mut().filter(|call| !call.is_cancelled);
        let due: Vec<_> = due.filter_map(|call| call.progress.as_mut()?.take_due(now)).collect();
        for params in due {
            self.link.output.send(mcp::encode_notification(method::PROGRESS, &params));
        }
    }

    /// Answers a call with an error that the caller can correct.
    fn fail(&mut self, call: RequestNumber, error: &str) {
        let (_, text) = mcp::piece(error, 0, 0);
        self.finish(call, CallToolResult::error(text.to_owned()));
    }

    /// Answers a call, unless it was cancelled.
    fn finish(&mut self, call: RequestNumber, result: CallToolResult) {
        let Some(call) = self.calls.remove(&call) else { return };
        if let Some(task) = &call.task {
            return self.ended_tasks.add(task, call.is_cancelled, result, Instant::now());
        }
        if !call.is_cancelled {
            let result = EraResult::new(result, call.era, ResultCaching::Volatile);
            self.link.output.send(mcp::encode_result(&call.id, &result));
        }
    }

    fn refuse(&mut self, id: &RequestId, error: &RpcError) {
        self.link.output.send(mcp::encode_error(id, error));
    }

    /// Ends all runs and jobs, and sends the last lines.
    async fn shut_down(mut self) {
        self.jobs.abort_all();
        let limit = EXIT_DEADLINE + self.options.settings.run.grace_period;
        await_end("the runs of a session", limit, self.client.leave()).await;
        self.reports.finish().await;
        self.link.finish(SHUTDOWN_DEADLINE).await;
    }
}

impl OpenCall {
    fn update_progress(&mut self, run: &RunningCall) {
        if let Some(progress) = &mut self.progress {
            progress.update(0, Some(run.selected as u64), run.describe());
        }
    }
}

impl RunningCall {
    pub(super) fn describe(&self) -> String {
        let Self { run_id, ended, selected, failed, .. } = self;
        format!("run {run_id}: {} of {selected} tests, {failed} failed", ended.len())
    }
}
