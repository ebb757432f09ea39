//! The operating system, as Heeler uses it: processes, groups, pidfds, signals, run directories.
#![expect(unsafe_code, reason = "system calls live here, and only here")]

pub mod io;
pub mod process;
