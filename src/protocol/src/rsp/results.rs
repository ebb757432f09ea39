//! Parameters and results of requests.

use serde::{Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use super::{
    Attributes, Deployables, DeploymentOptions, JobProgress, LaunchMode, Registration, Runtimes,
    ServerActions, ServerAsJson, ServerCreation, ServerHandle, ServerState, ServerType, ServerUpdate,
    StartResult, Status, Workflow,
};
use crate::rpc::{RpcError, code};

/// Result of a request.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ServerResult {
    Registration(Registration),
    ServerTypes([ServerType; 1]),
    ServerHandles(Vec<ServerHandle>),
    ServerState(ServerState),
    LaunchModes(Vec<LaunchMode>),
    Attributes(Attributes),
    Start(StartResult),
    Status(Status),
    Jobs(Vec<JobProgress>),
    Runtimes(Runtimes),
    Deployables(Deployables),
    ServerActions(ServerActions),
    Creation(ServerCreation),
    Workflow(Workflow),
    AsJson(ServerAsJson),
    Update(Box<ServerUpdate>),
    DeploymentOptions(DeploymentOptions),
    /// An empty list, of any kind.
    EmptyList([(); 0]),
    Null,
}

/// Reads the parameters of a request. Absent parameters count as null.
///
/// # Errors
/// The parameters do not fit the method.
pub fn read_params<P: DeserializeOwned>(params: Option<&RawValue>) -> Result<P, RpcError> {
    serde_json::from_str(params.map_or("null", RawValue::get))
        .map_err(|error| RpcError::new(code::INVALID_PARAMS, format!("invalid params: {error}")))
}
