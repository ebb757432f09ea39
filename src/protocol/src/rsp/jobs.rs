//! Jobs, processes and their output, and all notifications of the server.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{ServerHandle, ServerState, Status, method, servers::wire_numbers};
use crate::rpc;

wire_numbers! {
    /// Stream of a process's output.
    StreamType {
        Error = 1,
        Output = 2,
        /// Not written by a process.
        Other = 3,
    }
}

/// A job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobHandle {
    pub name: String,
    pub id: String,
}

/// Progress of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobProgress {
    /// From 0 to 100.
    pub percent: u8,
    pub handle: JobHandle,
}

/// The end of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobEnd {
    pub status: Status,
    pub handle: JobHandle,
}

/// A process of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ServerProcess {
    pub server: ServerHandle,
    pub process_id: String,
}

/// Output of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessOutput {
    pub server: ServerHandle,
    pub process_id: String,
    pub stream_type: StreamType,
    pub text: String,
}

/// A notification of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerNotification {
    StateChanged(ServerState),
    ProcessCreated(ServerProcess),
    ProcessTerminated(ServerProcess),
    OutputAppended(ProcessOutput),
    JobAdded(JobHandle),
    JobChanged(JobProgress),
    JobRemoved(JobEnd),
}

impl ServerNotification {
    /// Encodes the notification as a frame.
    #[must_use]
    pub fn frame(&self) -> Bytes {
        match self {
            Self::StateChanged(params) => rpc::encode_notification(method::STATE_CHANGED, params),
            Self::ProcessCreated(params) => rpc::encode_notification(method::PROCESS_CREATED, params),
            Self::ProcessTerminated(params) => rpc::encode_notification(method::PROCESS_TERMINATED, params),
            Self::OutputAppended(params) => rpc::encode_notification(method::OUTPUT_APPENDED, params),
            Self::JobAdded(params) => rpc::encode_notification(method::JOB_ADDED, params),
            Self::JobChanged(params) => rpc::encode_notification(method::JOB_CHANGED, params),
            Self::JobRemoved(params) => rpc::encode_notification(method::JOB_REMOVED, params),
        }
    }
}
