//! C and C++ projects, which are built by a command of the user.
//!
//! - `options`: the user's options; `project`: the project, its guarded copy and its tests.
//! - `kept_build`: what is remembered for the next build.

mod kept_build;
mod options;
mod project;

pub use options::{BuiltTests, CommandProject};
pub(super) use project::CommandLanguage;
