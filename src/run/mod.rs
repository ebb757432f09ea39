//! One run, from the selected tests to the proven completion.
//!
//! - `plan`: what is to run, as the model needs it and as workers need it.
//! - `budget`: how much may still be dumped.
//! - `convert`: between the wire's words and the model's.
//! - `costs`: what its processes took.
//! - `driver`: takes events in, lets [`model::run::Run`] decide, does what it says.
//! - `groups`: of the run, of a lease, of what the finisher sends.
//! - `log`: what the run has to say for the client's log.
//! - `manifest`: what the run was to do and how it ended, on disk, for whoever survives.
//! - `told`: results that no worker tells.
//! - `memory`: what later runs want to know of this one.
//! - `metrics`: a run in numbers, for telemetry.
//! - `last_resort`: finishes on the main connection, when no watchdog can be had.

mod budget;
mod convert;
mod costs;
mod driver;
mod groups;
mod last_resort;
mod log;
mod manifest;
mod memory;
mod metrics;
mod plan;
mod told;

pub use costs::Costs;
pub use driver::{Driver, RunOutcome, Standing};
pub(crate) use last_resort::end_frames;
pub(crate) use manifest::write_end;
pub(crate) use memory::{Knowledge, record};
pub(crate) use metrics::{metrics, millis};
pub(crate) use plan::{Ingredients, delivery};
pub use plan::{RunPlan, SelectedTest};
