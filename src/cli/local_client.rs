//! The command line as a client of the scheduler in its own process. Updates of its runs arrive as Heeler's
//! own types, without encoding.

use std::{sync::Arc, time::Duration};

use heeler_config::ResolvedSettings;
use heeler_protocol::mtp::{ClientMembers, RunShard};
use heeler_run_store::Provenance;
use heeler_server::{
    discovery::{Catalogue, ListingSettings, ProgramSource, TestRef, TestSelection},
    pool::WorkerStdout,
    run::{PlanContext, PreparedRun, RunRequest, prepare_run},
    scheduler::{
        BuildRequest, ClientRegistration, RequestNumber, RunClient, SchedulerGone, SchedulerHandle,
        SchedulerOptions, SchedulerTask, UpdateDelivery,
    },
};
use tokio::time::timeout;

use super::exit::CommandError;

/// Time limit for an orderly shutdown.
const END_LIMIT: Duration = Duration::from_secs(15);

/// Purpose of a command's scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SchedulerUse {
    /// Only lists tests.
    List,
    /// Lists tests, and runs them in the run with this id.
    Run { id: String },
}

/// Run requested by a command.
pub(super) struct LocalRun<'a> {
    pub(super) run_id: &'a str,
    pub(super) catalogue: &'a Catalogue,
    pub(super) tests: &'a [TestRef],
    /// Whether each test waits for a debugger.
    pub(super) is_debugged: bool,
    /// Partition that the tests belong to.
    pub(super) shard: Option<RunShard>,
    /// Time since the start of the command: builds and listings.
    pub(super) preparation: Duration,
}

/// A client of a scheduler, and the scheduler's task. Dropping it ends all processes.
pub(super) struct LocalClient {
    pub(super) client: RunClient,
    settings: Arc<ResolvedSettings>,
    provenance: Provenance,
    scheduler: SchedulerTask,
    next_request: u64,
}

impl LocalClient {
    /// Starts a scheduler and registers with it. Workers of an upcoming run start while its programs are
    /// listed. Tests whose output is shown live write to `worker_stdout`.
    ///
    /// # Errors
    /// The scheduler has failed.
    ///
    /// Cancel safe: yes, because dropping the call drops the scheduler.
    pub(super) async fn start(
        settings: Arc<ResolvedSettings>,
        sources: Vec<ProgramSource>,
        provenance: Provenance,
        worker_stdout: WorkerStdout,
        use_of: SchedulerUse,
    ) -> Result<Self, SchedulerGone> {
        let upcoming_run = match use_of {
            SchedulerUse::List => None,
            SchedulerUse::Run { id } => Some(id),
        };
        let options = SchedulerOptions {
            has_concurrent_runs: false,
            starts_workers_early: upcoming_run.is_some(),
            upcoming_run,
            ..SchedulerOptions::new(&settings, worker_stdout)
        };
        let (handle, scheduler) = SchedulerHandle::start(options);
        let registration = ClientRegistration {
            delivery: UpdateDelivery::Events,
            sources,
            finder: None,
            listing: ListingSettings::of_session(&settings),
        };
        let client = handle.register(registration).await?;
        Ok(Self { client, settings, provenance, scheduler, next_request: 0 })
    }

    pub(super) fn settings(&self) -> &ResolvedSettings {
        &self.settings
    }

    /// Requests a listing of all programs; its catalogue arrives as an event.
    ///
    /// # Errors
    /// The scheduler has failed.
    ///
    /// Cancel safe: yes, because a cancelled call has requested nothing.
    pub(super) async fn list(&mut self) -> Result<RequestNumber, SchedulerGone> {
        let request = self.take_number();
        self.client.list(request, BuildRequest::None).await?;
        Ok(request)
    }

    /// Plans and starts a run; its updates and its end arrive as events. Also returns warnings about problems
    /// that were worked around.
    ///
    /// # Errors
    /// The directory for the run's journals can't be created, or the scheduler has failed.
    ///
    /// Cancel safe: no, because the run may have started.
    pub(super) async fn start_run(
        &mut self,
        run: LocalRun<'_>,
    ) -> Result<(RequestNumber, Vec<String>), CommandError> {
        let LocalRun { run_id, catalogue, tests, is_debugged, shard, preparation } = run;
        let uids = tests.iter().map(|test| catalogue.uid(*test).to_owned()).collect();
        let selection = TestSelection { uids: Some(uids), filter: None };
        let request =
            RunRequest { run_id, selection: &selection, is_debugged, has_attachments_stream: false };
        let provenance = Provenance { shard, preparation, ..self.provenance.clone() };
        let context = PlanContext { catalogue, settings: &self.settings, provenance: &provenance };
        let PreparedRun { plan, warnings } =
            prepare_run(&request, &context).map_err(CommandError::RunDirectory)?;
        let number = self.take_number();
        let started = self.client.start_run(number, Box::new(plan), ClientMembers::default()).await;
        started.map_err(CommandError::Scheduler)?;
        Ok((number, warnings))
    }

    /// Stops all test processes; returns when all are stopped.
    ///
    /// Cancel safe: no, because some processes may be stopped.
    pub(super) async fn pause(&self) {
        self.client.pause_until_stopped().await;
    }

    /// Lets the test processes continue.
    ///
    /// Cancel safe: yes, because a cancelled call has sent nothing.
    pub(super) async fn resume(&self) {
        // A scheduler that has failed has no processes to continue.
        let _gone = self.client.resume().await;
    }

    /// Ends the scheduler and all its processes. Returns when all its tasks have ended.
    ///
    /// Cancel safe: yes, because dropping the scheduler ends its tasks.
    pub(super) async fn shut_down(self) {
        let Self { client, scheduler, .. } = self;
        if timeout(END_LIMIT, client.leave()).await.is_err() {
            tracing::warn!("some processes did not exit within {} s", END_LIMIT.as_secs());
        }
        scheduler.join(END_LIMIT).await;
    }

    fn take_number(&mut self) -> RequestNumber {
        self.next_request += 1;
        RequestNumber(self.next_request)
    }
}
