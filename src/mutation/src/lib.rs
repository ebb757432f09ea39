//! Runs mutation testing: from a directory to the verdicts of its mutants. The command line and the server of
//! mutants call this with settings, and follow it as observers.
//!
//! - `languages`: the registry of languages, one folder for each.
//! - `found`: the mutants of a directory, as they are selected; `changed_lines`: lines that have changed.
//! - `work_place`: the directory of a project's mutants; `build`: the guarded copy and its test programs;
//!   `building`: the same while somebody waits for it.
//! - `test_finder`: finds tests as `heeler run` does.
//! - `observer`: who follows the tests; `session`: the session in which they run.
//! - `baseline`: the tests without a mutant: whether they pass, what they take and what they reach.
//! - `red_tests`: tests that fail without a mutant.
//! - `testing`: the tests with each mutant.
//! - `unfinished`: why a run ended before all mutants had verdicts.
//! - `one_test_programs`: programs that list no tests.
//! - `engine`: all of these, from the built programs to the verdicts; `run`: the same for all mutants found.
//! - `finished`: what a run has found out, and its reports.
//! - `report_files`: what is written at the end; `kept_reports`: where it was written, for later runs.
//! - `service`: the same for clients of the Mutation Server Protocol.

mod baseline;
mod build;
mod building;
mod changed_lines;
mod engine;
mod error;
mod finished;
mod found;
mod kept_reports;
mod languages;
mod observer;
mod one_test_programs;
mod red_tests;
mod report_files;
mod run;
mod service;
mod session;
mod test_finder;
mod testing;
mod unfinished;
mod work_place;

pub use changed_lines::changed_lines;
pub use error::MutateError;
pub use finished::{FinishedMutants, ReportedMutants};
pub use found::{FoundMutants, MutantSearch, SearchedProject};
pub use languages::{BuildOptions, BuiltTests, CargoOptions, CommandProject, DoctestUse, PytestProject};
pub use observer::{MutationObserver, ObserverFuture, ObserverRequest};
pub use report_files::ReportFiles;
pub use run::MutantRun;
pub use service::DirectoryMutationService;
pub use test_finder::{TestFinder, TestSearchError};
pub use unfinished::{TimeLimit, Unfinished};
