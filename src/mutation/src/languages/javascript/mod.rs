//! Mutants of JavaScript and TypeScript: StrykerJS finds and tests them, as a child process that serves
//! version 0.4 of the Mutation Server Protocol on its standard streams.
//!
//! - `package`: finds the package and its StrykerJS.
//! - `process`: the child process, below a guard.
//! - `client`: requests to it and its answers.
//! - `mutants`: its mutants and results as ours.
//! - `run`: the tests of its mutants, from the request to the verdicts.
//! - `error`: what goes wrong.

mod client;
mod error;
mod mutants;
mod package;
mod process;
mod run;

pub(super) use package::JavaScript;
