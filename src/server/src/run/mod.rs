//! One run, from the selected tests to the proven completion.
//!
//! - `prepare`: the plan with its directory, and what front ends record after the run.
//! - `composed`: the record of a run whose results are decided by its front end.
//! - `plan`: the tests to run, in the forms needed by the model and the workers.
//! - `selected_test`: one selected test.
//! - `program_table`: the programs of a plan.
//! - `configured_fixtures`: set-ups and tear-downs of configured fixtures.
//! - `fixture_variables`: the environment variables that set-ups export.
//! - `dump_budget`: limits the dumps of a run, and chooses the crash capture of each lease.
//! - `fixtures`: the start order of CTest's fixtures and their users.
//! - `bonds`: tests that run in one process.
//! - `needs`: the slots and resources that tests take.
//! - `waits`: what tests wait for, for users.
//! - `units`: what a test process learns about the units of its resources.
//! - `neighbours`: tests that ran at the same time in the same program.
//! - `attachments`: files attached to a run.
//! - `resource_usage`: resource usage of the run's processes.
//! - `driver`: passes events to [`heeler_core::run::RunState`] and executes its actions.
//! - `groups`: groups of the run, of a lease, and of a finish request.
//! - `client_log`: messages for the client's log.
//! - `manifest`: plan and result of the run on disk, for processes that outlive the coordinator.
//! - `schedule`: the schedule in the manifest.
//! - `synthesized`: results that no worker reported.
//! - `test_history`: results of earlier runs.
//! - `report_writer`: writes the report files of completed runs.

mod attachments;
mod bonds;
mod client_log;
mod composed;
mod configured_fixtures;
mod driver;
mod dump_budget;
mod fixture_variables;
mod fixtures;
mod groups;
mod manifest;
mod needs;
mod neighbours;
mod plan;
mod prepare;
mod program_table;
mod report_writer;
mod resource_usage;
mod schedule;
mod selected_test;
mod synthesized;
mod test_history;
mod units;
mod waits;

pub use composed::{ComposedRun, ComposedRunEnd};
pub use driver::RunOutcome;
pub(crate) use driver::{DriverClient, RunDriver, SlotGrant, WaitingDebuggee};
pub(crate) use plan::delivery_limits;
pub use plan::{PlannedTests, RunPlan};
#[cfg(feature = "connect")]
pub(crate) use prepare::prepare_open_run;
pub use prepare::{PlanContext, PreparedRun, RunRequest, discard_run, prepare_run, record_run};
pub(crate) use prepare::{plan_tests, prepare_planned_run};
pub(crate) use report_writer::ReportFileWriter;
pub use resource_usage::RunResourceUsage;
pub use selected_test::SelectedTest;
pub(crate) use test_history::HistorySnapshot;
pub use waits::{RunWait, RunWaitCause};
