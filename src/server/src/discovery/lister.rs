//! Lists, through workers, the programs that are not listed yet. Free of I/O except for the messages it sends
//! to workers: the owner of the pool passes it workers and their responses.

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
/// must not cost a program its listing.
const START_ATTEMPTS_PER_SLOT: usize = 4;
/// Attempts to list a program before it is given up because its workers keep dying. The tests of such a
/// program are unknown, so one or two workers killed for unrelated reasons must not cost them.
const LISTING_ATTEMPTS: u32 = 4;

/// Directory of the dumps and stacks of crashed listings, below the state directory.
const DIR_NAME: &str = "listings";

/// How programs are listed.
#[derive(Debug, Clone, Default)]
pub struct ListingSettings {
    /// Time limit for each program.
    timeout: Duration,
    /// The settings of the session, which determine what is kept of a crash.
    session: Option<Arc<ResolvedSettings>>,
}

impl ListingSettings {
    /// Returns how a session lists its programs.
    #[must_use]
    pub fn of_session(session: &Arc<ResolvedSettings>) -> Self {
        Self { timeout: session.run.list_timeout, session: Some(Arc::clone(session)) }
    }

    /// Returns the run with this id as a process that waits for it has to know it.
    fn upcoming_run(&self, id: &str) -> Option<UpcomingRun> {
        let has_private_tmpdir = self.session.as_ref()?.run.has_private_tmpdir;
        Some(UpcomingRun { id: id.to_owned(), has_private_tmpdir })
    }

    /// Returns the crash capture of the listings of a suite's program.
    fn capture(&self, suite: Option<&str>) -> Option<ListingCapture> {
        let session = self.session.as_ref()?;
        let subject = FilterSubject { suite: suite.unwrap_or_default(), ..FilterSubject::default() };
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
    /// The program, with its framework, if the process that has listed the tests waits for a lease.
    pub(crate) waiting_process: Option<Box<TestProgram>>,
}

/// One listing of all programs that were not listed when it began.
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
    /// Begins a listing of these programs.
    ///
    /// A program that can't be listed is not an error here: the catalogue records the reason.
    #[must_use]
    pub(crate) fn new(programs: Vec<usize>, settings: ListingSettings) -> Self {
        let waiting = programs.into_iter().map(|program| (program, 0)).collect();
        Self { settings, waiting, running: BTreeMap::new(), jobs_assigned: 0, failed_starts: 0 }
    }

    /// Adds a program to list.
    pub(crate) fn add(&mut self, program: usize) {
        self.waiting.push_back((program, 0));
    }

    /// Returns whether a program has no result yet.
    #[must_use]
    pub(crate) fn is_listing(&self, program: usize) -> bool {
        let mut open = self.waiting.iter().chain(self.running.values());
        open.any(|(listed, _)| *listed == program)
    }

    /// Returns the slots that the listing could use.
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

    /// Returns whether this worker lists a program.
    #[must_use]
    pub(crate) fn is_used_by(&self, worker: WorkerId) -> bool {
        self.running.contains_key(&worker)
    }

    /// Handles a worker's message; returns what the worker has done if it is idle again.
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

    /// Handles a worker's death: its program is tried again or given up.
    pub(crate) fn on_worker_died(&mut self, catalogue: &mut Catalogue, worker: WorkerId) {
        let Some((program, tries)) = self.running.remove(&worker) else { return };
        if tries >= LISTING_ATTEMPTS {
            let error = format!("its worker died {tries} times while it was listed");
            catalogue.record_listing(program, Err(error));
        } else {
            self.waiting.push_back((program, tries));
        }
    }

    /// Counts a worker that did not start; returns whether there were enough attempts for this number of
    /// slots.
    pub(crate) fn count_failed_start(&mut self, slots: usize) -> bool {
        self.failed_starts += 1;
        self.failed_starts >= START_ATTEMPTS_PER_SLOT * slots
    }

    /// Marks every waiting program as not listable, because no worker is left to list it.
    pub(crate) fn fail_remaining(&mut self, catalogue: &mut Catalogue, error: &str) {
        let running = std::mem::take(&mut self.running).into_values();
        for (program, _) in running.chain(std::mem::take(&mut self.waiting)) {
            catalogue.record_listing(program, Err(format!("no worker could be started to list it: {error}")));
        }
    }

    /// Ends a listing that no request waits for any more. A worker can't abort a listing, so it is killed.
    ///
    /// Cancel safe: no, because some workers may be left.
    pub(crate) async fn abort(self, pool: &mut WorkerPool) {
        for worker in self.running.into_keys() {
            pool.kill_worker(worker).await;
        }
    }
}
