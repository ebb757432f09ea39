//! End-to-end tests: the real program, the real protocols and real test programs, in one test binary with one
//! file per topic. `support` contains the shared helpers, which don't use Heeler's own protocol code.
#![expect(clippy::unwrap_used, reason = "a test that meets the unexpected is to stop there")]
#![expect(
    clippy::disallowed_methods,
    reason = "the tests stand outside: they start heeler as a user's shell does"
)]

#[path = "../fakes/expected.rs"]
mod expected;
#[path = "../page_blocks.rs"]
mod page_blocks;
mod support;

mod cli;
mod frameworks;
mod mcp;
mod mtp;
mod process_death;
mod robustness;
mod rsp;
mod security;
mod test_failures;
