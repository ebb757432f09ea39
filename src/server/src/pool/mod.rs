//! The processes that serve all clients: a watchdog and the workers it starts. The pool tracks live processes
//! and who uses each worker, passes messages, and replaces a dead watchdog. It makes no decisions about
//! tests.
//!
//! - `client_sinks`: destinations of updates for clients.
//! - `connection`: one task per control connection.
//! - `dead_streams`: what clients have received from dead processes.
//! - `deadlines`: time limits.
//! - `exit_watch`: waits for a process to exit.
//! - `main_barriers`: what a client has handled on its main connection.
//! - `orphans`: reaps orphans of a dead watchdog.
//! - `pooled_workers`: the workers that have joined, and their users.
//! - `session_dir`: the directory of temporary files.
//! - `silence`: continues or replaces processes that have stopped sending.
//! - `watchdog`: the current watchdog.
//! - `watchdog_process`: starts a watchdog process.
//! - `watchdog_relay`: forwards the watchdog's frames to clients.
//! - `worker_starts`: requests for workers, and workers that are starting.
//! - `workers`: the pool itself.

mod client_sinks;
mod connection;
mod dead_streams;
mod deadlines;
mod exit_watch;
mod main_barriers;
mod orphans;
mod pooled_workers;
mod session_dir;
mod silence;
mod watchdog;
mod watchdog_process;
mod watchdog_relay;
mod worker_starts;
mod workers;

pub(crate) use client_sinks::{ClientSink, ClientSinks};
pub(crate) use dead_streams::DeadSenderProof;
pub use exit_watch::ProcessExitWatch;
pub(crate) use exit_watch::wait_for_exit;
pub use main_barriers::{MainBarriers, ResponseKind};
pub(crate) use watchdog_process::SLOT_VARIABLE;
pub use watchdog_process::WorkerStdout;
pub(crate) use worker_starts::WorkerUser;
pub(crate) use workers::{PoolError, PoolEvent, PoolOptions, WorkerPool};
