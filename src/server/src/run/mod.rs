//! One run, from the selected tests to the proven completion.
//!
//! - `plan_run`: the tests to run, in the forms that the model and the workers need.
//! - `dump_budget`: the dump budget.
//! - `resource_usage`: resource usage of its processes.
//! - `driver`: passes events to [`heeler_core::run::Run`] and executes its actions.
//! - `groups`: groups of the run, of a lease, and of what the finisher sends.
//! - `client_log`: messages for the client's log.
//! - `manifest`: plan and result of the run on disk, for the processes that survive the coordinator.
//! - `synthesized`: synthesized results, which no worker reports.
//! - `test_history`: the test history.
//! - `metrics`: metrics for telemetry.
//! - `fallback_finish`: finishes on the main connection if no watchdog can be started.

mod client_log;
mod driver;
mod dump_budget;
mod fallback_finish;
mod groups;
mod manifest;
mod metrics;
mod plan;
mod report_writer;
mod resource_usage;
mod synthesized;
mod test_history;

pub use driver::{RunDriver, RunOutcome, WaitingDebuggee};
pub(crate) use fallback_finish::end_frames;
pub(crate) use manifest::write_end;
pub(crate) use metrics::{duration_ms, run_metrics};
pub use plan::{RunPlan, SelectedTest};
pub(crate) use plan::{RunPlanInputs, delivery_limits};
pub(crate) use report_writer::ReportWriter;
pub use resource_usage::RunResourceUsage;
pub(crate) use test_history::{HistorySnapshot, record_history};
