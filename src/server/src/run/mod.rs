//! One run, from the selected tests to the proven completion.
//!
//! - `prepare`: the plan with its directory, and the records after its end; for front ends.
//! - `composed`: the record of a run whose results its front end decides.
//! - `plan`: the tests to run, in the forms that the model and the workers need.
//! - `dump_budget`: the dump budget.
//! - `resource_usage`: resource usage of its processes.
//! - `driver`: passes events to [`heeler_core::run::RunState`] and executes its actions.
//! - `groups`: groups of the run, of a lease, and of what the finisher sends.
//! - `client_log`: messages for the client's log.
//! - `manifest`: plan and result of the run on disk, for the processes that survive the coordinator.
//! - `synthesized`: synthesized results, which no worker reports.
//! - `test_history`: results of earlier runs.
//! - `report_writer`: writes the report files of completed runs.

mod attachments;
mod client_log;
mod composed;
mod driver;
mod dump_budget;
mod fixtures;
mod groups;
mod manifest;
mod neighbours;
mod plan;
mod prepare;
mod report_writer;
mod resource_usage;
mod synthesized;
mod test_history;

pub use composed::{ComposedRun, ComposedRunEnd};
pub use driver::RunOutcome;
pub(crate) use driver::{DriverClient, RunDriver, WaitingDebuggee};
pub(crate) use plan::delivery_limits;
pub use plan::{PlannedTests, RunPlan, SelectedTest};
#[cfg(feature = "connect")]
pub(crate) use prepare::prepare_open_run;
pub use prepare::{PlanContext, PreparedRun, RunRequest, discard_run, prepare_run, record_run};
pub(crate) use prepare::{plan_tests, prepare_planned_run};
pub(crate) use report_writer::ReportFileWriter;
pub use resource_usage::RunResourceUsage;
pub(crate) use test_history::HistorySnapshot;
