//! JavaScript and TypeScript mutants, found and tested by StrykerJS. StrykerJS runs as a child process that
//! speaks version 0.4 of the Mutation Server Protocol on its standard streams.
//!
//! - `package`: finds the package and its StrykerJS.
//! - `process`: the child process and its guard.
//! - `client`: requests and answers.
//! - `mutants`: converts StrykerJS's mutants and results to Heeler's.
//! - `run`: a test run, from request to verdicts.
//! - `error`: errors.

mod client;
mod error;
mod mutants;
mod package;
mod process;
mod run;

pub(super) use package::JavaScript;
