//! One run, from the selected tests to the proven completion.
//!
//! - `plan`: the tests to run, in the forms that the model and the workers need.
//! - `budget`: the dump budget.
//! - `convert`: conversions between the types of the wire and those of the model.
//! - `costs`: resource usage of its processes.
//! - `driver`: passes events to [`model::run::Run`] and executes its actions.
//! - `groups`: groups of the run, of a lease, and of what the finisher sends.
//! - `log`: messages for the client's log.
//! - `manifest`: plan and result of the run on disk, for the processes that survive the coordinator.
//! - `told`: synthesized results, which no worker reports.
//! - `memory`: the test history.
//! - `metrics`: metrics for telemetry.
//! - `last_resort`: finishes on the main connection if no watchdog can be started.

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
