//! Rounds of mutation testing: a small project in C, whose verdicts are known from a run without faults.
//!
//! - `project`: the project, and its verdicts.
//! - `plan`: what the user does, and the faults; all of it is drawn.
//! - `round`: one round, and what must hold of every verdict.

mod plan;
mod project;
mod round;

pub(crate) use plan::MutationPlan;
pub(crate) use round::play;
