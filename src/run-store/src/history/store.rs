//! The SQLite file: opens and migrates it, records each run in one transaction, and reads it.

use std::{
    collections::{HashMap, HashSet},
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use rusqlite::{Connection, ErrorCode, OpenFlags, Row, TransactionBehavior, config::DbConfig};

use heeler_core::Outcome;
use heeler_sys::dirs::open_regular;

use super::{
    ProgramCost, RecordedOutcome, TestHistory,
    types::{ProgramHistory, read_word, stored_word},
};

/// Name of the file in the state directory.
pub const FILE_NAME: &str = "history.sqlite";

/// Schema version that this program writes.
const VERSION: i32 = 2;

/// Lock timeout: long enough for another run to record its outcomes, short enough not to delay the user
/// noticeably.
const BUSY_TIMEOUT: Duration = Duration::from_millis(500);

/// Final bytes of an SQLite journal that ends with the name of another file.
const JOURNAL_NAME_MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];

const SCHEMA: &str = "
CREATE TABLE test (
    uid TEXT PRIMARY KEY,
    suite TEXT NOT NULL,
    outcome TEXT NOT NULL,
    last_us INTEGER,
    mean_us INTEGER,
    runs INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    crashes INTEGER NOT NULL,
    seen INTEGER NOT NULL,
    cpu_us INTEGER,
    peak_kib INTEGER
) WITHOUT ROWID;
CREATE TABLE program (
    suite TEXT PRIMARY KEY,
    start_us INTEGER NOT NULL,
    seen INTEGER NOT NULL,
    peak_kib INTEGER
) WITHOUT ROWID;
PRAGMA user_version = 2;
";

/// Migrates the tables from version 1 to version 2, and keeps their rows.
const MIGRATE_1_TO_2: &str = "
ALTER TABLE test ADD COLUMN cpu_us INTEGER;
ALTER TABLE test ADD COLUMN peak_kib INTEGER;
ALTER TABLE program ADD COLUMN peak_kib INTEGER;
PRAGMA user_version = 2;
";

/// Table outside the versioned schema. Earlier versions of this program ignore it.
const CONFLICT_TABLE: &str = "
CREATE TABLE IF NOT EXISTS conflict (suite TEXT PRIMARY KEY, seen INTEGER NOT NULL) WITHOUT ROWID";

/// Conflicts are forgotten after 30 days, because the suite may have been fixed.
const CONFLICT_SECONDS: i64 = 30 * 24 * 60 * 60;

const RECORD_TEST: &str = "
INSERT INTO test (uid, suite, outcome, last_us, mean_us, runs, failures, crashes, seen, cpu_us, peak_kib)
VALUES (?1, ?2, ?3, ?4, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
ON CONFLICT (uid) DO UPDATE SET
    outcome = excluded.outcome,
    last_us = coalesce(excluded.last_us, last_us),
    mean_us = coalesce((3 * mean_us + excluded.last_us) / 4, excluded.last_us, mean_us),
    runs = runs + excluded.runs,
    failures = failures + excluded.failures,
    crashes = crashes + excluded.crashes,
    seen = excluded.seen,
    cpu_us = coalesce(excluded.cpu_us, cpu_us),
    peak_kib = coalesce(excluded.peak_kib, peak_kib)";

const RECORD_PROGRAM: &str = "
INSERT INTO program (suite, start_us, seen, peak_kib) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (suite) DO UPDATE SET
    start_us = (3 * start_us + excluded.start_us) / 4,
    seen = excluded.seen,
    peak_kib = coalesce(excluded.peak_kib, peak_kib)";

const TEST_NAMES: &str = "
SELECT name FROM (
    SELECT CASE WHEN substr(uid, 1, length(suite) + 2) = suite || '::' THEN substr(uid, length(suite) + 3) ELSE uid
        END AS name, seen FROM test LIMIT 200000
) WHERE substr(name, 1, length(?1)) = ?1 GROUP BY name ORDER BY max(seen) DESC, name LIMIT ?2";

pub(super) const COLUMNS: &str = "uid, outcome, last_us, mean_us, runs, failures, crashes, peak_kib";

/// Error of using the history. It never fails a run.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The file's directory can't be created, or other users may write to it.
    #[error(transparent)]
    Directory(heeler_sys::dirs::DirError),
    /// Another process has held the lock too long.
    #[error("open the history {}: another process has locked it", path.display())]
    Locked {
        path: PathBuf,
        /// The database's error.
        source: rusqlite::Error,
    },
    /// The file is not a history, or is damaged.
    #[error(
        "read the history {}: the file is damaged; if Heeler keeps its history there, delete it to start a new one",
        path.display()
    )]
    Damaged {
        path: PathBuf,
        /// The database's error.
        source: rusqlite::Error,
    },
    /// The file, or a file next to it, was not created by Heeler.
    #[error(
        "open the history {}: {problem}; if Heeler keeps its history there, delete the file to start a new one",
        path.display()
    )]
    Foreign { path: PathBuf, problem: String },
    /// Another version of Heeler wrote the file.
    #[error(
        "read the history {}: it has format version {found}, but this version of Heeler reads version {VERSION}",
        path.display()
    )]
    OtherVersion {
        path: PathBuf,
        /// Version in the file.
        found: i32,
    },
    /// Any other database error.
    #[error("use the history {}", path.display())]
    Database {
        path: PathBuf,
        /// The database's error.
        source: rusqlite::Error,
    },
}

/// An open history.
#[derive(Debug)]
pub struct HistoryStore {
    pub(super) connection: Connection,
    pub(super) path: PathBuf,
}

impl HistoryStore {
    /// Opens the history at `path`; creates the file and its directory if missing. Blocks for at most half a
    /// second.
    ///
    /// # Errors
    /// All errors are soft: the run continues without a history.
    pub fn open(path: &Path) -> Result<Self, HistoryError> {
        if let Some(directory) = path.parent() {
            heeler_sys::dirs::trusted_dir(directory).map_err(HistoryError::Directory)?;
        }
        // SQLite would make a new file readable for all users. An existing file keeps its mode.
        let _there = heeler_sys::dirs::write_new_file(path, b"");
        check_files(path)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(|source| classify(path, source))?;
        distrust_schema(&connection).map_err(|source| classify(path, source))?;
        let mut history = Self { connection, path: path.to_owned() };
        match history.configure_and_migrate().map_err(|source| classify(path, source))? {
            VERSION => Ok(history),
            found => Err(HistoryError::OtherVersion { path: path.to_owned(), found }),
        }
    }

    /// Opens a history from another machine for reading. The file and its directory may belong to any user,
    /// and are not modified.
    ///
    /// # Errors
    /// The file is not a history, is damaged, or was written by an earlier or later version.
    pub fn open_read_only(path: &Path) -> Result<Self, HistoryError> {
        // The user has named this file, so a link is allowed.
        check_files(&path.canonicalize().unwrap_or_else(|_| path.to_owned()))?;
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(|source| classify(path, source))?;
        distrust_schema(&connection).map_err(|source| classify(path, source))?;
        connection.busy_timeout(BUSY_TIMEOUT).map_err(|source| classify(path, source))?;
        match version(&connection).map_err(|source| classify(path, source))? {
            VERSION => Ok(Self { connection, path: path.to_owned() }),
            found => Err(HistoryError::OtherVersion { path: path.to_owned(), found }),
        }
    }

    /// Configures the connection, creates or migrates the tables, and returns the version. If two processes
    /// do this at the same time, only one creates the tables.
    fn configure_and_migrate(&mut self) -> rusqlite::Result<i32> {
        self.connection.busy_timeout(BUSY_TIMEOUT)?;
        // A rollback journal exists only during a write, so users see and copy a single file. Without fsync,
        // a power failure may lose the last run's rows or, at worst, the file, which contains only hints.
        self.connection.execute_batch("PRAGMA journal_mode = DELETE; PRAGMA synchronous = OFF;")?;
        let found = version(&self.connection)?;
        if !matches!(found, 0 | 1) {
            return Ok(found);
        }
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let version = match version(&transaction)? {
            0 => transaction.execute_batch(SCHEMA).map(|()| VERSION)?,
            1 => transaction.execute_batch(MIGRATE_1_TO_2).map(|()| VERSION)?,
            made_meanwhile => made_meanwhile,
        };
        transaction.commit()?;
        Ok(version)
    }

    /// Returns the recorded history of these tests, by uid.
    ///
    /// # Errors
    /// All errors are soft: the tests count as unknown.
    pub fn load<'a>(
        &self,
        uids: impl IntoIterator<Item = &'a str>,
    ) -> Result<HashMap<String, TestHistory>, HistoryError> {
        let all = || {
            // One transaction for all lookups saves locking the file and reading its header each time. The
            // transaction is never committed.
            let transaction = self.connection.unchecked_transaction()?;
            let mut statement = transaction.prepare(&format!("SELECT {COLUMNS} FROM test WHERE uid = ?1"))?;
            let mut found = HashMap::new();
            for uid in uids {
                let mut rows = statement.query([uid])?;
                if let Some(row) = rows.next()? {
                    found.insert(uid.to_owned(), read_test(row)?);
                }
            }
            Ok(found)
        };
        all().map_err(|source| classify(&self.path, source))
    }

    /// Returns the names of tests that begin with `prefix`, latest first, without their suites. Reads only
    /// part of a huge history.
    ///
    /// # Errors
    /// All errors are soft: no test is known.
    pub fn test_names(&self, prefix: &str, limit: usize) -> Result<Vec<String>, HistoryError> {
        let all = || {
            let mut statement = self.connection.prepare(TEST_NAMES)?;
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let rows = statement.query_map((prefix, limit), |row| row.get(0))?;
            rows.collect::<rusqlite::Result<_>>()
        };
        all().map_err(|source| classify(&self.path, source))
    }

    /// Returns the recorded start-up time and peak memory of each program's processes, by suite.
    ///
    /// # Errors
    /// All errors are soft: the costs count as unknown.
    pub fn load_programs(&self) -> Result<HashMap<String, ProgramHistory>, HistoryError> {
        let all = || {
            let mut statement = self.connection.prepare("SELECT suite, start_us, peak_kib FROM program")?;
            let program = |row: &Row<'_>| {
                let peak_kib = row.get::<_, Option<i64>>(2)?.map(kibibytes);
                Ok((row.get(0)?, ProgramHistory { start: microseconds(row.get(1)?), peak_kib }))
            };
            let rows = statement.query_map([], program)?;
            rows.collect::<rusqlite::Result<_>>()
        };
        all().map_err(|source| classify(&self.path, source))
    }

    /// Returns the suites of programs whose processes have recently conflicted with each other.
    ///
    /// # Errors
    /// All errors are soft: the programs count as free of conflicts.
    pub fn load_conflicts(&self) -> Result<HashSet<String>, HistoryError> {
        let all = || {
            // A history without conflicts, or from an earlier version of this program, lacks the table.
            if !self.connection.table_exists(None, "conflict")? {
                return Ok(HashSet::new());
            }
            let mut statement = self.connection.prepare("SELECT suite FROM conflict WHERE seen > ?1")?;
            let since = now() - CONFLICT_SECONDS;
            let rows = statement.query_map([since], |row| row.get(0))?;
            rows.collect::<rusqlite::Result<_>>()
        };
        all().map_err(|source| classify(&self.path, source))
    }

    /// Records programs whose processes conflict with each other, by suite.
    ///
    /// # Errors
    /// All errors are soft: the next run finds the conflict again.
    pub fn record_conflicts(&mut self, suites: &[&str]) -> Result<(), HistoryError> {
        if suites.is_empty() {
            return Ok(());
        }
        let mut all = || {
            let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            transaction.execute_batch(CONFLICT_TABLE)?;
            for suite in suites {
                transaction.execute(
                    "INSERT OR REPLACE INTO conflict (suite, seen) VALUES (?1, ?2)",
                    (suite, now()),
                )?;
            }
            transaction.commit()
        };
        all().map_err(|source| classify(&self.path, source))
    }

    /// Records a run completely or, on an error, not at all. Blocks for at most half a second while another
    /// process is recording.
    ///
    /// # Errors
    /// All errors are soft: the next run has less information.
    pub fn record(
        &mut self,
        outcomes: &[RecordedOutcome<'_>],
        programs: &[ProgramCost<'_>],
    ) -> Result<(), HistoryError> {
        let now = now();
        let mut all = || {
            let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            record_tests(&transaction, outcomes, now)?;
            let mut statement = transaction.prepare(RECORD_PROGRAM)?;
            for ProgramCost { suite, start, peak_kib } in programs {
                let peak = peak_kib.map(|peak| to_column(peak.into()));
                statement.execute((suite, to_column(start.as_micros()), now, peak))?;
            }
            drop(statement);
            transaction.commit()
        };
        all().map_err(|source| classify(&self.path, source))
    }
}

/// Keeps SQLite from executing the contents of a foreign file. With a view or a trigger in place of our
/// tables, each query would run the code of the file's author.
fn distrust_schema(connection: &Connection) -> rusqlite::Result<()> {
    for (setting, value) in [
        (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
        (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
    ] {
        connection.set_db_config(setting, value)?;
    }
    Ok(())
}

/// Rejects a history that is not a regular file, and a history whose journal names another file, because
/// SQLite would remove that file. Heeler's own journals never name another file.
fn check_files(path: &Path) -> Result<(), HistoryError> {
    let foreign = |problem: &str| {
        let problem = problem.to_owned();
        HistoryError::Foreign { path: path.to_owned(), problem }
    };
    match open_regular(path) {
        Err(error) if error.kind() == io::ErrorKind::Other => return Err(foreign(&error.to_string())),
        // SQLite reports a missing or unreadable file.
        Ok(_) | Err(_) => {}
    }
    let mut journal = path.as_os_str().to_owned();
    journal.push("-journal");
    let file = match open_regular(Path::new(&journal)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::Other => {
            return Err(foreign(&format!("its SQLite journal can't be used: {error}")));
        }
        Err(_) => return Ok(()),
    };
    let size = file.metadata().map_or(0, |found| found.len());
    let mut end = [0; JOURNAL_NAME_MAGIC.len()];
    let place = size.saturating_sub(end.len() as u64);
    match file.read_exact_at(&mut end, place) {
        Ok(()) if end == JOURNAL_NAME_MAGIC => Err(foreign("its SQLite journal names another file")),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Seconds since 1970.
fn now() -> i64 {
    let since = heeler_sys::fail::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    to_column(since.as_secs().into())
}

fn record_tests(connection: &Connection, outcomes: &[RecordedOutcome<'_>], now: i64) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(RECORD_TEST)?;
    for RecordedOutcome { uid, suite, outcome, duration, usage } in outcomes {
        // With any other outcome, the test did not run to its end, so its duration would mislead.
        let duration =
            matches!(outcome, Outcome::Passed | Outcome::Failed).then(|| to_column(duration.as_micros()));
        let is = |other| i64::from(*outcome == other);
        let (runs, failures) = (1 - is(Outcome::Skipped), is(Outcome::Failed));
        let crashes = is(Outcome::Crashed);
        let cpu = usage.map(|usage| to_column(usage.cpu.as_micros()));
        let peak = usage.map(|usage| to_column(usage.peak_kib.into()));
        let word = stored_word(*outcome);
        statement.execute((uid, suite, word, duration, runs, failures, crashes, now, cpu, peak))?;
    }
    Ok(())
}

fn version(connection: &Connection) -> rusqlite::Result<i32> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

pub(super) fn read_test(row: &Row<'_>) -> rusqlite::Result<TestHistory> {
    let word: String = row.get(1)?;
    let Some(outcome) = read_word(&word) else {
        return Err(rusqlite::Error::InvalidColumnName(word));
    };
    Ok(TestHistory {
        outcome,
        last: row.get::<_, Option<i64>>(2)?.map(microseconds),
        mean: row.get::<_, Option<i64>>(3)?.map(microseconds),
        runs: row.get(4)?,
        failures: row.get(5)?,
        crashes: row.get(6)?,
        peak_kib: row.get::<_, Option<i64>>(7)?.map(kibibytes),
    })
}

fn kibibytes(column: i64) -> u64 {
    u64::try_from(column).unwrap_or(0)
}

fn microseconds(column: i64) -> Duration {
    Duration::from_micros(u64::try_from(column).unwrap_or(0))
}

/// Converts a number for a column, limited so that SQL can add four of them.
fn to_column(number: u128) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX).min(i64::MAX / 8)
}

pub(super) fn classify(path: &Path, source: rusqlite::Error) -> HistoryError {
    let path = path.to_owned();
    match &source {
        rusqlite::Error::SqliteFailure(failure, _) => match failure.code {
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => HistoryError::Locked { path, source },
            // SQLite reports a missing table or column as `Unknown`: the file is a database, but not a
            // history.
            ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt | ErrorCode::Unknown => {
                HistoryError::Damaged { path, source }
            }
            _ => HistoryError::Database { path, source },
        },
        rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::InvalidColumnName(_)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::FromSqlConversionFailure(..) => HistoryError::Damaged { path, source },
        _ => HistoryError::Database { path, source },
    }
}
