//! Requests in progress: each waits for the listing, then its tests are sent (discovery) or run, then it gets
//! its response.

use heeler_protocol::{
    mtp::LogLevel,
    rpc::{RequestId, RpcError},
};
use tokio::time::Instant;

use super::Scheduler;
use crate::discovery::{ListingState, ProgramLister, TestRef};
use crate::front::mtp::{
    discover::{self, cancelled_error},
    params::TestsRequest,
    run,
};
use crate::run::RunDriver;

/// Sequence number of a request, in order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct JobKey(u64);

/// One request for the scheduler.
pub(in crate::front) struct RequestJob {
    pub(in crate::front) id: RequestId,
    pub(in crate::front) request: TestsRequest,
    pub(in crate::front) kind: JobKind,
    /// Time of arrival.
    pub(in crate::front) begun: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::front) enum JobKind {
    Discover,
    Run,
}

/// Progress of a request.
pub(super) enum JobProgress {
    /// Waits for the listing.
    AwaitingListing(RequestJob),
    /// Sends discovered tests to the client, from index `next` on.
    SendingTests { job: RequestJob, wanted: Vec<TestRef>, next: usize },
    /// Its run is in progress.
    Running { job: RequestJob, driver: Box<RunDriver> },
}

impl JobProgress {
    pub(super) fn driver(&mut self) -> Option<&mut RunDriver> {
        match self {
            Self::Running { driver, .. } => Some(driver),
            Self::AwaitingListing(_) | Self::SendingTests { .. } => None,
        }
    }

    pub(super) fn is_sending_tests(&self) -> bool {
        matches!(self, Self::SendingTests { .. })
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        match self {
            Self::Running { driver, .. } => driver.next_deadline(),
            Self::AwaitingListing(_) | Self::SendingTests { .. } => None,
        }
    }

    fn job(&self) -> &RequestJob {
        match self {
            Self::AwaitingListing(job) | Self::SendingTests { job, .. } | Self::Running { job, .. } => job,
        }
    }
}

impl Scheduler {
    pub(super) fn driver_for_run(&mut self, run: &str) -> Option<&mut RunDriver> {
        self.jobs.values_mut().filter_map(JobProgress::driver).find(|driver| driver.run_id() == run)
    }

    pub(super) fn driver_by_key(&mut self, key: Option<JobKey>) -> Option<&mut RunDriver> {
        self.jobs.get_mut(&key?)?.driver()
    }

    pub(super) async fn start_job(&mut self, job: RequestJob) {
        let key = JobKey(self.next_job);
        self.next_job += 1;
        let unlisted = self.catalogue.unlisted();
        if self.lister.is_none() && unlisted.is_empty() {
            self.catalogue.rebuild_index();
            self.start_listed_job(key, job).await;
            return;
        }
        if self.lister.is_none() {
            if let Err(error) = self.start_pool().await {
                self.fail_job(&job, &error).await;
                return;
            }
            self.lister = Some(ProgramLister::new(unlisted, self.settings.run.list_timeout));
        }
        self.jobs.insert(key, JobProgress::AwaitingListing(job));
    }

    /// Continues the requests that waited for the listing, once all programs are listed.
    pub(super) async fn finish_listing(&mut self) {
        if self.lister.as_ref().is_none_or(|lister| !lister.is_done()) {
            return;
        }
        self.lister = None;
        self.catalogue.rebuild_index();
        let broken = self.catalogue.programs().iter().filter_map(|entry| match &entry.listing {
            ListingState::Broken { error } => Some(error.clone()),
            ListingState::Listed { .. } | ListingState::Unknown => None,
        });
        let broken: Vec<_> = broken.collect();
        for error in broken {
            self.log(LogLevel::Error, error).await;
        }
        let is_waiting = |(key, work): (&JobKey, &JobProgress)| {
            matches!(work, JobProgress::AwaitingListing(_)).then_some(*key)
        };
        let waiting: Vec<_> = self.jobs.iter().filter_map(is_waiting).collect();
        for key in waiting {
            if let Some(JobProgress::AwaitingListing(job)) = self.jobs.remove(&key) {
                self.start_listed_job(key, job).await;
            }
        }
    }

    async fn start_listed_job(&mut self, key: JobKey, job: RequestJob) {
        match job.kind {
            JobKind::Discover => {
                let wanted = discover::requested_tests(&self.catalogue, &job.request);
                self.jobs.insert(key, JobProgress::SendingTests { job, wanted, next: 0 });
            }
            JobKind::Run => match self.begin_run(&job).await {
                Ok(driver) => {
                    drop(self.jobs.insert(key, JobProgress::Running { job, driver: Box::new(driver) }))
                }
                Err(error) => self.fail_job(&job, &error).await,
            },
        }
    }

    async fn begin_run(&mut self, job: &RequestJob) -> Result<RunDriver, RpcError> {
        let plan = run::plan_run(self, &job.request).await?;
        if let Err(error) = self.start_pool().await {
            // The run has not executed anything, so no later command needs its directory.
            let _stays = std::fs::remove_dir_all(&plan.run_dir.path);
            return Err(error);
        }
        let pool = self.pool.as_mut().expect("it was just started");
        Ok(RunDriver::begin(pool, plan, self.client.clone()).await)
    }

    /// Sends the next part of each discovery; runs make progress between the parts.
    pub(super) async fn send_discovery_updates(&mut self) {
        let telling: Vec<_> =
            self.jobs.iter().filter(|(_, work)| work.is_sending_tests()).map(|(key, _)| *key).collect();
        for key in telling {
            let Some(JobProgress::SendingTests { job, wanted, mut next }) = self.jobs.remove(&key) else {
                continue;
            };
            self.send(discover::next_update(&self.catalogue, &job.request, &wanted, &mut next)).await;
            if next < wanted.len() {
                self.jobs.insert(key, JobProgress::SendingTests { job, wanted, next });
            } else {
                let frames = discover::final_frames(&self.catalogue, &job, Ok(wanted.len()));
                self.respond(&job, frames).await;
            }
        }
    }

    pub(super) async fn cancel_job(&mut self, id: &RequestId) {
        let Some(key) = self.jobs.iter().find(|(_, work)| work.job().id == *id).map(|(key, _)| *key) else {
            return;
        };
        if let Some(JobProgress::Running { driver, .. }) = self.jobs.get_mut(&key) {
            driver.cancel();
            return;
        }
        if let Some(JobProgress::AwaitingListing(job) | JobProgress::SendingTests { job, .. }) =
            self.jobs.remove(&key)
        {
            self.fail_job(&job, &cancelled_error()).await;
        }
        let is_awaited = self.jobs.values().any(|work| matches!(work, JobProgress::AwaitingListing(_)));
        if !is_awaited && let (Some(lister), Some(pool)) = (self.lister.take(), &mut self.pool) {
            lister.abort(pool).await;
        }
    }

    /// Responds to the run requests that are complete. Returns whether there was one.
    pub(super) async fn complete_runs(&mut self) -> bool {
        let is_over = |(key, work): (&JobKey, &mut JobProgress)| {
            work.driver().is_some_and(|driver| driver.is_complete()).then_some(*key)
        };
        let over: Vec<_> = self.jobs.iter_mut().filter_map(is_over).collect();
        for key in &over {
            if let Some(JobProgress::Running { job, driver }) = self.jobs.remove(key) {
                let (plan, outcome) = driver.into_outcome();
                if let Some(pool) = &mut self.pool {
                    pool.end_run(&plan.run_id);
                }
                heeler_sys::fail::pass("run.completed");
                run::record_history(self, &plan, &outcome);
                if let Err(error) = crate::run::write_end(&plan, &outcome, job.begun.elapsed()) {
                    let text = format!(
                        "later commands will take this run for interrupted, because its end could not be written down: {error}"
                    );
                    self.log(LogLevel::Warning, text).await;
                }
                self.reports.start(&plan.run_dir, &self.client, self.log_form);
                self.respond(&job, run::final_frames(&job, &plan, &outcome)).await;
            }
        }
        !over.is_empty()
    }

    /// Responds with an error. The completion is sent before it, even for a request that never began.
    async fn fail_job(&mut self, job: &RequestJob, error: &RpcError) {
        let frames = match job.kind {
            JobKind::Discover => discover::final_frames(&self.catalogue, job, Err(error)),
            JobKind::Run => run::refused_run_frames(self.has_attachments_stream, job, error),
        };
        self.respond(job, frames).await;
    }

    async fn respond(&mut self, job: &RequestJob, frames: Vec<bytes::Bytes>) {
        for frame in frames {
            self.send(frame).await;
        }
        // A session that is gone needs no report.
        let _gone = self.finished_requests.send(job.id.clone()).await;
    }
}
