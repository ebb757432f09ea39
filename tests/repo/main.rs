//! Rules of this repository that a machine can check: sources, dependencies, the list of unsafe blocks, fuzz seeds.
#![expect(clippy::unwrap_used, reason = "a test that meets the unexpected is to stop there")]

mod fuzz_seeds;
mod source_rules;
mod supply_chain;
mod unsafe_list;
