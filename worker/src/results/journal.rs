//! A worker's write-ahead journal of one run: an append-only file, written with one call per update batch.
//! The caller decides what the records contain, which depends on whether the run's journals are full.

use std::{
    collections::HashSet,
    fs::{File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use heeler_protocol::{
    control::{WorkerId, journal_name, worker_of_journal},
    journal::{FULL_MARK_NAME, MAGIC},
};

/// Bytes that a worker writes before it adds up the journals of all workers again. The journals may exceed
/// their limit by this size plus one record, for each worker.
const CHECKED_BYTES: u64 = 1 << 20;

/// Why later results are not written to the journal.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JournalWriteError {
    #[error("open the journal {}", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("write to the journal {}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// Journal of one run. Positions count the run's settled results.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    state: JournalState,
    /// Number of the run's results settled by this worker.
    position: u64,
    /// Maximum total size of the journals of all workers of the run.
    limit_bytes: u64,
    /// Bytes written since the journals were last added up.
    unchecked_bytes: u64,
    is_full: bool,
    /// Groups already sent in this worker's stream of the run. Not in the journal, because the finisher knows
    /// them.
    pub(crate) sent_groups: HashSet<String>,
}

#[derive(Debug)]
enum JournalState {
    /// Created by the first write.
    NotCreated,
    Open {
        file: File,
        length: u64,
    },
    /// The file ends with a complete record and accepts no more, because a gap would make the positions
    /// wrong.
    GivenUp,
}

impl Journal {
    /// Creates the journal of a run that has no results in this worker yet.
    pub(crate) fn new(run_dir: &Path, worker: WorkerId, limit_bytes: u64) -> Self {
        Self {
            path: run_dir.join(journal_name(worker)),
            state: JournalState::NotCreated,
            position: 0,
            limit_bytes,
            // Check at once: a worker that replaces another starts with an empty journal next to full ones.
            unchecked_bytes: u64::MAX,
            is_full: false,
            sent_groups: HashSet::new(),
        }
    }

    /// Returns whether the journals of the run have reached their limit. Results are then recorded without
    /// outputs.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Adds up the journals of the run if this one has grown. Returns `true` once per run, when they become
    /// full.
    pub(crate) fn check_limit(&mut self) -> bool {
        if self.is_full || self.unchecked_bytes < CHECKED_BYTES.min(self.limit_bytes / 16) {
            return false;
        }
        self.unchecked_bytes = 0;
        let Some(run_dir) = self.path.parent() else { return false };
        self.is_full = journal_bytes(run_dir) >= self.limit_bytes;
        self.is_full && File::create_new(run_dir.join(FULL_MARK_NAME)).is_ok()
    }

    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Returns whether results are no longer written to the journal.
    pub(crate) fn is_given_up(&self) -> bool {
        matches!(self.state, JournalState::GivenUp)
    }

    /// Appends complete records. `position`: number of the run's settled results after them.
    ///
    /// # Errors
    /// At most once. The journal then ends with a complete record, and later calls write nothing and succeed.
    /// The position is still updated.
    pub(crate) fn append(&mut self, records: &[u8], position: u64) -> Result<(), JournalWriteError> {
        self.position = position;
        if records.is_empty() {
            return Ok(());
        }
        let written = self.try_append(records);
        heeler_sys::fail::pass("worker.journal.after");
        if written.is_err() {
            self.state = JournalState::GivenUp;
        }
        written
    }

    fn try_append(&mut self, records: &[u8]) -> Result<(), JournalWriteError> {
        if let JournalState::NotCreated = self.state {
            let file = open_append(&self.path)
                .map_err(|source| JournalWriteError::Open { path: self.path.clone(), source })?;
            self.state = JournalState::Open { file, length: 0 };
        }
        let JournalState::Open { file, length } = &mut self.state else { return Ok(()) };
        let written = heeler_sys::fail::at("worker.journal.before").and_then(|()| {
            if *length == 0 {
                file.write_all(&[MAGIC, records].concat()).map(|()| MAGIC.len())
            } else {
                file.write_all(records).map(|()| 0)
            }
        });
        match written {
            Ok(magic) => {
                *length += (magic + records.len()) as u64;
                self.unchecked_bytes = self.unchecked_bytes.saturating_add(records.len() as u64);
                Ok(())
            }
            Err(source) => {
                // Ignore a failed truncation: readers tolerate a torn record at the end.
                drop(file.set_len(*length));
                Err(JournalWriteError::Write { path: self.path.clone(), source })
            }
        }
    }
}

/// Returns the total size of all workers' journals, ignoring unreadable ones.
fn journal_bytes(run_dir: &Path) -> u64 {
    let entries = std::fs::read_dir(run_dir).into_iter().flatten().flatten();
    let is_journal =
        |entry: &std::fs::DirEntry| entry.file_name().to_str().and_then(worker_of_journal).is_some();
    let length = |entry: std::fs::DirEntry| entry.metadata().map_or(0, |metadata| metadata.len());
    entries.filter(is_journal).map(length).sum()
}

fn open_append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use heeler_core::{RunRecord, TestStart};
    use heeler_protocol::{
        control::TestId,
        journal::{self, JournalContent, JournalRecord},
    };

    use super::*;

    fn started(number: u32) -> RunRecord {
        RunRecord::Started(TestStart { test: TestId(number), started_ms: 1, is_again: false })
    }

    fn record(number: u32) -> Vec<u8> {
        let mut out = Vec::new();
        journal::write(&mut out, &started(number));
        out
    }

    #[test]
    fn journal_is_private_and_created_by_first_record() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::new(dir.path(), WorkerId(7), u64::MAX);
        let path = dir.path().join("worker-7.journal");
        assert!(!path.exists(), "no file before the first record");
        journal.append(&record(1), 0).unwrap();
        journal.append(&record(2), 5).unwrap();
        assert_eq!(journal.position(), 5);
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let JournalContent { records, damage, .. } = journal::read(&std::fs::read(&path).unwrap());
        assert_eq!(damage, None);
        assert_eq!(records, [1, 2].map(|test| JournalRecord::Event(started(test))));
    }

    #[test]
    fn full_disk_is_reported_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::new(dir.path(), WorkerId(7), u64::MAX);
        std::os::unix::fs::symlink("/dev/full", dir.path().join("worker-7.journal")).unwrap();
        let error = journal.append(&record(1), 1).unwrap_err();
        assert!(
            matches!(&error, JournalWriteError::Write { source, .. } if source.kind() == io::ErrorKind::StorageFull)
        );
        journal.append(&record(2), 2).unwrap();
        assert_eq!(journal.position(), 2);
    }

    #[test]
    fn journals_of_all_workers_count_and_the_limit_is_reported_once() {
        let dir = tempfile::tempdir().unwrap();
        let limit = 5 * record(1).len() as u64;
        let mut journals = [1, 2, 3].map(|worker| Journal::new(dir.path(), WorkerId(worker), limit));
        for number in 0..2 {
            let before = journals.each_ref().map(Journal::is_full);
            assert_eq!(before, [false; 3], "after {number} records of two workers");
            for journal in &mut journals[..2] {
                journal.append(&record(number), 0).unwrap();
            }
            std::fs::write(dir.path().join("other.txt"), [0; 999]).unwrap();
            let reported = journals.each_mut().map(Journal::check_limit);
            assert_eq!(reported, [number == 1, false, false]);
        }
        // A worker that has written nothing does not check the limit.
        assert_eq!(journals.each_ref().map(Journal::is_full), [true, true, false]);
        journals[2].append(&record(1), 0).unwrap();
        assert!(!journals[2].check_limit() && journals[2].is_full());
    }

    #[test]
    fn missing_run_directory_is_reported_once() {
        let mut journal = Journal::new(Path::new("/nowhere/at/all"), WorkerId(1), u64::MAX);
        assert!(matches!(journal.append(&record(1), 1), Err(JournalWriteError::Open { .. })));
        journal.append(&record(1), 2).unwrap();
    }
}
