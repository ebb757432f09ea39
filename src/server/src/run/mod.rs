//! One run, from the selected tests to the proven completion.
//!
//! - `plan`: the tests to run, in the forms that the model and the workers need.
//! - `budget`: the dump budget.
//! - `costs`: resource usage of its processes.
//! - `driver`: passes events to [`heeler_core::run::Run`] and executes its actions.
//! - `groups`: groups of the run, of a lease, and of what the finisher sends.
//! - `log`: messages for the client's log.
//! - `manifest`: plan and result of the run on disk, for the processes that survive the coordinator.
//! - `told`: synthesized results, which no worker reports.
//! - `memory`: the test history.
//! - `metrics`: metrics for telemetry.
//! - `last_resort`: finishes on the main connection if no watchdog can be started.

mod client_log;
mod driver;
mod dump_budget;
mod fallback_finish;
mod groups;
mod manifest;
mod metrics;
mod plan;
mod resource_usage;
mod synthesized;
mod test_history;

pub use driver::{RunDriver, RunOutcome, WaitingDebuggee};
pub(crate) use fallback_finish::end_frames;
pub(crate) use manifest::write_end;
pub(crate) use metrics::{duration_ms, run_metrics};
pub use plan::{RunPlan, SelectedTest};
pub(crate) use plan::{RunPlanInputs, delivery_limits};
pub use resource_usage::RunResourceUsage;
pub(crate) use test_history::{HistorySnapshot, record_history};
