//! Heeler's command line. Everything else is in the crates below.

mod cli;

pub use cli::{CRASH_ROLE, main};
