//! Cargo packages.
//!
//! - `project`: the project and its mutants; `guarded_cargo`: its guarded copy, as Cargo builds it.
//! - `cargo_options`: what the user says about a build by Cargo.
//! - `doctest_build`: documentation tests.

mod cargo_options;
mod doctest_build;
mod guarded_cargo;
mod project;

pub use cargo_options::{CargoOptions, DoctestUse};
pub(super) use project::Rust;
