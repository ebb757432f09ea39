//! Heeler's watchdog: ancestor of all workers, guards of test processes, finisher of runs. It runs no user code and
//! knows no framework; what it does not start itself, but finds below itself, it ends.
//!
//! - [`main`]: the session's watchdog, one loop over all that can happen.
//! - `workers`: lives and deaths of workers, and the end of what they leave behind.
//! - `journals`: what dead or unproven workers have written.
//! - `deliver`: the finish of a run, on the client's callback port or through the coordinator.
//! - `alone`: the finish of a run whose coordinator has died.
//! - [`guard`]: one small process per test process, from its start to its raw end.
//! - [`nursery`]: where guards are born.
//! - [`dump`], [`stacks`]: what a process that stands still can tell: minidumps, and stacks with names.

mod alone;
mod deliver;
pub mod dump;
mod errors;
pub mod guard;
mod journals;
pub mod nursery;
mod session;
pub mod stacks;
mod workers;

pub use session::main;
