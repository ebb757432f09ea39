//! The test session. Handles its events and the observer's requests one at a time.

use std::{
    collections::{BTreeSet, HashMap},
    num::NonZeroUsize,
    path::{Path, PathBuf},
    pin::pin,
    time::Duration,
};

use heeler_config::ResolvedSettings;
use heeler_core::{Outcome, TestResult};
use heeler_mutate::MAX_UNKNOWN;
use heeler_protocol::control::TestProgram;
use heeler_server::{
    discovery::ProgramSource,
    pool::WorkerStdout,
    scheduler::{SchedulerHandle, SchedulerOptions, SchedulerTask},
    variants::{ListedProgram, Variant, VariantClient, VariantEvent, VariantSlots},
};

use crate::{
    error::MutateError,
    observer::{MutationObserver, ObserverRequest},
    unfinished::Unfinished,
};

/// Timeout of an orderly shutdown.
const EXIT_DEADLINE: Duration = Duration::from_secs(15);

/// Number of processes ordered together. Large enough that starting and ending a run costs little. Small
/// enough that little is planned ahead, so the next orders soon profit from new results.
pub(crate) const ORDERED_TOGETHER: usize = 64;
/// More processes are ordered when fewer than this are left, so no slot is ever idle.
pub(crate) const LOW_ORDERS: usize = 32;

/// Number of ticks between two counts of finished children.
const TICKS_OF_COUNT: u32 = 10;
/// Maximum number of session restarts after processes died too often. A run of hours may lose some
/// processes.
const MAX_RENEWALS: u32 = 10;

pub(crate) struct MutantSession<'o> {
    client: VariantClient,
    scheduler: SchedulerTask,
    /// Used to restart the session.
    settings: ResolvedSettings,
    state_dir: PathBuf,
    programs: Vec<TestProgram>,
    /// Test names of each program, as listed.
    listed: Vec<Vec<String>>,
    renewals: u32,
    pub(crate) observer: &'o mut dyn MutationObserver,
    /// Warnings shown so far, because each run repeats them.
    told: BTreeSet<String>,
    /// Directory where forked children record durations. The number of files shows the progress.
    pub(crate) counted: Option<PathBuf>,
    ticks_since_count: u32,
    /// Why the observer requested the end.
    pub(crate) unfinished: Option<Unfinished>,
}

enum SessionStep {
    Event(Option<VariantEvent>),
    Request(ObserverRequest),
}

/// The user will not wait: the session's processes are left, and end with this process.
pub(crate) struct LeftAtOnce;

impl<'o> MutantSession<'o> {
    pub(crate) async fn start(
        settings: &ResolvedSettings,
        state_dir: &Path,
        programs: Vec<TestProgram>,
        observer: &'o mut dyn MutationObserver,
    ) -> Result<Self, MutateError> {
        let (client, scheduler) = start_client(settings, state_dir, &programs).await?;
        Ok(Self {
            client,
            scheduler,
            settings: settings.clone(),
            state_dir: state_dir.to_owned(),
            programs,
            listed: Vec::new(),
            renewals: 0,
            observer,
            told: BTreeSet::new(),
            counted: None,
            ticks_since_count: 0,
            unfinished: None,
        })
    }

    pub(crate) fn programs(&self) -> &[TestProgram] {
        &self.programs
    }

    /// Returns the number of parallel processes.
    pub(crate) fn slots(&self) -> NonZeroUsize {
        self.settings.run.jobs.slots()
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.unfinished.is_some()
    }

    /// Restarts the processes after they failed to run variants. Returns whether variants may run again,
    /// which needs an unchanged listing.
    ///
    /// # Errors
    /// The scheduler is gone.
    ///
    /// Cancel safe: no, because the session may be without a client.
    pub(crate) async fn renew(&mut self) -> Result<bool, MutateError> {
        if self.is_ended() || self.renewals >= MAX_RENEWALS {
            return Ok(false);
        }
        self.renewals += 1;
        tracing::warn!(
            renewals = self.renewals,
            "restarting the test processes, which failed to run mutants"
        );
        let (client, scheduler) = start_client(&self.settings, &self.state_dir, &self.programs).await?;
        let client = std::mem::replace(&mut self.client, client);
        let scheduler = std::mem::replace(&mut self.scheduler, scheduler);
        client.leave().await;
        scheduler.join(EXIT_DEADLINE).await;
        let before = std::mem::take(&mut self.listed);
        match self.list().await {
            Ok(_) if self.is_ended() => Ok(false),
            Ok(_) => Ok(self.listed == before),
            Err(MutateError::Listing(error)) => {
                tracing::warn!("cannot list the tests again: {error}");
                self.listed = before;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Lists the tests of the programs.
    ///
    /// # Errors
    /// The scheduler is gone, or the listing failed.
    ///
    /// Cancel safe: no, because the listing keeps running.
    pub(crate) async fn list(&mut self) -> Result<Vec<ListedProgram>, MutateError> {
        let mut listing = pin!(self.client.list());
        let listing = loop {
            let request = tokio::select! {
                listing = &mut listing => break listing.map_err(|_| MutateError::SchedulerGone)?,
                request = self.observer.next_request(self.unfinished.is_some()) => request,
            };
            match request {
                ObserverRequest::End(why) => {
                    self.unfinished.get_or_insert(why);
                    return Ok(Vec::new());
                }
                ObserverRequest::Pause => self.observer.pause(),
                ObserverRequest::Tick => {}
            }
        };
        let programs = listing.map_err(MutateError::Listing)?;
        let names = |one: &ListedProgram| one.tests.iter().map(|test| test.name.clone()).collect();
        self.listed = programs.iter().map(names).collect();
        Ok(programs)
    }

    /// Warns about programs that can't be listed, and whose tests are left out.
    ///
    /// # Errors
    /// No program can be listed.
    pub(crate) fn check_listed(&mut self, programs: &[ListedProgram]) -> Result<(), MutateError> {
        if let Some(error) = programs.first().and_then(|first| first.error.as_ref())
            && programs.iter().all(|program| program.error.is_some())
        {
            return Err(MutateError::Listing(error.clone()));
        }
        for (program, error) in programs.iter().filter_map(|one| Some((one, one.error.as_ref()?))) {
            self.observer.warn(&format!("{}: skipping its tests: {error}", program.suite));
            self.told.insert(error.clone());
        }
        Ok(())
    }

    pub(crate) async fn run(&mut self, variants: &[Variant], slots: VariantSlots) -> Result<(), MutateError> {
        self.client.run(variants, slots).await.map(|_number| ()).map_err(MutateError::RunDirectory)
    }

    /// Waits for the next event of the runs. After the first request to end, events belong to cancelled
    /// runs.
    pub(crate) async fn next_event(&mut self) -> Result<Result<VariantEvent, LeftAtOnce>, MutateError> {
        loop {
            let step = tokio::select! {
                event = self.client.next_event() => SessionStep::Event(event),
                request = self.observer.next_request(self.unfinished.is_some()) => SessionStep::Request(request),
            };
            match step {
                SessionStep::Event(Some(VariantEvent::Warning(text))) => {
                    if self.told.insert(text.clone()) {
                        self.observer.warn(&text);
                    }
                }
                SessionStep::Event(Some(event)) => return Ok(Ok(event)),
                SessionStep::Event(None) => return Err(MutateError::SchedulerGone),
                SessionStep::Request(ObserverRequest::Tick) => {
                    self.ticks_since_count += 1;
                    if self.ticks_since_count >= TICKS_OF_COUNT {
                        self.count_children();
                    }
                    self.observer.tick();
                }
                SessionStep::Request(ObserverRequest::Pause) => self.pause().await,
                SessionStep::Request(ObserverRequest::End(_)) if self.is_ended() => {
                    return Ok(Err(LeftAtOnce));
                }
                SessionStep::Request(ObserverRequest::End(why)) => {
                    self.unfinished = Some(why);
                    self.client.cancel().await;
                }
            }
        }
    }

    /// Runs variants to their ends, a limited number at a time because there may be many thousands. `take`
    /// receives each variant's index and result; after a cancellation, some variants have no result. `shown`
    /// returns the test whose duration to show for a variant.
    ///
    /// Cancel safe: no, because the tests keep running.
    pub(crate) async fn run_all(
        &mut self,
        variants: impl Iterator<Item = Variant> + Send,
        shown: &(dyn Fn(&Variant) -> Option<String> + Send + Sync),
        take: &mut (dyn FnMut(usize, Box<TestResult>) + Send),
    ) -> Result<Option<LeftAtOnce>, MutateError> {
        let mut variants = variants.enumerate();
        let mut in_progress: HashMap<String, (usize, Variant)> = HashMap::new();
        // Variants that the session's processes could not run. A restarted session runs them again.
        let mut failed: Vec<(usize, Variant, Box<TestResult>)> = Vec::new();
        let mut again: Vec<(usize, Variant)> = Vec::new();
        let mut failures: HashMap<usize, u32> = HashMap::new();
        let mut runs = 0;
        loop {
            // Keep enough processes ordered.
            while in_progress.len() < LOW_ORDERS && !self.is_ended() && failed.is_empty() {
                let count = again.len().min(ORDERED_TOGETHER);
                let mut next: Vec<(usize, Variant)> = again.drain(..count).collect();
                next.extend(variants.by_ref().take(ORDERED_TOGETHER - count));
                if next.is_empty() {
                    break;
                }
                let ordered: Vec<Variant> = next.iter().map(|(_, variant)| variant.clone()).collect();
                in_progress.extend(next.into_iter().map(|one| (one.1.name.clone(), one)));
                runs += 1;
                self.run(&ordered, VariantSlots::All).await?;
            }
            // No process is running: finish, or restart the session for the variants that it could not run.
            if runs == 0 {
                if failed.is_empty() {
                    return Ok(None);
                }
                let is_renewed = self.renew().await?;
                for (place, variant, result) in failed.drain(..) {
                    match is_renewed {
                        true => again.push((place, variant)),
                        false => take(place, result),
                    }
                }
                if !is_renewed {
                    return Ok(None);
                }
                continue;
            }
            // Handle the next event.
            match self.next_event().await? {
                Ok(VariantEvent::Ended { name, result, .. }) => {
                    let Some((place, variant)) = in_progress.remove(&name) else { continue };
                    if is_unknown(&result) && !self.is_ended() {
                        let count = failures.entry(place).or_default();
                        *count += 1;
                        if *count < MAX_UNKNOWN {
                            failed.push((place, variant, result));
                            continue;
                        }
                    }
                    let took = Duration::from_micros(result.duration_us.unwrap_or_default());
                    if let Some(test) = shown(&variant) {
                        self.observer.on_original(1, Some((&test, took)));
                    }
                    take(place, result);
                }
                Ok(VariantEvent::RunEnded { .. }) => runs -= 1,
                Ok(VariantEvent::Warning(_)) => {}
                Err(left) => return Ok(Some(left)),
            }
        }
    }

    /// Shows how many tests have ended in forked children.
    pub(crate) fn count_children(&mut self) {
        self.ticks_since_count = 0;
        let Some(dir) = &self.counted else { return };
        // Reading the counts later reports an unreadable directory.
        let files = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let ended = files.filter(|file| file.path().extension().is_some_and(|end| end == "time")).count();
        self.observer.set_original(ended);
    }

    /// Ends the session; returns the observer after all processes of the session have ended.
    pub(crate) async fn shut_down(self) -> &'o mut dyn MutationObserver {
        self.client.leave().await;
        self.scheduler.join(EXIT_DEADLINE).await;
        self.observer
    }

    /// Stops all test processes and then this process, like Ctrl-Z, until the user continues it.
    async fn pause(&mut self) {
        self.client.pause().await;
        self.observer.pause();
        self.client.resume().await;
    }
}

/// Returns whether a variant was lost, interrupted or never run.
fn is_unknown(result: &TestResult) -> bool {
    matches!(result.outcome, Outcome::Lost | Outcome::Interrupted | Outcome::NotRun(_))
}

/// Starts a scheduler with a client for the programs.
async fn start_client(
    settings: &ResolvedSettings,
    state_dir: &Path,
    programs: &[TestProgram],
) -> Result<(VariantClient, SchedulerTask), MutateError> {
    let options = SchedulerOptions {
        has_concurrent_runs: false,
        starts_workers_early: true,
        ..SchedulerOptions::new(settings, WorkerStdout::Discarded)
    };
    let (handle, scheduler) = SchedulerHandle::start(options);
    let source = |program: &TestProgram| ProgramSource { program: program.clone(), config_suite: None };
    let sources = programs.iter().map(source).collect();
    let client = VariantClient::register(&handle, settings, state_dir, sources).await;
    Ok((client.map_err(|_| MutateError::SchedulerGone)?, scheduler))
}
