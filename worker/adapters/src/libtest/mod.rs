//! Rust's test harness and harnesses that imitate it. Two output formats: `libtest` parses JSON events, which
//! stable programs print with `RUSTC_BOOTSTRAP=1`; `libtest-plain` parses the stable text of a
//! single-threaded run.

mod adapter;
mod command;
mod events;
mod listing;
mod panic;
mod plain;

pub(super) use adapter::LibtestFormat;
pub(super) use command::unset_variables;
pub(super) use events::counts_explain_exit;
pub(super) use listing::{is_json as is_json_listing, mark_ignored, read_json as read_json_listing};
pub(super) use panic::read_panic_of;
pub(super) use plain::{PlainGrammar, is_own_line as is_own_plain_line};

#[cfg(test)]
pub(super) use {events::event_parser as follow_events, plain::plain_parser as follow_plain};
