//! Boost.Test. A program lists its tests as a graph on standard error, selects them by path, and reports
//! events as a log on standard output.

mod adapter;
mod command;
mod grammar;
mod listing;
mod stack;
mod suites;

pub(super) use adapter::BoostTest;
