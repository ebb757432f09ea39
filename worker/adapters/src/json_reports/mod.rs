//! Requests and reports as lines of JSON, shared by several adapters.
//!
//! - `message`: requests, and the members of a report.
//! - `lines`: splits a channel into reports.
//! - `dialogue`: requests tests and turns their reports into events.
//! - `outputs`: attributes the standard outputs to tests by fences.

pub(crate) mod dialogue;
pub(crate) mod lines;
pub(crate) mod message;
pub(crate) mod outputs;
