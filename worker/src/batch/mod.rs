//! The tests of one lease, from the first event to the end of the process: which test is running, what it
//! wrote, when its time limit passes, and what the end of the process means for tests without a result.
//!
//! ```text
//! waiting ──Begun──► running ──Ended────────────────► done (held, then settled or provisional)
//!    ▲                  ├─ process ended ────────────► done (died: awaits an isolated rerun, or settled)
//!    │                  ├─ time limit, then ended ───► done (timed out)
//!    └── process ended  └─ cancelled, then ended ────► done (cancelled)
//! ```
//!
//! Pure: takes events and times, returns update batches and deadlines. In any order of events, no test gets
//! two results, and a test without a result stays waiting, so that the coordinator leases it again.
//!
//! A [`RunningBatch`] passes events on to the owners of its state: [`test_order`] (which test waits, runs, or
//! has ended), [`output_attribution`] (which test wrote what), [`deadlines`] (limits, and why the process is
//! ended), [`held_tests`] (unsettled results) and [`settlement`] (what becomes of an ended test).
//! [`process_end`] decides what the end of the process means.

mod absolute_files;
mod batch_input;
mod deadlines;
mod dialogue_stall;
mod end_cause;
mod end_texts;
pub(crate) mod exit_reason;
mod failed_place;
mod forbidden_skip;
mod framework_queries;
mod held_tests;
mod interference;
mod iteration_text;
mod iterations;
mod live_output;
mod message_limit;
mod output_attribution;
mod process_end;
mod process_leaks;
mod run_evidence;
mod running_batch;
mod server_exit;
mod settlement;
mod shown_lines;
mod stderr_attribution;
mod stream_names;
mod terminate_reason;
mod test_clock;
pub(crate) mod test_ending;
mod test_order;
mod test_parts;
mod unattributed_output;
pub(crate) mod verdict;

pub(crate) use batch_input::{DeadlineAction, OutputChunk, ProcessExitSummary, RawOutputs};
pub(crate) use dialogue_stall::DialogueStall;
pub(crate) use framework_queries::FrameworkQueries;
pub(crate) use held_tests::{ReleaseConditions, SoleWriterSpan};
pub(crate) use run_evidence::RunEvidence;
pub(crate) use running_batch::RunningBatch;
pub(crate) use terminate_reason::BatchTerminateReason;

#[cfg(test)]
mod tests;
