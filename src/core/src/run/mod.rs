//! The state machine of one run: events in, actions out.
//!
//! ```text
//!            tests wait or run                 no test open            all streams closed
//!   Running ───────────────────► Draining ──────────────────► Finishing ──────────────► Completed
//!      │  cancel, too many failures: no more work is assigned, leases are cancelled
//! ```
//!
//! A lease whose process can run further tests is extended when its tests have ended, and ended when there
//! are none for it. An open run receives tests while it runs; it drains after the last of them.
//!
//! A test that follows others waits until they have their results; where one has failed that must succeed, it
//! is not run.
//!
//! Every test is in exactly one place: waiting in the queue or for others, in one lease, or settled in the
//! ledger. A worker may die at any point: the results in its journal are settled, tests that had started are
//! rerun in isolation, the rest waits again.
//!
//! Every run ends, because everything that costs a process or a worker is counted: a process gives a test its
//! result or an attempt (both bounded by the plan), or belongs to a series of exits without any report, which
//! first makes the program's batches smaller and then gives the program up; a dead worker is counted against
//! a test, at most twice for each, and a lost guard at most three times, or against its program if no test
//! had begun.

mod active_lease;
mod active_leases;
mod attempts;
mod event;
mod failure_policy;
mod guard_loss;
mod lease_pace;
mod lifecycle;
mod prerequisites;
mod run_slots;
mod run_tests;
mod set_up;
mod state;
#[cfg(test)]
mod tests;
mod worker_requests;

pub use event::*;
pub use state::RunState;
