//! The watchdog process: parent of all workers and guards, and finisher of runs. Runs no user code and knows
//! no test framework. Kills processes among its descendants that it did not start itself.
//!
//! - [`main`]: the coordinator's watchdog, one event loop.
//! - `workers`: starts workers, reports their exits, and kills orphaned processes.
//! - `journal_reader`: reads the journals of dead workers and of workers whose results are unproven.
//! - `coordinator_process`: handles a stopped coordinator.
//! - `finisher`: sends the finish of a run to its client, on the callback port or through the coordinator.
//! - `finish_frames`: the frames of a finish, and their routes.
//! - `client_finishers`: one finisher per client.
//! - `orphaned_run`: the finish of a run whose coordinator has died.
//!
//! `heeler-guard` contains guards, one small process per test process, and the fork server that forks them.
//! `heeler-crash` writes minidumps and stack traces of stopped processes.

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
