//! Minidumps: written of a process that stands still, and read back for people. Whoever stops the process, and decides
//! that it is dumped, is elsewhere.
//!
//! - [`write()`]: a dump of a process, on disk whole or not at all, without its environment.
//! - `context`: what the dump says of the crash; `layout`: the parts of a dump's bytes; `scrub`: what is taken out.
//! - [`read`], [`parse`]: what a dump says, with stacks named by the programs that are still there.

mod context;
mod layout;
mod read;
mod scrub;
mod write;

pub use read::{DumpModule, DumpReason, DumpSummary, DumpThread, ReadError, parse, read};
pub use write::{CrashFacts, DumpError, DumpFile, DumpPlan, Subject, write};
