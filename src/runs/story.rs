//! A recorded run, read from its files only: the selected tests, how each test ended, and which results are
//! missing.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use model::{
    TestId, WorkerId,
    finish::{Said, Unsettled, settle_alone},
};
use wire::{
    control::{Attempt, TestIndex},
    journal::{self, JournalError, Record, RunEnd},
    manifest::{self, Manifest, ManifestError, Plan},
    mtp::{Change, ExecutionState, RawChange, TestNode},
    recovery::{self, Missing},
};

use super::{EarlierRun, State, earlier::journals};
use crate::report::Outcome;

/// A finished or interrupted run, read from its files.
#[derive(Debug)]
pub struct Story {
    /// The manifest: the selected tests.
    pub manifest: Manifest,
    /// The end record; `None` if the run was interrupted.
    pub end: Option<Box<RunEnd>>,
    /// The latest change of each test and of each failed program, in the order in which they ended. A test
    /// without a result of its own gets a synthesized one.
    pub changes: Vec<Change>,
    /// Descriptions of lost data.
    pub losses: Vec<String>,
}

/// The error of reading a recorded run.
#[derive(Debug, thiserror::Error)]
pub enum StoryError {
    /// The run is still in progress.
    #[error("the run {run} still goes on, in process {pid}")]
    Running {
        run: String,
        /// Process id of its coordinator.
        pid: u32,
    },
    /// The watchdog is finishing the run; it will be over soon.
    #[error("the run {run} has lost its coordinator, and its watchdog is still clearing up")]
    Ending { run: String },
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
pub fn read(run: &EarlierRun) -> Result<Story, StoryError> {
    let name = run.name.clone();
    match &run.state {
        State::Running { .. } => {
            let pid = run.head.as_ref().map_or(0, |head| head.pid);
            return Err(StoryError::Running { run: name, pid });
        }
        State::Ending { .. } => return Err(StoryError::Ending { run: name }),
        State::Ended(_) | State::Interrupted { .. } | State::Unreadable => {}
    }
    let path = run.dir.join(manifest::FILE_NAME);
    let bytes = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(StoryError::NoManifest { run: name });
        }
        bytes => bytes.map_err(|source| StoryError::Read { path: path.display().to_string(), source })?,
    };
    let manifest = Manifest::read(&bytes)
        .map_err(|source| StoryError::Manifest { path: path.display().to_string(), source })?;
    let mut told = Told::default();
    for path in journals(&run.dir)
        .map_err(|source| StoryError::Read { path: run.dir.display().to_string(), source })?
    {
        told.take_in(path)?;
    }
    Ok(told.into_story(manifest))
}

/// The content of the journals read so far.
#[derive(Debug, Default)]
struct Told {
    /// The marks of each journal, in order; the worker that wrote it no longer matters.
    said: Vec<Vec<(TestId, Said)>>,
    /// The last attempt of each test whose result was provisional.
    held: BTreeMap<TestId, Attempt>,
    /// Changes of tests with the time at which they ended, in milliseconds; `None` for those written at the
    /// end of the run.
    changes: Vec<(Option<i64>, Change)>,
    end: Option<Box<RunEnd>>,
    losses: Vec<String>,
}

impl Told {
    fn take_in(&mut self, path: PathBuf) -> Result<(), StoryError> {
        let shown = path.display().to_string();
        let bytes = fs::read(&path).map_err(|source| StoryError::Read { path: shown.clone(), source })?;
        let reading = journal::read(&bytes);
        match reading.damage {
            Some(source @ JournalError::Version { .. }) => {
                return Err(StoryError::Journal { path: shown, source });
            }
            Some(damage) => self.losses.push(format!("{shown}: {damage}; what stood behind it is lost")),
            None => {}
        }
        if let Some(offset) = reading.torn_at {
            tracing::debug!(path = shown, offset, "the last record was never written to its end");
        }
        let is_finish = path.file_name().is_some_and(|name| name == journal::FINISH_NAME);
        // The records of one worker are in order, regardless of their times: a retry starts with its first
        // attempt.
        let mut last = i64::MIN;
        let mut said = Vec::new();
        for record in reading.records {
            if let Record::Settled { change, .. } | Record::Charged { change } = &record {
                match serde_json::from_slice::<Change>(change) {
                    Ok(change) => {
                        last = last.max(ended_at(&change.node).unwrap_or(last));
                        self.changes.push(((!is_finish).then_some(last), change));
                    }
                    Err(error) => self.losses.push(format!("{shown}: a result that is none: {error}")),
                }
            }
            match record {
                Record::Started(test) => said.push((TestId(test.0), Said::Started)),
                Record::Settled { result, .. } => said.push((TestId(result.test.0), Said::Settled)),
                Record::Held { test, attempt } => {
                    said.push((TestId(test.0), Said::Held));
                    self.held.insert(TestId(test.0), attempt);
                }
                Record::Charged { .. } => {}
                Record::Ended(end) => self.end = Some(end),
            }
        }
        self.said.push(said);
        Ok(())
    }

    fn into_story(mut self, manifest: Manifest) -> Story {
        let why = match (&self.end, self.losses.is_empty()) {
            (_, false) => format!("the journals of its run are damaged: {}", self.losses.join("; ")),
            (Some(_), true) => "the journals of its run do not hold it".to_owned(),
            (None, true) => "the run was interrupted".to_owned(),
        };
        let is_lost = self.end.is_some() || !self.losses.is_empty();
        let open = self.open(&manifest.plan, (is_lost, &why));
        if self.end.is_some() && self.losses.is_empty() && !open.is_empty() {
            let tests = if open.len() == 1 { "test" } else { "tests" };
            self.losses.push(format!("no journal holds the result of {} {tests}", open.len()));
        }
        // The sort is stable: changes without a time stay after the rest, in their order.
        self.changes.sort_by_key(|(at, _)| at.unwrap_or(i64::MAX));
        let open = open.iter().filter_map(|raw| serde_json::from_slice(raw.as_bytes()).ok());
        let changes = self.changes.into_iter().map(|(_, change)| change).chain(open).collect();
        Story { manifest, end: self.end, changes, losses: self.losses }
    }
}

impl Told {
    /// Synthesizes a change for each test without a result, by the same decision that the watchdog makes for
    /// a client.
    fn open(&self, plan: &Plan, (is_lost, why): (bool, &str)) -> Vec<RawChange> {
        let journals = self.said.iter().map(|said| (WorkerId(0), said.as_slice()));
        let due = settle_alone(plan.tests.len(), journals);
        let change = |(test, unsettled): (TestId, Unsettled)| {
            let missing = match (unsettled, self.held.get(&test)) {
                _ if is_lost => Missing::Lost(why),
                (Unsettled::Held, Some(attempt)) => Missing::Held(attempt, why),
                (Unsettled::Interrupted | Unsettled::Held, _) => Missing::Interrupted(why),
                (Unsettled::NotRun, _) => Missing::NotRun(why),
            };
            recovery::told(plan, TestIndex(test.0), missing)
        };
        due.told.into_iter().filter_map(change).collect()
    }
}

/// Returns when a test ended, in milliseconds.
fn ended_at(node: &TestNode) -> Option<i64> {
    let began: jiff::Timestamp = node.start_utc.as_deref()?.parse().ok()?;
    let took = Duration::try_from_secs_f64(node.duration_ms.unwrap_or(0.0) / 1e3).ok()?;
    i64::try_from(took.as_millis()).ok()?.checked_add(began.as_millisecond())
}

/// Returns how many tests of a run crashed, by its journals. Only tests that ended in an error are examined.
pub(crate) fn crashed(dir: &Path) -> usize {
    let is_crash = |change: &[u8]| {
        let change = serde_json::from_slice::<Change>(change);
        change.is_ok_and(|change| Outcome::of(&change.node) == Some(Outcome::Crashed))
    };
    let of_journal = |path: PathBuf| {
        let records = fs::read(path).map(|bytes| journal::read(&bytes).records).unwrap_or_default();
        let crashed = records.into_iter().filter_map(|record| match record {
            Record::Settled { result, change } if result.state == ExecutionState::Error => {
                is_crash(&change).then_some(result.test)
            }
            _ => None,
        });
        crashed.collect::<Vec<_>>()
    };
    journals(dir).unwrap_or_default().into_iter().flat_map(of_journal).collect::<BTreeSet<_>>().len()
}

impl Story {
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
