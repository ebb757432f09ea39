//! Languages. Each is a folder here, and a line in `registry`; nothing else matches on languages.
//!
//! - `language`: the traits of languages that are built here.
//! - `served_language`: the traits of languages with mutation servers of their own.
//! - `registry`: all languages.
//! - `build_options`: what a user says about builds.
//! - `kept_copy`: the copy of a project whose builds make files beside the sources.
//! - `c`: C and C++, built by a command; `python`: tested by pytest; `rust`: built by Cargo.
//! - `javascript`: JavaScript and TypeScript, whose mutants StrykerJS finds and tests.

mod build_options;
mod c;
mod javascript;
mod kept_copy;
mod language;
mod python;
mod registry;
mod rust;
mod served_language;

pub use build_options::BuildOptions;
pub use c::{BuiltTests, CommandProject};
pub(crate) use language::{
    CompileRound, FoundProject, GuardContext, GuardedBuild, LanguageProject, SearchedPackages, TestCounting,
};
pub use python::PytestProject;
pub(crate) use registry::{explain_absence, project_of, served_project_of};
pub use rust::{CargoOptions, DoctestUse};
pub(crate) use served_language::{ServedMutants, ServedProject, ServedTests};
