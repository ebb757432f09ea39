//! Minidumps: written from a stopped process, and read back for display. Stopping the process, and the
//! decision to dump it, belong to other modules.
//!
//! - [`write()`]: writes a dump of a process, on disk completely or not at all, without its environment.
//! - `context`: the crash record of a dump; `layout`: the layout of a dump's bytes; `scrub`: removes the
//!   environment.
//! - [`read`], [`parse`]: the contents of a dump, with stacks symbolized by the programs that still
//!   exist.

mod context;
mod layout;
mod read;
mod scrub;
mod write;

pub use read::{DumpModule, DumpReadError, DumpReason, DumpSummary, DumpThread, parse, read};
pub use write::{CrashFacts, DumpError, DumpFile, DumpPlan, DumpTarget, write};
