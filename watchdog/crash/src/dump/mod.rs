//! Minidumps: written from a stopped process, and read back for display. Stopping the process, and the
//! decision to dump it, belong to other modules.
//!
//! - [`write()`]: writes a dump of a process, on disk completely or not at all, without its environment;
//!   `request`: the process, the limits, and the outcome; `left_out`: the same without feature `minidump`.
//! - `context`: the crash record of a dump; `layout`: the layout of a dump's bytes; `scrub`: removes the
//!   environment; `arch`: registers.
//! - [`read`], [`parse`]: the contents of a dump, with stacks symbolized by the programs that still
//!   exist.

#[cfg(feature = "minidump")]
mod arch;
#[cfg(feature = "minidump")]
mod context;
#[cfg(feature = "minidump")]
mod layout;
#[cfg(not(feature = "minidump"))]
mod left_out;
#[cfg(feature = "minidump")]
mod read;
mod request;
#[cfg(feature = "minidump")]
mod scrub;
#[cfg(feature = "minidump")]
mod write;

#[cfg(not(feature = "minidump"))]
pub use left_out::write;
#[cfg(feature = "minidump")]
pub use read::{DumpModule, DumpReadError, DumpReason, DumpSummary, DumpThread, parse, read};
pub use request::{CrashFacts, DumpError, DumpFile, DumpPlan, DumpTarget};
#[cfg(feature = "minidump")]
pub use write::write;
