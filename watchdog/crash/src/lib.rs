//! Stacks and minidumps of processes that stand still.

pub mod dump;
pub mod stacks;
