//! Lists programs through workers. Performs no I/O except messages to workers: the owner of the pool supplies
//! workers and passes on their responses.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use heeler_config::{CrashCapture, DumpPolicy, ResolvedSettings, filter::FilterSubject};
use heeler_core::{Slots, fair_share::SlotDemand};
use heeler_protocol::control::{
    CrashCapturePlan, DiscoveryJob, DumpKinds, FromWorker, ListingCapture, OsText, TestProgram, ToWorker,
    TraceMode, UpcomingRun, WorkerId,
};

use super::{Catalogue, ProgramListing};
use crate::pool::WorkerPool;

/// Worker start attempts per slot before discovery fails. More than one, because a worker killed from outside
/// must not make a program's listing fail.
const START_ATTEMPTS_PER_SLOT: usize = 4;
/// Attempts to list a program before giving up because its workers keep dying. Without a listing all of its
/// tests are lost, so one or two workers killed for unrelated reasons must not matter.
const LISTING_ATTEMPTS: u32 = 4;

/// Directory for dumps and stack traces of crashed listings, in the state directory.
const DIR_NAME: &str = "listings";

/// How programs are listed.
#[derive(Debug, Clone, Default)]
pub struct ListingSettings {
    /// Time limit for each program.
    timeout: Duration,
    /// The session's settings, which select what is recorded about a crash. `None` records nothing.
    session: Option<Arc<ResolvedSettings>>,
}

impl ListingSettings {
    /// Returns the listing settings of a session.
    #[must_use]
    pub fn of_session(session: &Arc<ResolvedSettings>) -> Self {
        Self { timeout: session.run.list_timeout, session: Some(Arc::clone(session)) }
    }

    /// Returns the facts about a run that a process needs to wait for it.
    fn upcoming_run(&self, id: &str) -> Option<UpcomingRun> {
        let has_private_tmpdir = self.session.as_ref()?.run.has_private_tmpdir;
        Some(UpcomingRun { id: id.to_owned(), has_private_tmpdir })
    }

    /// Returns the crash capture settings for listing a suite's program.
    fn capture(&self, suite: Option<&str>) -> Option<ListingCapture> {
        let session = self.session.as_ref()?;
        let subject = FilterSubject {
            suite: suite.unwrap_or_default(),
            config_suite: suite,
            ..FilterSubject::default()
        };
        let settings = session.for_test(suite, &subject);
        let mode = match settings.crash_capture {
            CrashCapture::Off => None,
            CrashCapture::Root => Some(TraceMode::Root),
            CrashCapture::Tree => Some(TraceMode::Tree),
        };
        let plan = CrashCapturePlan {
            mode,
            dumps: DumpKinds {
                crash: [DumpPolicy::All, DumpPolicy::Crash].contains(&settings.dumps),
                hang: false,
            },
            limit_bytes: session.run.dump_limit_bytes,
            keeps_environment: session.run.is_environment_dumped,
        };
        let dir = OsText::from(session.state_dir.join(DIR_NAME).as_path());
        mode.is_some().then_some(ListingCapture { plan, dir })
    }
}

/// The end of a worker's listing of one program.
#[derive(Debug)]
pub(crate) struct FinishedListing {
    /// The program with its framework, if its listing process waits for a lease.
    pub(crate) waiting_process: Option<Box<TestProgram>>,
}

/// A listing of several programs.
#[derive(Debug)]
pub(crate) struct ProgramLister {
    settings: ListingSettings,
    /// Programs to list, each with the number of attempts so far.
    waiting: VecDeque<(usize, u32)>,
    running: BTreeMap<WorkerId, (usize, u32)>,
    jobs_assigned: u64,
    /// Number of requested workers that did not start.
    failed_starts: usize,
}

impl ProgramLister {
    /// Begins a listing of these programs. If a program can't be listed, the catalogue records the reason.
    #[must_use]
    pub(crate) fn new(programs: Vec<usize>, settings: ListingSettings) -> Self {
        let waiting = programs.into_iter().map(|program| (program, 0)).collect();
        Self { settings, waiting, running: BTreeMap::new(), jobs_assigned: 0, failed_starts: 0 }
    }

    pub(crate) fn add(&mut self, program: usize) {
        self.waiting.push_back((program, 0));
    }

    /// Returns whether a program has no result yet.
    #[must_use]
    pub(crate) fn is_listing(&self, program: usize) -> bool {
        let mut open = self.waiting.iter().chain(self.running.values());
        open.any(|(listed, _)| *listed == program)
    }

    /// Returns the number of slots that the listing could use.
    #[must_use]
    pub(crate) fn demand(&self) -> SlotDemand {
        SlotDemand { wanted: Slots(self.running.len() + self.waiting.len()), served: self.jobs_assigned }
    }

    /// Returns the number of workers that are listing a program.
    #[must_use]
    pub(crate) fn running_jobs(&self) -> usize {
        self.running.len()
    }

    /// Returns whether every program has a result.
    #[must_use]
    pub(crate) fn is_done(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    /// Assigns the next program to a worker. `upcoming_run` is the id of the run that follows.
    ///
    /// Cancel safe: no, because the worker may or may not have received the job.
    pub(crate) async fn assign(
        &mut self,
        pool: &mut WorkerPool,
        catalogue: &Catalogue,
        worker: WorkerId,
        upcoming_run: Option<&str>,
    ) {
        let Some((program, tries)) = self.waiting.pop_front() else { return };
        self.running.insert(worker, (program, tries + 1));
        self.jobs_assigned += 1;
        let source = &catalogue.programs()[program].source;
        let job = DiscoveryJob {
            job: u32::try_from(program).unwrap_or(u32::MAX),
            program: source.program.clone(),
            timeout_ms: u64::try_from(self.settings.timeout.as_millis()).unwrap_or(u64::MAX),
            capture: self.settings.capture(source.config_suite.as_deref()),
            upcoming_run: upcoming_run.and_then(|run| self.settings.upcoming_run(run)),
        };
        pool.send_to_worker(worker, &ToWorker::Discover(Box::new(job))).await;
    }

    /// Returns whether this worker is listing a program.
    #[must_use]
    pub(crate) fn is_used_by(&self, worker: WorkerId) -> bool {
        self.running.contains_key(&worker)
    }

    /// Handles a worker's message. Returns the finished listing if the worker is idle again.
    pub(crate) fn on_worker_message(
        &mut self,
        catalogue: &mut Catalogue,
        worker: WorkerId,
        message: FromWorker,
    ) -> Option<FinishedListing> {
        match message {
            FromWorker::Discovered {
                framework,
                nesting,
                selection_limit,
                tests,
                start_us,
                failure,
                warnings,
                depends_on,
                process,
                job: _,
                has_waiting_process,
            } => {
                let waiting = has_waiting_process.then(|| framework.clone());
                let listing = ProgramListing {
                    framework,
                    nesting,
                    selection_limit,
                    tests,
                    start: Duration::from_micros(start_us),
                    failure,
                    warnings,
                    depends_on,
                    process,
                };
                self.record_result(catalogue, worker, Ok(listing), waiting)
            }
            FromWorker::NotDiscovered { error, .. } => {
                self.record_result(catalogue, worker, Err(error), None)
            }
            FromWorker::LeaseEvents { .. }
            | FromWorker::LeaseIdle { .. }
            | FromWorker::LeaseEnded { .. }
            | FromWorker::Paused
            | FromWorker::Blocked { .. }
            | FromWorker::Drained { .. }
            | FromWorker::Log { .. } => None,
        }
    }

    fn record_result(
        &mut self,
        catalogue: &mut Catalogue,
        worker: WorkerId,
        answer: Result<ProgramListing, String>,
        waiting_framework: Option<String>,
    ) -> Option<FinishedListing> {
        let (program, _) = self.running.remove(&worker)?;
        catalogue.record_listing(program, answer);
        let program = &catalogue.programs()[program].source.program;
        let with_framework =
            |framework| Box::new(TestProgram { framework: Some(framework), ..program.clone() });
        Some(FinishedListing { waiting_process: waiting_framework.map(with_framework) })
    }

    /// Handles a worker's death. Its program is retried, or given up after too many attempts.
    pub(crate) fn on_worker_died(&mut self, catalogue: &mut Catalogue, worker: WorkerId) {
        let Some((program, tries)) = self.running.remove(&worker) else { return };
        if tries >= LISTING_ATTEMPTS {
            record_failure(catalogue, program, &format!("the worker died {tries} times"));
        } else {
            self.waiting.push_back((program, tries));
        }
    }

    /// Counts a worker that did not start. Returns whether the maximum number of attempts for this many slots
    /// is reached.
    pub(crate) fn count_failed_start(&mut self, slots: usize) -> bool {
        self.failed_starts += 1;
        self.failed_starts >= START_ATTEMPTS_PER_SLOT * slots
    }

    /// Records every remaining program as not listable, because no worker can list it.
    pub(crate) fn fail_remaining(&mut self, catalogue: &mut Catalogue, error: &str) {
        let running = std::mem::take(&mut self.running).into_values();
        for (program, _) in running.chain(std::mem::take(&mut self.waiting)) {
            record_failure(catalogue, program, &format!("no worker could be started: {error}"));
        }
    }

    /// Aborts the listing. Workers can't stop in the middle of a listing, so they are killed.
    ///
    /// Cancel safe: no, because some workers may be left.
    pub(crate) async fn abort(self, pool: &mut WorkerPool) {
        for worker in self.running.into_keys() {
            pool.kill_worker(worker).await;
        }
    }
}

/// Records a failure that does not come from the program itself. The error message names the program.
fn record_failure(catalogue: &mut Catalogue, program: usize, why: &str) {
    let path = &catalogue.programs()[program].source.program.path;
    let error = format!("failed to list the tests of {}: {why}", path.to_text());
    catalogue.record_listing(program, Err(error));
}
