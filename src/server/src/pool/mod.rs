//! The session's processes: one watchdog, and the workers that it starts. The pool tracks which processes are
//! alive, passes messages to and from them and replaces a dead watchdog; it decides nothing about tests.
//!
//! - `connection`: one task per control connection.
//! - `exit_watch`: waits for the exit of a process.
//! - `orphans`: reaps what a dead watchdog leaves behind.
//! - `workers`: the pool itself.

mod connection;
mod deadlines;
mod exit_watch;
mod orphans;
mod workers;

pub use exit_watch::ProcessExitWatch;
pub use workers::{PoolError, PoolEvent, PoolOptions, WorkerPool};
