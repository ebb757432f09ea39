//! Heeler's shared types and pure decisions. This crate has no I/O and no clock, and depends on no other
//! Heeler crate: values in, decisions out, so every case can be tested.
//!
//! - [`outcome`]: outcomes of tests, and exits of the processes that run them.
//! - [`test_result`]: results of tests.
//! - [`record`]: the events of a run; [`SourcePlace`]: a file and line.
//! - [`system_facts`]: facts about processes and their machine.
//! - [`describe`]: English texts for outcomes.
//! - [`ids`]: numeric ids; [`os_text`]: strings of the operating system.
//! - [`SourceRequest`]: a user's request for a source of test programs.
//! - [`batching`]: chooses the tests of the next batch.
//! - [`partition`]: chooses the tests of a shard.
//! - [`Iteration`]: one repetition of a test; [`RetryPolicy`]: retries of failed tests, and their delays.
//! - [`MemoryBudget`]: memory that tests need together.
//! - [`ledger`]: results still to be delivered, and results that are proven delivered.
//! - [`FIXTURE_SUITE`]: the suite of set-ups and tear-downs.
//! - [`test_path`]: the path of a test in the tree of tests.
//! - [`run`]: the state machine of one run.
//! - [`ack_window`]: updates of one stream that a client has not acknowledged.
//! - [`client_progress`]: how long to wait for a client's answer.
//! - [`delivery`]: delivery of the end of a run, and pending results after the coordinator has died.
//! - [`redial`]: whether to dial a client again after the coordinator has died.
//! - [`Slots`]: the unit of leases and shares.
//! - [`fair_share`]: fair sharing of the slots between concurrent runs.
//! - [`machine_slots`]: sharing of the machine's slots between coordinators; [`machine_record`]: how they
//!   register.
//! - [`silence`]: handling of stopped Heeler processes.
//! - [`shell_words`]: quoting of words in commands that users copy.

pub mod ack_window;
pub mod batching;
pub mod client_progress;
pub mod delivery;
pub mod describe;
mod durations;
mod error_chain;
pub mod fair_share;
pub mod ids;
mod iteration;
pub mod ledger;
pub mod machine_record;
pub mod machine_slots;
mod memory_needs;
pub mod os_text;
pub mod outcome;
mod outcome_counts;
pub mod partition;
pub mod record;
pub mod redial;
mod retry;
pub mod run;
pub mod shell_words;
pub mod silence;
mod slots;
mod source_place;
mod source_request;
pub mod system_facts;
pub mod test_path;
pub mod test_result;

/// Suite of the set-ups and tear-downs of configured fixtures. They are not counted as tests.
pub const FIXTURE_SUITE: &str = "@fixture";

pub use durations::milliseconds_of;
pub use error_chain::error_chain;
pub use ids::*;
pub use iteration::Iteration;
pub use memory_needs::{MemoryBudget, is_memory_short};
pub use os_text::OsText;
pub use outcome::*;
pub use outcome_counts::OutcomeCounts;
pub use record::*;
pub use retry::{Backoff, RetryDelay, RetryPolicy, retry_random};
pub use slots::Slots;
pub use source_place::SourcePlace;
pub use source_request::SourceRequest;
pub use system_facts::{MachineLoad, ProcessFacts};
pub use test_path::NameNesting;
pub use test_result::*;
