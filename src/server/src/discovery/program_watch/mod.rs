//! Notices changes of test programs while a session is open, and reports them to its client.
//!
//! The events of the system only say that it is time to look: what has changed is the difference between two
//! [`ProgramSnapshot`]s, so lost, repeated and meaningless events do no harm.
//!
//! - `debounce`: when to look; pure.
//! - `snapshot`: what has changed; pure but for reading file metadata.
//! - `watched_directories`: the directories that are watched.
//! - `watcher`: waits, looks and reports.

mod debounce;
mod snapshot;
mod watched_directories;
mod watcher;

pub(crate) use watcher::watch_programs;
