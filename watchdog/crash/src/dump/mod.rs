//! Minidumps: written from a stopped process, and read back for display. Other modules stop the process and
//! decide whether to dump it.
//!
//! - [`write()`]: writes a dump of a process, without its environment, on disk completely or not at all;
//!   `request`: the process, the limits, and the outcome; `left_out`: replaces `write` without feature
//!   `minidump`.
//! - `context`: the crash record of a dump; `layout`: the layout of a dump's bytes; `scrub`: removes the
//!   environment; `arch`: registers.
//! - [`read`], [`parse`]: the contents of a dump, with stack traces symbolized by the programs that still
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
