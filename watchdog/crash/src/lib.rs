//! Stack traces and minidumps of stopped processes.

mod arch;
pub mod dump;
pub mod stacks;
