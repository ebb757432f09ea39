//! Descriptions of callback connections for the processes that hold duplicates of them.

use std::collections::BTreeMap;

use heeler_core::{OsText, WorkerId};
use serde::{Deserialize, Serialize};

use super::{ClientId, DeliveryLimits};
use crate::mtp::BarrierMethod;

/// A process that sends to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum StreamSender {
    /// A worker; its positions count results.
    Worker(WorkerId),
    /// The watchdog; its positions count the frames of a finish.
    Watchdog,
}

/// Description that accompanies a duplicate of a callback connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamHandOver {
    /// Process that sends on the connection.
    pub sender: StreamSender,
    pub client: ClientId,
    pub limits: DeliveryLimits,
}

/// State of a sender's stream when it queues a frame, recorded with the frame.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StreamMark {
    /// Id of the run that the frame belongs to.
    pub run: String,
    /// Results or frames sent up to and including this frame, by run.
    pub positions: BTreeMap<String, u64>,
    /// Results or frames that the client is proven to have handled, by run.
    pub handled: BTreeMap<String, u64>,
    /// Whether the client answers barriers; `None` if unknown.
    pub is_answering: Option<bool>,
    /// Barrier method that the client answers.
    #[serde(default)]
    pub barrier: BarrierMethod,
    /// Directory of the run that this frame completes; no update of that run may follow it. Identified by
    /// directory, because a client may reuse a run id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completing: Option<OsText>,
    /// Directories of the latest runs whose completion the client is proven to have handled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub completed: Vec<OsText>,
}
