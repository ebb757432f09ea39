//! `heeler mutate`: finds mutants of the sources of a directory, lists them, and tests them.
//!
//! - `command`: the command; `serve`: servers of the Mutation Server Protocol.
//! - `user_observer`: the user who follows the tests.
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
