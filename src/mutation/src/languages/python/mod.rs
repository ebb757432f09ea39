//! Python projects, whose tests pytest runs.
//!
//! - `options`: the user's options; `project`: the project, its guarded copy and its tests.

mod options;
mod project;

pub use options::PytestProject;
pub(super) use project::Python;
