//! Supported languages. A language is a folder here and a line in `registry`; no other code matches on
//! languages.
//!
//! - `language`: traits of languages that Heeler builds.
//! - `served_language`: traits of languages with their own mutation server.
//! - `registry`: all languages.
//! - `build_options`: the user's build options.
//! - `kept_copy`: copies projects whose builds write files next to the sources.
//! - `c`: C and C++, built by a command; `python`: tested by pytest; `rust`: built by Cargo.
//! - `javascript`: JavaScript and TypeScript, mutated by StrykerJS.

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
