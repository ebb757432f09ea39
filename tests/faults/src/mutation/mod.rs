//! Rounds of mutation testing on a small C project. Its verdicts are known from a run without faults.
//!
//! - `project`: the project and its verdicts.
//! - `plan`: the user's actions and the faults, all drawn at random.
//! - `round`: one round, and the checks of every verdict.

mod plan;
mod project;
mod round;

pub(crate) use plan::MutationPlan;
pub(crate) use round::play;
