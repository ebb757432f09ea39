//! A recorded run, read from its files only: the selected tests, how each test ended, and which results are
//! missing.

use std::{fs, io, path::Path, time::Duration};

use heeler_core::{Outcome, TestId, TestResult, delivery::UnfinishedTest};
use heeler_protocol::{
    journal::{JournalError, JournalRecord, ProgramFailure, RunEnd},
    manifest::{self, Manifest, ManifestError, TestDescriptions},
};
use heeler_recovery::{JournalFile, RunJournals, unfinished_result};
use heeler_report::TestReport;
use heeler_sys::cpu_pool;

use super::{EarlierRun, EarlierRunState};

/// A finished or interrupted run, read from its files.
#[derive(Debug)]
pub struct RecordedRun {
    /// The manifest: the selected tests.
    pub manifest: Manifest,
    /// The end record; `None` if the run was interrupted.
    pub end: Option<Box<RunEnd>>,
    /// The results of tests and the failures of programs, in the order in which they ended; of two results of
    /// one test the later counts. A test without a result of its own gets a synthesized one.
    pub results: Vec<RecordedResult>,
    /// Descriptions of lost data.
    pub losses: Vec<String>,
}

/// A recorded result.
#[derive(Debug, Clone, PartialEq)]
pub enum RecordedResult {
    Test { test: TestId, result: Box<TestResult> },
    Program(ProgramFailure),
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

/// Reads the files of a run without a look at its locks: the caller knows that nothing more is written.
pub(super) fn read_run_files(dir: &Path) -> Result<RecordedRun, RecordedRunError> {
    let path = dir.join(manifest::MANIFEST_FILE_NAME);
    let bytes = match fs::read(&path) {
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
    let journals = RunJournals::read_with(dir, |paths| cpu_pool::map(paths, JournalFile::read))
        .map_err(|source| RecordedRunError::Read { path: dir.display().to_string(), source })?;
    let losses = journal_losses(&journals)?;
    Ok(recorded_run(manifest, journals, losses))
}

/// Describes the damage of the journals.
///
/// # Errors
/// A journal is of another version.
fn journal_losses(journals: &RunJournals) -> Result<Vec<String>, RecordedRunError> {
    let mut losses = Vec::new();
    for journal in &journals.files {
        let path = journal.path.display().to_string();
        if let Some(error) = &journal.read_error {
            losses.push(format!("{path}: {error}"));
        }
        match &journal.content.damage {
            Some(source @ JournalError::Version { .. }) => {
                return Err(RecordedRunError::Journal { path, source: source.clone() });
            }
            Some(damage) => losses.push(format!("{path}: {damage}; the records after it are lost")),
            None => {}
        }
        if let Some(offset) = journal.content.torn_at {
            tracing::debug!(path, offset, "the last record is incomplete");
        }
    }
    Ok(losses)
}

fn recorded_run(manifest: Manifest, journals: RunJournals, mut losses: Vec<String>) -> RecordedRun {
    let due = journals.settle(manifest.plan.tests.len());
    let attempts = journals.last_attempts();
    let is_ended = journals
        .files
        .iter()
        .flat_map(|file| &file.content.records)
        .any(|record| matches!(record, JournalRecord::Ended(_)));
    let cause = match (is_ended, losses.is_empty()) {
        (_, false) => format!("the journals of its run are damaged: {}", losses.join("; ")),
        (true, true) => "the journals of its run do not hold it".to_owned(),
        (false, true) => "the run was interrupted".to_owned(),
    };
    let is_lost = is_ended || !losses.is_empty();
    let missing = |(test, unfinished): &(TestId, UnfinishedTest)| {
        let result = if is_lost {
            TestResult::with_reason(Outcome::Lost, format!("its result is unknown: {cause}"))
        } else {
            unfinished_result(*unfinished, attempts.get(test).copied(), &cause)
        };
        RecordedResult::Test { test: *test, result: Box::new(result) }
    };
    let missing: Vec<_> = due.unfinished.iter().map(missing).collect();
    if is_ended && losses.is_empty() && !missing.is_empty() {
        let tests = if missing.len() == 1 { "test" } else { "tests" };
        losses.push(format!("no journal holds the result of {} {tests}", missing.len()));
    }
    let mut end = None;
    let mut results: Vec<(u64, RecordedResult)> = Vec::new();
    for journal in journals.files {
        // The records of one worker are in order, regardless of their times: a retry starts with its first
        // attempt. Synthesized results come last, in their order.
        let mut last_ms = if journal.worker.is_some() { 0 } else { u64::MAX };
        for record in journal.content.records {
            match record {
                JournalRecord::Finished { test, result } => {
                    last_ms = last_ms.max(ended_at_ms(&result).unwrap_or(0));
                    results.push((last_ms, RecordedResult::Test { test, result: Box::new(result) }));
                }
                JournalRecord::ProgramFailed(failure) => {
                    results.push((last_ms, RecordedResult::Program(failure)));
                }
                JournalRecord::Ended(record) => end = Some(record),
                JournalRecord::Started(_) | JournalRecord::Provisional { .. } => {}
            }
        }
    }
    // The sort is stable.
    results.sort_by_key(|(ended_ms, _)| *ended_ms);
    let results = results.into_iter().map(|(_, result)| result).chain(missing).collect();
    RecordedRun { manifest, end, results, losses }
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
        let ended = self.results.iter().filter_map(|result| match result {
            RecordedResult::Test { result, .. } => ended_at_ms(result),
            RecordedResult::Program(_) => None,
        });
        let last = ended.max().and_then(|last| i64::try_from(last).ok());
        let took = began.ok().zip(last).map(|(began, last)| last.saturating_sub(began));
        Duration::from_millis(took.and_then(|took| u64::try_from(took).ok()).unwrap_or(0))
    }

    /// Returns the reports of all results, in their order.
    #[must_use]
    pub fn reports(&self) -> Vec<TestReport> {
        let descriptions: TestDescriptions = self.manifest.plan.clone().into_descriptions();
        let report = |result: &RecordedResult| match result {
            RecordedResult::Test { test, result } => {
                descriptions.with_test(*test, |test| TestReport::from_result(test, result))
            }
            RecordedResult::Program(failure) => Some(TestReport::from_program_failure(failure)),
        };
        self.results.iter().filter_map(report).collect()
    }
}
