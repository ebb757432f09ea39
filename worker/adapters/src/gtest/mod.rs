//! GoogleTest, version 1.8 to today. A program lists its tests into an XML file, reads the names to run from
//! a flag file, reports events on standard output, and writes the results of a whole run into an XML file.

mod adapter;
mod command;
mod failure;
mod grammar;
mod listing;
mod report;
mod same_names;

pub(super) use adapter::GoogleTest;

#[cfg(test)]
pub(super) use grammar::gtest_parser;
