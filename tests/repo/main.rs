//! Machine-checked rules for this repository: sources, dependencies, unsafe blocks, fuzz seeds,
//! documentation, packages and structure.
#![expect(clippy::unwrap_used, reason = "a test that meets the unexpected is to stop there")]
#![expect(
    clippy::disallowed_methods,
    reason = "the tests ask cargo for the dependency graph, and scripts for names and figures"
)]

mod docs;
mod figures;
mod fuzz_seeds;
mod packages;
#[path = "../page_blocks.rs"]
mod page_blocks;
mod pages;
mod source_rules;
mod structure;
mod supply_chain;
mod unsafe_list;
