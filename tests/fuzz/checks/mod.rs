//! Properties of any input bytes: one function for each fuzz target, which panics if the property is
//! violated. The targets run them with libFuzzer's inputs, the integration tests with the seeds.
//!
//! - `unsafe_blocks`: bytes split at places that the bytes themselves determine.
//! - `streams`: frames, packets, journals, manifests.
//! - `messages`: envelopes, and the messages in them.
//! - `frameworks`: output of test programs.
//! - `texts`: filters and configuration.
//! - `dumps`: minidumps.
//! - `programs`: programs as stacks lead through them.

mod dumps;
mod frameworks;
mod messages;
mod pieces;
mod programs;
mod streams;
mod texts;

pub use dumps::minidump;
pub use frameworks::{
    doctest_listing, doctest_transcript, gtest_listing, gtest_transcript, json_lines_listing,
    json_lines_transcript, libtest_listing, libtest_transcript,
};
pub use messages::{envelope, is_control_message, message};
pub use programs::program;
pub use streams::{frame, journal, manifest, packet};
pub use texts::{config, filter, graph_query};
