//! Stacks and minidumps of processes that stand still.

mod arch;
pub mod dump;
pub mod stacks;
