//! A recorded run, read from its files only: the selected tests, how each test ended, and which results are
//! missing.

use std::{
    borrow::Cow,
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use heeler_core::{
    Attempt, Outcome, ProcessEnd, ProcessStart, ProgramFailure, RunRecord, TestId, TestResult, WorkerId,
    delivery::{UnfinishedTest, settle_orphaned_run},
};
use heeler_protocol::{
    journal::{FULL_MARK_NAME, JournalError, JournalRecord, RecordPlace, RunEnd},
    manifest::{self, Manifest, ManifestError, TestDescriptions},
};
use heeler_recovery::{JournalFile, journal_paths, read_record_at, unfinished_result};
use heeler_report::TestReport;
use heeler_sys::cpu_pool;

use super::{
    EarlierRun, EarlierRunState, RunOwnership,
    run_mark::{ownership_by_manifest, read_manifest_bytes},
    scanned_journal::ScannedJournal,
};

/// A finished or interrupted run, read from its files.
#[derive(Debug)]
pub struct RecordedRun {
    /// The manifest: the selected tests.
    pub manifest: Manifest,
    /// Ownership of the run.
    pub ownership: RunOwnership,
    /// The end record; `None` if the run was interrupted.
    pub end: Option<Box<RunEnd>>,
    /// The results of tests and the failures of programs, in the order in which they ended; of two results of
    /// one test the later counts. A test without a result of its own gets a synthesized one.
    pub results: Vec<RecordedResult>,
    /// The processes that ran tests, each worker's in the order of their starts.
    pub processes: Vec<RecordedProcess>,
    /// Descriptions of lost data.
    pub losses: Vec<String>,
    /// The journals had reached their limit: results after that are recorded without outputs.
    pub lacks_outputs: bool,
    /// The journals, which hold the results that are not in memory.
    pub(super) journal_paths: Vec<PathBuf>,
}

/// A process that ran tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedProcess {
    /// The worker that started it.
    pub worker: Option<WorkerId>,
    pub start: ProcessStart,
    /// `None` if its worker died before it.
    pub end: Option<ProcessEnd>,
}

/// A recorded result.
#[derive(Debug, Clone, PartialEq)]
pub enum RecordedResult {
    Test(RecordedTestResult),
    Program(ProgramFailure),
}

impl RecordedResult {
    /// Returns when a test ended, in milliseconds since 1970; `None` if it is unknown.
    #[must_use]
    pub fn ended_ms(&self) -> Option<u64> {
        match self {
            Self::Test(test) => test.ended_ms,
            Self::Program(_) => None,
        }
    }
}

/// The recorded result of a test.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedTestResult {
    pub test: TestId,
    pub outcome: Outcome,
    /// When the test ended, in milliseconds since 1970; `None` if it is unknown.
    pub ended_ms: Option<u64>,
    pub(super) content: ResultContent,
}

/// Where the whole result is.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ResultContent {
    Kept(Box<TestResult>),
    Journalled {
        /// Index of the journal among those of the run.
        journal: usize,
        place: RecordPlace,
    },
}

impl RecordedTestResult {
    /// Returns a result that is in memory.
    pub(super) fn kept(test: TestId, result: TestResult) -> Self {
        let (outcome, ended_ms) = (result.outcome, ended_at_ms(&result));
        Self { test, outcome, ended_ms, content: ResultContent::Kept(Box::new(result)) }
    }
}

/// The error of reading a recorded run.
#[derive(Debug, thiserror::Error)]
pub enum RecordedRunError {
    /// The run is still in progress.
    #[error("the run {run} is still in progress, in process {pid}")]
    Running {
        run: String,
        /// Process id of its coordinator.
        pid: u32,
    },
    /// The watchdog is finishing the run; it will be over soon.
    #[error("the run {run} has lost its coordinator, and its watchdog is still cleaning up")]
    Finishing { run: String },
    /// The run died before it had written its manifest.
    #[error("the run {run} died before it wrote its manifest")]
    NoManifest { run: String },
    /// A file is missing or can't be read.
    #[error("read {path}")]
    Read { path: String, source: io::Error },
    /// The manifest is damaged, or of another version.
    #[error("read {path}")]
    Manifest { path: String, source: ManifestError },
    /// A journal is of another version.
    #[error("read {path}")]
    Journal { path: String, source: JournalError },
}

/// Reads the record of a run that is over.
///
/// # Errors
/// The run is not over, or its manifest can't be read. Damaged journals are no error: their readable part is
/// returned, and the lost part is described.
pub fn read_recorded_run(run: &EarlierRun) -> Result<RecordedRun, RecordedRunError> {
    let name = run.name.clone();
    match &run.state {
        EarlierRunState::Running { .. } => {
            let pid = run.head.as_ref().map_or(0, |head| head.pid);
            return Err(RecordedRunError::Running { run: name, pid });
        }
        EarlierRunState::Finishing { .. } => return Err(RecordedRunError::Finishing { run: name }),
        EarlierRunState::Ended(_) | EarlierRunState::Interrupted { .. } | EarlierRunState::Unreadable => {}
    }
    read_run_files(&run.dir)
}

/// Reads the files of a run without a look at its locks: the caller knows that nothing more is written, or
/// needs only the results of tests that have ended.
///
/// # Errors
/// The manifest can't be read, or a journal is of another version.
pub fn read_run_files(dir: &Path) -> Result<RecordedRun, RecordedRunError> {
    let path = dir.join(manifest::MANIFEST_FILE_NAME);
    let bytes = match read_manifest_bytes(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let run = dir.file_name().unwrap_or(dir.as_os_str()).to_string_lossy().into_owned();
            return Err(RecordedRunError::NoManifest { run });
        }
        bytes => {
            bytes.map_err(|source| RecordedRunError::Read { path: path.display().to_string(), source })?
        }
    };
    let manifest = Manifest::read(&bytes)
        .map_err(|source| RecordedRunError::Manifest { path: path.display().to_string(), source })?;
    let paths = journal_paths(dir)
        .map_err(|source| RecordedRunError::Read { path: dir.display().to_string(), source })?;
    let journals = cpu_pool::map(paths.into_iter().enumerate().collect(), |(number, path)| {
        ScannedJournal::scan(number, path)
    });
    let losses = journal_losses(&journals)?;
    let ownership = ownership_by_manifest(dir, &bytes);
    let lacks_outputs = dir.join(FULL_MARK_NAME).exists();
    Ok(RecordedRun { ownership, lacks_outputs, ..recorded_run(manifest, journals, losses) })
}

/// Describes the damage of the journals.
///
/// # Errors
/// A journal is of another version.
fn journal_losses(journals: &[ScannedJournal]) -> Result<Vec<String>, RecordedRunError> {
    let mut losses = Vec::new();
    for JournalFile { path, read_error, content, .. } in journals.iter().map(|journal| &journal.file) {
        let path = path.display().to_string();
        if let Some(error) = read_error {
            losses.push(format!("{path}: {error}"));
        }
        match &content.damage {
            Some(source @ JournalError::Version { .. }) => {
                return Err(RecordedRunError::Journal { path, source: source.clone() });
            }
            Some(damage) => losses.push(format!("{path}: {damage}; the records after it are lost")),
            None => {}
        }
        if let Some(offset) = content.torn_at {
            tracing::debug!(path, offset, "the last record is incomplete");
        }
    }
    Ok(losses)
}

fn recorded_run(manifest: Manifest, journals: Vec<ScannedJournal>, mut losses: Vec<String>) -> RecordedRun {
    let is_ended = journals.iter().any(|journal| journal.end.is_some());
    let missing = missing_results(&manifest, &journals, &losses, is_ended);
    if is_ended && losses.is_empty() && !missing.is_empty() {
        let tests = if missing.len() == 1 { "test" } else { "tests" };
        losses.push(format!("no journal holds the result of {} {tests}", missing.len()));
    }
    let mut end = None;
    let mut results: Vec<TimedResult> = Vec::new();
    let (mut processes, mut journal_paths) = (Vec::new(), Vec::new());
    for journal in journals {
        // The records of one worker are in order, regardless of their times: a retry starts with its first
        // attempt. Synthesized results come last, in their order.
        let mut last_ms = if journal.file.worker.is_some() { 0 } else { u64::MAX };
        for result in journal.results {
            last_ms = last_ms.max(result.ended_ms().unwrap_or(0));
            results.push(TimedResult { ended_ms: last_ms, result });
        }
        end = journal.end.or(end);
        processes.extend(journal.processes);
        journal_paths.push(journal.file.path);
    }
    // The sort is stable.
    results.sort_by_key(|timed| timed.ended_ms);
    let results = results.into_iter().map(|timed| timed.result).chain(missing).collect();
    let ownership = RunOwnership::Copied;
    RecordedRun { manifest, ownership, end, results, processes, losses, lacks_outputs: false, journal_paths }
}

/// A result with the time by which it is sorted.
struct TimedResult {
    ended_ms: u64,
    result: RecordedResult,
}

/// Returns a synthesized result for each test that has none.
fn missing_results(
    manifest: &Manifest,
    journals: &[ScannedJournal],
    losses: &[String],
    is_ended: bool,
) -> Vec<RecordedResult> {
    let of_workers = journals
        .iter()
        .map(|journal| (journal.file.worker.unwrap_or(heeler_core::WorkerId(0)), journal.marks.as_slice()));
    let due = settle_orphaned_run(manifest.plan.tests.len(), of_workers);
    let cause = match (is_ended, losses.is_empty()) {
        (_, false) => format!("the journals of its run are damaged: {}", losses.join("; ")),
        (true, true) => "the journals of its run do not hold it".to_owned(),
        (false, true) => "the run was interrupted".to_owned(),
    };
    let is_lost = is_ended || !losses.is_empty();
    let attempt_of = |test: TestId| {
        let mut journals = journals.iter().rev();
        journals.find_map(|journal| Some((&journal.file.path, *journal.last_attempts.get(&test)?)))
    };
    let missing = |(test, unfinished): (TestId, UnfinishedTest)| {
        let result = if is_lost {
            TestResult::with_reason(Outcome::Lost, format!("its result is unknown: {cause}"))
        } else {
            let attempt = attempt_of(test).and_then(|(path, place)| read_attempt(path, place));
            unfinished_result(unfinished, attempt.as_ref(), &cause)
        };
        RecordedResult::Test(RecordedTestResult::kept(test, result))
    };
    due.unfinished.into_iter().map(missing).collect()
}

fn read_attempt(path: &Path, place: RecordPlace) -> Option<Attempt> {
    match read_record_at(path, place) {
        Ok(JournalRecord::Event(RunRecord::Provisional { attempt, .. })) => Some(attempt),
        Ok(_) | Err(_) => None,
    }
}

/// Returns when a test ended, in milliseconds since 1970.
fn ended_at_ms(result: &TestResult) -> Option<u64> {
    Some(result.started_ms?.saturating_add(result.duration_us.unwrap_or(0) / 1000))
}

impl RecordedRun {
    /// Returns the duration of the run, as far as it is known: until the last result for an interrupted one.
    #[must_use]
    pub fn duration(&self) -> Duration {
        if let Some(end) = &self.end {
            return Duration::from_millis(end.duration_ms);
        }
        let began = self.manifest.head.began_utc.parse::<jiff::Timestamp>().map(|at| at.as_millisecond());
        let ended = self.results.iter().filter_map(RecordedResult::ended_ms);
        let last = ended.max().and_then(|last| i64::try_from(last).ok());
        let took = began.ok().zip(last).map(|(began, last)| last.saturating_sub(began));
        Duration::from_millis(took.and_then(|took| u64::try_from(took).ok()).unwrap_or(0))
    }

    /// Returns the reports of all results, in their order. Each is read when it is asked for: together they
    /// may not fit into memory.
    pub fn reports(&self) -> impl Iterator<Item = TestReport> {
        let descriptions: TestDescriptions = self.manifest.plan.clone().into_descriptions();
        self.results.iter().filter_map(move |result| self.report(&descriptions, result))
    }

    /// Returns the reports of the latest result of each test, and of all programs that failed, in their
    /// order. Each is read when it is asked for.
    pub fn latest_reports(&self) -> impl Iterator<Item = TestReport> {
        let descriptions: TestDescriptions = self.manifest.plan.clone().into_descriptions();
        let mut latest: HashMap<TestId, usize> = HashMap::new();
        for (place, result) in self.results.iter().enumerate() {
            if let RecordedResult::Test(recorded) = result {
                latest.insert(recorded.test, place);
            }
        }
        let is_latest = move |place: usize, result: &RecordedResult| match result {
            RecordedResult::Test(recorded) => latest.get(&recorded.test) == Some(&place),
            RecordedResult::Program(_) => true,
        };
        let results =
            self.results.iter().enumerate().filter(move |(place, result)| is_latest(*place, result));
        results.filter_map(move |(_, result)| self.report(&descriptions, result))
    }

    pub(super) fn report(
        &self,
        descriptions: &TestDescriptions,
        result: &RecordedResult,
    ) -> Option<TestReport> {
        match result {
            RecordedResult::Test(recorded) => {
                let result = match self.whole_result(recorded) {
                    Ok(result) => result,
                    Err(error) => {
                        let reason = format!("its message and output can't be read any more: {error}");
                        Cow::Owned(TestResult::with_reason(recorded.outcome, reason))
                    }
                };
                descriptions.with_test(recorded.test, |test| TestReport::from_result(test, &result))
            }
            RecordedResult::Program(failure) => Some(TestReport::from_program_failure(failure)),
        }
    }

    /// Returns a result with all its texts.
    ///
    /// # Errors
    /// Its journal can't be read any more.
    fn whole_result<'r>(&self, recorded: &'r RecordedTestResult) -> io::Result<Cow<'r, TestResult>> {
        match &recorded.content {
            ResultContent::Kept(result) => Ok(Cow::Borrowed(result)),
            ResultContent::Journalled { journal, place } => {
                match read_record_at(&self.journal_paths[*journal], *place)? {
                    JournalRecord::Event(RunRecord::Finished { result, .. }) => Ok(Cow::Owned(result)),
                    _ => Err(io::Error::other("the record has changed")),
                }
            }
        }
    }
}
