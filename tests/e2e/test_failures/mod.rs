//! Tests that fail, crash, hang or leak, and the diagnostics of each.

mod crashes;
mod diagnostics;
mod diagnostics_unavailable;
mod interference;
mod leaks;
mod outcomes;
mod sanitizers;
mod slow_starts;
mod suite_fixtures;
mod test_directory;
mod tracing;
mod usage;
