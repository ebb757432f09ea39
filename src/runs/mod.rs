//! Runs on disk: the directory of a new one, and what is left of earlier ones. Nothing here talks to a process or a client;
//! what is true of a run is read from its files and from the locks on them.
//!
//! - `place`: where a run's directory is made, who holds it, and which old ones go.
//! - `earlier`: the list of runs, each with its true state.
//! - `choose`: from what a user names to one of them.
//! - `story`: all that the journals tell of one run.
//! - `left`: which of its tests are still to be gone on with.

mod choose;
mod earlier;
mod left;
mod place;
mod story;

#[cfg(test)]
mod tests;

pub use choose::{ChooseError, choose};
pub use earlier::{EarlierRun, State, list};
pub use left::{Wanted, left};
pub(crate) use place::now;
pub use place::{Provenance, RunDir, make_run_dir, prune, state_dir_elsewhere};
pub(crate) use story::crashed;
pub use story::{Story, StoryError, read};

/// Journals and evidence of runs, below the state directory.
pub const DIR_NAME: &str = "runs";
