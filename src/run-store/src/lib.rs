//! Runs on disk: the directory of a new run, and the state of earlier runs. Nothing here communicates with a
//! process or a client; a run's state is read from its files and their locks.
//!
//! - `history`: durations and outcomes of earlier runs.
//! - `run_dir`: directory and locks of a run, and the removal of old runs.
//! - `index`: lists runs with their actual states.
//! - `user_key`: this user's secret key on this machine.
//! - `run_mark`: distinguishes runs recorded here by this user from copies.
//! - `resolve`: resolves a run from the word that a user writes.
//! - `recorded_run`: a recorded run, read from its journals.
//! - `scanned_journal`: one of its journals, without outputs.
//! - `recorded_details`: reads the outputs again, one result at a time.
//! - `measured_run`: its measured times.
//! - `report_files`: writes report files.
//! - `shards`: the runs of all partitions of one selection.
//! - `rerun_set`: tests of a run to rerun.

pub mod history;
mod index;
mod measured_run;
mod recorded_details;
mod recorded_run;
mod report_files;
mod rerun_set;
mod resolve;
mod run_dir;
mod run_mark;
mod scanned_journal;
mod shards;
mod user_key;

#[cfg(test)]
mod tests;

pub use index::{EarlierRun, EarlierRunState, RunTimes, find_run_dir, list_runs, run_ids};
pub use measured_run::measured_run;
pub use recorded_details::RecordedDetails;
pub use recorded_run::{
    RecordedProcess, RecordedResult, RecordedRun, RecordedRunError, RecordedTestResult, read_recorded_run,
    read_run_files,
};
pub use report_files::{ReportFileError, write_report, write_run_reports};
pub use rerun_set::{RerunSelector, rerun_set};
pub use resolve::{ResolveRunError, resolve_run};
pub use run_dir::wall_clock;
pub use run_dir::{Provenance, RunDir, exclude_from_git, fallback_state_dir, make_run_dir, prune_runs};
pub use run_mark::{RunOwnership, write_manifest};
pub use shards::{ShardRun, check_shards, summarise_shards};
pub use user_key::unpredictable_name;

/// Directory of the journals and evidence of runs, in the state directory.
pub const DIR_NAME: &str = "runs";
