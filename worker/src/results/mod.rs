//! The path of results out of the worker: captured output, test changes as JSON, update batches, the journal
//! that is written first, and the sender to client and coordinator.

pub(crate) mod journal;
pub(crate) mod lease_updates;
mod node_writer;
pub(crate) mod output_capture;
pub(crate) mod shown_output;
pub(crate) mod update_batch;
pub(crate) mod uplink;
