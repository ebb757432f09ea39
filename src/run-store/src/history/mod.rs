//! Durations and outcomes of earlier runs, in one SQLite file that users may query and delete at any time.
//!
//! A run reads from the history which tests to start first and how large its batches may be, and records its
//! outcomes at the end. A history that is locked, damaged or too new never fails a run: every error of this
//! module is a soft one, reported to the user while the run continues without a history.
//!
//! # Schema
//! Version 2, in `PRAGMA user_version`. Durations are in microseconds, times in seconds since 1970.
//!
//! ```sql
//! -- One row for each test that ever ended here.
//! CREATE TABLE test (
//!     uid TEXT PRIMARY KEY,           -- <suite>::<name>
//!     suite TEXT NOT NULL,            -- the first part of the uid
//!     outcome TEXT NOT NULL,          -- the last: passed, failed, skipped, crashed, timed-out
//!     last_us INTEGER,                -- its last duration, NULL until it ran to an end of its own
//!     mean_us INTEGER,                -- decaying mean: a quarter of each is the newest
//!     runs INTEGER NOT NULL,          -- how often it ended, skips left out
//!     failures INTEGER NOT NULL,      -- how many of those it failed
//!     crashes INTEGER NOT NULL,       -- how many it crashed
//!     seen INTEGER NOT NULL,          -- when it last ended
//!     cpu_us INTEGER,                 -- CPU time of its process, when it last had one to itself
//!     peak_kib INTEGER                -- peak memory of the same
//! ) WITHOUT ROWID;
//! -- One row for each program.
//! CREATE TABLE program (
//!     suite TEXT PRIMARY KEY,         -- as in test
//!     start_us INTEGER NOT NULL,      -- what a process costs before its first test; decaying mean
//!     seen INTEGER NOT NULL,
//!     peak_kib INTEGER                -- the largest peak memory of its processes in the last run
//! ) WITHOUT ROWID;
//! ```
//!
//! The slowest tests, for example: `SELECT uid, mean_us / 1e6 FROM test ORDER BY mean_us DESC LIMIT 10`.
//!
//! Version 1 had no `cpu_us` and no `peak_kib`; such a file is migrated when it is opened.

mod store;
#[cfg(test)]
mod tests;
mod transfer;
mod types;

pub use store::{FILE_NAME, HistoryError, HistoryStore};
pub use transfer::ExportError;
pub use types::{ProgramCost, RecordedOutcome, RecordedUsage, TestHistory, stored_outcome};
