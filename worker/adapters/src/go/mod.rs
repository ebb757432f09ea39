//! Go: lists by `-test.list`, selects tests by a pattern of their names, reports events between what the
//! tests write on standard output; from Go 1.20 on, each begins with a byte that nothing else writes.

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
