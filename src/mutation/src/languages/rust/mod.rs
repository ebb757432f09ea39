//! Cargo packages.
//!
//! - `project`: the project and its mutants; `guarded_cargo`: its guarded copy, as Cargo builds it.
//! - `cargo_options`: what the user says about a build by Cargo.
//! - `doctest_build`: documentation tests; `own_harness`: programs with a `main` of their own.

mod cargo_options;
mod doctest_build;
mod guarded_cargo;
mod own_harness;
mod project;

pub use cargo_options::{CargoOptions, DoctestUse};
pub(super) use project::Rust;
