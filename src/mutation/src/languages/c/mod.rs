//! Projects in C and C++, which a command of the user builds.
//!
//! - `project`: the project, its guarded copy and its tests; `kept_build`: what the next build knows of it.

mod kept_build;
mod project;

pub(super) use project::CommandLanguage;
pub use project::{BuiltTests, CommandProject};
