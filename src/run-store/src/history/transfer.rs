//! Exports a history to a file for other machines, and imports such files row by row.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use rusqlite::TransactionBehavior;

use super::{
    HistoryError, HistoryStore,
    store::{COLUMNS, classify, read_test},
};

/// Copies rows newer than ours, so importing a file twice changes nothing.
const MERGE: &str = "
INSERT INTO test SELECT * FROM imported.test WHERE true
ON CONFLICT (uid) DO UPDATE SET
    outcome = excluded.outcome, last_us = excluded.last_us, mean_us = excluded.mean_us,
    runs = excluded.runs, failures = excluded.failures, crashes = excluded.crashes,
    seen = excluded.seen, cpu_us = excluded.cpu_us, peak_kib = excluded.peak_kib
WHERE excluded.seen > test.seen;
";
const MERGE_PROGRAMS: &str = "
INSERT INTO program SELECT * FROM imported.program WHERE true
ON CONFLICT (suite) DO UPDATE SET
    start_us = excluded.start_us, seen = excluded.seen, peak_kib = excluded.peak_kib
WHERE excluded.seen > program.seen;
";

/// Error of exporting a history.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The rows can't be read, or the database can't be written.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// The file can't be created, flushed or moved into place.
    #[error("write {}", path.display())]
    File { path: PathBuf, source: io::Error },
}

impl HistoryStore {
    /// Exports all rows to a history at `path`, replacing the file atomically. Returns the number of exported
    /// tests.
    ///
    /// # Errors
    /// The file can't be written; an existing file is then unchanged.
    pub fn export(&self, path: &Path) -> Result<u64, ExportError> {
        let failed = |source| ExportError::File { path: path.to_owned(), source };
        let name = path.file_name().ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
        let name = format!(".{}.{}.partial", name.to_string_lossy(), std::process::id());
        let partial = path.with_file_name(name);
        let text = partial.to_str().ok_or_else(|| failed(io::ErrorKind::InvalidFilename.into()))?;
        let written = self.connection.execute("VACUUM INTO ?1", [text]);
        let placed = written.map_err(|source| classify(path, source).into()).and_then(|_| {
            let sync = fs::File::open(&partial).and_then(|file| file.sync_all());
            sync.and_then(|()| fs::rename(&partial, path)).map_err(failed)
        });
        if let Err(error) = placed {
            // The caller reports the error; the partial file is useless.
            let _stays = fs::remove_file(&partial);
            return Err(error);
        }
        Ok(self.count_tests()?)
    }

    /// Imports the rows of the history at `path` that are newer than ours, all or none. Returns the number
    /// of tests in the file and the number of imported tests.
    ///
    /// # Errors
    /// The file is not a history of this version, or is damaged; or this history can't be written.
    pub fn import(&mut self, path: &Path) -> Result<(u64, u64), HistoryError> {
        let other = Self::open_read_only(path)?;
        let tests = other.check_rows()?;
        drop(other);
        let text = path.to_string_lossy();
        let own = self.path.clone();
        let result = self.merge(&text).map_err(|source| classify(&own, source));
        // No other call needs the attached file. If detaching fails, closing the connection detaches it.
        let _attached = self.connection.execute("DETACH imported", []);
        Ok((tests, result?))
    }

    fn merge(&mut self, path: &str) -> rusqlite::Result<u64> {
        self.connection.execute("ATTACH ?1 AS imported", [path])?;
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let taken = transaction.execute(MERGE, [])?;
        transaction.execute(MERGE_PROGRAMS, [])?;
        transaction.commit()?;
        Ok(taken as u64)
    }

    /// Reads every row as a run does, and returns the number of tests.
    fn check_rows(&self) -> Result<u64, HistoryError> {
        let all = || {
            let mut statement = self.connection.prepare(&format!("SELECT {COLUMNS} FROM test"))?;
            let mut rows = statement.query([])?;
            let mut count = 0;
            while let Some(row) = rows.next()? {
                let _uid: String = row.get(0)?;
                read_test(row)?;
                count += 1;
            }
            Ok(count)
        };
        let tests = all().map_err(|source| classify(&self.path, source))?;
        self.load_programs()?;
        Ok(tests)
    }

    fn count_tests(&self) -> Result<u64, HistoryError> {
        let count = self.connection.query_row("SELECT count(*) FROM test", [], |row| row.get::<_, i64>(0));
        count.map(i64::unsigned_abs).map_err(|source| classify(&self.path, source))
    }
}
