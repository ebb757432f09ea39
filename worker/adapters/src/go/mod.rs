//! Go. A program lists its tests with `-test.list`, selects them by a regular expression, and reports events
//! on standard output, mixed with the output of the tests. Since Go 1.20, each report begins with a marker
//! byte.

mod adapter;
mod command;
mod death;
mod goroutines;
mod line_table;
mod listing;
mod log_entries;
mod marker;
mod program;
mod race;
mod scanner;
#[cfg(test)]
mod tests;
mod transcript;

pub(super) use adapter::Go;
