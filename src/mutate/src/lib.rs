//! Mutation testing of projects: reads the sources that belong to the product and searches them for mutants.
//! No process is started here: what Cargo and rustc say is handed in.
//!
//! - [`CargoProject`]: the crates of a workspace, as `cargo metadata` describes them.
//! - [`SourceSelection`]: the sources and places that a user names.
//! - [`find_mutated_sources`]: the selected sources with their mutants.

mod cargo_project;
mod module_tree;
mod selection;
#[cfg(test)]
mod tests;

pub use cargo_project::{CargoProject, CargoProjectError};
pub use module_tree::{MutatedProject, ProjectSource, ReadSourceError, find_mutated_sources};
pub use selection::{SelectionError, SourceSelection};
