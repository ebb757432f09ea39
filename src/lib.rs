//! Heeler's coordinator, its client library and its command line.

pub mod cli;
pub mod client;
pub mod config;
pub mod discover;
pub mod front;
pub mod history;
pub mod pool;
pub mod report;
pub mod run;

/// Returns an error with its causes, joined by colons.
#[must_use]
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let mut out = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        out.push_str(": ");
        out.push_str(&source.to_string());
        cause = source.source();
    }
    out
}
