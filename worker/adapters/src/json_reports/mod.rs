//! Requests and reports as lines of JSON, for the adapters whose programs report in this way.
//!
//! - `message`: the requests, and the members of one report.
//! - `lines`: finds the reports in the bytes of a channel.
//! - `dialogue`: requests tests, and turns their reports into events.
//! - `outputs`: divides the standard outputs among the tests, by the fences.

pub(crate) mod dialogue;
pub(crate) mod lines;
pub(crate) mod message;
pub(crate) mod outputs;
