//! Detects changes of test programs while a session is open, and reports them to its client.
//!
//! File system events only trigger a check. The changes are the difference between two [`ProgramSnapshot`]s,
//! so lost, repeated and irrelevant events are harmless.
//!
//! - `debounce`: when to check; pure.
//! - `snapshot`: what has changed; pure except for reading file metadata.
//! - `watched_directories`: the directories to watch.
//! - `watcher`: waits, checks and reports.

mod debounce;
mod snapshot;
mod watched_directories;
mod watcher;

pub(crate) use watcher::watch_programs;
