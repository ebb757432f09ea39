//! Runs on disk: the directory of a new run, and the state of earlier ones. Nothing here communicates with a
//! process or a client; the state of a run is read from its files and from the locks on them.
//!
//! - `place`: the directory of a run, its locks, and the removal of old runs.
//! - `earlier`: the list of runs, each with its actual state.
//! - `choose`: resolves a run from the word that a user writes.
//! - `story`: a recorded run, read from its journals.
//! - `left`: the tests of a run to rerun.

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

/// Directory of the journals and evidence of runs, below the state directory.
pub const DIR_NAME: &str = "runs";
