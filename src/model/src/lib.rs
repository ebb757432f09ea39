//! Heeler's pure decisions. No I/O, no clock, no serialisation, and nothing of ours below: values in, decisions out,
//! so that every case can be tried.
//!
//! - [`ids`]: the numbers of things.
//! - [`outcome`]: how tests and processes end.
//! - [`split`]: which tests go into the next batch.
//! - [`partition`]: which tests belong to this shard.
//! - [`ledger`]: what was promised, what is proven delivered.
//! - [`path`]: where a test stands in the tree of tests.
//! - [`run`]: the state machine of one run.
//! - [`finish`]: how the end of a run goes out, and what is due when the coordinator has died.
//! - [`share`]: how runs at the same time share the slots.

pub mod finish;
pub mod ids;
pub mod ledger;
pub mod outcome;
pub mod partition;
pub mod path;
pub mod run;
pub mod share;
pub mod split;

pub use ids::*;
pub use outcome::*;
