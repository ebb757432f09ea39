//! The state machine of one run: events in, actions out.
//!
//! ```text
//!            tests wait or run                 no test open            all streams closed
//!   Running ───────────────────► Draining ──────────────────► Finishing ──────────────► Completed
//!      │  cancel, too many failures: nothing is handed out any more, leases are cancelled
//! ```
//!
//! Every test is in exactly one place: waiting in the queue, in one lease, or settled in the ledger. A worker may die at
//! any point: what its journal holds is settled, what it had begun is tried alone, the rest waits again.
//!
//! Every run ends, because whatever costs a process or a worker is counted somewhere: a process gives a test its result
//! or an attempt (both bounded by the plan), or takes part in a row of ends that brought nothing, which first makes the
//! program's batches smaller and then gives the program up; a dead worker is charged to a test, at most twice to each.

mod ends;
mod event;
mod finisher;
mod machine;

#[cfg(test)]
mod tests;

pub use event::*;
pub use machine::Run;
