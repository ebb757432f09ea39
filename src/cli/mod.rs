//! The command line. Being built.

pub mod display;
