//! Durations and outcomes of earlier runs, in one SQLite file that users may query or delete at any time.
//!
//! A run reads the history to choose the start order of tests and the size of batches, and records its
//! outcomes at its end. Every error of this module is soft: it is reported to the user, and the run continues
//! without a history, for example when the file is locked, damaged or too new.
//!
//! # Schema
//! Version 2, in `PRAGMA user_version`. Durations are in microseconds, times in seconds since 1970.
//!
//! ```sql
//! -- One row per test that has ever ended here.
//! CREATE TABLE test (
//!     uid TEXT PRIMARY KEY,           -- <suite>::<name>
//!     suite TEXT NOT NULL,            -- the first part of the uid
//!     outcome TEXT NOT NULL,          -- last outcome: passed, failed, skipped, crashed, timed-out
//!     last_us INTEGER,                -- last duration, NULL until a run of it was complete
//!     mean_us INTEGER,                -- decaying mean, with a weight of 1/4 for the newest
//!     runs INTEGER NOT NULL,          -- number of runs, without skips
//!     failures INTEGER NOT NULL,      -- number of failures
//!     crashes INTEGER NOT NULL,       -- number of crashes
//!     seen INTEGER NOT NULL,          -- time of its last end
//!     cpu_us INTEGER,                 -- CPU time of the last process that ran only this test
//!     peak_kib INTEGER                -- peak memory of this process
//! ) WITHOUT ROWID;
//! -- One row per program.
//! CREATE TABLE program (
//!     suite TEXT PRIMARY KEY,         -- as in test
//!     start_us INTEGER NOT NULL,      -- start-up time of a process before its first test; decaying mean
//!     seen INTEGER NOT NULL,
//!     peak_kib INTEGER                -- highest peak memory of its processes in the last run
//! ) WITHOUT ROWID;
//! ```
//!
//! The slowest tests, for example: `SELECT uid, mean_us / 1e6 FROM test ORDER BY mean_us DESC LIMIT 10`.
//!
//! Version 1 had neither `cpu_us` nor `peak_kib`; opening such a file migrates it.

mod store;
#[cfg(test)]
mod tests;
mod transfer;
mod types;

pub use store::{FILE_NAME, HistoryError, HistoryStore};
pub use transfer::ExportError;
pub use types::{ProgramCost, ProgramHistory, RecordedOutcome, RecordedUsage, TestHistory, stored_outcome};
