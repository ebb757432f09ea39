//! Projects in C and C++, which a command of the user builds.
//!
//! - `options`: what the user says about it; `project`: the project, its guarded copy and its tests.
//! - `kept_build`: what the next build knows of it.

mod kept_build;
mod options;
mod project;

pub use options::{BuiltTests, CommandProject};
pub(super) use project::CommandLanguage;
