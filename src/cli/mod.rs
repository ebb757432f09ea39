//! The command line. Being built.

/// What a run looks like, on a terminal and in a log.
pub mod display;
