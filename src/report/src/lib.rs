//! The report of a run, for people and tools: sums up the results, and writes report files from them. Pure
//! functions, without clock, files or terminal.
//!
//! - [`RunSummary`]: a run's tests by uid, in their latest state; [`TestReport`] is one test.
//! - [`DetailSource`]: reads texts of results that a summary does not keep.
//! - [`sanitise`]: sanitises foreign text.
//! - [`RunExplanation`]: why a run took as long as it did.
//! - [`RunEventLine`]: a line of a run's event stream.
//! - `mutation`: reports of mutation testing.
//! - [`workflow_command`]: escapes text in workflow commands of GitHub Actions.
//! - [`rough_duration`]: formats durations for people.
//! - [`ReportFormat`]: a format of report files; [`REPORT_FORMATS`] is the registry.

mod ctrf;
mod details;
mod explanation;
mod junit;
mod junit_parts;
mod report_format;
mod report_paths;
mod rough_duration;
mod run_events;
mod sample_reports;
mod summary;
mod test_report;
mod test_steps;
mod xml;

#[cfg(feature = "mutation")]
pub mod mutation;
pub mod sanitise;
pub mod workflow_command;

pub use details::{DetailLoadError, DetailSource, ReportContent, UnavailableDetails};
pub use explanation::{
    BoundReason, Loss, LossReason, MeasuredNeeds, MeasuredProcess, MeasuredResource, MeasuredRun,
    MeasuredTest, RunExplanation, TimedTest, explain_run,
};
pub use report_format::{
    REPORT_FORMATS, ReportError, ReportFormat, ReportRequest, ReportRunInfo, find_report_format,
};
pub use rough_duration::rough_duration;
pub use run_events::{RunEnded, RunEventLine};
pub use summary::{MemoryPeak, PassedOutputs, RunSummary, RunVerdict};
pub use test_report::{FailureDetail, TestDefinition, TestReport, shown_name};
pub use test_steps::StepCounts;
