//! The report of a run, for people and for their tools: the aggregated stream of changes, and the report
//! files written from it. Pure functions: no clock, no file and no terminal here.
//!
//! - [`Outcome`], [`Counts`]: how a test ended, in the categories of a summary.
//! - [`Summary`]: the whole run by uid, latest state; [`Record`] is one test of it.
//! - [`text`]: sanitising of foreign text.
//! - [`junit`]: the JUnit XML report.

mod outcome;
mod record;
mod summary;

pub mod junit;
pub mod text;

pub use outcome::{Counts, Outcome};
pub use record::{Detail, Record};
pub(crate) use record::{is_group, number, split_name};
pub use summary::{Large, Summary, Verdict};
