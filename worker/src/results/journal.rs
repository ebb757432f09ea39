//! The worker's write-ahead journal of one run: an append-only file, with one write call for each update
//! batch. The contents of its records are decided elsewhere.

use std::{
    collections::HashSet,
    fs::{File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use heeler_protocol::{
    control::{WorkerId, journal_name},
    journal::MAGIC,
};

/// Why later results are not journalled.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JournalWriteError {
    #[error("open the journal {}", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("write to the journal {}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// The journal of one run. Positions count the run's settled results.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    state: JournalState,
    /// The number of the run's results settled by this worker.
    position: u64,
    /// Groups already sent in the worker's stream of the run. They are in no journal, because the finisher
    /// knows them.
    pub(crate) sent_groups: HashSet<String>,
}

#[derive(Debug)]
enum JournalState {
    /// Opened by the first write.
    NotCreated,
    Open {
        file: File,
        length: u64,
    },
    /// The file ends with a whole record and takes no more: a gap would make the positions wrong.
    GivenUp,
}

impl Journal {
    /// Returns the journal of a run that has no results in this worker yet.
    pub(crate) fn new(run_dir: &Path, worker: WorkerId) -> Self {
        let path = run_dir.join(journal_name(worker));
        Self { path, state: JournalState::NotCreated, position: 0, sent_groups: HashSet::new() }
    }

    /// Returns the number of the run's settled results.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Returns whether results are no longer journalled.
    pub(crate) fn is_given_up(&self) -> bool {
        matches!(self.state, JournalState::GivenUp)
    }

    /// Appends whole records, after which `position` results of the run are settled.
    ///
    /// # Errors
    /// Only once: the journal is then given up with only whole records in it, and later calls write nothing
    /// and succeed. The position is still updated.
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
                Ok(())
            }
            Err(source) => {
                // Readers tolerate a torn record at the end, so a failure to cut it off is ignored.
                drop(file.set_len(*length));
                Err(JournalWriteError::Write { path: self.path.clone(), source })
            }
        }
    }
}

fn open_append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use heeler_protocol::{
        control::TestId,
        journal::{self, JournalContent, JournalRecord},
    };

    use super::*;

    fn record(number: u32) -> Vec<u8> {
        let mut out = Vec::new();
        journal::write(&mut out, &JournalRecord::Started(TestId(number)));
        out
    }

    #[test]
    fn journal_is_private_and_created_by_first_record() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::new(dir.path(), WorkerId(7));
        let path = dir.path().join("worker-7.journal");
        assert!(!path.exists(), "no file before the first record");
        journal.append(&record(1), 0).unwrap();
        journal.append(&record(2), 5).unwrap();
        assert_eq!(journal.position(), 5);
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let JournalContent { records, damage, .. } = journal::read(&std::fs::read(&path).unwrap());
        assert_eq!(damage, None);
        assert_eq!(records, [JournalRecord::Started(TestId(1)), JournalRecord::Started(TestId(2))]);
    }

    #[test]
    fn full_disk_is_reported_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::new(dir.path(), WorkerId(7));
        std::os::unix::fs::symlink("/dev/full", dir.path().join("worker-7.journal")).unwrap();
        let error = journal.append(&record(1), 1).unwrap_err();
        assert!(
            matches!(&error, JournalWriteError::Write { source, .. } if source.kind() == io::ErrorKind::StorageFull)
        );
        journal.append(&record(2), 2).unwrap();
        assert_eq!(journal.position(), 2);
    }

    #[test]
    fn missing_run_directory_is_reported_once() {
        let mut journal = Journal::new(Path::new("/nowhere/at/all"), WorkerId(1));
        assert!(matches!(journal.append(&record(1), 1), Err(JournalWriteError::Open { .. })));
        journal.append(&record(1), 2).unwrap();
    }
}
