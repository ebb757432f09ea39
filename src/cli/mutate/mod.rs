//! `heeler mutate`: finds, lists and tests mutants of the sources in a directory.
//!
//! - `command`: the command; `serve`: servers of the Mutation Server Protocol.
//! - `user_observer`: shows progress to the user and handles signals.
//! - `run_test_finder`: finds the tests of builds.
//! - `exit_code`: exit codes of errors.

mod command;
mod exit_code;
mod run_test_finder;
mod serve;
mod user_observer;

pub(super) use command::mutate;
pub(super) use exit_code::exit_code;
pub(super) use serve::serve_mutants;
