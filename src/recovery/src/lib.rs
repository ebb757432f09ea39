//! Recovers a run from its files. This crate alone reads the journals and composes the updates due at a
//! run's end. Its users are the watchdog, the coordinator when it replaces the watchdog, and commands that
//! report a run or rerun its tests. `heeler_core` decides which results are due.
//!
//! - [`finish`]: turns a finish request into frames.
//! - [`run_journals`]: journals of a run, and results of tests that were never settled.

pub mod finish;
pub mod run_journals;

pub use run_journals::{JournalFile, RunJournals, journal_paths, mark_of, read_record_at, unfinished_result};
