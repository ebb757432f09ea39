//! `heeler mutate`: finds mutants of the sources of a directory, lists them, and tests them.
//!
//! - `command`: the command.
//! - `find`: the mutants of sources that are built here; `stryker`: those of JavaScript and TypeScript.
//! - `found`: both, as the arguments select them.
//! - `build`: the guarded copy of the workspace and its test programs; `building`: the same while somebody
//!   waits for it.
//! - `cargo_options`: what the user says about a build by Cargo; `doctest_build`: its documentation tests.
//! - `command_build`: the same for a project in C or C++; `kept_build`: what the next build knows of it;
//!   `pytest_build`: for one in Python.
//! - `observer`: who follows the tests; `session`: the session in which they run.
//! - `baseline`: the tests without a mutant: whether they pass, what they take and what they reach.
//! - `red_tests`: tests that fail without a mutant.
//! - `testing`: the tests with each mutant.
//! - `unfinished`: why a run ended before all mutants had verdicts.
//! - `engine`: all of these, from the built programs to the verdicts.
//! - `finished`: what a command has found out, and its summary.
//! - `report_files`: what is written at the end; `kept_reports`: where it was written, for later runs.
//! - `service`: the same for clients of the Mutation Server Protocol.

mod baseline;
mod build;
mod building;
mod cargo_options;
mod command;
mod command_build;
mod doctest_build;
mod engine;
mod error;
mod find;
mod finished;
mod found;
mod kept_build;
mod kept_reports;
mod observer;
mod own_harness;
mod pytest_build;
mod red_tests;
mod report_files;
mod service;
mod session;
mod stryker;
mod testing;
mod unfinished;

pub(super) use cargo_options::{CargoOptions, DoctestUse};
pub(super) use command::mutate;
pub(super) use command_build::{BuiltTests, CommandProject};
pub(super) use error::MutateError;
pub(super) use find::NamedBuild;
pub(super) use found::check_tests;
pub(super) use pytest_build::PytestProject;
pub(super) use service::DirectoryMutationService;
