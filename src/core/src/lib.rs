//! Heeler's pure decisions. No I/O, no clock, no serialisation, and no other crate of ours below: values in,
//! decisions out, so that every case can be tested.
//!
//! - [`ids`]: numeric ids.
//! - [`outcome`]: results of tests, and exits of the processes that run them.
//! - [`split_name`]: batching: the tests of the next batch.
//! - [`partition`]: the tests of this shard.
//! - [`ledger`]: the results that are owed, and those that are proven delivered.
//! - [`test_path`]: the path of a test in the tree of tests.
//! - [`run`]: the state machine of one run.
//! - [`delivery`]: delivery of the end of a run, and what is pending when the coordinator has died.
//! - [`fair_share`]: fair sharing of the slots between concurrent runs.

pub mod batching;
pub mod delivery;
mod error_chain;
pub mod fair_share;
pub mod ids;
pub mod ledger;
pub mod outcome;
pub mod partition;
pub mod run;
pub mod test_path;

pub use error_chain::error_chain;
pub use ids::*;
pub use outcome::*;
