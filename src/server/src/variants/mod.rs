//! Variants of tests, for a client in this process. A variant runs tests of a listed program in one process
//! as a single test, with its own environment variables. Mutation testing runs mutants this way.
//!
//! - `client`: lists programs, runs variants, and reports their results.
//! - `planned`: plans a run of variants and its settings.

mod client;
mod planned;

pub use client::{VariantClient, VariantEvent, VariantListing};
pub use planned::{ListedProgram, Variant, VariantLimits, VariantSlots};
