//! A session's suites and their runs. Each suite is a separate client of the scheduler, so no suite waits for
//! another suite's listing.

use std::{
    future::{pending, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
};

use heeler_config::ResolvedSettings;
use heeler_core::error_chain;
use heeler_protocol::{
    mtp::ClientMembers,
    rsp::{
        JobProgress, LaunchParams, PublishState, RunState, ServerHandle, ServerNotification, ServerState,
        Status,
    },
};
use tokio::{
    sync::oneshot,
    task::JoinSet,
    time::{Instant, sleep_until},
};
use uuid::Uuid;

use crate::{
    discovery::{Catalogue, ProgramSource, TestSelection},
    listen::SessionOptions,
    rsp::{
        launch::LaunchOptions,
        selection::{SelectedTests, select_suite_tests},
        suite_run::{SuiteRun, SuiteRunEnd},
        suites::server_handle,
    },
    run::{
        PlanContext, PreparedRun, ReportFileWriter, RunOutcome, RunPlan, RunRequest, discard_run,
        prepare_run, record_run,
    },
    scheduler::{
        BuildRequest, ClientEvent, ClientLogLine, ClientRegistration, RequestNumber, RunClient,
        SchedulerGone, SchedulerHandle, UpdateDelivery,
    },
};

/// Maximum number of concurrent runs. More would only wait for each other.
const MAX_RUNS: usize = 64;

/// Why a run was not started.
type Refusal = String;

struct Suite {
    handle: ServerHandle,
    source: ProgramSource,
    /// The suite's scheduler client, registered at its first start.
    client: Option<RunClient>,
    run: Option<ActiveRun>,
    /// Result of this session's latest run.
    publish_state: PublishState,
}

struct ActiveRun {
    request: RequestNumber,
    stage: SuiteRunStage,
    view: SuiteRun,
    begun: Instant,
}

enum SuiteRunStage {
    /// Waits for the listing, to select the tests.
    Listing(Box<LaunchOptions>),
    /// Selects the tests, which requires files of earlier runs.
    Selecting(Box<LaunchOptions>),
    Running,
}

/// The result of selecting tests outside the session's task.
pub(super) struct FinishedSelection {
    suite: usize,
    request: RequestNumber,
    catalogue: Arc<Catalogue>,
    selected: Result<SelectedTests, String>,
}

pub(super) enum SuiteRunEvent {
    /// An event of a suite's client; `None` if the scheduler is gone.
    Scheduler(usize, Option<ClientEvent>),
    Selected(Box<FinishedSelection>),
    /// The selection panicked.
    SelectionFailed(String),
    /// A delayed progress report is due.
    ProgressDue,
}

pub(super) struct SuiteRuns {
    options: SessionOptions,
    scheduler: SchedulerHandle,
    reports: ReportFileWriter,
    suites: Vec<Suite>,
    selections: JoinSet<FinishedSelection>,
    next_request: u64,
    /// The suite whose event was handled last. Polling starts after it.
    last: usize,
}

impl SuiteRuns {
    pub(super) fn new(
        options: SessionOptions,
        scheduler: SchedulerHandle,
        reports: ReportFileWriter,
    ) -> Self {
        // The catalogue numbers suites with the same name.
        let catalogue = Catalogue::new(options.sources.clone());
        let suite = |entry: &crate::discovery::ProgramEntry| Suite {
            handle: server_handle(&entry.source.program.suite),
            source: entry.source.clone(),
            client: None,
            run: None,
            publish_state: PublishState::Unknown,
        };
        let suites = catalogue.programs().iter().map(suite).collect();
        let selections = JoinSet::new();
        Self { options, scheduler, reports, suites, selections, next_request: 0, last: 0 }
    }

    pub(super) fn handles(&self) -> Vec<ServerHandle> {
        self.suites.iter().map(|suite| suite.handle.clone()).collect()
    }

    /// Returns whether no run is in progress.
    pub(super) fn is_idle(&self) -> bool {
        self.suites.iter().all(|suite| suite.run.is_none())
    }

    /// Returns the state of a suite, or the unknown state if no suite has this id.
    pub(super) fn state_of(&self, id: &str) -> ServerState {
        self.state_or(id, RunState::Unknown)
    }

    /// Returns the state to send after a refused start.
    pub(super) fn state_after_refusal(&self, id: &str) -> ServerState {
        self.state_or(id, RunState::Stopped)
    }

    /// Returns the state of a suite, or `unknown` if no suite has this id.
    fn state_or(&self, id: &str, unknown: RunState) -> ServerState {
        let (state, publish_state) = self
            .find(id)
            .map_or((unknown, PublishState::Unknown), |suite| (suite.state(), suite.publish_state()));
        ServerState::new(server_handle(id), state, publish_state)
    }

    /// Returns the progress of all runs.
    pub(super) fn jobs(&self) -> Vec<JobProgress> {
        self.active().map(|run| run.view.job_progress()).collect()
    }

    fn find(&self, id: &str) -> Option<&Suite> {
        self.suites.iter().find(|suite| suite.handle.id == id)
    }

    fn position(&self, id: &str) -> Option<usize> {
        self.suites.iter().position(|suite| suite.handle.id == id)
    }

    fn active(&self) -> impl Iterator<Item = &ActiveRun> {
        self.suites.iter().filter_map(|suite| suite.run.as_ref())
    }

    fn settings(&self) -> &Arc<ResolvedSettings> {
        &self.options.settings
    }

    /// Starts a suite. Returns the notifications to send, or why the start is refused.
    pub(super) async fn start(
        &mut self,
        launch: &LaunchParams,
    ) -> Result<Result<Vec<ServerNotification>, Refusal>, SchedulerGone> {
        let id = &launch.params.id;
        let Some(place) = self.position(id) else {
            return Ok(Err(format!("unknown suite {id:?}")));
        };
        if self.suites[place].run.is_some() {
            return Ok(Err(format!("{id} is already running")));
        }
        if self.active().count() >= MAX_RUNS {
            return Ok(Err(format!(
                "too many suites are running (limit: {MAX_RUNS}); wait for one to finish"
            )));
        }
        let options = match LaunchOptions::read(launch) {
            Ok(options) => options,
            Err(reason) => return Ok(Err(reason)),
        };
        let request = RequestNumber(self.next_request);
        self.next_request += 1;
        let build = match self.settings().run.is_built_on_discovery {
            true => BuildRequest::First,
            false => BuildRequest::None,
        };
        self.client_of(place).await?.list(request, build).await?;
        let suite = &mut self.suites[place];
        let (begun, run_id) = (Instant::now(), Uuid::new_v4().to_string());
        let (view, notifications) = SuiteRun::begin(suite.handle.clone(), run_id, begun);
        let stage = SuiteRunStage::Listing(Box::new(options));
        suite.run = Some(ActiveRun { request, stage, view, begun });
        Ok(Ok(notifications))
    }

    /// Returns a suite's scheduler client, registering it if needed.
    async fn client_of(&mut self, place: usize) -> Result<&RunClient, SchedulerGone> {
        if self.suites[place].client.is_none() {
            // A build may change the set of programs.
            let (sources, finder) = match self.settings().run.is_built_on_discovery {
                true => (self.options.sources.clone(), self.options.finder.clone()),
                false => (vec![self.suites[place].source.clone()], None),
            };
            let registration =
                ClientRegistration { sources, finder, ..self.options.registration(UpdateDelivery::Events) };
            self.suites[place].client = Some(self.scheduler.register(registration).await?);
        }
        self.suites[place].client.as_ref().ok_or(SchedulerGone)
    }

    /// Cancels the run of a suite.
    pub(super) async fn stop(
        &mut self,
        id: &str,
        is_forced: bool,
    ) -> Result<(Status, Vec<ServerNotification>), SchedulerGone> {
        let Some(place) = self.position(id) else {
            return Ok((Status::refusal(format!("unknown suite {id:?}")), Vec::new()));
        };
        if self.suites[place].run.is_none() {
            // Some clients wait for a change of state after a stop, even if no run is in progress.
            let stopped = ServerNotification::StateChanged(self.state_of(id));
            return Ok((Status::success(), vec![stopped]));
        }
        Ok((Status::success(), self.cancel(place, is_forced).await?))
    }

    pub(super) async fn cancel_job(
        &mut self,
        id: &str,
    ) -> Result<(Status, Vec<ServerNotification>), SchedulerGone> {
        let is_meant = |suite: &Suite| suite.run.as_ref().is_some_and(|run| run.view.run_id() == id);
        match self.suites.iter().position(is_meant) {
            Some(place) => Ok((Status::success(), self.cancel(place, false).await?)),
            None => Ok((Status::refusal(format!("unknown job {id:?}")), Vec::new())),
        }
    }

    pub(super) async fn cancel_all(&mut self) -> Result<Vec<ServerNotification>, SchedulerGone> {
        let mut notifications = Vec::new();
        for place in 0..self.suites.len() {
            notifications.extend(self.cancel(place, false).await?);
        }
        Ok(notifications)
    }

    async fn cancel(
        &mut self,
        place: usize,
        is_forced: bool,
    ) -> Result<Vec<ServerNotification>, SchedulerGone> {
        let suite = &mut self.suites[place];
        let (Some(client), Some(run)) = (&suite.client, &mut suite.run) else { return Ok(Vec::new()) };
        match is_forced {
            true => client.kill(run.request).await?,
            false => client.cancel(run.request).await?,
        }
        let mut notifications = run.view.on_cancel();
        if !matches!(run.stage, SuiteRunStage::Running) {
            // No more events follow for a listing.
            notifications.extend(suite.end_run(&SuiteRunEnd::CancelledBefore));
        }
        Ok(notifications)
    }

    /// Ends all runs because they can't continue.
    pub(super) fn fail_all(&mut self, reason: &str) -> Vec<ServerNotification> {
        let end = SuiteRunEnd::Failed(reason.to_owned());
        self.suites.iter_mut().flat_map(|suite| suite.end_run(&end)).collect()
    }

    /// Stops the test processes of all suites. `done` is sent once they have stopped; the scheduler limits
    /// the wait.
    pub(super) async fn pause(&self, done: oneshot::Sender<()>) -> Result<(), SchedulerGone> {
        let mut pauses = Vec::new();
        for client in self.suites.iter().filter_map(|suite| suite.client.as_ref()) {
            let (paused, is_paused) = oneshot::channel();
            client.pause(paused).await?;
            pauses.push(is_paused);
        }
        for is_paused in pauses {
            // A client whose runs are over has nothing to stop.
            let _gone = is_paused.await;
        }
        // The requester may be gone.
        let _gone = done.send(());
        Ok(())
    }

    /// Resumes stopped test processes.
    pub(super) async fn resume(&self) -> Result<(), SchedulerGone> {
        for client in self.suites.iter().filter_map(|suite| suite.client.as_ref()) {
            client.resume().await?;
        }
        Ok(())
    }

    /// Leaves the scheduler. Returns when none of the session's work is in progress.
    ///
    /// Cancel safe: yes, because all clients have left as soon as this is called.
    pub(super) async fn leave(self) {
        let mut leaving = JoinSet::new();
        for client in self.suites.into_iter().filter_map(|suite| suite.client) {
            leaving.spawn(client.leave());
        }
        while leaving.join_next().await.is_some() {}
    }

    /// Waits for the next event. Scheduler events are received only if there is room for their notifications.
    ///
    /// Cancel safe: yes, because an event is either still in its queue or returned.
    pub(super) async fn next_event(&mut self, has_room: bool) -> SuiteRunEvent {
        let due = self.active().filter_map(|run| run.view.next_progress()).min();
        let progress_due = async {
            match due {
                Some(due) if has_room => sleep_until(due).await,
                Some(_) | None => pending().await,
            }
        };
        let Self { suites, selections, last, .. } = self;
        let selected = async {
            match selections.join_next().await {
                Some(Ok(finished)) => SuiteRunEvent::Selected(Box::new(finished)),
                Some(Err(error)) => SuiteRunEvent::SelectionFailed(error.to_string()),
                None => pending().await,
            }
        };
        let of_clients = async {
            if !has_room {
                pending::<()>().await;
            }
            next_client_event(suites, *last).await
        };
        tokio::select! {
            biased;
            selected = selected => selected,
            () = progress_due => SuiteRunEvent::ProgressDue,
            (place, event) = of_clients => SuiteRunEvent::Scheduler(place, event),
        }
    }

    /// Handles an event. Returns the notifications to send.
    pub(super) async fn on_event(
        &mut self,
        event: SuiteRunEvent,
    ) -> Result<Vec<ServerNotification>, SchedulerGone> {
        match event {
            SuiteRunEvent::Scheduler(place, event) => {
                self.last = place;
                self.on_client_event(place, event.ok_or(SchedulerGone)?).await
            }
            SuiteRunEvent::Selected(finished) => self.on_selected(*finished).await,
            SuiteRunEvent::SelectionFailed(error) => {
                tracing::error!(error, "internal error while selecting tests");
                let end = SuiteRunEnd::Failed("internal error in Heeler; see its standard error".to_owned());
                let is_selecting = |run: &ActiveRun| matches!(run.stage, SuiteRunStage::Selecting(_));
                let affected =
                    self.suites.iter_mut().filter(|suite| suite.run.as_ref().is_some_and(is_selecting));
                Ok(affected.flat_map(|suite| suite.end_run(&end)).collect())
            }
            SuiteRunEvent::ProgressDue => {
                let now = Instant::now();
                let runs = self.suites.iter_mut().filter_map(|suite| suite.run.as_mut());
                Ok(runs.filter_map(|run| run.view.on_progress_due(now)).collect())
            }
        }
    }

    async fn on_client_event(
        &mut self,
        place: usize,
        event: ClientEvent,
    ) -> Result<Vec<ServerNotification>, SchedulerGone> {
        Ok(match event {
            ClientEvent::Listed { request, catalogue } => {
                return self.on_listed(place, request, catalogue).await;
            }
            ClientEvent::Log { lines, .. } => self.suites[place].log(&lines),
            ClientEvent::RunRefused { request, plan, error } => {
                discard_run(&plan);
                self.suites[place].end_request(request, &SuiteRunEnd::Failed(error))
            }
            ClientEvent::Updates(updates) => {
                let run = self.suites[place].run.as_mut();
                let run = run.filter(|run| run.view.run_id() == updates.run);
                run.map(|run| run.view.on_updates(&updates.updates, Instant::now())).unwrap_or_default()
            }
            ClientEvent::RunEnded { request, plan, outcome } => {
                self.on_run_ended(place, request, &plan, &outcome)
            }
            // Updates arrive typed, the protocol has no waits, and no run is a debug run.
            ClientEvent::FinishRun(_)
            | ClientEvent::MachineWait(_)
            | ClientEvent::Waits { .. }
            | ClientEvent::DebuggeeWaiting(_)
            | ClientEvent::DebuggeeLaunched(_)
            | ClientEvent::DebuggeeGone(_) => Vec::new(),
        })
    }

    async fn on_listed(
        &mut self,
        place: usize,
        request: RequestNumber,
        catalogue: Result<Arc<Catalogue>, String>,
    ) -> Result<Vec<ServerNotification>, SchedulerGone> {
        let suite = &mut self.suites[place];
        let catalogue = match catalogue {
            Ok(catalogue) => catalogue,
            Err(error) => return Ok(suite.end_request(request, &SuiteRunEnd::Failed(error))),
        };
        // A run that was cancelled in the meantime is over.
        let Some(run) = suite.run.as_mut().filter(|run| run.request == request) else {
            return Ok(Vec::new());
        };
        let SuiteRunStage::Listing(options) = &run.stage else { return Ok(Vec::new()) };
        let options = options.clone();
        let id = suite.handle.id.clone();
        if !options.depends_on_earlier_runs() {
            let selected = select_suite_tests(&catalogue, &id, &options, &self.options.settings);
            run.stage = SuiteRunStage::Selecting(options);
            let finished = FinishedSelection { suite: place, request, catalogue, selected };
            return self.on_selected(finished).await;
        }
        run.stage = SuiteRunStage::Selecting(options.clone());
        let settings = Arc::clone(&self.options.settings);
        self.selections.spawn_blocking(move || {
            let selected = select_suite_tests(&catalogue, &id, &options, &settings);
            FinishedSelection { suite: place, request, catalogue, selected }
        });
        Ok(Vec::new())
    }

    async fn on_selected(
        &mut self,
        finished: FinishedSelection,
    ) -> Result<Vec<ServerNotification>, SchedulerGone> {
        let FinishedSelection { suite: place, request, catalogue, selected } = finished;
        let suite = &mut self.suites[place];
        let selected = match selected {
            Ok(selected) => selected,
            Err(reason) => return Ok(suite.end_request(request, &SuiteRunEnd::Failed(reason))),
        };
        let (Some(client), Some(run)) = (&suite.client, &mut suite.run) else { return Ok(Vec::new()) };
        let SuiteRunStage::Selecting(options) = &run.stage else { return Ok(Vec::new()) };
        if run.request != request {
            return Ok(Vec::new());
        }
        match plan_run(run.view.run_id(), &catalogue, options, selected, &self.options) {
            Ok(PreparedRun { plan, warnings }) => {
                run.stage = SuiteRunStage::Running;
                run.view.set_selected(plan.selected_tests().len());
                let notifications = warnings.iter().map(|text| run.view.log(text)).collect();
                client.start_run(request, Box::new(plan), ClientMembers::default()).await?;
                Ok(notifications)
            }
            Err(reason) => Ok(suite.end_request(request, &SuiteRunEnd::Failed(reason))),
        }
    }

    fn on_run_ended(
        &mut self,
        place: usize,
        request: RequestNumber,
        plan: &RunPlan,
        outcome: &RunOutcome,
    ) -> Vec<ServerNotification> {
        let suite = &mut self.suites[place];
        let Some(run) = suite.run.as_ref().filter(|run| run.request == request) else { return Vec::new() };
        let warning = record_run(&self.options.settings, plan, outcome, run.begun.elapsed());
        let mut notifications: Vec<_> = warning.iter().map(|text| run.view.log(text)).collect();
        // The client sees its process end before the reports are written.
        self.reports.start(&plan.run_dir, |warning| tracing::warn!(warning, "failed to write a report"));
        let end =
            SuiteRunEnd::Ended { stopped_by: outcome.stopped_by, failed_programs: outcome.failed_programs };
        notifications.extend(suite.end_run(&end));
        notifications
    }
}

impl Suite {
    /// Returns the last result; unknown while a run is in progress.
    fn publish_state(&self) -> PublishState {
        if self.run.is_some() { PublishState::Unknown } else { self.publish_state }
    }

    fn state(&self) -> RunState {
        self.run.as_ref().map_or(RunState::Stopped, |run| run.view.state())
    }

    /// Ends the run, if there is one.
    fn end_run(&mut self, end: &SuiteRunEnd) -> Vec<ServerNotification> {
        let Some(run) = self.run.take() else { return Vec::new() };
        let notifications = run.view.end(end, run.begun.elapsed());
        if let Some(ServerNotification::StateChanged(state)) = notifications.last() {
            self.publish_state = state.publish_state;
        }
        notifications
    }

    /// Ends the run if it belongs to this request.
    fn end_request(&mut self, request: RequestNumber, end: &SuiteRunEnd) -> Vec<ServerNotification> {
        match &self.run {
            Some(run) if run.request == request => self.end_run(end),
            Some(_) | None => Vec::new(),
        }
    }

    /// Returns log lines as output of the run. Without a run, logs them here.
    fn log(&self, lines: &[ClientLogLine]) -> Vec<ServerNotification> {
        match &self.run {
            Some(run) => lines.iter().map(|line| run.view.log(&line.message)).collect(),
            None => {
                lines.iter().for_each(|line| tracing::info!(suite = self.handle.id, "{}", line.message));
                Vec::new()
            }
        }
    }
}

fn plan_run(
    run_id: &str,
    catalogue: &Catalogue,
    launch: &LaunchOptions,
    selected: SelectedTests,
    options: &SessionOptions,
) -> Result<PreparedRun, String> {
    let mut provenance = options.provenance.clone();
    if let Some((run, left)) = selected.continued {
        provenance.origin.continues = Some(run);
        provenance.inherited_rerun_set = left;
    }
    let settings = options.settings.for_run(&launch.run);
    let selection = TestSelection { uids: Some(selected.uids), filter: None };
    let request =
        RunRequest { run_id, selection: &selection, is_debugged: false, has_attachments_stream: false };
    let context = PlanContext { catalogue, settings: &settings, provenance: &provenance };
    prepare_run(&request, &context).map_err(|error| format!("failed to {}", error_chain(&error)))
}

/// Returns the next event of any suite's client, and the suite's index. Polling starts after the suite served
/// last, so that no suite starves the others.
///
/// Cancel safe: yes, because an event is taken only when it is returned.
async fn next_client_event(suites: &mut [Suite], last: usize) -> (usize, Option<ClientEvent>) {
    poll_fn(|context| {
        let count = suites.len();
        for place in (last + 1..count).chain(0..count.min(last + 1)) {
            let Some(client) = &mut suites[place].client else { continue };
            if let Poll::Ready(event) = pin!(client.next_event()).poll(context) {
                return Poll::Ready((place, event));
            }
        }
        Poll::Pending
    })
    .await
}
