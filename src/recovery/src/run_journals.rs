//! Reads the journals of a run, and settles tests without a result.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, BufReader},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use heeler_core::{
    Attempt, NotRunReason, Outcome, RunRecord, TestId, TestResult, WorkerId,
    delivery::{JournalMark, OrphanedRunDue, UnfinishedTest, settle_orphaned_run},
    error_chain,
};
use heeler_protocol::{
    control::{JournalledResult, journal_name, worker_of_journal},
    journal::{
        self, JournalContent, JournalEnding, JournalReader, JournalRecord, LocatedRecord, RecordPlace,
        SYNTHESIZED_JOURNAL_NAME,
    },
};
use heeler_sys::dirs::open_regular;

/// Size of the buffer for reading a journal.
const BUFFER_BYTES: usize = 64 << 10;

/// Returns the journals of a run: workers' journals in order, then the journal of synthesized results.
///
/// # Errors
/// The directory can't be read.
pub fn journal_paths(run_dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut workers = Vec::new();
    for entry in fs::read_dir(run_dir)? {
        let name = entry?.file_name();
        workers.extend(name.to_str().and_then(worker_of_journal).map(|worker| (worker, run_dir.join(&name))));
    }
    workers.sort_unstable();
    let synthesized = Some(run_dir.join(SYNTHESIZED_JOURNAL_NAME)).filter(|path| path.exists());
    Ok(workers.into_iter().map(|(_, path)| path).chain(synthesized).collect())
}

/// Content of one journal.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct JournalFile {
    pub path: PathBuf,
    /// Worker that wrote the journal; `None` for the journal of synthesized results.
    pub worker: Option<WorkerId>,
    pub content: JournalContent,
    /// System error that prevented reading the file.
    pub read_error: Option<String>,
}

impl JournalFile {
    /// Reads a journal. A missing journal counts as empty.
    #[must_use]
    pub fn read(path: PathBuf) -> Self {
        let mut records = Vec::new();
        let file = Self::visit(path, |located| records.push(located.record));
        Self { content: JournalContent { records, ..file.content }, ..file }
    }

    /// Passes the records of a journal to `visit`, in order and one at a time, because the records of a
    /// large run may not fit into memory. The returned journal has no records.
    #[must_use]
    pub fn visit(path: PathBuf, visit: impl FnMut(LocatedRecord)) -> Self {
        let worker = path.file_name().and_then(|name| name.to_str()).and_then(worker_of_journal);
        let (ending, error) = visit_records(&path, visit);
        let JournalEnding { torn_at, damage } = ending;
        let content = JournalContent { records: Vec::new(), torn_at, damage };
        let read_error = error.map(|error| error.to_string());
        Self { path, worker, content, read_error }
    }

    /// Reads a worker's journal.
    #[must_use]
    pub fn read_worker(run_dir: &Path, worker: WorkerId) -> Self {
        Self::read(run_dir.join(journal_name(worker)))
    }

    /// Returns the terminal results in order; the first has position 1.
    pub fn finished(&self) -> impl Iterator<Item = (TestId, &TestResult)> {
        self.content.records.iter().filter_map(|record| match record {
            JournalRecord::Event(RunRecord::Finished { test, result }) => Some((*test, result)),
            JournalRecord::Event(_) | JournalRecord::Ended(_) => None,
        })
    }

    /// Returns the terminal results without their details, in order.
    #[must_use]
    pub fn settled(&self) -> Vec<JournalledResult> {
        let settled = |(test, result): (TestId, &TestResult)| JournalledResult {
            test,
            outcome: result.outcome,
            duration_us: result.duration_us.unwrap_or(0),
        };
        self.finished().map(settled).collect()
    }

    /// Returns why the journal could not be read completely, after its path; `None` if
    /// it was.
    #[must_use]
    pub fn damage(&self) -> Option<String> {
        let damage = self.content.damage.as_ref().map(|damage| error_chain(damage));
        let reason = self.read_error.clone().or(damage)?;
        Some(format!("{}: {reason}", self.path.display()))
    }

    fn marks(&self) -> Vec<(TestId, JournalMark)> {
        let mark = |record: &JournalRecord| match record {
            JournalRecord::Event(event) => mark_of(event),
            JournalRecord::Ended(_) => None,
        };
        self.content.records.iter().filter_map(mark).collect()
    }
}

/// Returns the mark that an event leaves on its test, if it concerns a test.
#[must_use]
pub fn mark_of(event: &RunRecord) -> Option<(TestId, JournalMark)> {
    match event {
        RunRecord::Started(start) => Some((start.test, JournalMark::Started)),
        RunRecord::Finished { test, .. } => Some((*test, JournalMark::Settled)),
        RunRecord::Provisional { test, .. } => Some((*test, JournalMark::Provisional)),
        _ => None,
    }
}

fn visit_records(path: &Path, mut visit: impl FnMut(LocatedRecord)) -> (JournalEnding, Option<io::Error>) {
    let file = match open_regular(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return (JournalEnding::default(), None),
        Err(error) => return (JournalEnding::default(), Some(error)),
    };
    let mut reader = JournalReader::new(BufReader::with_capacity(BUFFER_BYTES, file));
    loop {
        match reader.next_record() {
            Ok(Some(located)) => visit(located),
            Ok(None) => return (reader.into_ending(), None),
            Err(error) => return (reader.into_ending(), Some(error)),
        }
    }
}

/// Reads one record again.
///
/// # Errors
/// The file can't be read, or has changed.
pub fn read_record_at(path: &Path, place: RecordPlace) -> io::Result<JournalRecord> {
    let length = usize::try_from(place.length).map_err(io::Error::other)?;
    let mut bytes = vec![0; length];
    open_regular(path)?.read_exact_at(&mut bytes, place.offset)?;
    journal::read_record(&bytes).ok_or_else(|| io::Error::other("the journal has changed since it was read"))
}

/// All journals of a run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunJournals {
    /// Workers' journals in order, then the journal of synthesized results.
    pub files: Vec<JournalFile>,
}

impl RunJournals {
    /// Reads all journals of a run.
    ///
    /// # Errors
    /// The directory can't be read.
    pub fn read(run_dir: &Path) -> io::Result<Self> {
        Ok(Self { files: journal_paths(run_dir)?.into_iter().map(JournalFile::read).collect() })
    }

    /// Settles the run without its coordinator, from its journals and the number of selected tests.
    #[must_use]
    pub fn settle(&self, selected: usize) -> OrphanedRunDue {
        let marks: Vec<_> =
            self.files.iter().map(|file| (file.worker.unwrap_or(WorkerId(0)), file.marks())).collect();
        settle_orphaned_run(selected, marks.iter().map(|(worker, marks)| (*worker, marks.as_slice())))
    }

    /// Returns the last attempt of each test with a provisional result.
    #[must_use]
    pub fn last_attempts(&self) -> BTreeMap<TestId, &Attempt> {
        let records = self.files.iter().flat_map(|file| &file.content.records);
        let attempts = records.filter_map(|record| match record {
            JournalRecord::Event(RunRecord::Provisional { test, attempt, .. }) => Some((*test, attempt)),
            JournalRecord::Event(_) | JournalRecord::Ended(_) => None,
        });
        attempts.collect()
    }
}

/// Returns the result of a test without a terminal result. `cause` is a clause such as
/// `the coordinator died`.
#[must_use]
pub fn unfinished_result(unfinished: UnfinishedTest, attempt: Option<&Attempt>, cause: &str) -> TestResult {
    match (unfinished, attempt) {
        (UnfinishedTest::Provisional, Some(attempt)) => {
            TestResult::from_last_attempt(attempt, &format!("{cause} before the retry"))
        }
        (UnfinishedTest::Interrupted | UnfinishedTest::Provisional, _) => {
            TestResult::with_reason(Outcome::Interrupted, format!("the test was running when {cause}"))
        }
        (UnfinishedTest::NotRun, _) => TestResult::with_reason(
            Outcome::NotRun(NotRunReason::RunInterrupted),
            format!("not run: {cause}"),
        ),
    }
}
