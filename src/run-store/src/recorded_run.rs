//! A recorded run, read from its files only: the selected tests, how each test ended, and which results are
//! missing.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use heeler_core::{
    TestId, WorkerId,
    delivery::{JournalMark, UnfinishedTest, settle_orphaned_run},
};
use heeler_protocol::{
    control::{Attempt, TestIndex},
    journal::{self, JournalError, JournalRecord, RunEnd},
    manifest::{self, Manifest, ManifestError, ManifestPlan},
    mtp::{EncodedChange, ExecutionState, NodeChange, TestNode},
    unfinished_tests::{self, UnfinishedReason},
};

use heeler_sys::cpu_pool;

use super::{EarlierRun, EarlierRunState, index::journal_paths};
use heeler_report::ReportedOutcome;

/// A finished or interrupted run, read from its files.
#[derive(Debug)]
pub struct RecordedRun {
    /// The manifest: the selected tests.
    pub manifest: Manifest,
    /// The end record; `None` if the run was interrupted.
    pub end: Option<Box<RunEnd>>,
    /// The latest change of each test and of each failed program, in the order in which they ended. A test
    /// without a result of its own gets a synthesized one.
    pub changes: Vec<NodeChange>,
    /// Descriptions of lost data.
    pub losses: Vec<String>,
}

/// The error of reading a recorded run.
#[derive(Debug, thiserror::Error)]
pub enum RecordedRunError {
    /// The run is still in progress.
    #[error("the run {run} still goes on, in process {pid}")]
    Running {
        run: String,
        /// Process id of its coordinator.
        pid: u32,
    },
    /// The watchdog is finishing the run; it will be over soon.
    #[error("the run {run} has lost its coordinator, and its watchdog is still clearing up")]
    Finishing { run: String },
    /// The run died before it had written its manifest.
    #[error("the run {run} died before it had written down what it was to run")]
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
    let paths = journal_paths(dir)
        .map_err(|source| RecordedRunError::Read { path: dir.display().to_string(), source })?;
    let mut all = JournalContents::default();
    for contents in cpu_pool::map(paths, JournalContents::of_journal) {
        all.append(contents?);
    }
    Ok(all.into_recorded_run(manifest))
}

/// The content of the journals read so far.
#[derive(Debug, Default)]
struct JournalContents {
    /// The marks of each journal, in order; the worker that wrote it no longer matters.
    journal_marks: Vec<Vec<(TestId, JournalMark)>>,
    /// The last attempt of each test whose result was provisional.
    provisional: BTreeMap<TestId, Attempt>,
    /// Changes of tests with the time at which they ended, in milliseconds; `None` for those written at the
    /// end of the run.
    changes: Vec<(Option<i64>, NodeChange)>,
    end: Option<Box<RunEnd>>,
    losses: Vec<String>,
}

impl JournalContents {
    fn of_journal(path: PathBuf) -> Result<Self, RecordedRunError> {
        let mut contents = Self::default();
        contents.read_journal(path)?;
        Ok(contents)
    }

    /// Appends the content of a later journal.
    fn append(&mut self, later: Self) {
        self.journal_marks.extend(later.journal_marks);
        self.provisional.extend(later.provisional);
        self.changes.extend(later.changes);
        self.end = later.end.or(self.end.take());
        self.losses.extend(later.losses);
    }

    fn read_journal(&mut self, path: PathBuf) -> Result<(), RecordedRunError> {
        let shown = path.display().to_string();
        let bytes =
            fs::read(&path).map_err(|source| RecordedRunError::Read { path: shown.clone(), source })?;
        let reading = journal::read(&bytes);
        match reading.damage {
            Some(source @ JournalError::Version { .. }) => {
                return Err(RecordedRunError::Journal { path: shown, source });
            }
            Some(damage) => self.losses.push(format!("{shown}: {damage}; what stood behind it is lost")),
            None => {}
        }
        if let Some(offset) = reading.torn_at {
            tracing::debug!(path = shown, offset, "the last record was never written to its end");
        }
        let is_finish = path.file_name().is_some_and(|name| name == journal::SYNTHESIZED_JOURNAL_NAME);
        // The records of one worker are in order, regardless of their times: a retry starts with its first
        // attempt.
        let mut last = i64::MIN;
        let mut said = Vec::new();
        for (record, parsed) in cpu_pool::map(reading.records, parse_change) {
            if let Some(parsed) = parsed {
                match parsed {
                    Ok(change) => {
                        last = last.max(ended_at(&change.node).unwrap_or(last));
                        self.changes.push(((!is_finish).then_some(last), change));
                    }
                    Err(error) => self.losses.push(format!("{shown}: a result that is none: {error}")),
                }
            }
            match record {
                JournalRecord::Started(test) => said.push((TestId(test.0), JournalMark::Started)),
                JournalRecord::Settled { result, .. } => {
                    said.push((TestId(result.test.0), JournalMark::Settled))
                }
                JournalRecord::Provisional { test, attempt } => {
                    said.push((TestId(test.0), JournalMark::Provisional));
                    self.provisional.insert(TestId(test.0), attempt);
                }
                JournalRecord::ProgramFailure { .. } => {}
                JournalRecord::Ended(end) => self.end = Some(end),
            }
        }
        self.journal_marks.push(said);
        Ok(())
    }

    fn into_recorded_run(mut self, manifest: Manifest) -> RecordedRun {
        let why = match (&self.end, self.losses.is_empty()) {
            (_, false) => format!("the journals of its run are damaged: {}", self.losses.join("; ")),
            (Some(_), true) => "the journals of its run do not hold it".to_owned(),
            (None, true) => "the run was interrupted".to_owned(),
        };
        let is_lost = self.end.is_some() || !self.losses.is_empty();
        let open = self.synthesize_missing(&manifest.plan, (is_lost, &why));
        if self.end.is_some() && self.losses.is_empty() && !open.is_empty() {
            let tests = if open.len() == 1 { "test" } else { "tests" };
            self.losses.push(format!("no journal holds the result of {} {tests}", open.len()));
        }
        // The sort is stable: changes without a time stay after the rest, in their order.
        self.changes.sort_by_key(|(at, _)| at.unwrap_or(i64::MAX));
        let open = open.iter().filter_map(|raw| serde_json::from_slice(raw.as_bytes()).ok());
        let changes = self.changes.into_iter().map(|(_, change)| change).chain(open).collect();
        RecordedRun { manifest, end: self.end, changes, losses: self.losses }
    }
}

/// Parses the change in a record, if it has one.
fn parse_change(record: JournalRecord) -> (JournalRecord, Option<serde_json::Result<NodeChange>>) {
    let parsed = match &record {
        JournalRecord::Settled { change, .. } | JournalRecord::ProgramFailure { change } => {
            Some(serde_json::from_slice(change))
        }
        JournalRecord::Started(_) | JournalRecord::Provisional { .. } | JournalRecord::Ended(_) => None,
    };
    (record, parsed)
}

impl JournalContents {
    /// Synthesizes a change for each test without a result, by the same decision that the watchdog makes for
    /// a client.
    fn synthesize_missing(&self, plan: &ManifestPlan, (is_lost, why): (bool, &str)) -> Vec<EncodedChange> {
        let journals = self.journal_marks.iter().map(|said| (WorkerId(0), said.as_slice()));
        let due = settle_orphaned_run(plan.tests.len(), journals);
        let change = |(test, unsettled): (TestId, UnfinishedTest)| {
            let missing = match (unsettled, self.provisional.get(&test)) {
                _ if is_lost => UnfinishedReason::Lost(why),
                (UnfinishedTest::Provisional, Some(attempt)) => UnfinishedReason::Provisional(attempt, why),
                (UnfinishedTest::Interrupted | UnfinishedTest::Provisional, _) => {
                    UnfinishedReason::Interrupted(why)
                }
                (UnfinishedTest::NotRun, _) => UnfinishedReason::NotRun(why),
            };
            unfinished_tests::synthesized_change(plan, TestIndex(test.0), missing)
        };
        due.unfinished.into_iter().filter_map(change).collect()
    }
}

/// Returns when a test ended, in milliseconds.
fn ended_at(node: &TestNode) -> Option<i64> {
    let began: jiff::Timestamp = node.start_utc.as_deref()?.parse().ok()?;
    let took = Duration::try_from_secs_f64(node.duration_ms.unwrap_or(0.0) / 1e3).ok()?;
    i64::try_from(took.as_millis()).ok()?.checked_add(began.as_millisecond())
}

/// Returns how many tests of a run crashed, by its journals. Only tests that ended in an error are examined.
pub fn count_crashed_tests(dir: &Path) -> usize {
    let is_crash = |change: &[u8]| {
        let change = serde_json::from_slice::<NodeChange>(change);
        change.is_ok_and(|change| ReportedOutcome::from_node(&change.node) == Some(ReportedOutcome::Crashed))
    };
    let of_journal = |path: PathBuf| {
        let records = fs::read(path).map(|bytes| journal::read(&bytes).records).unwrap_or_default();
        let crashed = records.into_iter().filter_map(|record| match record {
            JournalRecord::Settled { result, change } if result.state == ExecutionState::Error => {
                is_crash(&change).then_some(result.test)
            }
            _ => None,
        });
        crashed.collect::<Vec<_>>()
    };
    journal_paths(dir).unwrap_or_default().into_iter().flat_map(of_journal).collect::<BTreeSet<_>>().len()
}

impl RecordedRun {
    /// Returns the duration of the run, as far as it is known: until the last result for an interrupted one.
    #[must_use]
    pub fn duration(&self) -> Duration {
        if let Some(end) = &self.end {
            return Duration::from_millis(end.duration_ms);
        }
        let began = self.manifest.head.began_utc.parse::<jiff::Timestamp>().map(|at| at.as_millisecond());
        let last = self.changes.iter().filter_map(|change| ended_at(&change.node)).max();
        let took = began.ok().zip(last).map(|(began, last)| last.saturating_sub(began));
        Duration::from_millis(took.and_then(|took| u64::try_from(took).ok()).unwrap_or(0))
    }
}
