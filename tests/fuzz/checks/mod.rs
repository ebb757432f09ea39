//! What must hold for any bytes at all: one function for each fuzz target, which panics when it does not. The targets give
//! them what libFuzzer thinks of, the integration tests the seeds.
//!
//! - `pieces`: bytes cut at places that the bytes themselves choose.
//! - `streams`: frames, packets, journals, manifests.
//! - `messages`: envelopes, and all that travels in them.
//! - `frameworks`: what test programs print.
//! - `texts`: filters and configuration.
//! - `dumps`: minidumps.

mod dumps;
mod frameworks;
mod messages;
mod pieces;
mod streams;
mod texts;

pub use dumps::minidump;
pub use frameworks::{gtest_listing, gtest_transcript, libtest_listing, libtest_transcript};
pub use messages::{envelope, message};
pub use streams::{frame, journal, manifest, packet};
pub use texts::{config, filter, graph_query};
