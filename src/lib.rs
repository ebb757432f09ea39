//! Heeler's coordinator, its client library and its command line.

pub mod cli;
pub mod client;
pub mod config;
pub mod history;
pub mod report;
