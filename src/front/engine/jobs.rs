//! Requests in progress: each waits for the listing, then its tests are sent (discovery) or run, then it gets
//! its response.

use tokio::time::Instant;
use wire::{
    mtp::LogLevel,
    rpc::{RequestId, RpcError},
};

use super::Engine;
use crate::{
    discover::{Lister, Listing, TestRef},
    front::mtp::{
        discover::{self, cancelled},
        params::TestsRequest,
        run,
    },
    run::Driver,
};

/// Sequence number of a request, in order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct JobKey(u64);

/// One request for the scheduler.
pub(in crate::front) struct Job {
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
pub(super) enum Work {
    /// Waits for the listing.
    Listing(Job),
    /// Sends discovered tests to the client, from index `next` on.
    Telling { job: Job, wanted: Vec<TestRef>, next: usize },
    /// Its run is in progress.
    Running { job: Job, driver: Box<Driver> },
}

impl Work {
    pub(super) fn driver(&mut self) -> Option<&mut Driver> {
        match self {
            Self::Running { driver, .. } => Some(driver),
            Self::Listing(_) | Self::Telling { .. } => None,
        }
    }

    pub(super) fn has_to_tell(&self) -> bool {
        matches!(self, Self::Telling { .. })
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        match self {
            Self::Running { driver, .. } => driver.next_deadline(),
            Self::Listing(_) | Self::Telling { .. } => None,
        }
    }

    fn job(&self) -> &Job {
        match self {
            Self::Listing(job) | Self::Telling { job, .. } | Self::Running { job, .. } => job,
        }
    }
}

impl Engine {
    pub(super) fn driver_of(&mut self, run: &str) -> Option<&mut Driver> {
        self.jobs.values_mut().filter_map(Work::driver).find(|driver| driver.run_id() == run)
    }

    pub(super) fn driver_by_key(&mut self, key: Option<JobKey>) -> Option<&mut Driver> {
        self.jobs.get_mut(&key?)?.driver()
    }

    pub(super) async fn start(&mut self, job: Job) {
        let key = JobKey(self.next_job);
        self.next_job += 1;
        let unlisted = self.catalogue.unlisted();
        if self.lister.is_none() && unlisted.is_empty() {
            self.catalogue.index();
            self.listed(key, job).await;
            return;
        }
        if self.lister.is_none() {
            if let Err(error) = self.start_pool().await {
                self.refuse(&job, &error).await;
                return;
            }
            self.lister = Some(Lister::new(unlisted, self.settings.run.list_timeout));
        }
        self.jobs.insert(key, Work::Listing(job));
    }

    /// Continues the requests that waited for the listing, once all programs are listed.
    pub(super) async fn end_listing(&mut self) {
        if self.lister.as_ref().is_none_or(|lister| !lister.is_done()) {
            return;
        }
        self.lister = None;
        self.catalogue.index();
        let broken = self.catalogue.programs().iter().filter_map(|entry| match &entry.listing {
            Listing::Broken { error } => Some(error.clone()),
            Listing::Listed { .. } | Listing::Unknown => None,
        });
        let broken: Vec<_> = broken.collect();
        for error in broken {
            self.log(LogLevel::Error, error).await;
        }
        let is_waiting = |(key, work): (&JobKey, &Work)| matches!(work, Work::Listing(_)).then_some(*key);
        let waiting: Vec<_> = self.jobs.iter().filter_map(is_waiting).collect();
        for key in waiting {
            if let Some(Work::Listing(job)) = self.jobs.remove(&key) {
                self.listed(key, job).await;
            }
        }
    }

    async fn listed(&mut self, key: JobKey, job: Job) {
        match job.kind {
            JobKind::Discover => {
                let wanted = discover::wanted(&self.catalogue, &job.request);
                self.jobs.insert(key, Work::Telling { job, wanted, next: 0 });
            }
            JobKind::Run => match self.begin_run(&job).await {
                Ok(driver) => drop(self.jobs.insert(key, Work::Running { job, driver: Box::new(driver) })),
                Err(error) => self.refuse(&job, &error).await,
            },
        }
    }

    async fn begin_run(&mut self, job: &Job) -> Result<Driver, RpcError> {
        let plan = run::plan(self, &job.request).await?;
        if let Err(error) = self.start_pool().await {
            // The run has not executed anything, so no later command needs its directory.
            let _stays = std::fs::remove_dir_all(&plan.run_dir.path);
            return Err(error);
        }
        let pool = self.pool.as_mut().expect("it was just started");
        Ok(Driver::begin(pool, plan, self.client.clone()).await)
    }

    /// Sends the next part of each discovery; runs make progress between the parts.
    pub(super) async fn tell(&mut self) {
        let telling: Vec<_> =
            self.jobs.iter().filter(|(_, work)| work.has_to_tell()).map(|(key, _)| *key).collect();
        for key in telling {
            let Some(Work::Telling { job, wanted, mut next }) = self.jobs.remove(&key) else { continue };
            self.send(discover::updates(&self.catalogue, &job.request, &wanted, &mut next)).await;
            if next < wanted.len() {
                self.jobs.insert(key, Work::Telling { job, wanted, next });
            } else {
                let frames = discover::finished(&self.catalogue, &job, Ok(wanted.len()));
                self.answer(&job, frames).await;
            }
        }
    }

    pub(super) async fn cancel(&mut self, id: &RequestId) {
        let Some(key) = self.jobs.iter().find(|(_, work)| work.job().id == *id).map(|(key, _)| *key) else {
            return;
        };
        if let Some(Work::Running { driver, .. }) = self.jobs.get_mut(&key) {
            driver.cancel();
            return;
        }
        if let Some(Work::Listing(job) | Work::Telling { job, .. }) = self.jobs.remove(&key) {
            self.refuse(&job, &cancelled()).await;
        }
        let is_awaited = self.jobs.values().any(|work| matches!(work, Work::Listing(_)));
        if !is_awaited && let (Some(lister), Some(pool)) = (self.lister.take(), &mut self.pool) {
            lister.give_up(pool).await;
        }
    }

    /// Responds to the run requests that are complete. Returns whether there was one.
    pub(super) async fn end_jobs(&mut self) -> bool {
        let is_over = |(key, work): (&JobKey, &mut Work)| {
            work.driver().is_some_and(|driver| driver.is_complete()).then_some(*key)
        };
        let over: Vec<_> = self.jobs.iter_mut().filter_map(is_over).collect();
        for key in &over {
            if let Some(Work::Running { job, driver }) = self.jobs.remove(key) {
                let (plan, outcome) = driver.into_outcome();
                if let Some(pool) = &mut self.pool {
                    pool.end_run(&plan.run);
                }
                host::fail::pass("run.completed");
                run::record(self, &plan, &outcome);
                if let Err(error) = crate::run::write_end(&plan, &outcome, job.begun.elapsed()) {
                    let text = format!(
                        "later commands will take this run for interrupted, because its end could not be written down: {error}"
                    );
                    self.log(LogLevel::Warning, text).await;
                }
                self.answer(&job, run::finished(&job, &plan, &outcome)).await;
            }
        }
        !over.is_empty()
    }

    /// Responds with an error. The completion is sent before it, even for a request that never began.
    async fn refuse(&mut self, job: &Job, error: &RpcError) {
        let frames = match job.kind {
            JobKind::Discover => discover::finished(&self.catalogue, job, Err(error)),
            JobKind::Run => run::refused(self.has_attachments_stream, job, error),
        };
        self.answer(job, frames).await;
    }

    async fn answer(&mut self, job: &Job, frames: Vec<bytes::Bytes>) {
        for frame in frames {
            self.send(frame).await;
        }
        // A session that is gone needs no report.
        let _gone = self.done.send(job.id.clone()).await;
    }
}
