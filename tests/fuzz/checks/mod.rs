//! Properties that hold for arbitrary input bytes. Each fuzz target has one function, which panics if a
//! property is violated. The fuzz targets run the functions with libFuzzer's inputs, `tests/repo` with the
//! seeds.
//!
//! `pieces`: splits bytes at positions that the bytes themselves determine.
//! - `streams`: frames, packets, journals, manifests.
//! - `messages`: envelopes and the messages in them.
//! - `mcp`: the Model Context Protocol; `mcp_http`: its HTTP transport.
//! - `mutation_server`: messages of the Mutation Server Protocol.
//! - `runtime_server`: messages of the Runtime Server Protocol.
//! - `frameworks`: output of test programs.
//! - `texts`: filters and configuration.
//! - `dumps`: minidumps.
//! - `mutants`: sources with mutants and their guards; `foreign_mutants`: mutants that StrykerJS reports.
//! - `programs`: executables whose unwind tables and symbols stack traces use.

mod dumps;
mod foreign_mutants;
mod frameworks;
mod mcp;
mod mcp_http;
mod messages;
mod mutants;
mod mutation_server;
mod pieces;
mod programs;
mod runtime_server;
mod streams;
mod texts;

pub use dumps::minidump;
pub use foreign_mutants::foreign_mutants;
pub use frameworks::{
    boost_listing, boost_transcript, catch2_listing, catch2_transcript, connect_client, doctest_listing,
    doctest_transcript, go_listing, go_transcript, gtest_listing, gtest_transcript, json_lines_listing,
    json_lines_transcript, judge_report, libtest_listing, libtest_transcript, mcp_listing, mcp_transcript,
    mtp_listing, mtp_transcript, pytest_listing, pytest_transcript,
};
pub use frameworks::{command_transcript, ctest_listing, tap_transcript};
pub use mcp::{mcp_filter, mcp_message};
pub use mcp_http::mcp_http;
pub use messages::{envelope, is_control_message, message};
pub use mutants::guarded_source;
pub use mutation_server::mutation_message;
pub use programs::program;
pub use runtime_server::rsp_message;
pub use streams::{frame, journal, manifest, packet};
pub use texts::{config, filter, graph_query};
