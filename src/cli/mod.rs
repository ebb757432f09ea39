//! The command line.

pub mod arguments;
pub mod display;
