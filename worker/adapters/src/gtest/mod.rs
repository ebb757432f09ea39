//! GoogleTest, version 1.8 to today: lists into an XML file, reads names from a flag file, reports events on
//! standard output.

mod adapter;
mod command;
mod failure;
mod grammar;
mod listing;

pub(super) use adapter::GoogleTest;

#[cfg(test)]
pub(super) use grammar::gtest_parser;
