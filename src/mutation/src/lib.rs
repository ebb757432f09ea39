//! Runs mutation testing, from a directory to the verdicts of its mutants. The command line and the mutation
//! server pass settings, and follow the run as observers.
//!
//! - `languages`: supported languages, one folder each.
//! - `found`: finds and selects the mutants of a directory; `changed_lines`: lines changed since a commit.
//! - `work_place`: working directory of a project; `build`: the guarded copy and its test programs;
//!   `building`: a build that an observer can follow and cancel.
//! - `test_finder`: finds tests like `heeler run`.
//! - `observer`: follows and ends the tests; `session`: the test session.
//! - `baseline`: tests without a mutant: whether they pass, how long they take, and what they reach.
//! - `red_tests`: tests that fail without a mutant.
//! - `testing`: tests with each mutant.
//! - `unfinished`: why a run ended before all mutants had verdicts.
//! - `one_test_programs`: programs without a test listing.
//! - `engine`: from compiled programs to verdicts; `run`: a whole run, mutation servers included.
//! - `finished`: the results of a run.
//! - `report_files`: writes the reports; `kept_reports`: remembers them for later runs.
//! - `service`: mutation testing for clients of the Mutation Server Protocol.

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
