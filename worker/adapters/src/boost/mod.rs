//! Boost.Test: lists as a graph on standard error, selects tests by their paths, reports events as a log on
//! standard output.

mod adapter;
mod command;
mod grammar;
mod listing;
mod stack;
mod suites;

pub(super) use adapter::BoostTest;
