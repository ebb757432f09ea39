//! Barriers: requests that a client answers after it has handled everything before them.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{LogLevel, LogParams, UpdateParams, method};
use crate::rpc::{self, RequestId};

/// Methods of barriers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum BarrierMethod {
    /// Notification methods, sent as requests. Most libraries answer them in order with notifications.
    #[default]
    Notified,
    /// A method that no client knows. Some libraries never answer a request whose method is bound as a
    /// notification, but answer an unknown one in order.
    Unknown,
}

/// Parameters of `$/heeler/barrier`, a method that no client knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BarrierParams {}

/// Encodes a barrier: a request with the method of updates and no change. A client passes the request to its
/// handler of updates. The client answers, with a result or an error, after it has handled everything before
/// the barrier on the connection. The id is a number, because one client fails on any other type.
#[must_use]
pub fn barrier_frame(barrier: BarrierMethod, id: u64, run_id: &str) -> Bytes {
    match barrier {
        BarrierMethod::Notified => {
            let params = UpdateParams { run_id: run_id.to_owned(), changes: Some(Vec::new()) };
            rpc::encode_request(&RequestId::number(id), method::UPDATES, &params)
        }
        BarrierMethod::Unknown => unknown_barrier_frame(id),
    }
}

/// Encodes the barrier after a run's completion: a line for the client's log, sent as a request. With the
/// method of updates, the barrier would be an update after the completion.
#[must_use]
pub fn completion_barrier_frame(barrier: BarrierMethod, id: u64, run_id: &str) -> Bytes {
    match barrier {
        BarrierMethod::Notified => log_barrier_frame(id, format!("run {run_id} is complete")),
        BarrierMethod::Unknown => unknown_barrier_frame(id),
    }
}

/// Encodes a barrier on the main connection, which carries updates of several runs and workers: a line for
/// the client's log, sent as a request.
#[must_use]
pub fn main_barrier_frame(barrier: BarrierMethod, id: u64) -> Bytes {
    match barrier {
        BarrierMethod::Notified => {
            log_barrier_frame(id, "a started test may run again on another connection".to_owned())
        }
        BarrierMethod::Unknown => unknown_barrier_frame(id),
    }
}

/// Encodes a request that checks whether a client answers requests with methods that it binds as
/// notifications.
#[must_use]
pub fn log_probe_frame(id: u64) -> Bytes {
    log_barrier_frame(id, "checking whether this client answers client/log requests".to_owned())
}

/// Encodes a barrier with an unknown method. This barrier also checks whether a client answers at all.
#[must_use]
pub fn unknown_barrier_frame(id: u64) -> Bytes {
    rpc::encode_request(&RequestId::number(id), method::BARRIER, &BarrierParams {})
}

fn log_barrier_frame(id: u64, message: String) -> Bytes {
    let params = LogParams { level: LogLevel::Trace, message };
    rpc::encode_request(&RequestId::number(id), method::LOG, &params)
}
