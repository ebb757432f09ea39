//! What Heeler's processes say about their callback connections to those that hold duplicates of them.

use std::collections::BTreeMap;

use heeler_core::{OsText, WorkerId};
use serde::{Deserialize, Serialize};

use super::{ClientId, DeliveryLimits};
use crate::mtp::BarrierMethod;

/// A process that sends to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum StreamSender {
    /// A worker. Its positions count results.
    Worker(WorkerId),
    /// The watchdog. Its positions count the frames of a finish.
    Watchdog,
}

/// What comes with a duplicate of a callback connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamHandOver {
    /// The process that sends on the connection.
    pub sender: StreamSender,
    pub client: ClientId,
    pub limits: DeliveryLimits,
}

/// What a sender knows of its stream when it queues a frame. It is recorded with the frame.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StreamMark {
    /// Id of the run that the frame belongs to.
    pub run: String,
    /// The number of results, or of frames, sent including this frame, by run.
    pub positions: BTreeMap<String, u64>,
    /// The number of those that the client is proven to have handled, by run.
    pub handled: BTreeMap<String, u64>,
    /// Whether the client answers barriers; `None` while that is unknown.
    pub is_answering: Option<bool>,
    /// The method of the barriers that it answers.
    #[serde(default)]
    pub barrier: BarrierMethod,
    /// The directory of the run whose completion this frame is: no update of that run may follow it. It names
    /// the run here because a client may use an id again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completing: Option<OsText>,
    /// The directories of the latest runs whose completion the client is proven to have handled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub completed: Vec<OsText>,
}
