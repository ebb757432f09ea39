//! Adapters of the test frameworks: the commands that list and run tests, and the parsers of their output.
//! Bytes go in, values come out: no process is started here, nothing is sent and no clock is read.
//!
//! - `contract`: the trait, and the values passed between an adapter and the runner.
//! - `registry`: the registry of frameworks by name.
//! - `stream_parser`: the stream parser that all transcripts share, over `expected_tests` (the expected tests) and `scan`
//!   (bytes).
//! - `gtest`, `libtest`: one folder per framework, each with listing, command and transcript.
//! - `shell`: quoting, for the command lines that users copy.
#![warn(missing_docs)]

mod contract;
mod expected_tests;
mod gtest;
mod libtest;
mod registry;
mod scan;
mod shell;
mod stream_parser;
#[cfg(test)]
mod tests;

pub use contract::{
    Adapter, AdapterInvocation, AdapterListing, CommandLineError, FrameworkVerdict, ListingError,
    ListingOutput, TranscriptEvent, TranscriptParser,
};
pub use registry::{by_name, detectable_adapters};
