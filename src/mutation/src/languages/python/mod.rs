//! Projects in Python, whose tests pytest runs.
//!
//! - `options`: what the user says about them; `project`: the project, its guarded copy and its tests.

mod options;
mod project;

pub use options::PytestProject;
pub(super) use project::Python;
