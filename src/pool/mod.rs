//! The session's processes: one watchdog, and the workers that it starts. The pool knows who lives, passes messages on
//! and replaces a dead watchdog; it decides nothing about tests.
//!
//! - `connection`: one task for each control connection.
//! - `end`: waiting for the end of a process.
//! - `orphans`: what a dead watchdog leaves behind.
//! - `workers`: the pool itself.

mod connection;
mod end;
mod orphans;
mod workers;

pub use end::ProcessEnd;
pub use workers::{Pool, PoolError, PoolEvent, PoolOptions};
