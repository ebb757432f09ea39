//! The processes that serve all clients: one watchdog, and the workers that it starts. The pool tracks which
//! processes are alive and what each worker is granted to, passes messages to and from them and replaces a
//! dead watchdog; it decides nothing about tests.
//!
//! - `client_sinks`: where updates for clients go.
//! - `connection`: one task per control connection.
//! - `dead_streams`: what clients have of processes that have died.
//! - `deadlines`: time limits.
//! - `exit_watch`: waits for the exit of a process.
//! - `main_barriers`: what a client has handled of its main connection.
//! - `orphans`: reaps what a dead watchdog leaves behind.
//! - `pooled_workers`: the workers that have joined, and what each one is used for.
//! - `session_dir`: the directory of temporary files.
//! - `watchdog`: the watchdog that runs now.
//! - `watchdog_process`: starts the process of a watchdog.
//! - `watchdog_relay`: frames of the watchdog for clients.
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
pub use watchdog_process::WorkerStdout;
pub(crate) use worker_starts::WorkerUser;
pub(crate) use workers::{PoolError, PoolEvent, PoolOptions, WorkerPool};
