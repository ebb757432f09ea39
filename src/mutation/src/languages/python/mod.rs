//! Projects in Python, whose tests pytest runs.

mod project;

pub use project::PytestProject;
pub(super) use project::Python;
