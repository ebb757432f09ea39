//! Rust's own test harness, and what speaks like it. Two ways of talking: `libtest` by JSON events, which stable
//! programs give at run time when asked nicely, and `libtest-plain` by the stable form of one thread.

mod adapter;
mod command;
mod events;
mod listing;
mod panic;
mod plain;

pub(super) use adapter::Libtest;

#[cfg(test)]
pub(super) use {events::follow as follow_events, plain::follow as follow_plain};
