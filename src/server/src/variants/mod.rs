//! Variants of tests for a client in this process: tests of listed programs, several in one process as one
//! test, with variables of their own. Mutation testing runs mutants so.
//!
//! - `client`: lists programs, runs variants, and passes on what became of each.
//! - `planned`: the plan of a run of variants, and the settings that apply.

mod client;
mod planned;

pub use client::{VariantClient, VariantEvent, VariantListing};
pub use planned::{ListedProgram, Variant, VariantLimits, VariantSlots};
