//! Heeler's command line. Everything else is in the crates below.

mod cli;

pub use cli::{COMPLETION_ROLE, CRASH_ROLE, complete, main};
