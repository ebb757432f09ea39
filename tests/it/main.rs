//! End-to-end tests: the real program over the real protocol, with real test programs. One binary; each file
//! has one topic. `support` holds the shared parts, which use none of Heeler's own wire code.
#![expect(clippy::unwrap_used, reason = "a test that meets the unexpected is to stop there")]
#![expect(
    clippy::disallowed_methods,
    reason = "the tests stand outside: they start heeler as a user's shell does"
)]

#[path = "../fakes/expected.rs"]
mod expected;
mod support;

mod attachments;
mod backpressure;
mod bad_input;
mod callback;
mod cli;
mod concurrent;
mod crash;
mod death;
mod debug;
mod earlier;
mod evidence;
mod failures;
mod filters;
mod foreign;
mod fuzz_seeds;
mod hostile;
mod hygiene;
mod injury;
mod intruders;
mod launch;
mod leaks;
mod outcomes;
mod pause;
mod protocol;
mod quirks;
mod refused;
mod resources;
mod run_gtest;
mod run_libtest;
mod server;
mod supply;
mod surroundings;
mod tidy;
mod transcripts;
mod unsafe_list;
