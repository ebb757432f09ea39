//! What each test framework is asked and how its answers are read. Bytes go in, values come out: no process is
//! started here, nothing is sent and no clock is read.
//!
//! - `contract`: the trait and the values between an adapter and the runner.
//! - `known`: the frameworks by name.
//! - `follow`: the state machine that all transcripts share, over `sequence` (whose turn it is) and `scan` (bytes).
//! - `gtest`, `libtest`: one folder per framework, each with listing, command and transcript.
//! - `shell`: quoting, for the command lines that people copy.

mod contract;
mod follow;
mod gtest;
mod known;
mod libtest;
mod scan;
mod sequence;
mod shell;
#[cfg(test)]
mod tests;

pub use contract::{
    Adapter, CommandError, Event, Invocation, Listing, ListingError, ListingOutput, Transcript, Verdict,
};
pub use known::{all, by_name};
