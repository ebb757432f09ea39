//! GoogleTest, version 1.8 to today: lists into an XML file, reads names from a flag file, reports events on
//! standard output, and the results of a whole run in an XML file.

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
