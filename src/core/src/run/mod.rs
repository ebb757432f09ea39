//! The state machine of one run: events in, actions out.
//!
//! ```text
//!            tests wait or run                 no test open            all streams closed
//!   Running ───────────────────► Draining ──────────────────► Finishing ──────────────► Completed
//!      │  cancel, too many failures: no more work is assigned, leases are cancelled
//! ```
//!
//! A lease whose process can run more tests is extended when its tests have ended, or ended if no tests
//! remain. An open run accepts tests while it runs, and drains after the last of them.
//!
//! A test with prerequisites waits until all of them have results. If a required prerequisite fails, the test
//! is not run.
//!
//! Every test is in exactly one place: waiting (in the queue or for prerequisites), in one lease, or settled
//! in the ledger. A worker may die at any time. The results in its journal are settled, tests that had
//! started are rerun in isolation, and the other tests wait again.
//!
//! Every run ends, because every process and worker that it uses up is counted. A process either gives a test
//! a result or an attempt, both limited by the plan, or exits without any report. A series of such exits
//! first makes the program's batches smaller and then gives the program up. A dead worker counts against a
//! test, at most twice for each test. A lost guard counts against a test, at most three times, or against its
//! program if no test had started.

mod active_lease;
mod active_leases;
mod attempts;
mod event;
mod failure_policy;
mod guard_loss;
mod lease_holdings;
mod lease_pace;
mod lifecycle;
mod prerequisites;
mod run_slots;
mod run_tests;
mod set_up;
mod state;
mod tear_downs;
#[cfg(test)]
mod tests;
mod waits;
mod worker_requests;

pub use event::*;
pub use state::RunState;
pub use waits::{WaitCause, WaitingTests};
