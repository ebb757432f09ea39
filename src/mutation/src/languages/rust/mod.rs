//! Cargo packages.
//!
//! - `project`: the project and its mutants; `guarded_cargo`: the guarded copy and its build.
//! - `cargo_options`: the user's options for Cargo builds.
//! - `doctest_build`: compiles documentation tests.

mod cargo_options;
mod doctest_build;
mod guarded_cargo;
mod project;

pub use cargo_options::{CargoOptions, DoctestUse};
pub(super) use project::Rust;
