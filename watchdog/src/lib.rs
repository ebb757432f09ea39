//! The watchdog process: parent of all workers and guards, and finisher of runs. It runs no user code and
//! knows no test framework. Processes that it finds among its descendants and did not start itself are
//! killed.
//!
//! - [`main`]: the coordinator's watchdog, one event loop.
//! - `workers`: worker lifecycle, and the killing of orphaned processes.
//! - `journal_reader`: reads the journals of dead workers and of workers whose results are unproven.
//! - `coordinator_process`: the coordinator when it is stopped.
//! - `finisher`: sends the finish of a run to its client, on the callback port or through the coordinator.
//! - `finish_frames`: the frames of a finish, and their routes.
//! - `client_finishers`: one finisher for each client.
//! - `orphaned_run`: the finish of an orphaned run (its coordinator has died).
//!
//! Guards, one small process for each test process, and the fork server that forks them are in
//! `heeler-guard`; minidumps and stacks of a stopped process are in `heeler-crash`.

mod client_finishers;
mod coordinator_process;
mod finish_frames;
mod finisher;
mod journal_reader;
mod orphaned_run;
mod session;
mod unwritten_finishes;
mod workers;

pub use session::main;
