//! A recorded run, read only from its files: the selected tests, their results, and missing results.

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
    /// Manifest with the selected tests.
    pub manifest: Manifest,
    pub ownership: RunOwnership,
    /// End record; `None` if the run was interrupted.
    pub end: Option<Box<RunEnd>>,
    /// Results of tests and failures of programs, in the order of their ends. The later of two results of a
    /// test counts. A test without a result has a synthesized one.
    pub results: Vec<RecordedResult>,
    /// Processes that ran tests; each worker's processes are in the order of their starts.
    pub processes: Vec<RecordedProcess>,
    /// Descriptions of lost data.
    pub losses: Vec<String>,
    /// Whether the journals had reached their limit, so later results are recorded without outputs.
    pub lacks_outputs: bool,
    /// Journals with the results that are not in memory.
    pub(super) journal_paths: Vec<PathBuf>,
}

/// A process that ran tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedProcess {
    /// Worker that started the process.
    pub worker: Option<WorkerId>,
    pub start: ProcessStart,
    /// `None` if the worker died before the process ended.
    pub end: Option<ProcessEnd>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum RecordedResult {
    Test(RecordedTestResult),
    Program(ProgramFailure),
}

impl RecordedResult {
    /// Returns the time of the test's end in milliseconds since 1970; `None` if unknown.
    #[must_use]
    pub fn ended_ms(&self) -> Option<u64> {
        match self {
            Self::Test(test) => test.ended_ms,
            Self::Program(_) => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct RecordedTestResult {
    pub test: TestId,
    pub outcome: Outcome,
    /// Start of the last attempt in milliseconds since 1970; `None` for a test that never started.
    pub(super) started_ms: Option<u64>,
    /// Time of the test's end in milliseconds since 1970; `None` if unknown.
    pub ended_ms: Option<u64>,
    pub(super) duration: Option<Duration>,
    /// Duration of all attempts before the last one together.
    pub(super) earlier_attempts: Duration,
    /// Index of the process that ran the test: among the processes of its journal while that is read, then of
    /// the run.
    pub(super) process: Option<usize>,
    pub(super) content: ResultContent,
}

/// Location of the complete result.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ResultContent {
    Kept(Box<TestResult>),
    Journalled {
        /// Index in the run's `journal_paths`.
        journal: usize,
        place: RecordPlace,
    },
}

impl RecordedTestResult {
    /// Creates a result that is kept in memory.
    pub(super) fn kept(test: TestId, result: TestResult) -> Self {
        let earlier_us = result.attempts.iter().map(|attempt| attempt.duration_us).sum();
        Self {
            test,
            outcome: result.outcome,
            started_ms: result.started_ms,
            ended_ms: ended_at_ms(&result),
            duration: result.duration_us.map(Duration::from_micros),
            earlier_attempts: Duration::from_micros(earlier_us),
            process: None,
            content: ResultContent::Kept(Box::new(result)),
        }
    }
}

/// Error of reading a recorded run.
#[derive(Debug, thiserror::Error)]
pub enum RecordedRunError {
    /// The run is still in progress.
    #[error("run {run} is still in progress (pid {pid})")]
    Running {
        run: String,
        /// Process id of the run's coordinator.
        pid: u32,
    },
    /// The watchdog is finishing the run, which will be over soon.
    #[error(
        "run {run} has lost its coordinator, and its watchdog is still cleaning up; try again in a moment"
    )]
    Finishing { run: String },
    /// The run died before writing its manifest.
    #[error("run {run} died before it wrote its manifest; no results are recorded")]
    NoManifest { run: String },
    /// A file is missing or can't be read.
    #[error("{path}")]
    Read { path: String, source: io::Error },
    /// The manifest is damaged, or has another version.
    #[error("{path}")]
    Manifest { path: String, source: ManifestError },
    /// A journal has another version.
    #[error("{path}")]
    Journal { path: String, source: JournalError },
}

/// Reads the record of an ended run.
///
/// # Errors
/// The run has not ended, or its manifest can't be read. Damaged journals are not an error: their readable
/// part is returned, and the lost part is described.
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

/// Reads the files of a run without checking its locks. Call this only if nothing more will be written, or
/// if the results of ended tests suffice.
///
/// # Errors
/// The manifest can't be read, or a journal has another version.
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

/// Describes the damage to the journals.
///
/// # Errors
/// A journal has another version.
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
            Some(damage) => losses.push(format!("{path}: {damage}; later records are lost")),
            None => {}
        }
        if let Some(offset) = content.torn_at {
            tracing::debug!(path, offset, "the last record is incomplete");
        }
    }
    Ok(losses)
}

fn recorded_run(manifest: Manifest, journals: Vec<ScannedJournal>, mut losses: Vec<String>) -> RecordedRun {
    // Synthesize the missing results.
    let is_ended = journals.iter().any(|journal| journal.end.is_some());
    let missing = missing_results(&manifest, &journals, &losses, is_ended);
    if is_ended && losses.is_empty() && !missing.is_empty() {
        let tests = if missing.len() == 1 { "test" } else { "tests" };
        losses.push(format!("{} {tests} without a result in any journal", missing.len()));
    }
    // Merge the journals by time.
    let mut end = None;
    let mut results: Vec<TimedResult> = Vec::new();
    let (mut processes, mut journal_paths): (Vec<RecordedProcess>, _) = (Vec::new(), Vec::new());
    for journal in journals {
        // Records of one worker are in order regardless of their times, because a retry has the start time
        // of its first attempt. Synthesized results come last, in their own order.
        let mut last_ms = if journal.file.worker.is_some() { 0 } else { u64::MAX };
        for mut result in journal.results {
            if let RecordedResult::Test(RecordedTestResult { process: Some(process), .. }) = &mut result {
                *process += processes.len();
            }
            last_ms = last_ms.max(result.ended_ms().unwrap_or(0));
            results.push(TimedResult { ended_ms: last_ms, result });
        }
        end = journal.end.or(end);
        processes.extend(journal.processes);
        journal_paths.push(journal.file.path);
    }
    // The sort is stable, so it preserves each worker's order.
    results.sort_by_key(|timed| timed.ended_ms);
    let results = results.into_iter().map(|timed| timed.result).chain(missing).collect();
    let ownership = RunOwnership::Copied;
    RecordedRun { manifest, ownership, end, results, processes, losses, lacks_outputs: false, journal_paths }
}

/// A result with its sort time.
struct TimedResult {
    ended_ms: u64,
    result: RecordedResult,
}

/// Returns a synthesized result for each test without a result.
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
        (_, false) => format!("the journals of the run are damaged: {}", losses.join("; ")),
        (true, true) => "no journal of the run contains it".to_owned(),
        (false, true) => "the run was interrupted".to_owned(),
    };
    let is_lost = is_ended || !losses.is_empty();
    let attempt_of = |test: TestId| {
        let mut journals = journals.iter().rev();
        journals.find_map(|journal| Some((&journal.file.path, *journal.last_attempts.get(&test)?)))
    };
    let missing = |(test, unfinished): (TestId, UnfinishedTest)| {
        let result = if is_lost {
            TestResult::with_reason(Outcome::Lost, format!("result unknown: {cause}"))
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

/// Returns the time of a test's end in milliseconds since 1970.
fn ended_at_ms(result: &TestResult) -> Option<u64> {
    Some(result.started_ms?.saturating_add(result.duration_us.unwrap_or(0) / 1000))
}

impl RecordedRun {
    /// Returns the run's duration as far as known; an interrupted run lasts until its last result.
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

    /// Returns the reports of all results, in order. Reads each report on demand, because all reports
    /// together may not fit into memory.
    pub fn reports(&self) -> impl Iterator<Item = TestReport> {
        let descriptions: TestDescriptions = self.manifest.plan.clone().into_descriptions();
        self.results.iter().filter_map(move |result| self.report(&descriptions, result))
    }

    /// Returns the reports of each test's latest result and of all failed programs, in order. Reads each
    /// report on demand.
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
                        let reason = format!("the message and output of this test can't be read: {error}");
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
    /// The result's journal can no longer be read.
    fn whole_result<'r>(&self, recorded: &'r RecordedTestResult) -> io::Result<Cow<'r, TestResult>> {
        match &recorded.content {
            ResultContent::Kept(result) => Ok(Cow::Borrowed(result)),
            ResultContent::Journalled { journal, place } => {
                match read_record_at(&self.journal_paths[*journal], *place)? {
                    JournalRecord::Event(RunRecord::Finished { result, .. }) => Ok(Cow::Owned(result)),
                    _ => Err(io::Error::other("the journal has changed since it was read")),
                }
            }
        }
    }
}
