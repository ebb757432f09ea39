//! Heeler's watchdog: ancestor of all workers, guards of test processes, finisher of runs. It runs no user code and
//! knows no framework; what it does not start itself, but finds below itself, it ends.
//!
//! - [`guard`]: one small process per test process, from its start to its raw end.

pub mod guard;
