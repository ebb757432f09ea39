//! The report of a run, for people and for their tools: the aggregated stream of changes, and the report
//! files written from it. Pure functions: no clock, no file and no terminal here.
//!
//! - [`RunSummary`]: the whole run by uid, latest state; [`TestReport`] is one test of it.
//! - [`sanitise`]: sanitising of foreign text.
//! - [`junit`]: the JUnit XML report.

mod summary;
mod test_report;

pub mod junit;
pub mod sanitise;

pub use summary::{MemoryPeak, RunSummary, RunVerdict};
pub use test_report::{FailureDetail, TestReport};
pub use test_report::{is_group, read_number, split_name};
