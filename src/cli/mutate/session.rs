//! The session in which tests run, without a mutant and with each: its events and the requests of its
//! observer, one at a time.

use std::{collections::BTreeSet, path::Path, time::Duration};

use heeler_config::ResolvedSettings;
use heeler_protocol::control::TestProgram;
use heeler_server::{
    discovery::ProgramSource,
    pool::WorkerStdout,
    scheduler::{SchedulerHandle, SchedulerOptions, SchedulerTask},
    variants::{ListedProgram, Variant, VariantClient, VariantEvent, VariantSlots},
};
use tokio::time::{Interval, MissedTickBehavior};

use super::{error::MutateError, observer::MutationObserver};
use crate::cli::{serve::scheduler_options, signals::SignalRequest};

/// Interval between display ticks.
const TICK: Duration = Duration::from_millis(100);
/// Time limit for an orderly shutdown.
const EXIT_DEADLINE: Duration = Duration::from_secs(15);

/// Number of processes that are ordered together: enough that a run of them takes far longer than its start
/// and end, and few, so that what is known of killers is soon used, and little is planned ahead.
pub(super) const ORDERED_TOGETHER: usize = 64;
/// Further processes are ordered when fewer than this are left, so that no slot is ever idle.
pub(super) const LOW_ORDERS: usize = 32;

/// A session of this process and its observer.
pub(super) struct MutantSession {
    client: VariantClient,
    scheduler: SchedulerTask,
    ticks: Interval,
    pub(super) observer: MutationObserver,
    /// What the observer knows: each run warns of the same.
    told: BTreeSet<String>,
    /// The observer has requested the end.
    pub(super) is_cancelled: bool,
}

/// What a session waits for.
enum SessionStep {
    Event(Option<VariantEvent>),
    Request(SignalRequest),
    Tick,
}

/// The user does not wait any longer, and the session is left as it is: its processes end with this one.
pub(super) struct LeftAtOnce;

impl MutantSession {
    /// Starts a session of test programs.
    pub(super) async fn start(
        settings: &ResolvedSettings,
        state_dir: &Path,
        programs: Vec<TestProgram>,
        observer: MutationObserver,
    ) -> Result<Self, MutateError> {
        let options = SchedulerOptions {
            has_concurrent_runs: false,
            starts_workers_early: true,
            ..scheduler_options(settings, WorkerStdout::Discarded)
        };
        let (handle, scheduler) = SchedulerHandle::start(options);
        let sources =
            programs.into_iter().map(|program| ProgramSource { program, config_suite: None }).collect();
        let client = VariantClient::register(&handle, settings, state_dir, sources).await;
        let client = client.map_err(|_| MutateError::SchedulerGone)?;
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        Ok(Self { client, scheduler, ticks, observer, told: BTreeSet::new(), is_cancelled: false })
    }

    /// Lists the programs.
    ///
    /// # Errors
    /// The scheduler is gone, or has no listing.
    ///
    /// Cancel safe: no, because the listing goes on.
    pub(super) async fn list(&mut self) -> Result<Vec<ListedProgram>, MutateError> {
        let listing = self.client.list().await.map_err(|_| MutateError::SchedulerGone)?;
        listing.map_err(MutateError::Listing)
    }

    /// Shows the programs that can't be listed, which have no tests.
    ///
    /// # Errors
    /// None can be listed.
    pub(super) fn check_listed(&mut self, programs: &[ListedProgram]) -> Result<(), MutateError> {
        if let Some(error) = programs.first().and_then(|first| first.error.as_ref())
            && programs.iter().all(|program| program.error.is_some())
        {
            return Err(MutateError::Listing(error.clone()));
        }
        for (program, error) in programs.iter().filter_map(|one| Some((one, one.error.as_ref()?))) {
            self.observer.warn(&format!("{}: its tests are left out: {error}", program.suite));
            self.told.insert(error.clone());
        }
        Ok(())
    }

    /// Starts a run of variants.
    pub(super) async fn run(&mut self, variants: &[Variant], slots: VariantSlots) -> Result<(), MutateError> {
        self.client.run(variants, slots).await.map(|_number| ()).map_err(MutateError::RunDirectory)
    }

    /// Returns the next event of the runs. After the first request to end, those are of cancelled runs.
    pub(super) async fn next_event(&mut self) -> Result<Result<VariantEvent, LeftAtOnce>, MutateError> {
        loop {
            let step = tokio::select! {
                event = self.client.next_event() => SessionStep::Event(event),
                request = self.observer.next_request(self.is_cancelled) => SessionStep::Request(request),
                _ = self.ticks.tick() => SessionStep::Tick,
            };
            match step {
                SessionStep::Event(Some(VariantEvent::Warning(text))) => {
                    if self.told.insert(text.clone()) {
                        self.observer.warn(&text);
                    }
                }
                SessionStep::Event(Some(event)) => return Ok(Ok(event)),
                SessionStep::Event(None) => return Err(MutateError::SchedulerGone),
                SessionStep::Tick => self.observer.tick(),
                SessionStep::Request(SignalRequest::Pause) => self.pause().await,
                SessionStep::Request(SignalRequest::End) if self.is_cancelled => return Ok(Err(LeftAtOnce)),
                SessionStep::Request(SignalRequest::End) => {
                    self.is_cancelled = true;
                    self.client.cancel().await;
                }
            }
        }
    }

    /// Ends the session; returns the observer when nothing of it runs any more.
    pub(super) async fn shut_down(self) -> MutationObserver {
        self.client.leave().await;
        self.scheduler.join(EXIT_DEADLINE).await;
        self.observer
    }

    /// Stops all test processes and then this process, as Ctrl-Z does, until the user continues it.
    async fn pause(&mut self) {
        self.client.pause().await;
        if let Err(error) = heeler_sys::process::Signal::STOP.raise() {
            tracing::warn!(%error, "this process can't be stopped");
        }
        self.client.resume().await;
    }
}
