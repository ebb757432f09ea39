//! What became of a run, for people and for their tools: the stream of changes aggregated, and the report files
//! made of it. Pure: nothing here looks at a clock, a file or a terminal.
//!
//! - [`Outcome`], [`Counts`]: how a test ended, as people count it.
//! - [`Summary`]: the whole run by uid, latest state; [`Record`] is one test of it.
//! - [`text`]: foreign text made harmless.
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
