//! Recovery of a run from its files: the one reader of its journals, and the one composer of the updates that
//! are due at its end. Used by the watchdog, by the coordinator in place of the watchdog, and by later
//! commands that report a run or rerun its tests. Which results are due is decided by `heeler_core`.
//!
//! - [`finish`]: from a finish request to frames.
//! - [`run_journals`]: the journals of a run, and the results of tests that were never settled.

pub mod finish;
pub mod run_journals;

pub use run_journals::{JournalFile, RunJournals, journal_paths, mark_of, read_record_at, unfinished_result};
