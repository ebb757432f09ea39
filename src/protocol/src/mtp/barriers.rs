//! Barriers: requests that a client answers after it has handled everything before them.

use bytes::Bytes;

use super::{LogLevel, LogParams, UpdateParams, method};
use crate::rpc::{self, RequestId};

/// Encodes a barrier: a request with the method of updates and no change. A client binds it where it binds
/// updates, and answers it, with a result or an error, after it has handled everything before it on the
/// connection. The id is a number, because one client fails at any other.
#[must_use]
pub fn barrier_frame(id: u64, run_id: &str) -> Bytes {
    let params = UpdateParams { run_id: run_id.to_owned(), changes: Some(Vec::new()) };
    rpc::encode_request(&RequestId::number(id), method::UPDATES, &params)
}

/// Encodes the barrier behind a run's completion: a line for the client's log, as a request. One with the
/// method of updates would be an update behind the completion.
#[must_use]
pub fn completion_barrier_frame(id: u64, run_id: &str) -> Bytes {
    log_barrier_frame(id, format!("run {run_id} is complete"))
}

/// Encodes a barrier on the main connection, which carries the updates of several runs and workers: a line
/// for the client's log, as a request.
#[must_use]
pub fn main_barrier_frame(id: u64) -> Bytes {
    log_barrier_frame(id, "a test that was begun may run again on another connection".to_owned())
}

fn log_barrier_frame(id: u64, message: String) -> Bytes {
    let params = LogParams { level: LogLevel::Trace, message };
    rpc::encode_request(&RequestId::number(id), method::LOG, &params)
}
